"""The job of a search, on run folders whose records a machine of the test makes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from jobkit.answers.loads import Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.layout import LENGTHS_FILE, SETTING_FILE, TUNE_GOAL_FILE, Exit, read_points
from jobkit.core.records import Outcome
from jobkit.extensions.tune.search import main, next_point
from jobkit.extensions.tune.steps import FINAL, MEMORY, SEARCH, Candidate, TuneAnswer
from jobkit.extensions.tune.tuning import Tuning, first_point
from jobkit.runs.journal import Role
from jobkit.runs.kinds import kind_of
from tests.support.builders import point, write_exit, write_record
from tests.support.machines import FAST, GOAL, ITEMS, LOOP, Machine, search


def test_points_are_appended_as_they_are_chosen_and_the_setting_is_written_at_the_end(tmp_path: Path) -> None:
    run = search(tmp_path, Machine())
    points, notes = read_points(run)
    assert ([one.index for one in points], notes) == ([*range(1, len(points) + 1)], ())
    assert len({one.point_id for one in points}) == len(points)
    assert [one.phase for one in points][:4] == [MEMORY] * 4
    best = next(one for one in points if one.phase == FINAL and one.params != LOOP)
    assert (best.workers, best.order, best.mps, best.every) == (16, "sorted", "auto", 1)
    assert next_point(run) is None
    assert (kind_of(run).finished(run), kind_of(run).awaited(run)) == (True, None)
    assert yaml.safe_load((run / SETTING_FILE).read_text()) == {
        "order": "sorted",
        "workers": 16,
        "mps": True,  # YAML 1.1; jobkit reads `on` as the word
        "work_unit": 100,
        "resources": {"cpus": 1},
        "sweep": {"padded_chars": [16_000]},
    }


def test_the_gain_is_over_the_plain_loop(tmp_path: Path) -> None:
    tuning = Tuning.read(search(tmp_path, Machine()))
    assert isinstance(tuning.next, TuneAnswer)
    assert tuning.winner
    assert tuning.gain
    assert tuning.gain.mean == pytest.approx(16 * 1.1 / 0.8)
    assert tuning.second
    assert tuning.second.params["padded_chars"] == 4_000 or tuning.second.params["padded_chars"] == 32_000


def test_a_search_says_what_is_next_while_it_goes_on(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(), most=6)
    tuning = Tuning.read(run)
    assert isinstance(tuning.next, Candidate)
    assert (tuning.next.workers, tuning.winner, tuning.gain) == (8, None, None)
    assert not (run / SETTING_FILE).exists()
    assert (kind_of(run).finished(run), kind_of(run).awaited(run)) == (False, Role.TUNE)


@pytest.mark.parametrize("left", [None, Outcome.CANCELLED])
def test_a_point_that_was_killed_runs_again_three_times_at_most(tmp_path: Path, left: Outcome | None) -> None:
    run = search(tmp_path, Machine(), most=0)
    for _ in range(2):
        first = next_point(run)
        assert first
        for number in (1, 2, 3):
            assert next_point(run) == first
            if left:
                record = Machine().run(Candidate(first.params, first.phase)).record
                assert record
                write_record(run, replace(record, point=first, try_number=number, outcome=left))
            else:
                write_exit(run, first, Exit(status=137, stage="run"), number)
    assert next_point(run) is None
    assert "found no setting" in (run / SETTING_FILE).read_text()


def test_two_failures_that_another_try_would_repeat_end_the_search(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(), most=0)
    for _ in range(2):
        point = next_point(run)
        assert point
        record = Machine().run(Candidate(point.params, point.phase)).record
        assert record
        write_record(run, replace(record, point=point, outcome=Outcome.BUG, message="no module torch"))
    assert next_point(run) is None
    assert "ended as bug: no module torch" in (run / SETTING_FILE).read_text()


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match=r"tune\.json: No such file") as caught:
        Tuning.read(tmp_path)
    assert caught.value.hint == "jobkit tune SPEC makes such a run"


def test_the_job_prints_the_number_of_the_next_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = search(tmp_path, Machine(), most=4)
    monkeypatch.setattr(sys, "argv", ["tune", str(run)])
    assert main() == 0
    out, err = capsys.readouterr()
    assert out == "5\n"
    assert err.startswith("tune: point 5, search: order sorted, padded_chars 16,000, workers 2")
    monkeypatch.setattr(sys, "argv", ["tune", str(tmp_path)])
    assert main() == 1
    assert capsys.readouterr().err.startswith("tune: ")


def test_the_first_point_has_the_first_setting_of_the_memory_line() -> None:
    first = first_point(point(params={}), GOAL)
    assert (first.index, first.phase, first.params["padded_chars"]) == (1, MEMORY, 4_000)


def test_the_setting_has_its_shortcuts_and_the_plain_loop_none(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(), FAST)
    assert "\nshortcuts: exact\n" in (run / SETTING_FILE).read_text()
    points, _ = read_points(run)
    loops = {one.shortcuts for one in points if one.phase == FINAL and one.params.get("batch_size")}
    assert (loops, points[0].shortcuts) == ({"off"}, "exact")
    assert Tuning.read(run).setting["shortcuts"] == "exact"


def test_shortcuts_that_are_refused_leave_a_setting_without(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(refuses=(MEMORY, SEARCH, FINAL)), FAST)
    assert "\nshortcuts: off\n" in (run / SETTING_FILE).read_text()
    tuning = Tuning.read(run)
    assert {one.shortcuts for _, result in tuning.results[1:] for one in [result.point]} == {"off"}
    assert tuning.winner
    assert tuning.winner.params["workers"] == 16


@pytest.mark.parametrize("looks", [0, 3])
def test_a_finalist_that_ran_without_its_shortcuts_is_no_answer(tmp_path: Path, looks: int) -> None:
    run = search(tmp_path, Machine(refuses=(FINAL,)), replace(FAST, looks=looks, most_repeats=3))
    tuning = Tuning.read(run)
    assert "refused" not in (run / SETTING_FILE).read_text()
    assert (tuning.is_loop, tuning.best, tuning.second) == (bool(looks), None, None)
    assert bool(tuning.setting) == bool(looks)


def test_a_goal_of_an_earlier_version_reads_as_before(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(), GOAL)
    before = Tuning.read(run)
    path = run / TUNE_GOAL_FILE
    data = json.loads(path.read_text())
    del data["shortcuts"]
    path.write_text(json.dumps(data))
    again = Tuning.read(run)
    assert (again.goal, again.next, again.setting) == (before.goal, before.next, before.setting)
    assert (again.goal, again.padding) == (GOAL, None)
    assert "shortcuts" not in (run / SETTING_FILE).read_text()


# -- the padding of the plain loop on its part of the text

LENGTHS = Lengths(paragraphs=tuple((20 + 40 * (n % 3), 30) for n in range(ITEMS)))
SHORT = replace(FAST, budget_s=300)


def padding_of(run: Path, lengths: Lengths | None) -> tuple[float, float] | None:
    """Return what is known of it if the run has these lengths."""
    if lengths:
        (run / LENGTHS_FILE).write_text(lengths.to_json())
    return Tuning.read(run).padding


def test_the_padding_of_a_loop_on_a_part_is_that_of_its_part(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(exact=2.0), SHORT)
    part = Tuning.read(run).finals.plain
    assert part
    every = part.params["every"]
    assert isinstance(every, int)
    found = padding_of(run, LENGTHS)
    assert found == (
        Loads(LENGTHS.every(every)).chunks(300).efficiency,
        Loads(LENGTHS).chunks(300).efficiency,
    )
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "lengths", [None, replace(LENGTHS, padded=False), Lengths.unknown(ITEMS)], ids=["none", "flat", "unknown"]
)
def test_without_padding_or_lengths_there_is_none(tmp_path: Path, lengths: Lengths | None) -> None:
    assert padding_of(search(tmp_path, Machine(exact=2.0), SHORT), lengths) is None


def test_on_the_whole_text_or_before_the_end_there_is_none(tmp_path: Path) -> None:
    assert padding_of(search(tmp_path / "whole", Machine(exact=2.0), FAST), LENGTHS) is None
    assert padding_of(search(tmp_path / "open", Machine(exact=2.0), SHORT, most=20), LENGTHS) is None
