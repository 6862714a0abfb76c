"""Look at runs: what is home, what the queue holds, what the accounting knows, joined point by point.

However many runs and points: at most one queue call and one accounting call a scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from jobkit import states
from jobkit.accounts import Accounts, read_accounts
from jobkit.errors import JobkitError
from jobkit.records import RESULTS, RESULTS_FOLDER, Outcome, Point
from jobkit.run_folder import read_points
from jobkit.schedulers.base import JobId, Queued, Scheduler, State
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.submissions import Role, Submission, Task
from jobkit.tries import Tried, names, not_started, read_tries, try_numbers


class Standing(StrEnum):
    """Where a point stands."""

    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"
    WAITING = "waiting"
    STUCK = "stuck"
    UNSETTLED = "unsettled"
    MISSING = "missing"


IN_QUEUE = frozenset({Standing.RUNNING, Standing.WAITING, Standing.STUCK})
"""The scheduler still holds the point's task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A point, all that is known of it now.

    Attributes
    ----------
    tries
        The latest first.
    counts
        The try that counts: the one that went well, else the latest; one of number 0 where none began.
    task
        It was last submitted as; ``None`` where it never was.
    queued
        What the queue holds of that task.
    """

    point: Point
    standing: Standing
    counts: Tried
    tries: tuple[Tried, ...] = ()
    task: Task | None = None
    queued: Queued | None = None

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the try that counts."""
        return self.counts.verdict.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLook:
    """A run, all that is known of it now.

    Attributes
    ----------
    points
        In their order.
    submissions
        The jobs that were taken.
    queued
        What the queue holds of them, by task; tasks of jobs that follow too.
    ended
        The tasks that are known to have ended, or to be gone.
    silent
        Schedulers that did not answer: of their tasks nothing is known but what is home.
    notes
        Lines that could not be read.
    """

    folder: Path
    points: tuple[Look, ...]
    submissions: tuple[Submission, ...]
    queued: Mapping[Task, Queued] = field(default_factory=dict)
    ended: frozenset[Task] = frozenset()
    silent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Run:
    """A run while it is looked at."""

    folder: Path
    points: list[Point]
    accounts: Accounts
    tries: dict[int, tuple[Tried, ...]]
    notes: list[str]
    open: set[Task] = field(default_factory=set)
    queued: dict[Task, Queued] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)


def look(folders: Sequence[Path], *, ask: bool = True, max_age_s: float = 0) -> tuple[RunLook, ...]:
    """Look at runs.

    Parameters
    ----------
    folders
        Run folders.
    ask
        Whether the schedulers are asked; without, files alone tell.
    max_age_s
        An answer so young that somebody else got on this machine will do.

    Raises
    ------
    JobkitError
        Where a folder is no run folder.
    """
    runs = [_read(folder) for folder in folders]
    if ask:
        for name, scheduler in SCHEDULERS.items():
            _ask(
                scheduler,
                [run for run in runs if any(task.scheduler == name for task in run.open)],
                max_age_s,
            )
    return tuple(_looked(run) for run in runs)


def _read(folder: Path) -> _Run:
    points, notes = read_points(folder)
    if not points:
        raise JobkitError(f"{folder}: not a run folder", hint="jobkit status lists the runs")
    run = _Run(folder, points, read_accounts(folder, name=points[0].run_id), {}, list(notes))
    run.notes += run.accounts.notes
    present = names(folder / RESULTS_FOLDER)
    for point in points:
        _read_tries(run, point, present)
    run.open = {task for task, indices in _tasks(run) if _open(run, task, indices)}
    return run


def _tasks(run: _Run) -> Iterator[tuple[Task, tuple[int, ...]]]:
    """Yield the tasks with the points of each, those that the job added itself too."""
    added: dict[Task, tuple[int, ...]] = {}
    for index in run.tries.keys() - run.accounts.submitted.keys():
        if task := _task(run, index):
            added[task] = (*added.get(task, ()), index)
    for one in run.accounts.submissions:
        for task, indices in one.tasks():
            yield task, indices + added.get(task, ())


def _task(run: _Run, index: int) -> Task | None:
    """Return the task that a point was last submitted as; of a further trial the one that made it."""
    if index in run.accounts.submitted:
        return run.accounts.submitted[index]
    finds = (one for one in run.accounts.submissions if one.role is Role.FIND)
    made = run.tries[index][0].task
    return made if any(made == task for one in finds for task, _ in one.tasks()) else None


def _read_tries(run: _Run, point: Point, present: set[str]) -> None:
    home = f"{run.folder}/{RESULTS_FOLDER}/{point.point_id}"
    numbers = try_numbers(home) if point.point_id in present else []
    run.tries[point.index] = tuple(read_tries(home, point, run.accounts, numbers)) or (
        not_started(point, run.accounts),
    )


def _open(run: _Run, task: Task, indices: tuple[int, ...]) -> bool:
    """Tell whether the scheduler can say more of a task: no job that follows ends in a file."""
    verdicts = [
        run.tries[index][0].verdict for index in indices if index in run.tries and _task(run, index) == task
    ]
    if not any(index in run.tries for index in indices):
        return task not in _ended(run.accounts) | run.accounts.cancelled.keys()
    ended = any(one.ended for one in run.accounts.runs.get(task, ()))
    return any(verdict.outcome is None or (verdict.provisional and not ended) for verdict in verdicts)


def _ask(scheduler: Scheduler, runs: Sequence[_Run], max_age_s: float) -> None:
    """Ask a scheduler about the open tasks of all runs, and read what the runs then know."""
    jobs = {run.folder: _jobs(run, scheduler.NAME) for run in runs}
    together = tuple(dict.fromkeys(job for some in jobs.values() for job in some))
    if not together:
        return
    folders, asking = [run.folder for run in runs], states.Asking(max_age_s)
    tasks = states.ask_queue(scheduler, together, folders, asking)
    for run in runs:
        if tasks is None:
            run.silent.add(scheduler.NAME)
        else:
            _take(run, scheduler.NAME, tasks)
    missed = [run for run in runs if _missed(run, scheduler.NAME)]
    if missed:
        _account(scheduler, missed, asking)
    for run in runs:
        _again(run, asking.unsaved.get(run.folder, ()))


def _jobs(run: _Run, scheduler: str) -> tuple[JobId, ...]:
    wanted = {task.job_id for task in run.open if task.scheduler == scheduler}
    found = (one.job for one in run.accounts.submissions if one.scheduler == scheduler)
    return tuple(job for job in found if job.id in wanted)


def _take(run: _Run, scheduler: str, tasks: Iterable[Queued]) -> None:
    """Take what the queue holds of a run; a job under another name has only got its number."""
    name = run.points[0].run_id
    own = {one.job.id for one in run.accounts.submissions if one.scheduler == scheduler}
    for one in tasks:
        if one.job_id in own and one.name in {"", name}:
            for task in _named(run, scheduler, one):
                run.queued[task] = one


def _named(run: _Run, scheduler: str, one: Queued) -> Iterable[Task]:
    """Yield the tasks that a line of the queue is about: a driver here stands for all that are open."""
    if one.task:
        yield Task(scheduler, one.job_id, one.task)
    else:
        yield from (task for task in run.open if (task.scheduler, task.job_id) == (scheduler, one.job_id))


def _missed(run: _Run, scheduler: str) -> set[Task]:
    """Return the open tasks that the queue does not hold."""
    if scheduler in run.silent:
        return set()
    return {task for task in run.open if task.scheduler == scheduler and task not in run.queued}


def _account(scheduler: Scheduler, runs: Sequence[_Run], asking: states.Asking) -> None:
    """Ask the accounting about the tasks that have left the queue; note those that it does not know."""
    jobs = tuple(dict.fromkeys(job for run in runs for job in _jobs(run, scheduler.NAME)))
    since = local_time(min(one.at for run in runs for one in run.accounts.submissions))
    name = runs[0].points[0].run_id if len(runs) == 1 else ""
    folders = [run.folder for run in runs]
    tasks = states.ask_accounting(scheduler, jobs, since, name, folders, asking)
    for run in runs:
        own = {"", run.points[0].run_id}
        told = {
            Task(scheduler.NAME, one.job_id, one.task) for one in tasks or () if one.ended and one.name in own
        }
        missed = _missed(run, scheduler.NAME) - told
        states.note_gone(scheduler.NAME, missed, run.accounts, run.folder, asking)


def local_time(at: str) -> str:
    """Return a moment, UTC, as schedulers take it: local ISO time without a zone."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def _again(run: _Run, unsaved: Sequence[str]) -> None:
    """Judge the open points anew by what the scheduler said."""
    run.accounts = read_accounts(run.folder, name=run.points[0].run_id, unsaved=unsaved)
    present = names(run.folder / RESULTS_FOLDER)
    for point in run.points:
        verdict = run.tries[point.index][0].verdict
        if verdict.outcome is None or verdict.provisional:
            _read_tries(run, point, present)


def _looked(run: _Run) -> RunLook:
    return RunLook(
        folder=run.folder,
        points=tuple(_point(run, point) for point in run.points),
        submissions=run.accounts.submissions,
        queued=run.queued,
        ended=_ended(run.accounts) | (run.accounts.cancelled.keys() - run.queued.keys()),
        silent=tuple(sorted(run.silent)),
        notes=tuple(run.notes),
    )


def _ended(accounts: Accounts) -> frozenset[Task]:
    return frozenset(accounts.gone) | {task for task, runs in accounts.runs.items() if runs[-1].ended}


def _point(run: _Run, point: Point) -> Look:
    tries = run.tries[point.index]
    counts = next((one for one in tries if one.verdict.outcome is Outcome.OK), tries[0])
    task = _task(run, point.index)
    queued = run.queued.get(task) if task else None
    return Look(
        point=point,
        standing=_standing(counts, tries[0], task, queued, packed=task in run.accounts.packed),
        counts=counts,
        tries=tuple(one for one in tries if one.files.number),
        task=task,
        queued=queued,
    )


def _standing(
    counts: Tried, latest: Tried, task: Task | None, queued: Queued | None, *, packed: bool
) -> Standing:
    if counts.verdict.outcome in RESULTS:
        return Standing.DONE
    if queued is not None and queued.state is State.ERROR:
        return Standing.STUCK
    begun = bool(latest.files.number) and latest.task == task
    over = begun and latest.verdict.outcome is not None
    if queued is not None and queued.state in {State.RUNNING, State.ENDING} and not over:
        return Standing.RUNNING if begun or (queued.task and not packed) else Standing.WAITING
    if queued is not None and queued.state not in {State.RUNNING, State.ENDING}:
        return Standing.WAITING  # also a task that the scheduler will run again by itself
    if counts.verdict.outcome is not None:
        return Standing.FAILED
    return Standing.UNSETTLED if task else Standing.MISSING


def followers(run: RunLook, role: Role) -> list[tuple[Submission, Queued | None]]:
    """Return the jobs of a run that wait for others, with what the queue holds of each."""
    return [
        (one, run.queued.get(Task(one.scheduler, one.job.id, one.first)))
        for one in run.submissions
        if one.role is role
    ]


def history(one: Look) -> list[tuple[Outcome | None, str]]:
    """Return outcome and node of each try of a point, the oldest first."""
    tries = one.tries or ((one.counts,) if one.task else ())
    return [(tried.verdict.outcome, tried.node) for tried in reversed(tries)]
