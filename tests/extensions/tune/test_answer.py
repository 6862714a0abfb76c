"""The answer of a search as a person and a program read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobkit.answers.loads import Lengths
from jobkit.answers.objective import Bound, Objective
from jobkit.core.blocks import as_text
from jobkit.core.knobs import Value
from jobkit.core.layout import LENGTHS_FILE, SETTING_FILE
from jobkit.core.measurements import Metric
from jobkit.core.terminal import as_json
from jobkit.core.units import GIB
from jobkit.extensions.tune.answer import Answer, blocks
from jobkit.extensions.tune.steps import MEMORY, Candidate, MeasuredCandidate, TuneGoal
from tests.support.machines import FAST, GOAL, ITEMS, LOOP, Machine, search


def told(run: Path) -> str:
    return " ".join(as_text(blocks(run, Answer.read(run))).split())


def test_the_answer_has_setting_gain_limit_what_was_not_tried_and_lines_to_paste(tmp_path: Path) -> None:
    run = search(tmp_path, Machine())
    text = told(run)
    assert "13 settings, 21 points, 7 min of NVIDIA H200 and 16 CPUs" in text
    assert "The setting: order sorted, padded_chars 16,000, workers 16, mps on" in text
    assert "speed 22.00 times (22.00 to 22.00 with 95 % confidence) as fast as the plain loop" in text
    assert "energy 156.2 J for 1,000 items, the plain loop 3,437.5 J" in text
    assert "limit cores: 16 workers are 2.00 times as fast as 8, and there are no more: 16 CPUs" in text
    assert "60 of 72 combinations, assumed: text order, which pads 3.0 times as much by the text" in text
    assert "workers: 16 mps: on work_unit: 100 resources: cpus: 1 sweep: padded_chars: [16000]" in text
    assert f"jobkit sweep SPEC --setting {run}" in text
    assert "sorted by length" in text.partition("Conditions: ")[2]


@pytest.mark.parametrize("budget_s", [300, 3600])
def test_a_loop_on_a_smaller_part_is_reported_with_what_it_pads_there(tmp_path: Path, budget_s: int) -> None:
    run = search(tmp_path, Machine(exact=2.0), replace(FAST, budget_s=budget_s))
    lengths = Lengths(paragraphs=tuple((20 + 40 * (n % 3), 30) for n in range(ITEMS)))
    line = "plain loop on one of every 6 paragraphs"
    assert (line in told(run)) == (budget_s == 300)
    (run / LENGTHS_FILE).write_text(lengths.to_json())
    tuning, text = Answer.read(run), told(run)
    assert "shortcuts exact" in text
    assert "on the whole text, 3 repeats each" in text
    assert (f"{line}: " in text) == (budget_s == 300)
    if tuning.padding:
        of_part, of_all = (f"{100 * share:.1f} %" for share in tuning.padding)
        assert f"{of_part} of its padded characters are text, of the whole text {of_all}" in text


def test_a_point_that_was_refused_is_a_row_without_an_answer(tmp_path: Path) -> None:
    text = told(search(tmp_path, Machine(refuses=(MEMORY,)), FAST))
    assert "The setting: order sorted, padded_chars 16,000, workers 16, mps on, shortcuts off" in text


def test_a_search_under_way_has_its_next_point_and_the_commands(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(), most=5)
    text = told(run)
    assert "The search has not ended. Next, search: order sorted, padded_chars 16,000, workers 4" in text
    assert f"jobkit resume {run}" in text


def test_a_setting_that_breaks_a_constraint_is_shown_with_the_reason(tmp_path: Path) -> None:
    text = told(
        search(tmp_path, Machine(), replace(GOAL, objective=Objective(bounds={"batch_p95": Bound(max=0.05)})))
    )
    assert "batch_p95 0.1354 s is over 0.05 s" in text


def test_without_a_setting_there_is_the_reason(tmp_path: Path) -> None:
    text = told(
        search(tmp_path, Machine(), replace(GOAL, objective=Objective(bounds={"batch_p95": Bound(max=1e-9)})))
    )
    assert "No setting was found: no setting keeps the constraints" in text


def test_a_program_gets_numbers(tmp_path: Path) -> None:
    run = search(tmp_path, Machine())
    data = json.loads(as_json(Answer.read(run).as_data()))
    assert (data["ended"], data["limit"], data["setting"]["workers"]) == (True, "cores", 16)
    assert data["times_the_plain_loop"]["mean"] > 10
    assert len(data["points"]) == 21
    assert (data["conditions"]["order"], data["conditions"]["workers"]) == ("sorted", 16)
    under_way = json.loads(as_json(Answer.read(search(tmp_path / "other", Machine(), most=5)).as_data()))
    assert (under_way["ended"], under_way["setting"], under_way["why"]) == (False, None, None)


def reporting(folder: Path, goal: TuneGoal, *, items: bool = True) -> Path:
    """Return a run folder of a search whose workload reports f1, lower with a larger size."""

    class Reporting(Machine):
        def run(self, candidate: Candidate) -> MeasuredCandidate:
            result = super().run(candidate)
            assert result.record
            assert result.record.summary
            summary = result.record.summary if items else replace(result.record.summary, items=0)
            size = candidate.params.get("padded_chars", 1_000)
            assert isinstance(size, int)
            metrics = {"f1": Metric(value=1 - size / 100_000), "read": Metric(value=1.0, unit="MB/s")}
            return replace(result, record=replace(result.record, summary=summary, metrics=metrics))

    return search(folder, Reporting(), goal)


def test_another_objective_chooses_the_winner_and_every_figure_has_a_column(tmp_path: Path) -> None:
    goal = replace(GOAL, objective=Objective(metric="f1", direction="max", bounds={"f1": Bound(max=0.95)}))
    run = reporting(tmp_path, goal)
    text = told(run)
    assert "paragraphs/s f1 read [MB/s]" in text
    assert "The setting: order sorted, padded_chars 16,000, workers 16" in text
    assert "objective f1 0.84 ± 0 (n=3), the plain loop 0.99 ± 0 (n=3)" in text
    assert "f1 0.96 is over 0.95" in text
    assert "next best mps off: no difference is shown" in text
    assert "limit cores" not in text
    data = json.loads(as_json(Answer.read(run).as_data()))
    assert (data["objective"]["metric"], data["objective"]["mean"]) == ("f1", pytest.approx(0.84))


def test_without_items_the_speed_is_blank(tmp_path: Path) -> None:
    goal = replace(GOAL, objective=Objective(metric="f1", direction="max"))
    run = reporting(tmp_path / "found", goal, items=False)
    text = told(run)
    assert "paragraphs/s" not in text
    assert "speed" not in text.partition("The setting")[2].partition("not tried")[0]
    assert json.loads(as_json(Answer.read(run).as_data()))["items_per_s"] is None
    nothing = told(reporting(tmp_path / "none", GOAL, items=False))
    assert "No setting was found: the workload reports no items" in nothing


NOW = replace(GOAL, most_repeats=9, looks=3, again=12)


class FastLoop(Machine):
    """A machine on which the plain loop is faster than all else."""

    def speed(self, params: Mapping[str, Value]) -> float:
        return 1e5 if "batch_size" in params else super().speed(params)


def test_text_json_and_file_agree_that_the_plain_loop_is_the_answer(tmp_path: Path) -> None:
    run = search(tmp_path, FastLoop(noise=0.01), NOW)
    text, tuning = told(run), Answer.read(run)
    assert "No setting is shown to be faster than the plain loop." in text
    assert "The setting: batch_size 300, mps off, order text, workers 1 (the plain loop)" in text
    assert "best other" in text
    data = json.loads(as_json(tuning.as_data()))
    assert (data["plain_loop"], data["setting"], data["times_the_plain_loop"]) == (True, LOOP, None)
    assert data["best_other"]["times_the_plain_loop"]["high"] < 1
    written = yaml.safe_load((run / SETTING_FILE).read_text())
    assert written == {
        "order": "text",
        "workers": 1,
        "mps": False,  # YAML 1.1; jobkit reads `off` as the word
        "resources": {"cpus": 1},
        "sweep": {"batch_size": [300]},
    }


def test_one_repeat_shows_nothing(tmp_path: Path) -> None:
    run = search(tmp_path, Machine(), replace(NOW, repeats=1, most_repeats=1))
    text = told(run)
    assert "(the plain loop)" in text
    assert "one repeat has no interval" in text


def test_the_answer_of_an_earlier_version_stays_with_a_doubt(tmp_path: Path) -> None:
    run = search(tmp_path / "slower", FastLoop(noise=0.01), GOAL)
    assert "workers: 16" in (run / SETTING_FILE).read_text()
    assert "an earlier version chose it; it is not shown to be better than the plain loop" in told(run)
    run = reporting(tmp_path / "broken", replace(GOAL, objective=Objective(bounds={"f1": Bound(min=0.8)})))
    assert "doubt" not in told(run)
    assert "doubt" not in told(search(tmp_path / "shown", Machine(), GOAL))


def test_without_a_finalist_that_keeps_the_constraints_the_plain_loop_is_left(tmp_path: Path) -> None:
    goal = replace(NOW, objective=Objective(bounds={"f1": Bound(min=0.98)}))
    text = told(reporting(tmp_path, goal))  # f1 is 0.96 at the smallest size, and 0.99 for the plain loop
    assert "(the plain loop)" in text
    assert "others none succeeded on the same text" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpus": 2}, "--set resources.cpus=1 would allow up to 2 times as many workers"),
        ({"limited_by": "tune.workers: 16"}, "a higher tune.workers would allow more"),
        ({}, "more CPUs for the job would allow more"),
        ({"budget_s": 300}, "--set tune.budget=00:10:00 would let it go on"),
        ({"memory_bytes": 12 * GIB}, "a GPU with more memory would help"),
    ],
)
def test_the_limit_names_what_would_lift_it(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    slow = Machine(start_s=30.0) if "budget_s" in changes else Machine()
    assert words in told(search(tmp_path, slow, replace(NOW, **changes)))
