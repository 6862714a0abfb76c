"""What docs/measurements.md concludes from its records: of memory, of soaks, and of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.edge_records import LOAD, TIGHT, Cell, cells, fit_now, reports, smaller
from jobkit.answers.loads import read_lengths
from jobkit.answers.memory import Prediction, memory_of
from jobkit.runs.results import read_run
from jobkit.runs.trials import trials

READ = reports()
CELLS = [
    pytest.param(cell, raw, report, id=f"{cell.allocator}-{cell.order}-{cell.paragraphs}-{cell.cap_gib:g}")
    for report in READ
    for cell, raw in zip(cells(report), report["cells"], strict=True)
]


@pytest.mark.parametrize(("cell", "raw", "report"), CELLS)
def test_the_safe_bound_of_then_and_of_today_passed(
    cell: Cell, raw: dict[str, Any], report: dict[str, Any]
) -> None:
    assert cell.holds
    assert len(cell.held_bytes) == 1, "all trials began alike"
    assert cell.now <= 1 or cell.saturated
    said = raw["prediction"]
    line = fit_now(report["order"], said)
    assert line.largest(said["capacity_bytes"]) == pytest.approx(said["largest_load"]), "as it was tried"


def test_larger_points_bring_a_small_cap_near_the_truth() -> None:
    for found in [smaller(report) for report in READ if report["order"] == LOAD]:
        assert TIGHT < found.bound[1] <= 1
        assert found.bound[1] > found.bound[0]


ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "benchmarks" / "records" / "find-max").iterdir())
EARLIER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-071153-d67e")
"""Run before the bound added a share of what lies beyond the largest load measured."""
LATER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-084431-ad94")
TODAY = [run for run in RUNS if run != EARLIER]


def predicted(run: Path) -> Prediction:
    """Return what the code of today predicts from the sweep, without the points that tried a prediction."""
    results = [point for point in read_run(run).points if not point.point.point_id.endswith("-verify")]
    records = [result.record for result in results if result.record]
    memory = memory_of(records, lengths=read_lengths(run))
    assert not isinstance(memory, str)
    return memory.predict(trials(run)[0].capacity_bytes)


@pytest.mark.parametrize("run", TODAY, ids=lambda run: run.name)
def test_the_first_try_held_and_todays_bound_names_no_more_and_hardly_less(run: Path) -> None:
    (tried,) = trials(run)
    found = predicted(run)
    assert tried.held
    assert 0.998 * tried.batch_size < found.safe_batch <= tried.batch_size
    assert found.expected_bytes == pytest.approx(tried.expected_bytes, rel=2e-3)
    assert found.bound_bytes == pytest.approx(tried.bound_bytes, rel=2e-3)


def test_todays_bound_names_less_than_what_once_failed() -> None:
    failed, held = trials(EARLIER)
    assert (failed.held, held.held) == (False, True)
    names = {predicted(run).safe_batch for run in (EARLIER, LATER)}
    assert len(names) == 1
    assert max(names) < failed.batch_size
