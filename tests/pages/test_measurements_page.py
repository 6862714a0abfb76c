"""What docs/measurements.md concludes from the searches for the largest batch in benchmarks/records/edge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.archives import RECORDS
from jobkit.answers.memory_line import Fit, Observation, fit_memory

TIGHT = 0.95
"""The least share of the largest batch that fits that a bound should reach."""
REPORTS = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((RECORDS / "edge").glob("*.json"))]
CELLS = [
    pytest.param(
        report["order"],
        cell,
        id=f"{report['allocator']}-{report['order']}-{report['paragraphs']}-{cell['cap_gib']:g}",
    )
    for report in REPORTS
    for cell in report["cells"]
]


def fit_now(order: str, told: dict[str, Any]) -> Fit:
    """Return what the fit says today of the points that a prediction rested on."""
    observations = []
    for point in told["points"]:
        for need in point["needs"]:
            size = need["passed_bytes"] if order == "load" else need["allocated_bytes"] * told["slack"]
            observations.append(Observation(need["load"], size, str(point["batch"])))
    fit = fit_memory(observations, in_steps=order == "load")
    assert not isinstance(fit, str)
    return fit


@pytest.mark.parametrize(("order", "cell"), CELLS)
def test_the_safe_bound_of_today_is_at_most_the_largest_batch_that_passed(
    order: str, cell: dict[str, Any]
) -> None:
    said = cell["prediction"]
    fit = fit_now(order, said)
    assert fit.safe_load(said["capacity_bytes"]) <= cell["truth_load"] or cell["saturated"]
    assert fit.largest(said["capacity_bytes"]) == pytest.approx(said["largest_load"]), "as it was tried"


def test_larger_points_bring_a_small_cap_near_the_truth() -> None:
    """Under 4 GiB, by the points of its own cell, and by those of the cell with twice the memory."""
    for cells in (report["cells"] for report in REPORTS if report["order"] == "load"):
        by_cap = {cell["cap_gib"]: cell for cell in cells}
        small = by_cap[4.0]
        own, wide = (
            fit_now("load", by_cap[cap]["prediction"]).safe_load(small["prediction"]["capacity_bytes"])
            for cap in (4.0, 8.0)
        )
        assert TIGHT * small["truth_load"] < wide <= small["truth_load"]
        assert wide > own
