"""Join the accounting's raw answers to points, through the journal. Reads files, calls nothing."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, cast

from jobkit.core.errors import JobkitError
from jobkit.core.files import parse_object, read_tolerantly
from jobkit.core.layout import ACCOUNTING_FILE
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import format_moment
from jobkit.outcome.journal import Submission, Task, read_journal
from jobkit.schedulers.registry import runs_here
from jobkit.schedulers.types import Accounted, Queued, State

__all__ = ["Accounts", "Parser", "Task", "read_accounts"]

GONE_AFTER = timedelta(seconds=60)
"""A queue listing is empty for a moment now and then (nextflow#1007), and the accounting comes up to
15 s late: a task is gone when two looks so far apart did not find it."""


RETURNING = frozenset({Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.QUEUE_ERROR})
"""The accounting says so of tasks that have ended, and of those that the scheduler runs again or holds:
for 3.5 s sacct shows a requeued task as PREEMPTED and no more, and qacct has a record of a task in Eqw
(measured, Slurm 22.05.8, Grid Engine 8.1.9). So the queue is asked until they are gone from it."""


class Parser(Protocol):
    """The part of a scheduler module that reads answers."""

    def parse_queue(self, answer: Completed) -> tuple[Queued, ...] | None:
        """Return the tasks still in the queue, ``None`` where the answer is no answer."""
        ...

    def parse_accounting(self, answer: Completed) -> tuple[Accounted, ...] | None:
        """Return what is known of the tasks, ``None`` where the accounting did not answer."""
        ...


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the journal and the accounting tell of a run.

    Attributes
    ----------
    submissions
        The jobs that were taken, in order.
    submitted
        The task that a point was last submitted as, by the point's index.
    earlier
        The tasks that it was submitted as before, the oldest first; only of points that were.
    runs
        What is known of each task: one account for each time that the scheduler ran it.
    gone
        Of tasks that the queue does not hold any more, and of which nothing else is known: since when.
    missed
        By scheduler, the tasks that were missed in the last look.
    looked
        By scheduler, when something was last missed.
    cancelled
        The tasks that were taken back by jobkit itself, and when.
    packed
        Tasks that run several points.
    unanswered, left, buried
        As of `jobkit.outcome.journal.Journal`.
    notes
        Lines that could not be read.
    """

    submissions: tuple[Submission, ...]
    submitted: Mapping[int, Task]
    runs: Mapping[Task, tuple[Accounted, ...]]
    gone: Mapping[Task, str] = field(default_factory=dict)
    missed: Mapping[str, frozenset[Task]] = field(default_factory=dict)
    looked: Mapping[str, str] = field(default_factory=dict)
    cancelled: Mapping[Task, str] = field(default_factory=dict)
    earlier: Mapping[int, tuple[Task, ...]] = field(default_factory=dict)
    packed: frozenset[Task] = frozenset()
    unanswered: Mapping[str, Any] | None = None
    left: Mapping[str, Any] | None = None
    buried: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def accounted(self) -> dict[int, Accounted]:
        """What is known of the task that a point was last submitted as, by the point's index."""
        return {index: self.runs[task][-1] for index, task in self.submitted.items() if task in self.runs}

    def due(self, scheduler: str, now: str) -> bool:
        """Tell whether it is time to note again what is missed: then it can be told for how long."""
        last = self.looked.get(scheduler)
        return last is None or _apart(last, now)


def read_accounts(
    run: Path,
    parsers: Mapping[str, Parser] | None = None,
    *,
    name: str | None = None,
    unsaved: Sequence[str] = (),
) -> Accounts:
    """Read ``journal.jsonl`` and ``accounting.jsonl`` of a run folder.

    Parameters
    ----------
    run
        The run folder.
    parsers
        By scheduler name; by default jobkit's own schedulers, loaded only if there is an answer.
    name
        The job name of the run: an account under another name is of another job, for schedulers
        give a number again in time (submitit#1660). Without it the number alone counts.
    unsaved
        Further lines of ``accounting.jsonl``, where the file could not be written.
    """
    journal = read_journal(run)
    lines, more = read_tolerantly(run / ACCOUNTING_FILE, _answer)
    lines += [_answer(line, "an answer of now") for line in unsaved]
    answers = [line for line in lines if line.kind != GONE]
    misses = [line for line in lines if line.kind == GONE]
    tasks = [(task, points) for submission in journal.submissions for task, points in submission.tasks()]
    known = _known(answers, (_shipped() if parsers is None else parsers) if answers else {}, name)
    gone = _gone(misses)
    return Accounts(
        submissions=journal.submissions,
        submitted={index: task for task, points in tasks for index in points},
        runs=known,
        gone=gone.gone,
        missed={misse.scheduler: frozenset(gone.since.get(misse.scheduler, ())) for misse in misses},
        looked={misse.scheduler: misse.at for misse in misses},
        cancelled=journal.cancelled,
        earlier=_earlier(tasks),
        packed=frozenset(task for task, points in tasks if len(points) > 1),
        unanswered=journal.unanswered,
        left=journal.left,
        buried=journal.buried,
        notes=journal.notes + more,
    )


def ended_tasks(accounts: Accounts) -> frozenset[Task]:
    """Return the tasks that are known to have ended, or to be gone."""
    over = (task for task, runs in accounts.runs.items() if runs[-1].ended)
    return frozenset(accounts.gone) | {
        task for task in over if accounts.runs[task][-1].outcome not in RETURNING
    }


def _earlier(tasks: Sequence[tuple[Task, tuple[int, ...]]]) -> dict[int, tuple[Task, ...]]:
    last: dict[int, Task] = {}
    earlier: dict[int, tuple[Task, ...]] = {}
    for task, points in tasks:
        for index in points:
            if index in last:
                earlier[index] = (*earlier.get(index, ()), last[index])
            last[index] = task
    return earlier


GONE = "gone"
"""The kind of a line of ``accounting.jsonl`` that says which tasks the queue did not hold."""
CHANGES, FOUND = ("changes",), "-"
"""The ``argv`` of such a line that names only what has changed since the one before: tasks that were
missed, and, with a minus, found again. Naming all of them each time made the file grow as their square."""


@dataclass(frozen=True, slots=True)
class _Answer:
    at: str
    kind: str
    scheduler: str
    completed: Completed


def _answer(line: str, where: str) -> _Answer:
    data = parse_object(line, where)
    try:
        argv = tuple(str(word) for word in data["argv"])
        done = Completed(argv, int(data["status"]), str(data["stdout"]), str(data["stderr"]))
        return _Answer(str(data["at"]), str(data["kind"]), str(data["scheduler"]), done)
    except (KeyError, TypeError, ValueError) as error:
        raise JobkitError(f"{where}: not an answer: {error!r}") from error


@dataclass(slots=True)
class _Missed:
    """Tasks that the queue did not hold, by scheduler, and since when; those of them that are gone."""

    since: dict[str, dict[Task, str]] = field(default_factory=dict)
    gone: dict[Task, str] = field(default_factory=dict)


def _gone(lines: list[_Answer]) -> _Missed:
    """Return the tasks that were missed, and those missed in every look from one to another long after."""
    found = _Missed()
    waiting: dict[Task, str] = {}  # missed, and not gone yet
    for line in lines:
        since = found.since.setdefault(line.scheduler, {})
        missed, again = _changes(line, since)
        for task in again:  # one that was found again is not gone
            for known in (since, found.gone, waiting):
                known.pop(task, None)
        for task in missed:
            waiting[task] = since[task] = line.at
        at_once = runs_here(line.scheduler)  # a process that is gone does not come back
        over = {
            task: at
            for task, at in waiting.items()
            if task.scheduler == line.scheduler and (at_once or _apart(at, line.at))
        }
        found.gone |= over
        for task in over:
            del waiting[task]
    return found


def _changes(line: _Answer, since: Mapping[Task, str]) -> tuple[set[Task], set[Task]]:
    """Return the tasks that a line misses for the first time, and those that were found again."""
    words = line.completed.stdout.split()
    missed = _tasks(line.scheduler, (word for word in words if not word.startswith(FOUND)))
    if line.completed.argv == CHANGES:
        again = _tasks(line.scheduler, (word[1:] for word in words if word.startswith(FOUND)))
    else:
        again = since.keys() - missed  # a line of jobkit 0.1 names all
    return missed - since.keys(), again


def _tasks(scheduler: str, words: Iterable[str]) -> set[Task]:
    found = (word.rpartition(".") for word in words)
    return {Task(scheduler, job, int(task)) for job, _, task in found if job and task.isdecimal()}


def _apart(first: str, last: str) -> bool:
    try:
        return datetime.fromisoformat(last) - datetime.fromisoformat(first) >= GONE_AFTER
    except (ValueError, TypeError):
        return False


def _known(
    answers: list[_Answer], parsers: Mapping[str, Parser], name: str | None
) -> dict[Task, tuple[Accounted, ...]]:
    """Return the newest word on every task; that it ended is not unsaid by a queue, late as it may be.

    The accounting itself may unsay it: a task that was preempted runs again.
    """
    known: dict[Task, tuple[Accounted, ...]] = {}
    accounted: set[Task] = set()
    # Newest first, and of the same question only the newest answer: the file grows with every poll.
    # What asks nothing is a driver here, which tells of one point a line.
    asked: set[tuple[str, ...]] = set()
    for answer in reversed(answers):
        question = (answer.scheduler, answer.kind, *answer.completed.argv)
        if question in asked or answer.scheduler not in parsers:
            continue
        told = _by_task(answer, parsers[answer.scheduler], name)
        if told and answer.completed.argv:
            asked.add(question)
        for task, items in told.items():
            newer = known.get(task)
            if newer is not None and not answer.completed.argv:
                known[task] = items + newer  # a driver here ran the point again
            elif newer is None or (task not in accounted and items[-1].ended and not newer[-1].ended):
                known[task] = items
        accounted |= told.keys() if answer.kind == "accounting" else set()
    return known


def _by_task(answer: _Answer, parser: Parser, name: str | None) -> dict[Task, tuple[Accounted, ...]]:
    told: dict[Task, tuple[Accounted, ...]] = {}
    for item in _told(answer, parser):
        if not name or not item.name or item.name == name:
            task = Task(answer.scheduler, item.job_id, item.task)
            told[task] = (*told.get(task, ()), item)
    return told


def _told(answer: _Answer, parser: Parser) -> Iterator[Accounted]:
    if answer.kind == "accounting":
        yield from parser.parse_accounting(answer.completed) or ()
        return
    for queued in parser.parse_queue(answer.completed) or ():
        reason = f" ({queued.reason})" if queued.reason else ""
        yield Accounted(
            job_id=queued.job_id,
            task=queued.task,
            name=queued.name,
            ended=False,
            outcome=Outcome.QUEUE_ERROR if queued.state is State.ERROR else None,
            evidence=f"queue at {format_moment(answer.at)}: {queued.state}{reason}",
        )


def _shipped() -> Mapping[str, Parser]:
    registry: Any = importlib.import_module("jobkit.schedulers.registry")
    return cast("Mapping[str, Parser]", registry.SCHEDULERS)
