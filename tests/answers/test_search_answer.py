"""What the kernel knows of a search: which phase its answer rests on, and that a sweep has none."""

from __future__ import annotations

from pathlib import Path

from jobkit.answers.objective import Objective
from jobkit.answers.search_answer import read_search
from jobkit.core.layout import TUNE_GOAL_FILE
from tests.support.machines import Machine, search


def test_the_answer_rests_on_the_last_phase_and_another_objective_may_choose_another(tmp_path: Path) -> None:
    run, slowest = search(tmp_path, Machine()), Objective(direction="min")
    found, other = read_search(run), read_search(run, slowest)
    assert found
    assert [found.rank(phase) for phase in (None, "", *found.phases)] == [0, 0, 1, 2, 3]
    assert [found.rests_on(phase) for phase in (None, *found.phases)] == [False, False, False, True]
    assert all(found.rests_on(record.point.phase) for record in found.finals.winner_records)
    assert other
    assert other.finals.objective == slowest
    assert other.setting != found.setting
    (run / TUNE_GOAL_FILE).unlink()
    assert read_search(run) is None, "a sweep is no search"
