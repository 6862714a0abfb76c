from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.outcome.journal import Task
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles, Verdict
from jobkit.schedulers.types import Queued, State
from jobkit.status.standing import (
    PointStanding,
    RunStanding,
    Standing,
    count_by_state,
    explain_wait,
    find_point,
    reason,
    state_of,
)
from tests.support.builders import grid

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
TASK = Task("slurm", "77", 1)


def one_look(
    standing: Standing,
    outcome: Outcome | None = None,
    *,
    queued: Queued | None = None,
    task: Task | None = TASK,
    index: int = 1,
) -> PointStanding:
    tried = TryResult(TryFiles(number=0), Verdict(outcome=outcome, evidence="so it is"), task)
    point = grid([50, 100, 200])[index - 1]
    return PointStanding(point=point, standing=standing, counts=tried, task=task, queued=queued)


def waits(state: State = State.PENDING, reason: str = "Priority", start: str = "", task: int = 1) -> Queued:
    return Queued(job_id="77", task=task, state=state, reason=reason, start_at=start)


def local(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def test_points_are_counted_by_where_they_stand() -> None:
    points = (
        one_look(Standing.FAILED, Outcome.BUG),
        one_look(Standing.FAILED, Outcome.TIMEOUT),
        one_look(Standing.FAILED, Outcome.BUG),
        one_look(Standing.RUNNING),
    )
    seen = RunStanding(folder=Path("run"), points=points, submissions=())
    assert count_by_state(seen) == "4 points: 3 failed (2 bug, 1 timeout), 1 running"
    alone = RunStanding(folder=Path("run"), points=points[3:], submissions=())
    assert count_by_state(alone) == "1 point: 1 running"


def test_a_point_that_was_taken_back_is_cancelled_and_did_not_fail() -> None:
    cancelled, bug = one_look(Standing.FAILED, Outcome.CANCELLED), one_look(Standing.FAILED, Outcome.BUG)
    waiting, done = one_look(Standing.WAITING, queued=waits()), one_look(Standing.DONE, Outcome.OK)
    points = (cancelled, waiting, cancelled, bug, done)
    seen = RunStanding(folder=Path("run"), points=points, submissions=())
    assert count_by_state(seen) == "5 points: 1 done, 1 failed (1 bug), 2 cancelled, 1 waiting"
    alone = RunStanding(folder=Path("run"), points=(cancelled,), submissions=())
    assert count_by_state(alone) == "1 point: 1 cancelled"


def test_a_point_is_named_by_number_or_id() -> None:
    looks = [one_look(Standing.DONE, Outcome.OK, index=n) for n in (1, 2, 3)]
    assert find_point(looks, "2") is find_point(looks, "p002") is looks[1]
    with pytest.raises(JobkitError, match=r"no point 'p0002'; did you mean 'p002'\?"):
        find_point(looks, "p0002")
    with pytest.raises(JobkitError, match=r"no point 'nothing like it'\n"):
        find_point(looks, "nothing like it")


@pytest.mark.parametrize(
    ("look", "word"),
    [
        (one_look(Standing.DONE, Outcome.GPU_OOM), "gpu_oom"),
        (one_look(Standing.FAILED, Outcome.BUG), "bug"),
        (one_look(Standing.WAITING, queued=waits()), "waiting"),
        (one_look(Standing.WAITING, queued=waits(State.HELD)), "held"),
        (one_look(Standing.STUCK, Outcome.QUEUE_ERROR, queued=waits(State.ERROR)), "stuck"),
        (one_look(Standing.MISSING, task=None), "missing"),
    ],
)
def test_the_word_for_where_a_point_stands(look: PointStanding, word: str) -> None:
    assert state_of(look) == word


@pytest.mark.parametrize(
    ("look", "silent", "words"),
    [
        (one_look(Standing.DONE, Outcome.OK), (), ""),
        (one_look(Standing.DONE, Outcome.PRUNED), (), "so it is"),
        (one_look(Standing.FAILED, Outcome.BUG, queued=waits()), (), "so it is"),
        (one_look(Standing.MISSING, task=None), (), "never submitted"),
        (one_look(Standing.UNSETTLED), (), "left the queue: so it is"),
        (one_look(Standing.UNSETTLED), ("slurm",), "slurm does not answer"),
        (one_look(Standing.WAITING, queued=waits()), (), "Priority: others are before it"),
        (
            one_look(Standing.WAITING, queued=waits(State.RUNNING, "")),
            (),
            "the job that it shares has begun, and its turn is to come",
        ),
        (
            one_look(Standing.WAITING, queued=waits(State.RUNNING, "", task=0), task=Task("local", "77", 1)),
            (),
            "one point at a time runs here",
        ),
        (one_look(Standing.RUNNING, queued=waits(State.RUNNING, "")), (), ""),
        (
            one_look(Standing.RUNNING, queued=waits(State.RUNNING, "", task=0), task=Task("local", "77", 1)),
            (),
            "",
        ),
        (
            one_look(
                Standing.RUNNING, queued=waits(State.RUNNING, "s: suspended"), task=Task("sge", "77", 1)
            ),
            (),
            "s: suspended",
        ),
    ],
)
def test_why_a_point_stands_where_it_does(look: PointStanding, silent: tuple[str, ...], words: str) -> None:
    assert reason(look, silent, NOW) == words


def test_when_a_task_is_to_begin_is_told_where_the_scheduler_says_so() -> None:
    soon, later = NOW + timedelta(minutes=5), NOW + timedelta(days=40)
    words = explain_wait("slurm", waits(start=local(soon)), NOW)
    assert words == f"Priority: others are before it; to begin about {soon.astimezone():%H:%M}"
    words = explain_wait("slurm", waits(reason="", start=local(later)), NOW)
    assert words == f"to begin about {later.astimezone():%Y-%m-%d %H:%M}"


@pytest.mark.parametrize("start", ["", "N/A", local(NOW - timedelta(hours=1))])
def test_a_start_that_is_none_or_past_is_not_told(start: str) -> None:
    assert explain_wait("slurm", waits(start=start), NOW) == "Priority: others are before it"
    running = waits(State.RUNNING, "", start=local(NOW + timedelta(hours=1)))
    assert explain_wait("slurm", running, NOW) == ""
