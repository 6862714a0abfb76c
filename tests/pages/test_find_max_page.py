"""docs/find-max.md is held to the run folders that it quotes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobkit.core.units import format_bytes_gib
from jobkit.fit import memory_line as fit
from jobkit.fit.lengths import read_lengths
from jobkit.fit.memory import Memory, Prediction, memory_of
from jobkit.outcome.results import read_run
from jobkit.outcome.trials import Trial, describe_trials, trials

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "find-max.md").read_text(encoding="utf-8")
RUNS = sorted((ROOT / "benchmarks" / "records" / "find-max").iterdir())
EARLIER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-071153-d67e")
"""Run before the bound added a share of what lies beyond the largest load measured (`fit.UNSEEN`)."""
LATER = next(run for run in RUNS if run.name == "capped-16GiB-20261121-084431-ad94")
TODAY = [run for run in RUNS if run != EARLIER]
MIB = 1024**2


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


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_was_tried_stands_on_the_page(run: Path) -> None:
    told = describe_trials(trials(run))
    assert told
    for line in told:
        assert f"`{line}`" in PAGE


@pytest.mark.parametrize("run", TODAY, ids=lambda run: run.name)
def test_the_first_try_held_and_todays_bound_names_no_more_and_hardly_less(run: Path) -> None:
    tried, _ = only_trial(run)
    found = predicted(run)
    assert tried.held
    assert 0.998 * tried.batch_size < found.safe_batch <= tried.batch_size
    assert found.expected_bytes == pytest.approx(tried.expected_bytes, rel=2e-3)
    assert found.bound_bytes == pytest.approx(tried.bound_bytes, rel=2e-3)


def test_the_page_says_how_narrowly_the_largest_held() -> None:
    tried, needed = only_trial(LATER)
    below_bound, free = tried.bound_bytes - needed, tried.capacity_bytes - needed
    assert f"{below_bound / MIB:.0f} MiB less than the bound" in PAGE
    assert f"{free / MIB:.0f} MiB less than the limit" in PAGE


def test_todays_bound_names_less_than_what_once_failed() -> None:
    failed, held = trials(EARLIER)
    assert (failed.held, held.held) == (False, True)
    assert f"that bound was {format_bytes_gib(failed.bound_bytes)}" in PAGE
    names = {predicted(run).safe_batch for run in (EARLIER, LATER)}
    assert len(names) == 1
    assert max(names) < failed.batch_size
    assert f"without the 0.5 % and {max(names):,} with it" in PAGE


def test_the_page_says_what_pytorch_would_have_taken() -> None:
    (point,) = (point for point in read_run(EARLIER).points if point.point.index == trials(EARLIER)[0].index)
    assert point.chosen
    assert point.chosen.record
    found = re.search(
        r"allocate ([\d.]+) GiB.* memory ([\d.]+) GiB is allocated by PyTorch, and ([\d.]+) MiB is reserved",
        point.chosen.record.message,
    )
    assert found
    asked, allocated, reserved = map(float, found.groups())
    assert f"on its way to {asked + allocated + reserved / 1024:.2f}." in PAGE


def test_without_the_share_the_bound_would_name_more_than_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "EXTRAPOLATION_MARGIN", 0.0)
    names = {predicted(run).safe_batch for run in (EARLIER, LATER)}
    assert f"{max(names):,} without the 0.5 %" in PAGE
    assert len(names) == 1
    assert max(names) > only_trial(LATER)[0].batch_size
    line, (tried, needed) = memory_of_sweep(LATER).line, only_trial(LATER)
    assert not isinstance(line, str)
    assert f"needed {(needed - line.upper(tried.load)) / MIB:.0f} MiB more than today's bound without" in PAGE


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_context_is_as_large_as_the_page_says(run: Path) -> None:
    for one in read_run(run).points:
        assert one.chosen
        assert one.chosen.record
        context = one.chosen.record.memory.context_bytes
        assert context is not None
        assert f"({format_bytes_gib(context)} on an H200)" in PAGE
