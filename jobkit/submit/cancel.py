"""What `jobkit cancel` does: choose the tasks, take them back by one command a job, and say so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError, file_error
from jobkit.core.layout import SPEC_FILE
from jobkit.core.terminal import shell_path
from jobkit.core.units import format_count
from jobkit.outcome.driver_lock import elsewhere, last_driver
from jobkit.outcome.journal import Role, Submission, Task, read_journal
from jobkit.outcome.trials import finished
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.types import State
from jobkit.spec.sweep_spec import load_spec
from jobkit.status.standing import (
    IN_QUEUE,
    PointStanding,
    RunStanding,
    Standing,
    count_by_state,
    find_point,
    followers,
    read_standings,
)
from jobkit.submit.controller import cancel_tasks
from jobkit.submit.launch import say
from jobkit.submit.recover import Strays, reconcile_submission, strays
from jobkit.submit.resubmit import alone, machine_of

LIVE = IN_QUEUE | {Standing.UNSETTLED}
"""A task that the queue does not show just now may be there all the same (nextflow#1007)."""
WAITED = {
    Role.FOLLOW: "which was to run again what the policy says",
    Role.FIND: "which was to try the largest batch",
}
MOST_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tasks of one job that are taken back.

    Attributes
    ----------
    tasks
        Their numbers; those that have ended are not among them.
    whole
        Whether nothing else is left of the job.
    """

    job: Submission
    tasks: tuple[int, ...]
    whole: bool


def cancel(run_dir: Path, named: Sequence[str], kept: Sequence[str]) -> int:
    """Take back points of a run, or all of it; return the exit code.

    Parameters
    ----------
    run_dir
        The run folder, absolute.
    named
        Points, by number or id; nothing for all, and the jobs that follow too.
    kept
        Points that stay; then the jobs that follow stay too.

    Raises
    ------
    JobkitError
        Where a word names no point, or a point alone cannot be cancelled; exit code 3 where the
        scheduler does not answer, or refuses.
    """
    whole = not named and not kept
    with _settled(run_dir, whole=whole):
        (seen,) = read_standings([run_dir])
        _refuse_unknown(seen)
        forgotten = _take_back_forgotten(run_dir) if whole else False
        points = points_to_cancel(seen, named, kept)
        say(f"{run_dir.name}: {count_by_state(seen)}")
        for one in _over(seen, named):
            say(f"{one.point.point_id} {_why_left(one)}")
        taken = read_journal(run_dir).cancelled
        new = [point for point in points if point.task not in taken]
        if already := [point.point.point_id for point in points if point.task in taken]:
            say(f"{_listed(already)} {'is' if len(already) == 1 else 'are'} being cancelled already")
        left = [point for point in points if point.task not in taken or not _ending(point)]
        parts = _parts(seen, left, list(_waiting(seen)) if whole else [], whole=whole)
        if parts:
            _take_back(run_dir, parts, new)
        elif not already and not forgotten:
            say(f"nothing to cancel: none of {_meant(named, kept)} is in the queue or running")
    return 0


@contextlib.contextmanager
def _settled(run_dir: Path, *, whole: bool) -> Iterator[None]:
    """Let nobody else submit, and know all that was; a driver here would hold the lock to its end.

    What runs can always be ended: also on a disk that is full, read-only or without locks.
    """
    with contextlib.ExitStack() as stack:
        if not all(map(runs_here, _schedulers(run_dir))):
            try:
                stack.enter_context(alone(run_dir, say))
            except JobkitError as error:
                say(f"{error.message}: jobkit cancels the jobs anyway; do not resume this run yet")
        try:
            reconcile_submission(run_dir, say)
        except OSError as error:
            say(f"{file_error(error).message}: jobkit cancels the jobs anyway")
        except Strays:
            if not whole:  # else they are cancelled with the rest
                raise
        yield


def _schedulers(run_dir: Path) -> set[str]:
    """Return the schedulers that may hold jobs of a run: those of its journal, and that of its spec."""
    journal = read_journal(run_dir)
    names = {submission.scheduler for submission in journal.submissions}
    if journal.unanswered:
        names.add(str(journal.unanswered.get("scheduler")))
    with contextlib.suppress(JobkitError):
        names.add(load_spec(run_dir / SPEC_FILE).scheduler)
    return names


def _take_back_forgotten(run_dir: Path) -> bool:
    """Cancel the jobs of a run that its journal does not know; tell whether there were any."""
    jobs = [(by_name(name), job) for name in _schedulers(run_dir) for job in strays(run_dir, by_name(name))]
    for scheduler, job in jobs:
        say(f"{scheduler.NAME} job {job} belongs to this run, but its journal does not list it")
        if refused := cancel_tasks(scheduler, run_dir, job, (), whole=True):
            message = f"{scheduler.NAME} did not cancel job {job}: {refused}"
            raise JobkitError(
                message, hint="end it with the scheduler's own command", exit_code=ExitCode.REFUSED
            )
        say(f"cancelled: job {job}")
    return bool(jobs)


def _refuse_unknown(seen: RunStanding) -> None:
    """Refuse where it is not known what still runs."""
    driver = last_driver(seen.folder)
    if driver and not driver.reachable and any(runs_here(task.scheduler) for task in seen.queued):
        message = f"it runs as process {driver.pid} on {driver.host}, which jobkit cannot reach from here"
        raise JobkitError(message, hint=f"run the same command on {driver.host}", exit_code=ExitCode.REFUSED)
    if not seen.silent:
        return
    if any(map(runs_here, seen.silent)):
        raise elsewhere(seen.folder, machine_of(seen))
    message = f"{', '.join(seen.silent)} does not answer, so nothing was cancelled"
    raise JobkitError(message, hint="try again when it does", exit_code=ExitCode.REFUSED)


def points_to_cancel(seen: RunStanding, named: Sequence[str], kept: Sequence[str]) -> list[PointStanding]:
    """Return the points to take back: none that has ended.

    Parameters
    ----------
    named, kept
        As for `cancel`.

    Raises
    ------
    JobkitError
        Where a word names no point, or a point that others share a job with, which are to stay.
    """
    live = [point for point in seen.points if point.standing in LIVE]
    wanted = {find_point(seen.points, word).point.index for word in named}
    stay = {find_point(seen.points, word).point.index for word in kept}
    points = [one for one in live if one.point.index not in stay and (not named or one.point.index in wanted)]
    if named or kept:
        _refuse_some(live, {point.point.index for point in points}, shell_path(seen.folder))
    return points


def _refuse_some(live: Sequence[PointStanding], taken: AbstractSet[int], run: str) -> None:
    """Refuse to end points whose job others need."""
    others: dict[Task | None, list[str]] = {}
    for one in live:
        if one.point.index not in taken:
            others.setdefault(one.task, []).append(one.point.point_id)
    for one in live:
        alone_ = f"{one.point.point_id} cannot be cancelled alone"
        if one.point.index not in taken:
            continue
        if one.task and runs_here(one.task.scheduler):
            message = f"{alone_}: one process runs all points here, one after the other"
            raise JobkitError(
                message, hint=f"jobkit cancel {run} ends it; jobkit resume {run} POINT runs one"
            )
        if one.task in others:
            message = f"{alone_}: it shares a job with {_listed(others[one.task])}"
            raise JobkitError(message, hint="they end together: name them all, or none of them")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _over(seen: RunStanding, named: Sequence[str]) -> list[PointStanding]:
    """Return the points that were named and are not to be cancelled any more."""
    indices = dict.fromkeys(find_point(seen.points, word).point.index for word in named)
    return [point for point in seen.points if point.point.index in indices and point.standing not in LIVE]


def _meant(named: Sequence[str], kept: Sequence[str]) -> str:
    return "the points named" if named else "the other points" if kept else "it"


def _ending(one: PointStanding) -> bool:
    """Tell whether the scheduler is ending a point's task; where it is not, it is asked again."""
    return one.queued is not None and one.queued.state is State.ENDING


def _why_left(one: PointStanding) -> str:
    if one.standing is Standing.MISSING:
        return "was never submitted"
    return f"has ended ({one.outcome}): left alone"


def _waiting(seen: RunStanding) -> Iterator[Part]:
    """Yield the jobs that follow and have not ended: first, lest they submit what is then cancelled."""
    for one, queued in followers(seen, Role.FOLLOW):
        if queued is not None or Task(one.scheduler, one.job.id, one.first) not in seen.ended:
            yield Part(job=one, tasks=(one.first,), whole=True)
    for one, queued in followers(seen, Role.FIND)[-1:]:
        gone = Task(one.scheduler, one.job.id, one.first) in seen.ended or finished(seen.folder)
        if queued is not None or not gone:
            yield Part(job=one, tasks=(one.first,), whole=True)


def _parts(
    seen: RunStanding, points: Sequence[PointStanding], first: Sequence[Part], *, whole: bool
) -> list[Part]:
    """Return jobs to take back first, and behind them the tasks of points, job by job."""
    tasks: dict[tuple[str, str], set[int]] = {}
    for one in points:
        if one.task:
            tasks.setdefault((one.task.scheduler, one.task.job_id), set()).add(one.task.task)
    if whole:  # also what the queue holds of a point that was submitted again since
        for task, queued in seen.queued.items():
            if queued.state is not State.ENDING:
                tasks.setdefault((task.scheduler, task.job_id), set()).add(task.task)
    for part in first:
        tasks.pop((part.job.scheduler, part.job.job.id), None)
    jobs = {(submission.scheduler, submission.job.id): submission for submission in seen.submissions}
    behind = (Part(job=jobs[job], tasks=tuple(sorted(some)), whole=whole) for job, some in tasks.items())
    return [*first, *behind]


def _take_back(run_dir: Path, parts: Sequence[Part], points: Sequence[PointStanding]) -> None:
    """Cancel job by job, and tell of each what became of it.

    Raises
    ------
    JobkitError
        Exit code 3, after all, where the scheduler refused some.
    """
    refusals = []
    taken: set[Task] = set()
    for part in parts:
        one = part.job
        refused = cancel_tasks(by_name(one.scheduler), run_dir, one.job, part.tasks, whole=part.whole)
        if refused:
            refusals.append(f"{one.scheduler} did not cancel job {one.job}: {refused}")
            continue
        taken |= {Task(one.scheduler, one.job.id, task) for task in part.tasks}
        if one.role in WAITED:
            say(f"cancelled: job {one.job}, {WAITED[one.role]}")
    _tell(run_dir, [point for point in points if point.task in taken])
    if refusals:
        raise JobkitError(
            "\n".join(refusals),
            hint=f"jobkit status {shell_path(run_dir)} tells what still runs",
            exit_code=ExitCode.REFUSED,
        )


def _tell(run_dir: Path, points: Sequence[PointStanding]) -> None:
    if points:
        say(f"cancelled: {format_count(len(points), 'point')}")
    if any(point.standing is Standing.RUNNING for point in points):
        say("what runs brings home what it has")
    say(f"  progress     jobkit status {shell_path(run_dir)}")
    say(f"  run again    jobkit resume {shell_path(run_dir)}")
