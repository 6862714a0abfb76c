"""The answer of a search as a person and a program read it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jobkit.fit.objective import Bound, Objective
from jobkit.fit.tune import read_tuning
from jobkit.report.tune import as_text, to_json
from tests.support.machines import GOAL, Machine, search


def told(run: Path) -> str:
    return " ".join(as_text(run, read_tuning(run)).split())


def test_the_answer_has_setting_gain_limit_what_was_not_tried_and_lines_to_paste(tmp_path: Path) -> None:
    run = search(tmp_path, Machine())
    text = told(run)
    assert "13 settings, 21 points, 7 min of NVIDIA H200 and 16 CPUs" in text
    assert "The setting: order sorted, padded_chars 16,000, workers 16, mps on" in text
    assert "speed 22.00 times (22.00 to 22.00 with 95 % confidence) as fast as the plain loop" in text
    assert "energy 156.2 J for 1,000 items, the plain loop 3,437.5 J" in text
    assert "limit cores: 16 workers are 2.00 times as fast as 8, and there are no more: 16 CPUs" in text
    assert "not tried 60 of 72 combinations: text order pads 3.0 times as much" in text
    assert "workers: 16 mps: on work_unit: 100 resources: cpus: 1 sweep: padded_chars: [16000]" in text
    assert f"jobkit sweep SPEC --setting {run}" in text


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
    data = json.loads(to_json(read_tuning(run)))
    assert (data["ended"], data["limit"], data["setting"]["workers"]) == (True, "cores", 16)
    assert data["times_the_plain_loop"]["mean"] > 10
    assert len(data["points"]) == 21
    under_way = json.loads(to_json(read_tuning(search(tmp_path / "other", Machine(), most=5))))
    assert (under_way["ended"], under_way["setting"], under_way["why"]) == (False, None, None)
