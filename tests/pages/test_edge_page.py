"""The largest batches in the records of docs/measurements.md, and what the fit says of them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.edge_records import LOAD, TIGHT, Cell, cells, fit_now, reports, smaller

READ = reports()
CELLS = [cell for report in READ for cell in cells(report)]
RAW = [(report, raw) for report in READ for raw in report["cells"]]


def named(cell: Cell) -> str:
    return f"{cell.allocator}-{cell.order}-{cell.paragraphs}-{cell.cap_gib:g}"


@pytest.mark.parametrize("cell", CELLS, ids=named)
def test_the_safe_bound_of_then_and_of_today_passed(cell: Cell) -> None:
    assert cell.holds
    assert len(cell.held_bytes) == 1, "all trials began alike"
    assert cell.now <= 1 or cell.saturated


@pytest.mark.parametrize(("report", "raw"), RAW, ids=map(named, CELLS))
def test_the_line_is_still_the_one_that_was_tried(report: dict[str, Any], raw: dict[str, Any]) -> None:
    told = raw["prediction"]
    now = fit_now(report["order"], told)
    assert now.largest(told["capacity_bytes"]) == pytest.approx(told["largest_load"])


@pytest.mark.parametrize("report", [one for one in READ if one["order"] == LOAD], ids=lambda one: one["text"])
def test_larger_points_bring_a_small_cap_near_the_truth(report: dict[str, Any]) -> None:
    found = smaller(report)
    assert TIGHT < found.bound[1] <= 1
    assert found.bound[1] > found.bound[0]
