"""Runs while they are looked at: which tasks are open, and what the schedulers say of those.

However many runs and points: at most one queue call and one accounting call a scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import POINTS_FILE, RESULTS_FOLDER, names, point_folder, try_numbers
from jobkit.core.records import Outcome, Point
from jobkit.core.units import format_count, format_moment
from jobkit.outcome.accounting import RETURNING, Accounts, ended_tasks, read_accounts
from jobkit.outcome.driver_lock import Life, life
from jobkit.outcome.journal import Role, Task
from jobkit.outcome.results import read_points
from jobkit.outcome.trials import finished
from jobkit.outcome.tries import TryResult, not_started, read_tries
from jobkit.schedulers.local import WHOLE
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.types import Accounted, JobId, Queued, State
from jobkit.status import queue

MAYBE = frozenset({Outcome.CANCELLED})
"""So says sacct, for 5 s, of a task that began just before others that waited with it were cancelled
(measured: their common row names it still, and its own is not there yet)."""


@dataclass(slots=True)
class OpenRun:
    """A run while it is looked at.

    Attributes
    ----------
    tries
        Of each point, by its index, the latest first; one of number 0 where none began.
    open
        The tasks of which the scheduler can say more.
    queued
        What the queue holds.
    silent
        The schedulers that did not answer.
    """

    folder: Path
    points: list[Point]
    accounts: Accounts
    tries: dict[int, tuple[TryResult, ...]]
    notes: list[str]
    open: set[Task] = field(default_factory=set)
    queued: dict[Task, Queued] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)


def open_run(folder: Path) -> OpenRun:
    """Read a run folder, and find the tasks of which the scheduler can say more.

    Raises
    ------
    JobkitError
        Where it is no run folder.
    """
    points, notes = read_points(folder)
    if not points:
        raise JobkitError(f"{folder}: not a run folder", hint="jobkit status lists the runs")
    run = OpenRun(folder, points, read_accounts(folder, name=points[0].run_id), {}, list(notes))
    run.notes += [*run.accounts.notes, *_unlisted(run)]
    present = names(folder / RESULTS_FOLDER)
    for point in points:
        _read_tries(run, point, present)
    run.open = {task for task, indices in _tasks(run) if _open(run, task, indices)}
    run.open |= {task for task, end in follower_ends(run).items() if not end}
    return run


def _unlisted(run: OpenRun) -> Iterator[str]:
    """Yield that points were submitted which the list of points does not hold: lines of it are lost."""
    sweeps = (submission for submission in run.accounts.submissions if submission.role is Role.POINTS)
    sent = {index for sweep in sweeps for _, indices in sweep.tasks() for index in indices}
    if lost := sent - {point.index for point in run.points}:
        yield f"{run.folder / POINTS_FILE}: {format_count(len(lost), 'point')} of the journal missing in it"


def _tasks(run: OpenRun) -> Iterator[tuple[Task, tuple[int, ...]]]:
    """Yield the tasks with the points of each, those that the job added itself too."""
    added: dict[Task, tuple[int, ...]] = {}
    for index in run.tries.keys() - run.accounts.submitted.keys():
        if task := task_of(run, index):
            added[task] = (*added.get(task, ()), index)
    for submission in run.accounts.submissions:
        for task, indices in submission.tasks():
            yield task, indices + added.get(task, ())


def task_of(run: OpenRun, index: int) -> Task | None:
    """Return the task that a point was last submitted as; of a further trial the one that made it."""
    if index in run.accounts.submitted:
        return run.accounts.submitted[index]
    finds = (submission for submission in run.accounts.submissions if submission.role is Role.FIND)
    made = run.tries[index][0].task
    return made if any(made == task for find in finds for task, _ in find.tasks()) else None


def _read_tries(run: OpenRun, point: Point, present: set[str]) -> None:
    home = point_folder(run.folder, point.point_id)
    numbers = try_numbers(home) if point.point_id in present else []
    run.tries[point.index] = tuple(read_tries(home, point, run.accounts, numbers)) or (
        not_started(point, run.accounts),
    )


def _open(run: OpenRun, task: Task, indices: tuple[int, ...]) -> bool:
    """Tell whether the scheduler can say more of a task: no job that follows ends in a file."""
    verdicts = [
        run.tries[index][0].verdict for index in indices if index in run.tries and task_of(run, index) == task
    ]
    if not any(index in run.tries for index in indices):
        return task not in ended_tasks(run.accounts) | run.accounts.cancelled.keys()
    if task not in run.accounts.gone and any(_unexplained(run, index) for index in indices):
        return True
    over = any(one.ended and not one.never_began for one in run.accounts.runs.get(task, ()))
    if not over and task not in run.accounts.gone and any(_ran_again(run, index) for index in indices):
        return True
    unsure = _unsure(run.accounts, task)
    return any(
        verdict.outcome is None or (verdict.provisional and not over) or verdict.outcome in unsure
        for verdict in verdicts
    )


def _unsure(accounts: Accounts, task: Task) -> frozenset[Outcome]:
    """Return the outcomes that are perhaps not the last of a task."""
    if task in accounts.gone:
        return frozenset()
    waited = any(one.never_began for one in accounts.runs.get(task, ()))
    return RETURNING | MAYBE if waited and task not in accounts.cancelled else RETURNING


def _unexplained(run: OpenRun, index: int) -> bool:
    """Tell whether an earlier try of a point ended and nothing tells why: its task ran again since."""
    earlier = run.tries.get(index, ())[1:]
    return any(one.account is None and one.verdict.outcome is Outcome.LOST for one in earlier)


def _ran_again(run: OpenRun, index: int) -> bool:
    """Tell whether the scheduler began a point's task again, and only the accounting knows why."""
    latest, *earlier = run.tries.get(index) or (None,)
    return latest is not None and any(
        one.task == latest.task and one.verdict.provisional and one.account is None for one in earlier
    )


def ask_about(scheduler: Scheduler, runs: Sequence[OpenRun], max_age_s: float) -> None:
    """Ask a scheduler about the open tasks of all runs, and read what the runs then know."""
    jobs = {run.folder: _jobs(run, scheduler.NAME) for run in runs}
    together = tuple(dict.fromkeys(job for some in jobs.values() for job in some))
    if not together:
        return
    folders, asking = [run.folder for run in runs], queue.QueryOptions(max_age_s)
    tasks = None if scheduler.RUNS_HERE else queue.ask_queue(scheduler, together, folders, asking)
    for run in runs:
        found = _drivers(run, jobs[run.folder]) if scheduler.RUNS_HERE else tasks
        if found is None:
            run.silent.add(scheduler.NAME)
        else:
            _take(run, scheduler.NAME, found)
    missed = [run for run in runs if _missed(run, scheduler.NAME)]
    told = _account(scheduler, missed, asking) if missed else ()
    for run in runs:
        if scheduler.NAME not in run.silent:
            _note_gone(run, scheduler.NAME, told, asking)
        _again(run, asking.unsaved.get(run.folder, ()))


def _drivers(run: OpenRun, jobs: Sequence[JobId]) -> tuple[Queued, ...] | None:
    """Return the drivers of a run that live; ``None`` where that is not known of one."""
    lives = {job.id: life(run.folder, job) for job in jobs if job.id not in run.accounts.buried}
    if Life.UNKNOWN in lives.values():
        return None
    return tuple(
        Queued(job_id=job, task=WHOLE, state=State.RUNNING) for job, one in lives.items() if one is Life.ALIVE
    )


def _jobs(run: OpenRun, scheduler: str) -> tuple[JobId, ...]:
    wanted = {task.job_id for task in run.open if task.scheduler == scheduler}
    found = (submission.job for submission in run.accounts.submissions if submission.scheduler == scheduler)
    return tuple(job for job in found if job.id in wanted)


def _take(run: OpenRun, scheduler: str, tasks: Iterable[Queued]) -> None:
    """Take what the queue holds of a run; a job under another name has only got its number."""
    name = run.points[0].run_id
    own = {submission.job.id for submission in run.accounts.submissions if submission.scheduler == scheduler}
    for one in tasks:
        if one.job_id in own and one.name in {"", name}:
            for task in _named(run, scheduler, one):
                run.queued[task] = one


def _named(run: OpenRun, scheduler: str, one: Queued) -> Iterable[Task]:
    """Yield the tasks that a line of the queue is about: a driver here stands for all that are open."""
    if one.task:
        yield Task(scheduler, one.job_id, one.task)
    else:
        yield from (task for task in run.open if (task.scheduler, task.job_id) == (scheduler, one.job_id))


def _missed(run: OpenRun, scheduler: str) -> set[Task]:
    """Return the open tasks that the queue does not hold."""
    if scheduler in run.silent:
        return set()
    return {task for task in run.open if task.scheduler == scheduler and task not in run.queued}


def _account(
    scheduler: Scheduler, runs: Sequence[OpenRun], asking: queue.QueryOptions
) -> tuple[Accounted, ...]:
    """Ask the accounting about the tasks that have left the queue; return what it knows."""
    jobs = tuple(dict.fromkeys(job for run in runs for job in _jobs(run, scheduler.NAME)))
    since = queue.local_time(min(submission.at for run in runs for submission in run.accounts.submissions))
    name = runs[0].points[0].run_id if len(runs) == 1 else ""
    folders = [run.folder for run in runs]
    return queue.ask_accounting(scheduler, jobs, since, name, folders, asking) or ()


def _note_gone(run: OpenRun, scheduler: str, told: Sequence[Accounted], asking: queue.QueryOptions) -> None:
    """Note the tasks that neither queue nor accounting knows; what is gone for good stays so."""
    own = {"", run.points[0].run_id}
    known = {
        Task(scheduler, one.job_id, one.task)
        for one in told
        if one.ended and one.name in own and one.outcome not in RETURNING and not one.never_began
    }
    gone = {task for task in run.accounts.gone if task.scheduler == scheduler and task not in run.open}
    missed = (_missed(run, scheduler) - known) | gone
    queue.log_missing_tasks(scheduler, missed, run.accounts, run.folder, asking)


def _again(run: OpenRun, unsaved: Sequence[str]) -> None:
    """Judge the open points anew by what the scheduler said."""
    run.accounts = read_accounts(run.folder, name=run.points[0].run_id, unsaved=unsaved)
    present = names(run.folder / RESULTS_FOLDER)
    for point in run.points:
        verdict = run.tries[point.index][0].verdict
        if (
            verdict.outcome is None
            or verdict.provisional
            or verdict.outcome in RETURNING | MAYBE
            or _unexplained(run, point.index)
            or _ran_again(run, point.index)
        ):
            _read_tries(run, point, present)


def follower_ends(run: OpenRun) -> dict[Task, str]:
    """Return how each job that waits for the points ended, in words; empty words if that is not known."""
    jobs = [submission for submission in run.accounts.submissions if submission.role is not Role.POINTS]
    last_find = next((job for job in reversed(jobs) if job.role is Role.FIND), None)
    ends = {}
    for job in jobs:
        for task, _ in job.tasks():
            ends[task] = _end(run.accounts, task)
            if job is last_find and not ends[task] and _all_tried(run.folder):
                ends[task] = "its last trial has ended"
    return ends


def _end(accounts: Accounts, task: Task) -> str:
    """Return how a task ended: by the accounting, else by what jobkit itself knows."""
    if task in ended_tasks(accounts) and task not in accounts.gone:
        return accounts.runs[task][-1].evidence or "the accounting does not report how"
    if task in accounts.cancelled:
        return f"cancelled at {format_moment(accounts.cancelled[task])}"
    if task in accounts.gone:
        return (
            f"neither the queue nor the accounting has listed it since {format_moment(accounts.gone[task])}"
        )
    return ""


def _all_tried(folder: Path) -> bool:
    """Tell whether the job that tries the largest batch has left its last result."""
    try:
        return finished(folder)
    except JobkitError:
        return False
