"""What docs/measurements.md concludes from its records: of memory, of soaks, and of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.archives import RECORDS
from jobkit.answers.loads import read_lengths
from jobkit.answers.memory import Prediction, memory_of
from jobkit.answers.memory_line import Fit, Observation, fit_memory
from jobkit.runs.results import read_run
from jobkit.runs.trials import trials

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


RUNS = sorted((RECORDS / "find-max").iterdir())
EARLIER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-071153-d67e")
"""Run before the bound added a share of what lies beyond the largest load measured."""
LATER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-084431-ad94")
TODAY = [run for run in RUNS if run != EARLIER]


def predicted(run: Path) -> Prediction:
    """Return what the code of today predicts from the sweep, without the points that tried a prediction."""
    results = [point for point in read_run(run).points if not point.point.point_id.endswith("-verify")]
    records = [result.chosen.record for result in results if result.chosen and result.chosen.record]
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
