"""What `jobkit cancel` does to the tasks of a run, by one command a job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobkit.core.errors import JobkitError, RefusedError, UnknownError, file_error
from jobkit.core.frozen import keyed
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


@keyed
class Plan:
    """What of a run ends, before anything is asked of the scheduler."""

    # the jobs, each with its tasks that have not ended; first those that follow, which could submit points
    # that have just been cancelled
    parts: list[tuple[Submission, tuple[int, ...]]]
    new: list[PointStatus]  # the points that were not cancelled before
    already: list[str]  # the ids of the points that were, and have not ended
    lines: list[str]  # what is left alone, and why


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
        strays = _cancel_strays(run_dir) if whole else 0
        plan = plan_of(run, named, kept, whole=whole)
        for line in (f"{run.title} was: {status.count_by_state(run)}", *plan.lines):
            note(line)
        if plan.parts:
            _carry_out(plan, run_dir, whole=whole)
        elif not plan.already and not strays:
            what = f"the {run.noun}s named" if named else f"the other {run.noun}s" if kept else "it"
            note(f"nothing to cancel: none of {what} is in the queue or running")
    return 0


def _cancel_strays(run_dir: Path) -> int:
    """Cancel the jobs of a run that its journal does not list; return their number."""
    strays = [(one, job) for one in map(by_name, _schedulers(run_dir)) for job in stray_jobs(run_dir, one)]
    for scheduler, job in strays:
        note(f"{scheduler.NAME} job {job} belongs to this run, but its journal does not list it")
        if refused := cancel_tasks(scheduler, run_dir, job, (), whole=True):
            message = f"{scheduler.NAME} did not cancel job {job}: {refused}"
            raise RefusedError(message, hint="end it with the scheduler's own command")
        note(f"cancelled: job {job}")
    return len(strays)


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


def plan_of(run: RunStatus, named: Sequence[str], kept: Sequence[str], *, whole: bool) -> Plan:
    """Return what of a run ends; refuse points that share a job with others, which are to stay."""
    live = [point for point in run.points if point.standing in LIVE]
    asked = _indices(run, named)
    chosen = (asked if named else {point.point.index for point in live}) - _indices(run, kept)
    points = [point for point in live if point.point.index in chosen]
    _refuse_shared(run, points, [point for point in live if point.point.index not in chosen])
    lines = []
    for point in run.points:
        if point.point.index in asked and point.standing not in LIVE:
            missing = point.standing is PointStanding.MISSING
            why = "was never submitted" if missing else f"has ended ({point.outcome}): left alone"
            lines.append(f"{point.point.point_id} {why}")
    before = read_journal(run.folder).cancelled.keys()
    if already := [point.point.point_id for point in points if point.task in before]:
        are = "is" if len(already) == 1 else "are"
        lines.append(f"{format_list(already, MOST_NAMES)} {are} being cancelled already")
    # A task that the scheduler is not ending yet is cancelled again.
    ending = {task for task, queued in run.queued.items() if queued.state is State.ENDING}
    tasks = [point.task for point in points if point.task and point.task not in before & ending]
    parts = []
    if whole:  # also what the queue holds of a point that was submitted again since
        parts = _followers(run)
        tasks += [task for task in run.queued if task not in ending]
    first = [job for job, _ in parts]
    parts += [(job, numbers) for job, numbers in run.by_job(tasks) if job not in first]
    others = [job for job, _ in parts if (job.scheduler, job.job.id) in run.foreign]
    lines += [f"{job.scheduler} job {job.job} is another job now: left alone" for job in others]
    return Plan(
        parts=[(job, numbers) for job, numbers in parts if job not in others],
        new=[point for point in points if point.task not in before],
        already=already,
        lines=lines,
    )


def _indices(run: RunStatus, words: Sequence[str]) -> set[int]:
    return {status.find_point(run.points, word).point.index for word in words}


def _refuse_shared(run: RunStatus, points: Sequence[PointStatus], others: Sequence[PointStatus]) -> None:
    sharing: dict[JobTask | None, list[str]] = {}
    for other in others:
        sharing.setdefault(other.task, []).append(other.point.point_id)
    path = shell_path(run.folder)
    for point in points if sharing else ():
        name = f"{point.point.point_id} cannot be cancelled alone"
        if point.task and runs_here(point.task.scheduler):
            hint = f"jobkit cancel {path} ends it; jobkit resume {path} N runs one"
            raise JobkitError(f"{name}: one process runs all {run.noun}s here", hint=hint)
        if point.task and point.task in sharing:
            message = f"{name}: it shares a job with {format_list(sharing[point.task], MOST_NAMES)}"
            raise JobkitError(message, hint="they end together: name them all, or none of them")


def _followers(run: RunStatus) -> list[tuple[Submission, tuple[int, ...]]]:
    """Return the jobs that wait for others, or add points, and are not known to have ended."""
    jobs = (*status.followers(run, Role.FOLLOW), *status.followers(run, *ADDERS)[-1:])

    def ended(job: Submission) -> bool:
        return status.first_task(job) in run.ended or (job.role in ADDERS and run.kind.finished(run.folder))

    return [(job, (job.first,)) for job, queued in jobs if queued or not ended(job)]


def _carry_out(plan: Plan, run_dir: Path, *, whole: bool) -> None:
    """Cancel job by job, and print the result of each; ``whole``: nothing else is left of the jobs."""
    refusals = []
    cancelled: set[JobTask] = set()
    for job, tasks in plan.parts:
        refused = cancel_tasks(by_name(job.scheduler), run_dir, job.job, tasks, whole=whole)
        if refused:
            refusals.append(f"{job.scheduler} did not cancel job {job.job}: {refused}")
            continue
        cancelled |= {JobTask(job.scheduler, job.job.id, task) for task in tasks}
        if job.role in PURPOSES and job.role is not Role.FOLLOW:
            note(f"cancelled: job {job.job}, which {PURPOSES[job.role]}")
    alive = _alive_after(run_dir, cancelled)
    ended = [point for point in plan.new if point.task in cancelled]
    noun, run = plan.new[0].point.kind.noun if plan.new else "", shell_path(run_dir)
    if gone := [point for point in ended if point.task not in alive]:
        note(f"cancelled: {format_count(len(gone), noun)}")
    if alive:
        ids = {point.task: point.point.point_id for point in plan.new}
        names = sorted({ids.get(task, f"job {task.job_id}") for task in alive})
        note(
            f"the scheduler accepted it, but within {SEEN_WITHIN_S:.0f} s jobkit has not seen the end of "
            f"{format_list(names, MOST_NAMES)}: jobkit status {run}"
        )
    if any(point.standing is PointStanding.RUNNING for point in ended):
        note(f"running {noun}s copy their results to the run folder")
    if cancelled:
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
