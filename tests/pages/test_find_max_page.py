"""The predictions of the run folders that docs/measurements.md quotes, by the code as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.answers import memory_line as fit
from jobkit.answers.loads import read_lengths
from jobkit.answers.memory import Memory, Prediction, memory_of
from jobkit.runs.results import read_run
from jobkit.runs.trials import Trial, trials

ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "benchmarks" / "records" / "find-max").iterdir())
EARLIER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-071153-d67e")
"""Run before the bound added a share of what lies beyond the largest load measured (`fit.UNSEEN`)."""
LATER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-084431-ad94")
TODAY = [run for run in RUNS if run != EARLIER]


def memory_of_sweep(run: Path) -> Memory:
    """Return what the points of the sweep reported, without those that tried the prediction."""
    results = [point for point in read_run(run).points if not point.point.point_id.endswith("-verify")]
    records = [result.chosen.record for result in results if result.chosen and result.chosen.record]
    memory = memory_of(records, lengths=read_lengths(run))
    assert not isinstance(memory, str)
    return memory


def predicted(run: Path) -> Prediction:
    """Return what the code as it is now predicts from the points of the sweep."""
    return memory_of_sweep(run).predict(trials(run)[0].capacity_bytes)


def only_trial(run: Path) -> tuple[Trial, int]:
    """Return the one try of a run, and the bytes that it needed."""
    (one,) = trials(run)
    assert one.measured_bytes is not None
    return one, one.measured_bytes


@pytest.mark.parametrize("run", TODAY, ids=lambda run: run.name)
def test_the_first_try_held_and_todays_bound_names_no_more_and_hardly_less(run: Path) -> None:
    tried, _ = only_trial(run)
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


def test_without_the_share_the_bound_would_name_more_than_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "EXTRAPOLATION_MARGIN", 0.0)
    names = {predicted(run).safe_batch for run in (EARLIER, LATER)}
    assert len(names) == 1
    assert max(names) > only_trial(LATER)[0].batch_size
    line, (tried, needed) = memory_of_sweep(LATER).line, only_trial(LATER)
    assert not isinstance(line, str)
    assert needed > line.upper(tried.load)
