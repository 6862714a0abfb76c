from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.layout import Exit
from jobkit.core.records import Outcome
from jobkit.runs.progress import Pace, Progress, SkippedTime, progress_of, skipped_time, to_go
from jobkit.runs.standing import PointState, PointStatus
from jobkit.runs.tries import Try
from tests.support.builders import batch, point, record
from tests.support.statuses import a_point, tried

SECONDS = st.floats(0, 1e6)


def test_no_batch_is_no_progress() -> None:
    assert progress_of([]) is None


def test_what_is_left_takes_as_long_as_its_characters_did() -> None:
    batches = [replace(batch(n), batches_total=8, characters_total=40_000) for n in range(2)]
    far = progress_of(batches)
    assert far == Progress(batches=2, batches_total=8, characters=10_000, characters_total=40_000, work_s=1.0)
    assert far.left_s == pytest.approx(3.0)


def test_batches_of_an_older_jobkit_tell_no_total_and_so_no_end() -> None:
    far = progress_of([batch(0)])
    assert far is not None
    assert (far.batches_total, far.left_s) == (None, None)


@pytest.mark.parametrize(
    ("characters", "work_s"), [(0, 1.0), (100, 0.0), (100, math.inf), (100, math.nan), (100, -1.0)]
)
def test_a_speed_that_is_none_tells_no_end(characters: int, work_s: float) -> None:
    far = Progress(batches=1, batches_total=2, characters=characters, characters_total=200, work_s=work_s)
    assert far.left_s is None


def test_more_characters_than_there_are_leave_none() -> None:
    far = Progress(batches=1, batches_total=1, characters=300, characters_total=200, work_s=1.0)
    assert far.left_s == 0


def test_points_wait_for_the_slot_that_is_free_first() -> None:
    points = [
        Pace(setting="a", standing="done", elapsed_s=10.0),
        Pace(setting="b", standing="running", elapsed_s=5.0, left_s=15.0),
        Pace(setting="a", standing="running", elapsed_s=4.0),
        Pace(setting="a", standing="waiting"),
        Pace(setting="a", standing="waiting"),
        Pace(setting="c", standing="missing"),
    ]
    # b is free at 15; a's like took 10 s, so a is free at 6, and after both that wait at 26 or 25.
    assert to_go(points) == pytest.approx(25.0)


def test_a_setting_that_nothing_is_known_of_takes_as_long_as_all_did() -> None:
    points = [
        Pace(setting="a", standing="done", elapsed_s=10.0),
        Pace(setting="b", standing="done", elapsed_s=20.0),
        Pace(setting="a", standing="running", elapsed_s=30.0),
        Pace(setting="c", standing="waiting"),
    ]
    assert to_go(points) == pytest.approx(15.0), "one that overran its like ends at once"


def test_one_that_runs_tells_how_long_its_like_will() -> None:
    points = [
        Pace(setting="a", standing="running", elapsed_s=5.0, left_s=5.0),
        Pace(setting="a", standing="waiting"),
    ]
    assert to_go(points) == pytest.approx(15.0)


def test_between_two_points_on_this_machine_none_runs() -> None:
    points = [Pace(setting="a", standing="done", elapsed_s=10.0), Pace(setting="a", standing="waiting")]
    assert to_go(points, at_a_time=1) == pytest.approx(10.0)
    assert to_go(points[:1], at_a_time=1) is None, "there is nothing to wait for"
    running = Pace(setting="a", standing="running", elapsed_s=4.0)
    assert to_go([*points, running], at_a_time=1) == pytest.approx(16.0)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [Pace(setting="a", standing="done", elapsed_s=10.0)],
        [Pace(setting="a", standing="done", elapsed_s=10.0), Pace(setting="a", standing="waiting")],
        [Pace(setting="a", standing="running", elapsed_s=10.0)],
        [Pace(setting="a", standing="running"), Pace(setting="a", standing="done", elapsed_s=10.0)],
        [Pace(setting="a", standing="running", left_s=1.0), Pace(setting="a", standing="waiting")],
    ],
)
def test_where_something_is_not_known_no_end_is_reported(points: list[Pace]) -> None:
    assert to_go(points) is None


@given(st.lists(SECONDS, min_size=1, max_size=8), st.lists(SECONDS, max_size=30))
def test_it_takes_no_less_than_the_longest_and_no_more_than_one_after_another(
    running: list[float], waiting: list[float]
) -> None:
    points = [Pace(setting=f"r{n}", standing="running", left_s=left) for n, left in enumerate(running)]
    for n, long in enumerate(waiting):
        points += [
            Pace(setting=f"w{n}", standing="done", elapsed_s=long),
            Pace(setting=f"w{n}", standing="waiting"),
        ]
    took = to_go(points)
    assert took is not None
    assert took >= max([*running, (math.fsum(running) + math.fsum(waiting)) / len(running)]) * (1 - 1e-9)
    assert took <= (max(running) + math.fsum(waiting)) * (1 + 1e-9) + 1e-9


def left_out(index: int, outcome: Outcome, because: str) -> PointStatus:
    exit_ = Exit(status=0, stage="gate", outcome=outcome, because=because)
    return a_point(index, PointState.DONE, outcome, tries=[replace(tried(1, outcome), exit=exit_)])


def test_a_pruned_point_saves_the_time_of_the_point_that_ran_out_of_memory() -> None:
    out = tried(1, Outcome.GPU_OOM, record=record(point(2)))  # a minute
    small = tried(1, Outcome.OK, record=record(point(1)))
    points = [
        a_point(1, PointState.DONE, Outcome.OK, tries=[small]),
        a_point(2, PointState.DONE, Outcome.GPU_OOM, tries=[out, small]),
    ]
    assert skipped_time(points) is None
    pruned = [left_out(n, Outcome.PRUNED, "p002") for n in (3, 4)]
    assert skipped_time([*points, *pruned]) == SkippedTime(2, 120.0)


def test_a_repeat_that_was_not_needed_saves_the_time_of_another_repeat() -> None:
    def repeat(number: int, *tries: Try, outcome: Outcome = Outcome.OK) -> PointStatus:
        found = a_point(number, PointState.DONE, outcome, tries=list(tries))
        return replace(found, point=replace(found.point, repeat=number, point_id=f"batch_size-50-r{number}"))

    first = repeat(1, tried(1, Outcome.TIMEOUT), tried(2, Outcome.OK, record=record(point(1))))  # a minute
    left = left_out(2, Outcome.PRUNED, "batch_size-50-r1")
    skipped = repeat(2, *left.tries, outcome=Outcome.PRUNED)
    assert skipped_time([first, skipped]) == SkippedTime(1, 60.0)


@pytest.mark.parametrize(
    "skipped",
    [
        left_out(3, Outcome.STOPPED, "p002"),
        left_out(3, Outcome.PRUNED, ""),
        left_out(3, Outcome.PRUNED, "p001"),
        a_point(3, PointState.DONE, Outcome.PRUNED),
    ],
)
def test_what_is_still_to_be_measured_or_has_no_known_cause_saves_nothing(skipped: PointStatus) -> None:
    took = tried(1, Outcome.GPU_OOM, record=record(point(2)))
    out = a_point(2, PointState.DONE, Outcome.GPU_OOM, tries=[took])
    assert skipped_time([a_point(1, PointState.DONE, Outcome.GPU_OOM), out, skipped]) is None
