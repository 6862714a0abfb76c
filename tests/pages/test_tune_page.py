"""What docs/measurements.md and docs/tune.md conclude from the records of searches on a GPU."""

from __future__ import annotations

import pytest

from benchmarks import measurements, tune_search
from jobkit.answers.memory import memory_of
from jobkit.core.knobs import EXACT, SHORTCUTS
from jobkit.extensions.tune.measured import MEMORY
from jobkit.extensions.tune.search import Tuning


def test_the_tables_are_made_from_the_records() -> None:
    text = measurements.PAGE.read_text(encoding="utf-8")
    assert measurements.written(text) == text, "python -m benchmarks.measurements"
    assert {found[2] for found in measurements.PLACE.finditer(text)} == set(measurements.TABLES)


def test_the_readme_names_the_latest_search_with_its_interval_and_the_page_has_its_answer() -> None:
    *_, latest = measurements.shortcut_searches()
    readme = (measurements.PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    times, interval = latest[3].split(" ", 1)
    assert f"{times} times as fast as a plain loop {interval}" in readme
    page = measurements.PAGE.with_name("tune.md").read_text(encoding="utf-8")
    assert f"```text\n{measurements.answer()}\n```" in page


LEAST = [*zip(tune_search.SHAPES, (0.15, 0.3, 0.3), (0.88, 0.65, 0.65), strict=True)]


@pytest.mark.parametrize(("shape", "scatter", "least"), LEAST)
def test_the_search_keeps_what_the_table_says(shape: tune_search.Shape, scatter: float, least: float) -> None:
    """Of fewer searches, with another seed: three standard deviations less than the target."""
    found = tune_search.cell(tune_search.simulate(shape, scatter, tune_search.GOAL_NOW, 60, seed=1))
    assert found["near_or_loop"] >= least
    assert found["slower"] <= 0.1
    assert found["held"] >= 0.88


def test_a_short_search_keeps_its_budget_and_finds_nearly_the_fastest() -> None:
    shape, goal = tune_search.STARTED[0]
    found = tune_search.cell(tune_search.simulate(shape, 0.05, goal, 60, seed=1))
    assert found["seconds_most"] <= goal.budget_s == 150
    assert (found["settings_most"] <= 16, found["nearer"] >= 0.85) == (True, True)


def test_no_need_with_shortcuts_is_above_its_bound() -> None:
    tuning = Tuning.read(measurements.SEARCH)
    memory = memory_of(tuning.records(MEMORY))
    assert not isinstance(memory, str)
    assert not isinstance(memory.line, str)
    needs = [
        result.record.needs[0]
        for one, result in tuning.results
        if result.record and result.record.needs and one.params[SHORTCUTS] == EXACT
    ]
    assert needs
    assert all((need.passed_bytes or 0) <= memory.line.upper(need.load) for need in needs)
