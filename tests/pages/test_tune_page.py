"""What docs/measurements.md and docs/tune.md conclude from the records of searches on a GPU."""

from __future__ import annotations

import json

import pytest

from benchmarks import measurements, shortcuts_page, tune_page, tune_search
from jobkit.answers.memory import memory_of
from jobkit.core.blocks import as_text
from jobkit.core.knobs import EXACT, SHORTCUTS
from jobkit.extensions.tune.answer import blocks
from jobkit.extensions.tune.search import Tuning
from jobkit.extensions.tune.steps import MEMORY

ABOVE_TEN = {"tune-20261123-075119-ff54", tune_page.TUNE.name}
"""The searches whose interval lies above ten times the plain loop."""


def test_the_tables_are_made_from_the_records() -> None:
    text = measurements.PAGE.read_text(encoding="utf-8")
    assert measurements.written(text) == text, "python -m benchmarks.measurements"
    assert {found[2] for found in measurements.PLACE.finditer(text)} == set(measurements.TABLES)


def test_the_readme_names_the_latest_search_with_its_interval_and_the_page_has_its_answer() -> None:
    *_, latest = shortcuts_page.searches()
    readme = (measurements.PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"{latest[3]} times as fast as a plain loop ({latest[4]})" in readme
    page = measurements.PAGE.with_name("tune.md").read_text(encoding="utf-8")
    assert f"```text\n{shortcuts_page.answer()}\n```" in page


def test_with_shortcuts_the_answer_is_at_least_25_times_the_plain_loop() -> None:
    tuning = Tuning.read(shortcuts_page.SEARCH)
    assert tuning.setting["shortcuts"] == "exact"
    assert tuning.gain
    assert (tuning.gain.low or 0) >= 25
    assert tuning.held_s <= 600
    assert tuning.padding == pytest.approx((0.178, 0.172), abs=0.001)


def test_no_shortcut_changes_an_entity() -> None:
    for device in ("gpu", "cpu"):
        rows = json.loads((shortcuts_page.RAW / f"equal-{device}.json").read_text(encoding="utf-8"))
        assert rows
        for stock, exact in zip(rows[::2], rows[1::2], strict=True):
            assert (stock["batch_size"], stock["paragraphs"]) == (exact["batch_size"], exact["paragraphs"])
            assert len(stock["shortcuts"]) < len(exact["shortcuts"])
            assert stock["sha256"] == exact["sha256"]


@pytest.mark.parametrize("run", tune_page.MACHINES)
def test_a_search_kept_to_its_limits_and_its_mean_is_above_ten_times(run: str) -> None:
    tuning = Tuning.read(tune_page.TUNE.parent / run)
    assert len({str(one.params) for one, _ in tuning.results if one.phase == "search"}) <= 12
    assert tuning.held_s <= 600
    assert tuning.gain
    assert tuning.gain.mean > 10
    assert ((tuning.gain.low or 0) >= 10) == (run in ABOVE_TEN)
    assert "no difference is shown" in as_text(blocks(tune_page.TUNE, tuning))


def test_the_simulated_searches_meet_their_targets() -> None:
    raw = json.loads(tune_search.RAW.read_text(encoding="utf-8"))
    assert (raw["searches"], len(raw["rows"])) == (300, 9)
    for row in raw["rows"]:
        now, before = row["now"], row["before"]
        assert now["near_or_loop"] >= {0.05: 0.95, 0.15: 0.95, 0.3: 0.8}[row["scatter"]]
        assert now["slower"] <= 0.05
        assert now["held"] >= 0.95
        assert now["points_most"] <= 2 * tune_search.TODAY.most_points
        assert now["points_mean"] <= 2 * before["points_mean"]


LEAST = [*zip(tune_search.SHAPES, (0.15, 0.3, 0.3), (0.88, 0.65, 0.65), strict=True)]


@pytest.mark.parametrize(("shape", "scatter", "least"), LEAST)
def test_the_search_keeps_what_the_table_says(shape: tune_search.Shape, scatter: float, least: float) -> None:
    """Of fewer searches, with another seed: three standard deviations less than the target."""
    found = tune_search.cell(tune_search.simulate(shape, scatter, tune_search.GOAL_NOW, 60, seed=1))
    assert found["near_or_loop"] >= least
    assert found["slower"] <= 0.1
    assert found["held"] >= 0.88


def test_the_instruments_of_energy_agree_over_a_minute() -> None:
    records = [record for record in tune_page.read(tune_page.ENERGY) if record.energy]
    long = [one for one in records if one.energy and (one.energy.span_s or 0) >= tune_page.LEAST_S]
    assert len(long) == 2
    assert all(abs(tune_page.difference(one)) <= 0.2 + 0.05 for one in long)


def test_no_need_with_shortcuts_is_above_its_bound() -> None:
    tuning = Tuning.read(shortcuts_page.SEARCH)
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
