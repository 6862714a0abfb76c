"""What docs/benchmarks-tune.md and docs/tune.md report of a search on a GPU is what its records hold."""

from __future__ import annotations

import pytest

from benchmarks import tune_page
from jobkit.fit.tune import read_tuning
from jobkit.report.tune import as_text

DOCS = tune_page.ROOT / "docs"
ABOVE_TEN = {"tune-20261123-075119-ff54", tune_page.TUNE.name}
"""The searches whose interval lies above ten times the plain loop."""


def test_the_page_is_made_from_the_records() -> None:
    assert (DOCS / "benchmarks-tune.md").read_text(encoding="utf-8") == tune_page.page()


def test_the_example_is_the_answer_of_that_search() -> None:
    assert f"```text\n{tune_page.answer()}\n```" in (DOCS / "tune.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("run", tune_page.MACHINES)
def test_a_search_kept_to_its_limits_and_its_mean_is_above_ten_times(run: str) -> None:
    tuning = read_tuning(tune_page.TUNE.parent / run)
    assert len({str(one.params) for one, _ in tuning.results if one.phase == "search"}) <= 12
    assert tuning.held_s <= 600
    assert tuning.gain
    assert tuning.gain.low
    assert tuning.gain.mean > 10
    assert (tuning.gain.low >= 10) == (run in ABOVE_TEN)
    assert "no difference is shown" in as_text(tune_page.TUNE, tuning)


def test_the_instruments_of_energy_agree_over_a_minute() -> None:
    records = [record for record in tune_page.read(tune_page.ENERGY) if record.energy]
    long = [one for one in records if one.energy and (one.energy.span_s or 0) >= tune_page.LEAST_S]
    assert len(long) == 2
    assert all(abs(tune_page.difference(one)) <= 5 for one in long)
