"""What `jobkit cancel` does to the tasks of a run, by one command a job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobkit.core.errors import JobkitError, RefusedError, UnknownError, file_error
from jobkit.core.layout import SPEC_FILE
from jobkit.core.terminal import note, note_next, shell_path
from jobkit.core.units import format_count, format_list, pauses
from jobkit.launch.resume import refuse_silent, run_lock
from jobkit.launch.scheduler_calls import StrayJobs, cancel_tasks, reconcile_submission, stray_jobs
from jobkit.runs import status
from jobkit.runs.driver_lock import last_driver
from jobkit.runs.journal import ADDERS, PURPOSES, JobTask, Role, Submission, read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.status import LIVE, PointStanding, PointStatus, RunStatus
from jobkit.schedulers.registry import by_name, runs_here
from jobkit.schedulers.types import State
from jobkit.spec.sweep_spec import load_spec

MOST_NAMES = 8
SEEN_WITHIN_S = 30.0  # how long to look whether cancelled tasks have left the queue


Part = tuple[Submission, tuple[int, ...]]  # a job, and its tasks to cancel, without those that have ended


def cancel(run_dir: Path, named: Sequence[str], kept: Sequence[str]) -> int:
    """Cancel points of a run, by number or id, or all of it; return the exit code.

    All points include the jobs that follow; if some points are ``kept``, these jobs stay too.
    """
    whole = not named and not kept
    with _settled(run_dir, whole=whole):
        (run,) = read_status([run_dir])
        driver = last_driver(run_dir)
        if driver and not driver.reachable and any(runs_here(task.scheduler) for task in run.queued):
            who = f"process {driver.pid} on {driver.host}"
            hint = f"run the same command on {driver.host}"
            message = f"the run works as {who}, which jobkit cannot reach from here"
            raise UnknownError(message, hint=hint)
        refuse_silent(run, "nothing was cancelled")
        # Jobs that the journal does not list: they end with the whole run.
        names = _schedulers(run_dir) if whole else ()
        strays = [(one, job) for one in map(by_name, names) for job in stray_jobs(run_dir, one)]
        for scheduler, job in strays:
            note(f"{scheduler.NAME} job {job} belongs to this run, but its journal does not list it")
            if refused := cancel_tasks(scheduler, run_dir, job, (), whole=True):
                message = f"{scheduler.NAME} did not cancel job {job}: {refused}"
                hint = "end it with the scheduler's own command"
                raise RefusedError(message, hint=hint)
            note(f"cancelled: job {job}")
        points = points_to_cancel(run, named, kept)
        note(f"{run.title} was: {status.count_by_state(run)}")
        chosen = _indices(run, named)
        for point in run.points:
            if point.point.index in chosen and point.standing not in LIVE:
                missing = point.standing is PointStanding.MISSING
                why = "was never submitted" if missing else f"has ended ({point.outcome}): left alone"
                note(f"{point.point.point_id} {why}")
        before = read_journal(run_dir).cancelled.keys()
        new = [point for point in points if point.task not in before]
        if already := [point.point.point_id for point in points if point.task in before]:
            are = "is" if len(already) == 1 else "are"
            note(f"{format_list(already, MOST_NAMES)} {are} being cancelled already")
        # A task that the scheduler is not ending yet is cancelled again.
        ending = {task for task, queued in run.queued.items() if queued.state is State.ENDING}
        left = [point for point in points if point.task not in before & ending]
        if parts := _parts(run, left, whole=whole):
            _cancel_parts(run_dir, parts, new, whole=whole)
        elif not already and not strays:
            what = f"the {run.noun}s named" if named else f"the other {run.noun}s" if kept else "it"
            note(f"nothing to cancel: none of {what} is in the queue or running")
    return 0


@contextlib.contextmanager
def _settled(run_dir: Path, *, whole: bool) -> Iterator[None]:
    """Hold the run's lock and reconcile unconfirmed submissions.

    Local runs are exempt: their driver holds the lock until it exits. A run can also be cancelled on a disk
    that is full, read-only or without locks.
    """
    with contextlib.ExitStack() as stack:
        if not all(map(runs_here, _schedulers(run_dir))):
            try:
                stack.enter_context(run_lock(run_dir))
            except JobkitError as error:
                note(f"{error.message}: jobkit cancels the jobs anyway; do not resume this run yet")
        try:
            reconcile_submission(run_dir, note)
        except OSError as error:
            note(f"{file_error(error).message}: jobkit cancels the jobs anyway")
        except StrayJobs:
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


def points_to_cancel(run: RunStatus, named: Sequence[str], kept: Sequence[str]) -> list[PointStatus]:
    """Return the points to end; refuse points that share a job with others, which are to stay."""
    live = [point for point in run.points if point.standing in LIVE]
    stay = _indices(run, kept)
    chosen = (_indices(run, named) if named else {point.point.index for point in live}) - stay
    points = [point for point in live if point.point.index in chosen]
    sharing: dict[JobTask | None, list[str]] = {}
    for other in live:
        if other.point.index not in chosen:
            sharing.setdefault(other.task, []).append(other.point.point_id)
    path = shell_path(run.folder)
    for point in points if sharing else ():
        name, noun = f"{point.point.point_id} cannot be cancelled alone", point.point.kind.noun
        if point.task and runs_here(point.task.scheduler):
            hint = f"jobkit cancel {path} ends it; jobkit resume {path} N runs one"
            raise JobkitError(f"{name}: one process runs all {noun}s here", hint=hint)
        if point.task and point.task in sharing:
            message = f"{name}: it shares a job with {format_list(sharing[point.task], MOST_NAMES)}"
            raise JobkitError(message, hint="they end together: name them all, or none of them")
    return points


def _indices(run: RunStatus, words: Sequence[str]) -> set[int]:
    return {status.find_point(run.points, word).point.index for word in words}


def _parts(run: RunStatus, points: Sequence[PointStatus], *, whole: bool) -> list[Part]:
    """Return the tasks of points, job by job; if all is cancelled, first the jobs that follow.

    Otherwise those could submit points that have just been cancelled.
    """
    chosen = [point.task for point in points if point.task]
    if whole:  # also what the queue holds of a point that was submitted again since
        chosen += [task for task, queued in run.queued.items() if queued.state is not State.ENDING]
    parts: list[Part] = []
    for job, queued in (*status.followers(run, Role.FOLLOW), *status.followers(run, *ADDERS)[-1:]):
        ended = status.first_task(job) in run.ended
        ended |= job.role in ADDERS and run.kind.finished(run.folder)
        if whole and (queued is not None or not ended):
            parts.append((job, (job.first,)))
    first = [job for job, _ in parts]
    parts += [part for part in run.by_job(chosen) if part[0] not in first]
    for job, _ in parts:
        if (job.scheduler, job.job.id) in run.foreign:
            note(f"{job.scheduler} job {job.job} is another job now: left alone")
    return [part for part in parts if (part[0].scheduler, part[0].job.id) not in run.foreign]


def _cancel_parts(
    run_dir: Path, parts: Sequence[Part], points: Sequence[PointStatus], *, whole: bool
) -> None:
    """Cancel job by job, and print the result of each; ``whole``: nothing else is left of the jobs."""
    refusals = []
    cancelled: set[JobTask] = set()
    for job, tasks in parts:
        refused = cancel_tasks(by_name(job.scheduler), run_dir, job.job, tasks, whole=whole)
        if refused:
            refusals.append(f"{job.scheduler} did not cancel job {job.job}: {refused}")
            continue
        cancelled |= {JobTask(job.scheduler, job.job.id, task) for task in tasks}
        if job.role in PURPOSES and job.role is not Role.FOLLOW:
            note(f"cancelled: job {job.job}, which {PURPOSES[job.role]}")
    run, ended = shell_path(run_dir), [point for point in points if point.task in cancelled]
    noun = ended[0].point.kind.noun if ended else ""
    alive = _alive_after(run_dir, cancelled)
    if gone := [point for point in ended if point.task not in alive]:
        note(f"cancelled: {format_count(len(gone), noun)}")
    if alive:
        ids = {point.task: point.point.point_id for point in points}
        names = sorted({ids.get(task, f"job {task.job_id}") for task in alive})
        note(
            f"the scheduler accepted it, but within {SEEN_WITHIN_S:.0f} s jobkit has not seen the end of "
            f"{format_list(names, MOST_NAMES)}: jobkit status {run}"
        )
    if any(point.standing is PointStanding.RUNNING for point in ended):
        note(f"running {noun}s copy their results to the run folder")
    note_next(f"jobkit resume {run}")
    if refusals:
        hint = f"jobkit status {run} shows what still runs"
        raise RefusedError("\n".join(refusals), hint=hint)


def _alive_after(run_dir: Path, cancelled: set[JobTask]) -> set[JobTask]:
    """Return the tasks that still wait or run after a while; all if the queue does not answer."""
    end, pause_s = time.monotonic() + SEEN_WITHIN_S, pauses(0.3, 5.0)
    while cancelled:
        (run,) = read_status([run_dir])
        alive = {task for task, queued in run.queued.items() if queued.state is not State.ENDING}
        alive |= {task for task in cancelled if task.scheduler in run.silent}
        if not alive & cancelled or time.monotonic() > end:
            return alive & cancelled
        time.sleep(next(pause_s))
    return set()
