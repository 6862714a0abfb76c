"""What stands in a run's way, and what to type next. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobkit.core.terminal import shell_quote
from jobkit.core.units import format_count, format_moment
from jobkit.outcome.journal import PURPOSES, Task
from jobkit.outcome.remedies import Step
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import Queued, Remedy, State
from jobkit.status.standing import CANCELLED, HELD, IN_QUEUE, Standing
from jobkit.status.summary import ENDED, JobStatus, PointStatus, RunStatus

MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Advice:
    """What a person must know of a run beyond its points, in sentences, and what to type next."""

    notices: tuple[str, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stopped:
    """Points that wait for a person, all of one job and for one reason."""

    points: tuple[PointStatus, ...]
    queued: Queued
    remedy: Remedy


def advice(status: RunStatus, folder: str) -> Advice:
    """Return what stands in the way of a run, and what to type next, the most pressing first.

    Parameters
    ----------
    folder
        The run folder as a person types it, unquoted.
    """
    run = shell_quote(folder)
    stopped = list(_stopped(status))
    notices = [*_silent(status), *_cut_off(status), *_left(status), *_held_up(stopped)]
    steps = [*_mends(stopped, run), *_again(status, run), *_look(status, run)]
    if not status.mine:
        notices.append("the run folder cannot be written from here: only its owner can change the run")
        steps = [step for step in steps if step.command.startswith(_HARMLESS)]
    return Advice(tuple(notices), tuple(steps))


_HARMLESS = ("jobkit status ", "jobkit collect ", "jobkit logs ")


def _silent(status: RunStatus) -> Iterator[str]:
    for name in status.seen.silent:
        yield f"{name} does not answer: what is home is told, what it holds is not known"


def _cut_off(status: RunStatus) -> Iterator[str]:
    cut = status.seen.unanswered
    if cut is not None:
        at = format_moment(str(cut.get("at", "an unknown time")))
        yield f"a submission at {at} got no answer: its job may be in the queue"


def _left(status: RunStatus) -> Iterator[str]:
    left = status.seen.left
    if left is not None:
        points = left.get("points")
        what = f" {format_count(len(points), 'point')}" if isinstance(points, list) and points else ""
        why = " ".join(str(left.get("why", "")).split())
        yield f"the job that follows the sweep could not submit{what} again: {why}"


def _stopped(status: RunStatus) -> Iterator[_Stopped]:
    """Yield the points that wait for a person, by job and reason."""
    found: dict[tuple[str, str, str], list[tuple[PointStatus, Task, Queued]]] = {}
    for one in status.points:
        task, queued = one.look.task, one.look.queued
        if one.state in {HELD, Standing.STUCK} and task and queued:
            found.setdefault((task.scheduler, task.job_id, queued.reason), []).append((one, task, queued))
    jobs = {
        (submission.scheduler, submission.job.id): submission.job for submission in status.seen.submissions
    }
    for (scheduler, job, _), some in found.items():
        tasks = tuple(sorted({task.task for _, task, _ in some}))
        queued = some[0][2]
        remedy = SCHEDULERS[scheduler].remedy(jobs[scheduler, job], tasks, queued) or Remedy()
        yield _Stopped(points=tuple(one for one, _, _ in some), queued=queued, remedy=remedy)


def _held_up(stopped: Sequence[_Stopped]) -> Iterator[str]:
    for one in stopped:
        why = one.points[0].why or one.points[0].state
        yield f"waiting for somebody: {_names(one.points)} ({why})"


def _idle(status: RunStatus, job: JobStatus) -> bool:
    """Tell whether a job is held that has no other job to wait for any more."""
    held = job.queued is not None and job.queued.state is State.HELD
    moving = IN_QUEUE | {Standing.UNSETTLED}
    return held and not any(point.look.standing in moving for point in status.points)


def _mends(stopped: Sequence[_Stopped], run: str) -> Iterator[Step]:
    for one in stopped:
        names = format_count(len(one.points), "point")
        if one.remedy.argv:
            yield Step(shlex.join(one.remedy.argv), f"lets {names} go on")
        elif one.queued.state is State.ERROR:
            named = " ".join(str(point.look.point.index) for point in one.points)
            yield Step(f"jobkit cancel {run} {named}", f"takes back {names} that can never begin")
            change = f" --set {one.remedy.key}=..." if one.remedy.key else ""
            yield Step(f"jobkit resume {run}{change}", "then submits them anew")


def _again(status: RunStatus, run: str) -> Iterator[Step]:
    """Yield what runs points again, and what mends a job that waits for them."""
    for job in status.jobs:
        if job.queued is not None and (job.state == Standing.STUCK or _idle(status, job)):
            scheduler = SCHEDULERS[job.job.scheduler]
            remedy = scheduler.remedy(job.job.job, (job.job.first,), job.queued)
            if remedy and remedy.argv:
                yield Step(shlex.join(remedy.argv), f"lets job {job.job.job} go on")
    failed = (point.look for point in status.points if point.look.standing is Standing.FAILED)
    first = next((one.point for one in failed if not one.cancelled), None)
    if first is not None:
        yield Step(f"jobkit status {run} {first.index}", f"all about {first.point_id}, and why it failed")
    does = _resumes(status)
    if status.seen.unanswered is not None:
        yield Step(f"jobkit resume {run}", "finds the job by the run's name, and submits what is missing")
    elif does and not status.seen.silent:
        yield Step(f"jobkit resume {run}", does)


def _resumes(status: RunStatus) -> str:
    """Return what `jobkit resume` does; nothing where it would do nothing."""
    standings = Counter(
        CANCELLED if point.look.cancelled else str(point.look.standing) for point in status.points
    )
    failed, cancelled, missing = (standings[word] for word in (Standing.FAILED, CANCELLED, Standing.MISSING))
    again = [f"{_the(failed)} that failed"] if failed else []
    again += [f"{_the(cancelled)} that {'was' if cancelled == 1 else 'were'} cancelled"] if cancelled else []
    what = [f"runs again {' and '.join(again)}"] if again else []
    what += [f"submits {_the(missing)} never submitted"] if missing else []
    return (", and " if len(again) > 1 else " and ").join(what)


def _look(status: RunStatus, run: str) -> Iterator[Step]:
    """Yield what lets one see more: how it goes on, or what came of it."""
    runs = next(
        (point.look.point for point in status.points if point.look.standing is Standing.RUNNING), None
    )
    if runs is not None:
        yield Step(f"jobkit logs {run} {runs.index} -f", f"what {runs.point_id} says")
    moves = any(point.look.standing in {Standing.RUNNING, Standing.WAITING} for point in status.points)
    if moves or any(job.state in {Standing.RUNNING, Standing.WAITING} for job in status.jobs):
        yield Step(f"jobkit status {run} --watch", "follows it to its end")
    if any(point.look.standing is Standing.DONE for point in status.points):
        yield Step(f"jobkit collect {run}", "the table of what is done")


def _names(points: Sequence[PointStatus]) -> str:
    names = [point.look.point.point_id for point in points]
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _the(number: int) -> str:
    return "the point" if number == 1 else f"the {number:,} points"


def job_line(status: RunStatus, one: JobStatus) -> str:
    """Return how a job that waits for the points stands; empty if its scheduler does not answer.

    Of several jobs that have ended, only the last of a role has a line.
    """
    if one.state == ENDED:
        last = [job for job in status.jobs if job.job.role is one.job.role][-1]
        return (
            f"job {one.job.job}, which {PURPOSES[one.job.role]}, has ended ({one.why})" if one is last else ""
        )
    stands = {
        Standing.RUNNING: "is at work",
        Standing.STUCK: f"is stuck: {one.why}",
        Standing.WAITING: _waiting(status, one),
        Standing.UNSETTLED: "has left the queue; how it ended is not known yet",
    }
    known = one.job.scheduler not in status.seen.silent
    return (
        f"job {one.job.job}, which {PURPOSES[one.job.role]}, {stands[Standing(one.state)]}" if known else ""
    )


def _waiting(status: RunStatus, one: JobStatus) -> str:
    if any(point.state in {HELD, Standing.STUCK} for point in status.points):
        return "begins when the points have ended: never, unless somebody sees to those"
    if _idle(status, one):
        return f"waits though the points have ended: {one.why}"
    return "begins when the points have ended"
