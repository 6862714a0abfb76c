from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jobkit.core.layout import Exit
from jobkit.core.records import Outcome
from jobkit.runs.status import Pace, PointStanding, PointStatus, to_go
from jobkit.runs.tries import progress_of
from tests.support.builders import batch, point, record
from tests.support.statuses import a_point, a_run, tried


def test_what_is_left_takes_as_long_as_its_characters_did() -> None:
    for characters, total, work_s, left_s in (
        (10_000, 40_000, 1.0, 3.0),
        (300, 200, 1.0, 0.0),
        (100, None, 1.0, None),  # of an older jobkit
        (0, 200, 1.0, None),
        (100, 200, 0.0, None),
        (100, 200, math.inf, None),
    ):
        line = replace(batch(0, seconds=work_s), characters=characters, characters_total=total)
        far = progress_of([line])
        assert far is not None
        assert far.left_s == (left_s if left_s is None else pytest.approx(left_s))
        assert progress_of([]) is None


DONE_A, DONE_B = (Pace(setting=name, state="done", elapsed_s=s) for name, s in (("a", 10.0), ("b", 20.0)))
WAITING_A, WAITING_C = (Pace(setting=name, state="waiting") for name in "ac")
MISSING_C = Pace(setting="c", state="missing")
RUNNING_A = Pace(setting="a", state="running", elapsed_s=4.0)
RUNNING_B = Pace(setting="b", state="running", elapsed_s=5.0, left_s=15.0)
ENDING_A = Pace(setting="a", state="running", elapsed_s=5.0, left_s=5.0)


@pytest.mark.parametrize(
    ("points", "at_a_time", "to_go_s"),
    [
        # b is free at 15; a's like took 10 s, so a is free at 6, and after both that wait at 26 or 25.
        ([DONE_A, RUNNING_B, RUNNING_A, WAITING_A, WAITING_A, MISSING_C], 0, 25.0),
        # A setting of which nothing is known takes as long as all did; what overran its like ends at once,
        # but when is not known if it takes half as long again.
        ([DONE_A, DONE_B, replace(RUNNING_A, elapsed_s=14.0), WAITING_C], 0, 15.0),
        ([DONE_A, DONE_B, replace(RUNNING_A, elapsed_s=16.0), WAITING_C], 0, None),
        ([ENDING_A, WAITING_A], 0, 15.0),
        # On this machine there is a moment between two points in which none runs.
        ([DONE_A, WAITING_A], 1, 10.0),
        ([DONE_A, WAITING_A, RUNNING_A], 1, 16.0),
        # A shard of which nothing is home takes as long as its text is: the first one is small.
        ([DONE_A, replace(RUNNING_A, work=20.0)], 0, 196.0),
        # Nothing is to come, or something is not known.
        ([DONE_A], 0, None),
        ([DONE_A, WAITING_A], 0, None),
        ([RUNNING_A], 0, None),
        ([replace(RUNNING_A, elapsed_s=None), DONE_A], 0, None),
    ],
)
def test_points_wait_for_the_slot_that_is_free_first(
    points: list[Pace], at_a_time: int, to_go_s: float | None
) -> None:
    assert to_go(points, at_a_time=at_a_time) == (to_go_s if to_go_s is None else pytest.approx(to_go_s))


def left_out(index: int, outcome: Outcome, because: str) -> PointStatus:
    exit_ = Exit(status=0, stage="gate", outcome=outcome, because=because)
    return a_point(index, PointStanding.DONE, outcome, tries=[replace(tried(1, outcome), exit=exit_)])


def test_a_pruned_point_saves_the_time_of_the_point_that_ran_out_of_memory() -> None:
    out = tried(1, Outcome.GPU_OOM, record=record(point(2)))  # a minute
    small = tried(1, Outcome.OK, record=record(point(1)))
    points = [
        a_point(1, PointStanding.DONE, Outcome.OK, tries=[small]),
        a_point(2, PointStanding.DONE, Outcome.GPU_OOM, tries=[out, small]),
    ]
    assert a_run(points).saved is None
    pruned = [left_out(n, Outcome.PRUNED, "p002") for n in (3, 4)]
    assert a_run([*points, *pruned]).saved == (2, 120.0)
    first, repeat = (replace(points[0].point, repeat=n, point_id=f"batch_size-50-r{n}") for n in (1, 2))
    done = replace(points[0], point=first, all_tries=(tried(1, Outcome.TIMEOUT), small))
    skipped = replace(left_out(5, Outcome.PRUNED, first.point_id), point=repeat)
    assert a_run([done, skipped]).saved == (1, 60.0), "a repeat that was not needed"
    no_time = a_point(1, PointStanding.DONE, Outcome.GPU_OOM)
    for skipped in (
        left_out(3, Outcome.STOPPED, "p002"),
        left_out(3, Outcome.PRUNED, ""),
        left_out(3, Outcome.PRUNED, "p001"),
        a_point(3, PointStanding.DONE, Outcome.PRUNED),
    ):
        assert a_run([no_time, points[1], skipped]).saved is None, "no known cause, or time"
