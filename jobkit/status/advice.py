"""What blocks a run, and what to type next. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobkit.core.terminal import shell_quote
from jobkit.core.units import format_count, format_list, format_moment, moment
from jobkit.outcome.journal import PURPOSES, STILL_AT_IT, Role
from jobkit.outcome.remedies import Kind, Step, remedy
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import Queued, Remedy, State
from jobkit.status import standing
from jobkit.status.needs import Need, is_limited, needed_by
from jobkit.status.standing import HELD, JobStanding, PointStanding, RunStanding, Standing

MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Advice:
    """What a person must know of a run beyond its points, in sentences, and what to type next."""

    notices: tuple[str, ...]
    steps: tuple[Step, ...]


_Blocked = tuple[Sequence[PointStanding], Queued, Remedy]
"""Points that wait for a person, all of one job and for one reason."""


def advice(run: RunStanding, folder: str) -> Advice:
    """Return what blocks a run, and what to type next, the most urgent first.

    Parameters
    ----------
    folder
        The run folder as a person types it, unquoted.
    """
    typed = shell_quote(folder)
    notices = list(_notices(run))
    steps = [*releases(run, run.points, typed), *_run_again(run, typed), *_look(run, typed)]
    steps = [step for step in steps if step is next(each for each in steps if each.command == step.command)]
    if not run.mine:
        notices.append("the run folder cannot be written from here: only its owner can change the run")
        steps = [step for step in steps if step.kind in HARMLESS]
    return Advice(tuple(notices), tuple(steps))


HARMLESS = frozenset({Kind.LOOK, Kind.LOG, Kind.WATCH})


def _notices(run: RunStanding) -> Iterator[str]:
    for name in run.silent:
        yield f"{name} does not answer: the states of its jobs are from the run folder alone"
    if run.unanswered is not None:
        at = format_moment(str(run.unanswered.get("at", "an unknown time")))
        under_way = f"a submission is under way, since {at}"
        no_answer = f"a submission at {at} got no answer: its job may be in the queue"
        yield under_way if _submitting(run) else no_answer
    if run.left is not None:
        yield from _left(run, run.left)
    for points, *_ in _blocked(run, run.points):
        names = format_list([point.point.point_id for point in points], MOST_NAMES)
        yield f"waiting for a person: {names} ({points[0].why or points[0].state})"


def _submitting(run: RunStanding) -> bool:
    """Return whether a job is being submitted: another process, or a job of the run, waits for the answer."""
    at = moment(str(run.unanswered.get("at", ""))) if run.unanswered else None
    return at is not None and abs(run.now - at) < STILL_AT_IT


def _left(run: RunStanding, left: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a job of the run could not do."""
    why = str(left.get("why", ""))
    if not run.points:
        yield from f"the corpus could not be planned: {why}".splitlines()
        return
    points, why = left.get("points"), " ".join(why.split())
    what = f" {format_count(len(points), run.noun)}" if isinstance(points, list) and points else ""
    if left.get("role") == Role.PLAN:
        yield f"the job that planned the corpus could not submit{what}: {why}"
    else:
        yield f"the job that follows the sweep could not submit{what} again: {why}"


def _blocked(run: RunStanding, points: Sequence[PointStanding]) -> Iterator[_Blocked]:
    """Yield those of the points that wait for a person, by job and reason."""
    groups: dict[tuple[str, str, str], list[PointStanding]] = {}
    for point in points:
        if point.state in {HELD, Standing.STUCK} and point.task and point.queued:
            key = (point.task.scheduler, point.task.job_id, point.queued.reason)
            groups.setdefault(key, []).append(point)
    jobs = {(submission.scheduler, submission.job.id): submission.job for submission in run.submissions}
    for (scheduler, job, _), group in groups.items():
        tasks = tuple(sorted({point.task.task for point in group if point.task}))
        queued = next(point.queued for point in group if point.queued)
        yield group, queued, SCHEDULERS[scheduler].remedy(jobs[scheduler, job], tasks, queued) or Remedy()


def _idle(run: RunStanding, job: JobStanding) -> bool:
    """Return whether a job is held although it no longer waits for another job."""
    held = job.queued is not None and job.queued.state is State.HELD
    return held and not any(point.standing in standing.LIVE for point in run.points)


def releases(run: RunStanding, points: Sequence[PointStanding], typed: str) -> Iterator[Step]:
    """Yield what releases those of the points that wait for a person, or submits them again."""
    for group, queued, way_out in _blocked(run, points):
        number = format_count(len(group), run.noun)
        if way_out.argv:
            yield Step(shlex.join(way_out.argv), f"releases {number}")
        elif queued.state is State.ERROR:
            indices = " ".join(str(point.point.index) for point in group)
            more = f"; resume with another {way_out.key}" if way_out.key else ""
            yield Step(f"jobkit cancel {typed} {indices}", f"cancels {number} that can never begin{more}")
            change = f" --set {way_out.key}=..." if way_out.key else ""
            yield Step(f"jobkit resume {typed}{change}", "then submits them again")


def _run_again(run: RunStanding, typed: str) -> Iterator[Step]:
    """Yield what runs points again, and what releases a job that waits for them."""
    yield from _release_jobs(run)
    failed = [point for point in run.points if point.standing is Standing.FAILED and not point.cancelled]
    does = _resumes(run)
    if _submitting(run):
        yield Step(f"jobkit status {typed}", "in half a minute, whether it has an answer", Kind.LOOK)
    elif run.unanswered is not None:
        yield Step(f"jobkit resume {typed}", "finds the job by the run's name, and submits what is missing")
    elif does and not run.silent:
        yield from _resume(run, failed, typed, does)
    yield from _reason(failed, typed)


def _reason(failed: Sequence[PointStanding], typed: str) -> Iterator[Step]:
    """Yield what shows why a point failed."""
    for point in failed[:1]:
        does = f"all about {point.point.point_id}, and why it failed"
        yield Step(f"jobkit status {typed} {point.point.index}", does, Kind.LOOK)


def _release_jobs(run: RunStanding) -> Iterator[Step]:
    for job in run.jobs:
        if job.queued is not None and (job.state == Standing.STUCK or _idle(run, job)):
            sent = job.submission
            way_out = SCHEDULERS[sent.scheduler].remedy(sent.job, (sent.first,), job.queued)
            if way_out and way_out.argv:
                yield Step(shlex.join(way_out.argv), f"releases job {sent.job}")


def _resume(run: RunStanding, failed: Sequence[PointStanding], typed: str, does: str) -> Iterator[Step]:
    """Yield what fixes the cause, and what runs the points again."""
    limited = [point for point in failed if is_limited(point)]
    others, needs = len(failed) > len(limited), needed_by(run, limited)
    if not all(need.value for need in needs) or not limited:
        yield from _reason(failed, typed)
    yield from _with_more(needs, limited, typed, only=others)
    yield from _fixes([] if limited else failed, typed)
    if others or not limited:
        yield Step(f"jobkit resume {typed}", does)


def _with_more(
    needs: Sequence[Need], limited: Sequence[PointStanding], typed: str, *, only: bool
) -> Iterator[Step]:
    """Yield what runs points again with more of what they ran out of; ``only`` leaves all others out."""
    outcomes = sorted({f"--only {point.outcome}" for point in limited}) if only else []
    if needs:
        words = " ".join([*outcomes, *(need.option for need in needs)])
        yield Step(f"jobkit resume {typed} {words}", "; ".join(need.because for need in needs), Kind.FIX)


def _fixes(failed: Sequence[PointStanding], typed: str) -> Iterator[Step]:
    """Yield what fixes the cause if all points failed with the same outcome."""
    if len({point.outcome for point in failed}) == 1 and (outcome := failed[0].outcome):
        steps = remedy(outcome, failed[0].verdict.evidence, run=typed, point=failed[0].point.index)
        yield from (step for step in steps if step.kind in {Kind.FIX, Kind.LOOK})


def _resumes(run: RunStanding) -> str:
    """Return what `jobkit resume` does; empty if it would do nothing."""
    if run.planner or not run.points:
        return "" if run.planner else "submits the job that plans the corpus again"
    failed, cancelled, missing = (
        run.counts[word] for word in (Standing.FAILED, standing.CANCELLED, Standing.MISSING)
    )
    again = [f"{_the(failed, run.noun)} that failed"] if failed else []
    again += (
        [f"{_the(cancelled, run.noun)} that {'was' if cancelled == 1 else 'were'} cancelled"]
        if cancelled
        else []
    )
    what = [f"runs again {' and '.join(again)}"] if again else []
    here = run.schedulers and all(map(runs_here, run.schedulers))
    those = _the(missing, run.noun)
    new = f"runs {those} that did not begin" if here else f"submits {those} never submitted"
    what += [new] if missing else []
    return (", and " if len(again) > 1 else " and ").join(what)


def _look(run: RunStanding, typed: str) -> Iterator[Step]:
    """Yield what shows more: how the run goes on, or its results."""
    standings = {point.standing for point in run.points}
    moving = {Standing.RUNNING, Standing.WAITING}
    if moving & (standings | {job.state for job in run.jobs if _may_add(run, job)}):
        yield Step(f"jobkit status {typed} --watch", "follows it to its end", Kind.WATCH)
    running = next((point.point for point in run.points if point.standing is Standing.RUNNING), None)
    if running is not None:
        yield Step(
            f"jobkit logs {typed} {running.index} -f", f"prints the log of {running.point_id}", Kind.LOG
        )
    if any(point.point.phase for point in run.points):
        yield Step(f"jobkit tune {typed}", "the answer, or how far the search is", Kind.LOOK)
    if any(point.point.shard for point in run.points):
        if standings == {Standing.DONE}:
            yield Step(f"jobkit merge {typed}", "joins the results of all shards", Kind.LOOK)
    elif Standing.DONE in standings:
        yield Step(f"jobkit collect {typed}", "the table of what is done", Kind.LOOK)


def _may_add(run: RunStanding, job: JobStanding) -> bool:
    """Return whether a job may still add to a run; one that runs failed points again needs some."""
    failed = any(point.standing is Standing.FAILED for point in run.points)
    return job.submission.role is not Role.FOLLOW or failed


def _the(number: int, noun: str) -> str:
    return f"the {noun}" if number == 1 else f"the {number:,} {noun}s"


def job_line(run: RunStanding, job: JobStanding) -> str:
    """Return how a job that waits for the points stands; empty if its scheduler does not answer.

    Of several jobs that have ended, only the last of a role has a line.
    """
    sent = job.submission
    name = f"job {sent.job}, which {PURPOSES[sent.role]},"
    if sent.role is Role.PLAN and run.points and job.state != Standing.STUCK:
        return ""
    if sent.role is Role.FOLLOW and _goes_on(run, job):
        return ""
    if job.state == standing.ENDED:
        last = [other for other in run.jobs if other.submission.role is sent.role][-1]
        return f"{name} has ended ({job.why})" if job is last else ""
    if sent.scheduler in run.silent:
        return ""
    states = {
        Standing.RUNNING: "is running",
        Standing.STUCK: f"is stuck: {job.why}",
        Standing.WAITING: _waiting(run, job),
        Standing.UNSETTLED: "has left the queue; how it ended is not known yet",
    }
    return f"{name} {states[Standing(job.state)]}"


def _goes_on(run: RunStanding, job: JobStanding) -> bool:
    """Return whether a job that runs failed points again needs nothing from a person: it waits or runs.

    It is over without a word if no point is left that failed.
    """
    if job.state == Standing.WAITING:
        waits = any(point.state in {HELD, Standing.STUCK} for point in run.points)
        return not waits and not _idle(run, job)
    failed = any(point.standing is Standing.FAILED and not point.cancelled for point in run.points)
    return job.state == Standing.RUNNING or (job.state == standing.ENDED and not failed)


def _waiting(run: RunStanding, job: JobStanding) -> str:
    if job.submission.role is Role.PLAN:
        return f"waits: {job.why}" if job.why else "waits"
    if any(point.state in {HELD, Standing.STUCK} for point in run.points):
        return f"begins when the {run.noun}s have ended, so a person must release them first"
    if _idle(run, job):
        return f"waits though the {run.noun}s have ended: {job.why}"
    return f"begins when the {run.noun}s have ended"
