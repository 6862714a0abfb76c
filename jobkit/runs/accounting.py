"""Join the accounting's raw answers to points, through the journal. Reads files, calls nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import parse_object, read_tolerantly
from jobkit.core.layout import ACCOUNTING_FILE
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import format_moment
from jobkit.runs.journal import JobTask, Journal, read_journal
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import Accounted, State

GONE_AFTER = timedelta(seconds=60)
"""A task is gone if two queries this far apart missed it: a queue listing is empty for a moment now and then
(nextflow#1007), and the accounting comes up to 15 s late."""


RETURNING = frozenset({Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.QUEUE_ERROR})
"""The accounting reports these also of tasks that the scheduler runs again or holds: for 3.5 s sacct shows a
requeued task as PREEMPTED and no more, and qacct has a record of a task in Eqw (measured, Slurm 22.05.8, Grid
Engine 8.1.9). So jobkit asks the queue until they have left it."""

GONE = "gone"  # the kind of a line of ``accounting.jsonl`` with the tasks that the queue did not hold
CHANGES, FOUND = ("changes",), "-"
"""The ``argv`` of such a line that lists only the changes since the line before: missing tasks, and, with a
minus, found ones. Whole lists made the file grow as the square of the tasks."""


@dataclass(frozen=True, slots=True)
class SchedulerAnswer:
    """What a scheduler's command printed: a line of ``accounting.jsonl``."""

    at: str  # when, UTC, ISO 8601
    kind: str  # ``queue``, ``accounting`` or `GONE`
    scheduler: str
    completed: Completed

    def as_line(self) -> str:
        fields = {"at": self.at, "kind": self.kind, "scheduler": self.scheduler}
        return json.dumps(fields | asdict(self.completed), ensure_ascii=False)


def parse_answer(line: str, where: str) -> SchedulerAnswer:
    data = parse_object(line, where)
    try:
        argv = tuple(str(word) for word in data["argv"])
        done = Completed(argv, int(data["status"]), str(data["stdout"]), str(data["stderr"]))
        return SchedulerAnswer(str(data["at"]), str(data["kind"]), str(data["scheduler"]), done)
    except (KeyError, TypeError, ValueError) as error:
        raise JobkitError(f"{where}: not an answer: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the journal and the accounting report of a run."""

    journal: Journal  # as read
    answers: tuple[SchedulerAnswer, ...]  # of the schedulers, the oldest first
    name: str | None  # of the run's jobs
    submitted: Mapping[int, JobTask]  # the task that a point was last submitted as, by the point's index
    # earlier tasks of each point that was submitted again, the oldest first
    earlier: Mapping[int, tuple[JobTask, ...]]
    # one account for each time that the scheduler ran the task
    runs: Mapping[JobTask, tuple[Accounted, ...]]
    # for tasks without any other information, since when they have left the queue
    gone: Mapping[JobTask, str]
    missed: Mapping[str, frozenset[JobTask]]  # by scheduler, the tasks that the last query did not find
    missed_at: Mapping[str, str]  # by scheduler, when that was last noted
    packed: frozenset[JobTask]  # tasks that run several points
    # walltime that each point of a task requested; no entry if that is not recorded
    walltimes_s: Mapping[JobTask, int]
    notes: tuple[str, ...]  # lines that could not be read

    def due(self, scheduler: str, now: str) -> bool:
        """Return whether to record again which tasks are missing, so that it is known for how long."""
        last = self.missed_at.get(scheduler)
        return last is None or _apart(last, now)

    @property
    def ended(self) -> frozenset[JobTask]:
        """The tasks that are known to have ended, or to be gone."""
        ended = (task for task, runs in self.runs.items() if runs[-1].ended)
        return frozenset(self.gone) | {task for task in ended if self.runs[task][-1].outcome not in RETURNING}


def read_accounts(run: Path, *, journal: Journal | None = None, name: str | None = None) -> Accounts:
    """Read ``journal.jsonl`` and ``accounting.jsonl`` of a run folder.

    ``journal`` is read now if it is ``None``. ``name`` is the job name of the run: schedulers reuse numbers
    in time (submitit#1660), so an account under another name is of another job. Without it the number alone
    counts.
    """
    answers, notes = read_tolerantly(run / ACCOUNTING_FILE, parse_answer)
    return join_answers(journal or read_journal(run), answers, name=name, notes=notes)


def join_answers(
    journal: Journal,
    answers: Sequence[SchedulerAnswer],
    *,
    name: str | None = None,
    notes: tuple[str, ...] = (),
) -> Accounts:
    """Return what answers of schedulers, the oldest first, report of the tasks of a journal."""
    tasks = [(task, points) for submission in journal.submissions for task, points in submission.tasks()]
    history: dict[int, tuple[JobTask, ...]] = {}  # of a point, by its index
    for task, points in tasks:
        for index in points:
            history[index] = (*history.get(index, ()), task)
    misses = [answer for answer in answers if answer.kind == GONE]
    since, gone = _missed(misses)
    return Accounts(
        journal=journal,
        answers=tuple(answers),
        name=name,
        submitted={index: every[-1] for index, every in history.items()},
        earlier={index: every[:-1] for index, every in history.items() if every[1:]},
        runs=_runs([answer for answer in answers if answer.kind != GONE], name),
        gone=gone,
        missed={miss.scheduler: frozenset(since[miss.scheduler]) for miss in misses},
        missed_at={miss.scheduler: miss.at for miss in misses},
        packed=frozenset(task for task, points in tasks if len(points) > 1),
        walltimes_s={
            task: sent.walltime_s
            for sent in journal.submissions
            if sent.walltime_s
            for task, _ in sent.tasks()
        },
        notes=journal.notes + notes,
    )


def _missed(lines: Sequence[SchedulerAnswer]) -> tuple[dict[str, dict[JobTask, str]], dict[JobTask, str]]:
    """Return since when the queue misses tasks, by scheduler; and the tasks missed long enough to be gone."""
    by_scheduler: dict[str, dict[JobTask, str]] = {}
    gone: dict[JobTask, str] = {}
    waiting: dict[JobTask, str] = {}  # missed, and not gone yet
    for line in lines:
        since = by_scheduler.setdefault(line.scheduler, {})
        missed, again = _changes(line, since)
        for task in again:  # it was found again, so it is not gone
            for tasks in (since, gone, waiting):
                tasks.pop(task, None)
        for task in missed:
            waiting[task] = since[task] = line.at
        at_once = runs_here(line.scheduler)  # a process that is gone does not come back
        over = {
            task: at
            for task, at in waiting.items()
            if task.scheduler == line.scheduler and (at_once or _apart(at, line.at))
        }
        gone |= over
        for task in over:
            del waiting[task]
    return by_scheduler, gone


def _changes(line: SchedulerAnswer, since: Mapping[JobTask, str]) -> tuple[set[JobTask], set[JobTask]]:
    """Return the tasks that a line misses for the first time, and those that were found again."""
    words = line.completed.stdout.split()
    missed = _tasks(line.scheduler, (word for word in words if not word.startswith(FOUND)))
    if line.completed.argv == CHANGES:
        again = _tasks(line.scheduler, (word[1:] for word in words if word.startswith(FOUND)))
    else:
        again = since.keys() - missed  # a line of jobkit 0.1 lists all
    return missed - since.keys(), again


def _tasks(scheduler: str, words: Iterable[str]) -> set[JobTask]:
    parts = (word.rpartition(".") for word in words)
    return {JobTask(scheduler, job, int(task)) for job, _, task in parts if job and task.isdecimal()}


def _apart(first: str, last: str) -> bool:
    try:
        return datetime.fromisoformat(last) - datetime.fromisoformat(first) >= GONE_AFTER
    except (ValueError, TypeError):
        return False


def _runs(answers: Sequence[SchedulerAnswer], name: str | None) -> dict[JobTask, tuple[Accounted, ...]]:
    """Return the latest information on every task.

    A stale queue answer never reverts a task that the accounting has reported as ended. The accounting itself
    may: a task that was preempted runs again.
    """
    runs: dict[JobTask, tuple[Accounted, ...]] = {}
    accounted: set[JobTask] = set()
    # The newest first, and only the newest answer to a question: the file grows with every query. An answer
    # without a command comes from a driver here, which reports one point a line.
    questions: set[tuple[str, ...]] = set()
    for answer in reversed(answers):
        question = (answer.scheduler, answer.kind, *answer.completed.argv)
        if question in questions or answer.scheduler not in SCHEDULERS:
            continue
        reported = _by_task(answer, name)
        if reported and answer.completed.argv:
            questions.add(question)
        for task, accounts in reported.items():
            newer = runs.get(task)
            if newer is not None and not answer.completed.argv:
                runs[task] = accounts + newer  # a driver here ran the point again
            elif newer is None or (task not in accounted and accounts[-1].ended and not newer[-1].ended):
                runs[task] = accounts
        accounted |= reported.keys() if answer.kind == "accounting" else set()
    return runs


def _by_task(answer: SchedulerAnswer, name: str | None) -> dict[JobTask, tuple[Accounted, ...]]:
    reported: dict[JobTask, tuple[Accounted, ...]] = {}
    for account in _parse(answer):
        if not name or not account.name or account.name == name:
            task = JobTask(answer.scheduler, account.job_id, account.task)
            reported[task] = (*reported.get(task, ()), account)
    return reported


def _parse(answer: SchedulerAnswer) -> Iterator[Accounted]:
    scheduler = SCHEDULERS[answer.scheduler]
    if answer.kind == "accounting":
        yield from scheduler.parse_accounting(answer.completed) or ()
        return
    for queued in scheduler.parse_queue(answer.completed) or ():
        reason = f" ({scheduler.explain(queued)})" if queued.reason else ""
        yield Accounted(
            job_id=queued.job_id,
            task=queued.task,
            name=queued.name,
            ended=False,
            outcome=Outcome.QUEUE_ERROR if queued.state is State.ERROR else None,
            evidence=f"queue at {format_moment(answer.at)}: {queued.state}{reason}",
        )
