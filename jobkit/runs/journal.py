"""Write and read ``journal.jsonl``: what jobkit did to the scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line, parse_object, read_text, read_tolerantly
from jobkit.core.layout import JOURNAL_FILE
from jobkit.core.records import Point
from jobkit.schedulers.types import JobId


def note(run_dir: Path, event: str, **fields: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """Append one event, on disk before this returns.

    Events are ``submitting``, ``submitted``, ``refused``, ``cancelled``, ``throttled``, ``superseded`` and
    others; their fields are argv, job ids, first and last task, offset.
    """
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    append_line(run_dir / JOURNAL_FILE, json.dumps({"at": at, "event": event, **fields}, ensure_ascii=False))


class Role(StrEnum):
    POINTS = "points"
    FIND = "find"
    TUNE = "tune"
    FOLLOW = "follow"
    PLAN = "plan"


SEARCHES = frozenset({Role.FIND, Role.TUNE})  # roles of jobs that choose points and run them
PLANNERS = frozenset({Role.PLAN})  # roles of jobs that write all points and submit them
ADDERS = SEARCHES | PLANNERS  # roles of jobs that add points to the run
FOLLOWED = frozenset({Role.POINTS, Role.TUNE})  # roles of jobs after which failed points run again
PURPOSES = {
    Role.FOLLOW: "runs again what failed",
    Role.FIND: "tries the largest batch",
    Role.TUNE: "searches for the fastest setting",
    Role.PLAN: "reads and plans the corpus",
}  # what a job does that is no array of points
LAST_WORDS = {Role.FIND: "its last trial has ended", Role.TUNE: "it has found a setting"}
"""The last line on an ended search, if no scheduler reports how it ended."""


@dataclass(frozen=True, slots=True)
class JobTask:
    """A task of a job, in the scheduler's names."""

    scheduler: str
    job_id: str
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job that a scheduler accepted: a line of the journal."""

    at: str  # when, UTC, ISO 8601
    scheduler: str
    job: JobId
    # task k of ``first`` to ``last`` runs point k + offset; with a list, its line k + offset
    first: int
    last: int
    offset: int = 0
    role: Role = Role.POINTS
    round: int = 1  # which submission of the run it belongs to: 1 is the sweep
    only: frozenset[int] = frozenset()  # empty for all from ``first`` to ``last``
    lines: tuple[tuple[int, ...], ...] = ()  # of the list, the points of each line; empty if there is no list
    # ``key=value`` of each ``--set`` that a person gave with it, or with an earlier job of its points
    given: tuple[str, ...] = ()
    walltime_s: int | None = None  # that each of its points requested; ``None`` if that is not recorded
    memory_bytes: int | None = None  # likewise
    # schedulers that could have run points that run without one
    # (`jobkit.schedulers.registry.unused_schedulers`); ``None`` if that is not recorded
    on_path: tuple[str, ...] | None = None

    def points_of(self, task: int) -> tuple[int, ...]:
        """Return the points that a task runs, in order; none if it is no task of this job."""
        if self.role in {Role.FOLLOW, *PLANNERS} or not self.first <= task <= self.last:
            return ()
        if not self.lines:
            return (task + self.offset,)
        line = task + self.offset
        return self.lines[line - 1] if line <= len(self.lines) else ()

    def tasks(self) -> Iterator[tuple[JobTask, tuple[int, ...]]]:
        for number in sorted(self.only) or range(self.first, self.last + 1):
            yield JobTask(self.scheduler, self.job.id, number), self.points_of(number)


@dataclass(slots=True, kw_only=True)
class Journal:
    """What a run's journal reports; only `read_journal` changes it."""

    submissions: tuple[Submission, ...] = ()  # the accepted jobs, in order
    # the fields of a ``submitting`` that neither ``submitted`` nor ``refused`` follows: the client died in
    # between, and the job may be in the queue
    unanswered: Mapping[str, Any] | None = None
    # the fields of a ``left`` after which no points were submitted: a person must do what the job that
    # follows, or that plans, could not do
    left: Mapping[str, Any] | None = None
    # when `jobkit cancel` or a refused sweep cancelled each task, UTC
    cancelled: dict[JobTask, str] = field(default_factory=dict)
    rounds: int = 0  # how many rounds were begun, refused rounds included
    buried: frozenset[str] = frozenset()  # the ids of drivers whose machine is gone, by the word of a person
    replaced: frozenset[int] = frozenset()  # shards that were planned again
    replacing: frozenset[int] = frozenset()  # shards that do the work of replaced ones
    # ``key=value`` that a person set for all points since, also by `jobkit throttle`; the last value counts
    given: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()  # the keys of them that a person named
    # ``key=value`` of what single shards need beyond the others, by index
    needs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # lines that could not be read

    def is_void(self, point: Point) -> bool:
        """Return whether a point never runs again and does not count: others do its work.

        So is a shard of a later plan that the journal does not name: that plan was cut off before it held.
        """
        later = point.kind.replanned and point.repeat > 1
        return point.index in self.replaced or (later and point.index not in self.replacing)


def read_journal(run: Path) -> Journal:
    """Read ``journal.jsonl`` of a run folder, and the lists of tasks that it names."""
    events, notes = read_tolerantly(run / JOURNAL_FILE, lambda line, where: _event(run, line, where))
    journal = Journal(notes=notes)
    for event, submission in events:
        kind = event.get("event")
        if kind in {"submitting", "submitted", "refused"}:
            journal.unanswered = event if kind == "submitting" else None
            journal.rounds = max(journal.rounds, _number(event.get("round")))
        if kind == "machine_gone" and isinstance(jobs := event.get("job_ids"), list):
            journal.buried |= set(map(str, jobs))
        if kind in {"needs", "superseded"}:
            _take_plan(journal, event)
        if kind == "throttled" and not event.get("refused") and isinstance(most := event.get("most"), int):
            journal.given += (f"max_parallel={most or 'null'}",)
        if kind == "left" or (submission is not None and submission.role in {Role.POINTS, *PLANNERS}):
            journal.left = event if kind == "left" else None
        if submission is not None:
            journal.submissions += (submission,)
        if kind == "cancelled" and not event.get("refused", event.get("status", 0)):
            journal.cancelled |= dict.fromkeys(
                _cancelled(event, journal.submissions), str(event.get("at", ""))
            )
    return journal


def _take_plan(journal: Journal, event: Mapping[str, Any]) -> None:
    """Add what an event of a corpus reports: what single shards need, or which were planned again."""
    words = tuple(str(word) for word in event.get("given") or ())
    if event["event"] == "needs":
        journal.needs |= dict.fromkeys(_indices(event, "points"), words)
        return
    journal.replaced |= _indices(event, "points")
    journal.replacing |= _indices(event, "by")
    journal.given += words
    journal.asked |= frozenset(str(key) for key in event.get("asked") or ())


def _indices(event: Mapping[str, Any], key: str) -> frozenset[int]:
    found = event.get(key)
    return (
        frozenset(index for index in found if isinstance(index, int))
        if isinstance(found, list)
        else frozenset()
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 1


STILL_AT_IT = timedelta(seconds=30)
"""A submit command may outlive its client for so long; clocks of login nodes may differ by it."""
MOST_TASKS = 1_000_000  # a line with more tasks, or with numbers far beyond, is damaged: no array is so long


def _event(run: Path, line: str, where: str) -> tuple[dict[str, Any], Submission | None]:
    event = parse_object(line, where)
    if not isinstance(event.get("event"), str) or not 0 <= _number(event.get("round")) <= MOST_TASKS:
        raise JobkitError(f"{where}: not an event of the journal")
    if event["event"] != "submitted":
        return event, None
    try:
        return event, _submission(run, event)
    except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise JobkitError(f"{where}: not a submission: {error!r}") from error


def _submission(run: Path, event: Mapping[str, Any]) -> Submission:
    listed = str(event.get("list") or "")
    numbers = [int(event[name] or 0) for name in ("first", "last", "offset", "round") if name in event]
    if any(abs(number) > MOST_TASKS * MOST_TASKS for number in numbers):
        raise ValueError(f"a number of {max(map(abs, numbers)):.0e}")
    if int(event["last"]) - int(event["first"]) >= MOST_TASKS:
        raise ValueError(f"{int(event['last']) - int(event['first']) + 1:,} tasks")
    return Submission(
        at=str(event.get("at", "")),
        scheduler=str(event["scheduler"]),
        job=JobId(str(event["job_id"]), str(event.get("cluster") or "")),
        first=int(event["first"]),
        last=int(event["last"]),
        offset=int(event.get("offset") or 0),
        role=Role(event.get("role") or Role.POINTS),
        round=int(event.get("round") or 1),
        only=frozenset(int(task) for task in event.get("only") or ()),
        lines=read_list(run / listed) if listed else (),
        given=tuple(str(word) for word in event.get("given") or ()),
        walltime_s=int(event["walltime_s"]) if "walltime_s" in event else None,
        memory_bytes=int(event["memory_bytes"]) if "memory_bytes" in event else None,
        on_path=tuple(str(word) for word in event["on_path"]) if "on_path" in event else None,
    )


def _cancelled(event: Mapping[str, Any], submissions: Sequence[Submission]) -> Iterator[JobTask]:
    """Yield the tasks that were cancelled: those named, or all of the job."""
    named = event.get("tasks")
    for submission in submissions:
        if submission.job.id == event.get("job_id"):
            for task, _ in submission.tasks():
                if not isinstance(named, list) or task.task in named:
                    yield task


def read_list(path: Path) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(word) for word in line.split()) for line in read_text(path).splitlines())
