"""What docs/benchmarks-tune.md and docs/tune.md report of a search on a GPU is what its records hold."""

from __future__ import annotations

from benchmarks import tune_page
from jobkit.fit.tune import read_tuning

DOCS = tune_page.ROOT / "docs"


def test_the_page_is_made_from_the_records() -> None:
    assert (DOCS / "benchmarks-tune.md").read_text(encoding="utf-8") == tune_page.page()


def test_the_example_is_the_answer_of_that_search() -> None:
    assert f"```text\n{tune_page.answer()}\n```" in (DOCS / "tune.md").read_text(encoding="utf-8")


def test_the_search_kept_to_its_limits() -> None:
    tuning = read_tuning(tune_page.TUNE)
    assert len({str(one.params) for one, _ in tuning.results if one.phase == "search"}) <= 12
    assert tuning.held_s <= 600


def test_the_instruments_of_energy_agree_over_a_minute() -> None:
    records = [record for record in tune_page.read(tune_page.ENERGY) if record.energy]
    long = [one for one in records if one.energy and (one.energy.span_s or 0) >= tune_page.LEAST_S]
    assert len(long) == 2
    assert all(abs(tune_page.difference(one)) <= 5 for one in long)
