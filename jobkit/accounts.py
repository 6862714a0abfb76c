"""Join the accounting's raw answers to points, through the journal. Reads files, calls nothing."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from jobkit.errors import JobkitError
from jobkit.jsonl import parse_object, read_tolerantly
from jobkit.records import ACCOUNTING_FILE, JOURNAL_FILE, Outcome
from jobkit.schedulers.base import Accounted, Queued, State
from jobkit.shell import Completed


class Parser(Protocol):
    """The part of a scheduler module that reads answers."""

    def parse_queue(self, answer: Completed) -> tuple[Queued, ...] | None:
        """Return the tasks still in the queue, ``None`` where the answer is no answer."""
        ...

    def parse_accounting(self, answer: Completed) -> tuple[Accounted, ...] | None:
        """Return what is known of the tasks, ``None`` where the accounting did not answer."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a job, in the scheduler's names."""

    scheduler: str
    job_id: str
    task: int


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the journal and the accounting tell of a run.

    Attributes
    ----------
    submitted
        The task that a point was last submitted as, by the point's index.
    accounted
        What is known of that task, by the point's index.
    notes
        Lines that could not be read.
    """

    submitted: Mapping[int, Task]
    accounted: Mapping[int, Accounted]
    notes: tuple[str, ...] = ()


def read_accounts(run: Path, parsers: Mapping[str, Parser] | None = None) -> Accounts:
    """Read ``journal.jsonl`` and ``accounting.jsonl`` of a run folder.

    Parameters
    ----------
    run
        The run folder.
    parsers
        By scheduler name; by default jobkit's own schedulers, loaded only if there is an answer.
    """
    journal, notes = read_tolerantly(run / JOURNAL_FILE, _submission)
    answers, more = read_tolerantly(run / ACCOUNTING_FILE, _answer)
    submitted = {
        task + offset: Task(scheduler, job_id, task)
        for scheduler, job_id, tasks, offset in filter(None, journal)
        for task in tasks
    }
    known = _known(answers, (_shipped() if parsers is None else parsers) if answers else {})
    accounted = {index: known[task] for index, task in submitted.items() if task in known}
    return Accounts(submitted, accounted, notes + more)


def _submission(line: str, where: str) -> tuple[str, str, range, int] | None:
    data = parse_object(line, where)
    if data.get("event") != "submitted":
        return None
    try:
        tasks = range(int(data["first"]), int(data["last"]) + 1)
        return str(data["scheduler"]), str(data["job_id"]), tasks, int(data.get("offset", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise JobkitError(f"{where}: not a submission: {error!r}") from error


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


def _known(answers: list[_Answer], parsers: Mapping[str, Parser]) -> dict[Task, Accounted]:
    """Return the newest word on every task; that it ended is not unsaid by an older queue."""
    known: dict[Task, Accounted] = {}
    # Newest first, and of the same question only the newest answer: the file grows with every poll.
    asked: set[tuple[str, ...]] = set()
    for answer in reversed(answers):
        question = (answer.scheduler, answer.kind, *answer.completed.argv)
        if question in asked or answer.scheduler not in parsers:
            continue
        told = list(_told(answer, parsers[answer.scheduler]))
        if told:
            asked.add(question)
        for item in told:
            task = Task(answer.scheduler, item.job_id, item.task)
            earlier = known.get(task)
            if earlier is None or (item.ended and not earlier.ended):
                known[task] = item
    return known


def _told(answer: _Answer, parser: Parser) -> Iterator[Accounted]:
    if answer.kind == "accounting":
        yield from parser.parse_accounting(answer.completed) or ()
        return
    for queued in parser.parse_queue(answer.completed) or ():
        reason = f" ({queued.reason})" if queued.reason else ""
        yield Accounted(
            job_id=queued.job_id,
            task=queued.task,
            ended=False,
            outcome=Outcome.QUEUE_ERROR if queued.state is State.ERROR else None,
            evidence=f"queue at {answer.at}: {queued.state}{reason}",
        )


def _shipped() -> Mapping[str, Parser]:
    registry: Any = importlib.import_module("jobkit.schedulers.registry")
    return cast("Mapping[str, Parser]", registry.SCHEDULERS)
