"""Read runs, and ask the schedulers about the tasks that are still open.

However many runs and points: at most one queue call and one accounting call a scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import POINTS_FILE, is_unplanned, run_id_of
from jobkit.core.records import Outcome
from jobkit.core.units import format_count, format_moment
from jobkit.outcome.accounting import RETURNING, Accounts, join_answers
from jobkit.outcome.driver_lock import Life, life
from jobkit.outcome.journal import SEARCHES, Role, Task
from jobkit.outcome.results import PointResult, read_result, read_run
from jobkit.outcome.trials import finished
from jobkit.schedulers.local import WHOLE
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.types import Accounted, JobId, Queued, State
from jobkit.status import queue
from jobkit.status.standing import RunStanding

MAYBE = frozenset({Outcome.CANCELLED})
"""sacct reports it, for 5 s, of a task that began just before others that waited with it were cancelled
(measured: their common row names it still, and its own is not there yet)."""


@dataclass(slots=True)
class OpenRun:
    """A run while the schedulers are asked about it.

    Attributes
    ----------
    results
        By the point's index.
    open
        The tasks of which the scheduler may know more.
    queued
        What the queue holds.
    silent
        The schedulers that did not answer.
    """

    folder: Path
    results: dict[int, PointResult]
    accounts: Accounts
    notes: list[str]
    open: set[Task] = field(default_factory=set)
    queued: dict[Task, Queued] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The run id, which is the name of its jobs."""
        points = [result.point for result in self.results.values()]
        return run_id_of(self.folder, points) or self.folder.name

    def find_jobs(self, scheduler: str) -> tuple[JobId, ...]:
        """Return the jobs of a scheduler that have open tasks."""
        ids = {task.job_id for task in self.open if task.scheduler == scheduler}
        jobs = (job for job in self.accounts.journal.submissions if job.scheduler == scheduler)
        return tuple(job.job for job in jobs if job.job.id in ids)


def open_run(folder: Path) -> OpenRun:
    """Read a run folder, and find the tasks of which the scheduler may know more.

    Raises
    ------
    JobkitError
        If it is no run folder.
    """
    unplanned = is_unplanned(folder)  # before the points are read, for a job may write them meanwhile
    read = read_run(folder)
    if not read.points and not unplanned:
        raise JobkitError(f"{folder}: not a run folder", hint="jobkit status lists the runs")
    results = {result.point.index: result for result in read.points}
    run = OpenRun(folder, results, read.accounts, list(read.notes))
    run.notes += _unlisted(run)
    run.open = {task for task, indices in _tasks(run) if _is_open(run, task, indices)}
    run.open |= {task for task, end in follower_ends(run).items() if not end}
    return run


def _unlisted(run: OpenRun) -> Iterator[str]:
    """Yield a note if points were submitted that the list of points does not hold: lines of it are lost."""
    sweeps = (job for job in run.accounts.journal.submissions if job.role is Role.POINTS)
    sent = {index for sweep in sweeps for _, indices in sweep.tasks() for index in indices}
    if lost := sent - run.results.keys() - run.accounts.journal.replaced:
        yield f"{run.folder / POINTS_FILE}: {format_count(len(lost), 'point')} of the journal not in it"


def _tasks(run: OpenRun) -> Iterator[tuple[Task, tuple[int, ...]]]:
    """Yield the tasks with the points of each, trials that the job added itself included."""
    added: dict[Task, tuple[int, ...]] = {}
    for index in run.results.keys() - run.accounts.submitted.keys():
        if task := task_of(run, index):
            added[task] = (*added.get(task, ()), index)
    for submission in run.accounts.journal.submissions:
        for task, indices in submission.tasks():
            yield task, indices + added.get(task, ())


def task_of(run: OpenRun, index: int) -> Task | None:
    """Return the task that a point was last submitted as; of a further trial the task that added it."""
    if index in run.accounts.submitted:
        return run.accounts.submitted[index]
    finds = (job for job in run.accounts.journal.submissions if job.role in SEARCHES)
    made = run.results[index].latest.task
    return made if any(made == task for find in finds for task, _ in find.tasks()) else None


def _is_open(run: OpenRun, task: Task, indices: tuple[int, ...]) -> bool:
    """Return whether the scheduler may know more of a task: no job that follows ends in a file."""
    accounts = run.accounts
    results = [run.results[index] for index in indices if index in run.results]
    if not results:
        return task not in accounts.ended | accounts.journal.cancelled.keys()
    over = any(account.ended and not account.never_began for account in accounts.runs.get(task, ()))
    unexplained = any(_unexplained(result) or (_ran_again(result) and not over) for result in results)
    if task not in accounts.gone and unexplained:
        return True
    unsure = _unsure(accounts, task)
    latest = (result.latest.verdict for result in results if task_of(run, result.point.index) == task)
    return any(
        verdict.outcome is None or (verdict.provisional and not over) or verdict.outcome in unsure
        for verdict in latest
    )


def _unsure(accounts: Accounts, task: Task) -> frozenset[Outcome]:
    """Return the outcomes that may not be the last of a task."""
    if task in accounts.gone:
        return frozenset()
    waited = any(account.never_began for account in accounts.runs.get(task, ()))
    return RETURNING | MAYBE if waited and task not in accounts.journal.cancelled else RETURNING


def _unexplained(result: PointResult) -> bool:
    """Return whether an earlier try of a point ended and nothing explains why: its task ran again since."""
    return any(
        tried.account is None and tried.verdict.outcome is Outcome.LOST for tried in result.all_tries[1:]
    )


def _ran_again(result: PointResult) -> bool:
    """Return whether the scheduler began a point's task again, and only the accounting knows why."""
    return any(
        tried.task == result.latest.task and tried.verdict.provisional and tried.account is None
        for tried in result.all_tries[1:]
    )


def ask_about(scheduler: Scheduler, runs: Sequence[OpenRun], max_age_s: float) -> None:
    """Ask a scheduler about the open tasks of all runs, and add what it answers to the runs."""
    name = scheduler.NAME
    jobs = tuple(dict.fromkeys(job for run in runs for job in run.find_jobs(name)))
    if not jobs:
        return
    query = queue.Query(max_age_s)
    tasks = (
        None if scheduler.RUNS_HERE else queue.ask_queue(scheduler, jobs, [run.folder for run in runs], query)
    )
    for run in runs:
        held = _drivers(run, name) if scheduler.RUNS_HERE else tasks
        if held is None:
            run.silent.add(name)
        else:
            _take(run, name, held)
    missed = [run for run in runs if _missed(run, name)]
    accounts = _ask_accounting(scheduler, missed, query) if missed else ()
    for run in runs:
        if name not in run.silent:
            _note_missing(run, name, accounts, query)
        _judge_again(run, query)


def _drivers(run: OpenRun, scheduler: str) -> tuple[Queued, ...] | None:
    """Return the drivers of a run that live; ``None`` if that is not known of one of them."""
    buried = run.accounts.journal.buried
    lives = {job.id: life(run.folder, job) for job in run.find_jobs(scheduler) if job.id not in buried}
    if Life.UNKNOWN in lives.values():
        return None
    alive = (job for job, state in lives.items() if state is Life.ALIVE)
    return tuple(Queued(job_id=job, task=WHOLE, state=State.RUNNING) for job in alive)


def _take(run: OpenRun, scheduler: str, tasks: Iterable[Queued]) -> None:
    """Add what the queue holds of a run; a job under another name has only got its number."""
    own = {job.job.id for job in run.accounts.journal.submissions if job.scheduler == scheduler}
    for queued in tasks:
        if queued.job_id not in own or queued.name not in {"", run.name}:
            continue
        if queued.task:
            run.queued[Task(scheduler, queued.job_id, queued.task)] = queued
        else:  # a driver here holds all that are open
            held = (task for task in run.open if (task.scheduler, task.job_id) == (scheduler, queued.job_id))
            run.queued |= dict.fromkeys(held, queued)


def _missed(run: OpenRun, scheduler: str) -> set[Task]:
    """Return the open tasks that the queue does not hold."""
    if scheduler in run.silent:
        return set()
    return {task for task in run.open if task.scheduler == scheduler and task not in run.queued}


def _ask_accounting(
    scheduler: Scheduler, runs: Sequence[OpenRun], query: queue.Query
) -> tuple[Accounted, ...]:
    """Ask the accounting about the tasks that have left the queue; return what it knows."""
    jobs = tuple(dict.fromkeys(job for run in runs for job in run.find_jobs(scheduler.NAME)))
    since = queue.local_time(min(job.at for run in runs for job in run.accounts.journal.submissions))
    name = runs[0].name if len(runs) == 1 else ""
    folders = [run.folder for run in runs]
    return queue.ask_accounting(scheduler, jobs, since, name, folders, query) or ()


def _note_missing(run: OpenRun, scheduler: str, accounts: Sequence[Accounted], query: queue.Query) -> None:
    """Note the tasks that neither queue nor accounting knows; a task that is gone stays gone."""
    known = {
        Task(scheduler, account.job_id, account.task)
        for account in accounts
        if account.ended
        and account.name in {"", run.name}
        and account.outcome not in RETURNING
        and not account.never_began
    }
    gone = {task for task in run.accounts.gone if task.scheduler == scheduler and task not in run.open}
    missed = (_missed(run, scheduler) - known) | gone
    queue.log_missing_tasks(scheduler, missed, run.accounts, run.folder, query)


def _judge_again(run: OpenRun, query: queue.Query) -> None:
    """Judge the open points again by the answers.

    Their tries are read again, for a file may have come home while the schedulers were asked; all else
    that was read stays.
    """
    before = run.accounts
    new = query.answers.get(run.folder, [])
    run.accounts = join_answers(before.journal, [*before.answers, *new], name=before.name)
    for index, result in run.results.items():
        verdict = result.latest.verdict
        if (
            verdict.outcome is None
            or verdict.provisional
            or verdict.outcome in RETURNING | MAYBE
            or _unexplained(result)
            or _ran_again(result)
        ):
            run.results[index] = read_result(run.folder, result.point, run.accounts, [])


def follower_ends(run: OpenRun) -> dict[Task, str]:
    """Return how each job that waits for the points ended, in words; empty words if that is not known."""
    jobs = [job for job in run.accounts.journal.submissions if job.role is not Role.POINTS]
    last_find = next((job for job in reversed(jobs) if job.role in SEARCHES), None)
    ends = {}
    for job in jobs:
        for task, _ in job.tasks():
            ends[task] = _end(run.accounts, task)
            if job is last_find and not ends[task] and finished(run.folder):
                ends[task] = "its last trial has ended" if job.role is Role.FIND else "it has found a setting"
    return ends


def _end(accounts: Accounts, task: Task) -> str:
    """Return how a task ended: by the accounting, else by what jobkit itself knows."""
    if task in accounts.ended and task not in accounts.gone:
        return accounts.runs[task][-1].evidence or "the accounting does not report how"
    if task in accounts.journal.cancelled:
        return f"cancelled at {format_moment(accounts.journal.cancelled[task])}"
    if task in accounts.gone:
        since = format_moment(accounts.gone[task])
        return f"neither the queue nor the accounting has listed it since {since}"
    return ""


def record_accounting(run: RunStanding) -> None:
    """Ask the accounting about all jobs of a run, once, and keep the answer in its folder."""
    for name in run.schedulers:
        jobs = tuple(submission.job for submission in run.submissions if submission.scheduler == name)
        since = queue.local_time(min(submission.at for submission in run.submissions))
        queue.ask_accounting(by_name(name), jobs, since, run.name, [run.folder])
