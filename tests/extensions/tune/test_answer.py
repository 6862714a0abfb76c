"""A search in its run folder, whose records a machine of the test makes: its points, and its answer."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobkit.answers.objective import Bound, Objective
from jobkit.core.layout import SETTING_FILE, Exit, read_points
from jobkit.core.measurements import Metric
from jobkit.core.records import Outcome
from jobkit.extensions.tune.goal import TuneGoal
from jobkit.extensions.tune.measured import FINAL, MEMORY, SEARCH, Candidate, MeasuredCandidate
from jobkit.extensions.tune.search import main, propose_point
from jobkit.runs.journal import Role
from jobkit.runs.search_loop import next_point
from jobkit.runs.status import kind_of
from tests.support.builders import write_exit, write_record
from tests.support.commands import jobkit
from tests.support.machines import FAST, GOAL, LOOP, Machine, search

NOW = replace(GOAL, most_repeats=9, looks=3, again=12)
IN_USE = "The setting: order sorted, padded 16,000, workers 16, mps on"


def told(run: Path) -> str:
    return " ".join(jobkit("tune", run).stdout.split())


def data_of(run: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(jobkit("tune", run, "--json").stdout)
    return data


def bounded(goal: TuneGoal = GOAL, **bounds: Bound) -> TuneGoal:
    return replace(goal, objective=Objective(bounds=bounds))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of a search that has ended, for tests that only read it."""
    return search(tmp_path_factory.mktemp("ended"), Machine())


def test_points_are_appended_as_they_are_chosen_and_the_setting_is_written_at_the_end(ended: Path) -> None:
    points, notes = read_points(ended)
    assert ([one.index for one in points], notes) == ([*range(1, len(points) + 1)], ())
    assert len({one.point_id for one in points}) == len(points)
    assert [(one.phase, one.params["padded"]) for one in points[:2]] == [
        (MEMORY, 4000),
        (MEMORY, 16000),
    ]
    best = next(one for one in points if one.phase == FINAL and one.params != LOOP)
    assert (best.workers, best.order, best.mps, best.every) == (16, "sorted", "auto", 1)
    assert next_point(ended, propose_point) is None
    assert (kind_of(ended).finished(ended), kind_of(ended).awaited(ended)) == (True, None)
    assert yaml.safe_load((ended / SETTING_FILE).read_text()) == {
        "order": "sorted",
        "workers": 16,
        "mps": True,  # YAML 1.1; jobkit reads `on` as the word
        "work_unit": 100,
        "resources": {"cpus": 1},
        "sweep": {"padded": [16_000]},
    }


def test_the_answer_has_gain_and_limit_for_people_and_programs(ended: Path) -> None:
    text, data = told(ended), data_of(ended)
    assert "speed 22.00 times (22.00 to 22.00 with 95 % confidence) as fast as the plain loop" in text
    assert "energy 156.2 J for 1,000 items, the plain loop 3,437.5 J" in text
    assert "60 of 72 combinations, assumed: text order, which pads 3.0 times as much by the text" in text
    hours = "720,000 with 1, 1,400,000 with 2, 2,900,000 with 4, 5,800,000 with 8, 12,000,000 with 16"
    assert f"GPU-hour paragraphs by the CPUs of the job, as measured on the way: {hours}" in text
    assert (data["ended"], data["limit"], data["setting"]["workers"]) == (True, "cores", 16)
    assert data["times_the_plain_loop"]["mean"] == pytest.approx(16 * 1.1 / 0.8)
    assert len(data["points"]) == 21
    assert (data["conditions"]["order"], data["conditions"]["workers"]) == ("sorted", 16)


def test_a_search_under_way_has_its_next_point_and_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = search(tmp_path, Machine(), most=5)
    text = told(run)
    assert "The search has not ended. Next, search: order sorted, padded 16,000, workers 4" in text
    assert f"jobkit resume {run}" in text
    data = data_of(run)
    assert (data["ended"], data["setting"], data["why"]) == (False, None, None)
    assert (kind_of(run).finished(run), kind_of(run).awaited(run)) == (False, Role.TUNE)
    assert not (run / SETTING_FILE).exists()
    monkeypatch.setattr(sys, "argv", ["tune", str(run)])
    assert main() == 0, "what the job asks"
    out, err = capsys.readouterr()
    assert out == "6\n"
    assert err.startswith("tune: point 6, search: order sorted, padded 16,000, workers 4")
    monkeypatch.setattr(sys, "argv", ["tune", str(tmp_path)])
    assert main() == 1
    assert capsys.readouterr().err.startswith("tune: ")


@pytest.mark.parametrize(
    ("left", "tries", "said"),
    [
        (None, 3, "found no setting"),
        (Outcome.CANCELLED, 3, "found no setting"),
        (Outcome.BUG, 1, "ended as bug: no module torch"),
    ],
)
def test_two_points_without_result_end_it(
    tmp_path: Path, left: Outcome | None, tries: int, said: str
) -> None:
    run = search(tmp_path, Machine(), most=0)
    for _ in range(2):
        first = next_point(run, propose_point)
        assert first
        for number in range(1, tries + 1):
            assert next_point(run, propose_point) == first
            if left:
                record = Machine().run(Candidate(first.params, first.phase)).record
                assert record
                changed = replace(record, point=first, try_number=number, message="no module torch")
                write_record(run, replace(changed, outcome=left))
            else:
                write_exit(run, first, Exit(status=137, stage="run"), number)
    assert next_point(run, propose_point) is None
    assert said in (run / SETTING_FILE).read_text()


@pytest.mark.parametrize(
    ("noise", "items", "change"),
    [
        (0.2, 80_000, "--set tune.budget=00:20:00 --set tune.repeats=6"),
        (0.2, 400, "--set text=FILE # of 38,000 paragraphs"),
        (0.01, 80_000, ""),
    ],
)
def test_an_open_answer_names_the_command_that_may_close_it(
    tmp_path: Path, noise: float, items: int, change: str
) -> None:
    text = told(search(tmp_path, Machine(noise=noise, items=items), replace(NOW, budget_s=600)))
    _, found, rest = text.partition("; for a clearer answer: jobkit tune ")
    assert bool(found) == bool(change)
    assert rest.partition("/sweep.yaml --stand-in ")[2].startswith(change)


# -- shortcuts, and the part of the text that the plain loop works on


@pytest.mark.parametrize("refuses", [(MEMORY,), (MEMORY, SEARCH, FINAL)])
def test_shortcuts_that_are_refused_leave_a_setting_without(tmp_path: Path, refuses: tuple[str, ...]) -> None:
    run = search(tmp_path, Machine(refuses=refuses), FAST)
    assert "\nshortcuts: off\n" in (run / SETTING_FILE).read_text()
    assert {one.shortcuts for one in read_points(run)[0][1:]} == {"off"}
    assert f"{IN_USE}, shortcuts off" in told(run)


def test_a_finalist_that_ran_without_its_shortcuts_is_no_answer(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(refuses=(FINAL,)), replace(FAST, looks=3, most_repeats=3))
    assert "refused" not in (run / SETTING_FILE).read_text()
    data = data_of(run)
    assert (data["plain_loop"], bool(data["setting"]), data["best_other"]) == (True, True, None)


# -- constraints, and other objectives


def reporting(folder: Path, goal: TuneGoal, *, items: bool = True) -> Path:
    """Return a run folder of a search whose workload reports f1, lower with a larger size."""

    class Reporting(Machine):
        def run(self, candidate: Candidate) -> MeasuredCandidate:
            result = super().run(candidate)
            assert result.record
            assert result.record.summary
            summary = result.record.summary if items else replace(result.record.summary, items=0)
            size = candidate.params.get("padded", 1_000)
            assert isinstance(size, int)
            metrics = {"f1": Metric(value=1 - size / 100_000), "read": Metric(value=1.0, unit="MB/s")}
            return replace(result, record=replace(result.record, summary=summary, metrics=metrics))

    return search(folder, Reporting(), goal)


def test_another_objective_chooses_the_winner_and_every_figure_has_a_column(tmp_path: Path) -> None:
    goal = replace(GOAL, objective=Objective(metric="f1", direction="max", bounds={"f1": Bound(max=0.95)}))
    run = reporting(tmp_path, goal)
    text = told(run)
    assert "paragraphs/s f1 read [MB/s]" in text
    assert "The setting: order sorted, padded 16,000, workers 16" in text
    assert "objective f1 0.84 ± 0 (n=3), the plain loop 0.99 ± 0 (n=3)" in text
    assert "f1 0.96 is over 0.95" in text
    objective = data_of(run)["objective"]
    assert (objective["metric"], objective["mean"]) == ("f1", pytest.approx(0.84))


def test_without_items_the_speed_is_blank(tmp_path: Path) -> None:
    goal = replace(GOAL, objective=Objective(metric="f1", direction="max"))
    run = reporting(tmp_path / "found", goal, items=False)
    assert "paragraphs/s" not in told(run)
    assert data_of(run)["items_per_s"] is None
    nothing = told(reporting(tmp_path / "none", GOAL, items=False))
    assert "No setting was found: the workload reports no items" in nothing


def test_without_a_finalist_that_keeps_the_constraints_the_plain_loop_is_left(tmp_path: Path) -> None:
    run = reporting(tmp_path, bounded(NOW, f1=Bound(min=0.98)))  # at the smallest size it is 0.96
    text, data = told(run), data_of(run)
    assert "The setting: batch_size 300, mps off, order text, workers 1 (the plain loop)" in text
    assert "others no other setting succeeded on the same text" in text
    assert (data["plain_loop"], data["setting"], data["times_the_plain_loop"]) == (True, LOOP, None)
    assert yaml.safe_load((run / SETTING_FILE).read_text()) == {
        "order": "text",
        "workers": 1,
        "mps": False,  # YAML 1.1; jobkit reads `off` as the word
        "resources": {"cpus": 1},
        "sweep": {"batch_size": [300]},
    }
