"""What jobkit did at the schedulers, ``journal.jsonl``, and what they answered, ``accounting.jsonl``.

Only files are read and written here: `jobkit.runs.reader` asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line, parse_object, read_text, read_tolerantly
from jobkit.core.frozen import frozen, keyed
from jobkit.core.json_codec import from_dict
from jobkit.core.layout import ACCOUNTING_FILE, JOURNAL_FILE
from jobkit.core.records import Outcome, Point
from jobkit.core.shell import Completed
from jobkit.core.units import format_moment, moment
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import Accounted, JobId, Queued, SchedulerId, State


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


@frozen
class JobTask:
    """A task of a job, in the scheduler's names."""

    scheduler: str
    job_id: str
    task: int


@keyed
class Submission:
    """A job that a scheduler accepted: a line of the journal."""

    at: str  # when, UTC, ISO 8601
    scheduler: str
    job: JobId
    # task k of ``first`` to ``last`` runs point k + offset; with a list, its line k + offset
    first: int
    last: int
    offset: int = 0
    scheduler_id: SchedulerId | None = None  # the cluster and the user; ``None`` if that is not recorded
    role: Role = Role.POINTS
    round: int = 1  # which submission of the run it belongs to: 1 is the sweep
    only: frozenset[int] = frozenset()  # empty for all from ``first`` to ``last``
    lines: tuple[tuple[int, ...], ...] = ()  # of the list, the points of each line; empty if there is no list
    # ``key=value`` of each ``--set`` that a person gave with it, or with an earlier job of its points
    given: tuple[str, ...] = ()
    walltime_s: int | None = None  # that each of its points requested; ``None`` if that is not recorded
    memory_bytes: int | None = None  # likewise
    after: tuple[str, ...] = ()  # what it begins after, as a spec names it
    waits: tuple[JobId, ...] = ()  # the jobs of these that were in the queue
    # schedulers that could have run points that run without one
    # (`jobkit.schedulers.registry.unused_schedulers`); ``None`` if that is not recorded
    on_path: tuple[str, ...] | None = None

    def owns(self, row: Queued | Accounted, name: str) -> bool | None:
        """Return whether what a scheduler lists under the number of this job is this job.

        ``name`` is that of the run's jobs, empty if unknown. Schedulers reuse numbers in time
        (submitit#1660), and another cluster has them too. ``None`` if only the name is right.
        """
        if name and row.name not in {"", name}:
            return False
        at, user = moment(self.at), self.scheduler_id.user if self.scheduler_id else ""
        # an hour that summer time repeats, and clocks that differ
        before = at and row.submitted_at and row.submitted_at < at - timedelta(hours=2)
        return None if before or (user and row.user not in {"", user}) else True

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
    # ``key=value`` that a person set for all points since, also by `jobkit throttle` of an earlier version;
    # the last value counts
    given: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()  # the keys of them that a person named
    # ``key=value`` of what single shards need beyond the others, by index
    needs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    awaited: dict[str, None] = field(default_factory=dict)  # the folders of runs that begin after this one
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
        if kind == "awaited":
            journal.awaited[str(event.get("by"))] = None
        if kind in {"needs", "superseded"}:  # of a corpus
            words = tuple(str(word) for word in event.get("given") or ())
            if kind == "needs":
                journal.needs |= dict.fromkeys(_indices(event, "points"), words)
            else:
                journal.replaced |= _indices(event, "points")
                journal.replacing |= _indices(event, "by")
                journal.given += words
                journal.asked |= frozenset(str(key) for key in event.get("asked") or ())
        if kind == "throttled" and not event.get("refused") and isinstance(most := event.get("most"), int):
            journal.given += (f"max_parallel={most or 'null'}",)
        if kind == "ceiling" and isinstance(hours := event.get("max_gpu_hours"), int | float | None):
            journal.given += (f"max_gpu_hours={hours or 'null'}",)
        if kind == "left" or (submission is not None and submission.role in {Role.POINTS, *PLANNERS}):
            journal.left = event if kind == "left" else None
        if submission is not None:
            journal.submissions += (submission,)
        if kind == "cancelled" and not event.get("refused", event.get("status", 0)):
            named = event.get("tasks")
            jobs = (one for one in journal.submissions if one.job.id == event.get("job_id"))
            tasks = (task for job in jobs for task, _ in job.tasks())
            over = (task for task in tasks if not isinstance(named, list) or task.task in named)
            journal.cancelled |= dict.fromkeys(over, str(event.get("at", "")))
    return journal


def _indices(event: Mapping[str, Any], key: str) -> frozenset[int]:
    found = event.get(key)
    return frozenset(i for i in found if isinstance(i, int)) if isinstance(found, list) else frozenset()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 1


STILL_AT_IT = timedelta(seconds=30)
"""A submit command may outlive its client for so long; clocks of login nodes may differ by it."""


def _event(run: Path, line: str, where: str) -> tuple[dict[str, Any], Submission | None]:
    event = parse_object(line, where)
    if not isinstance(event.get("event"), str):
        raise JobkitError(f"{where}: not an event of the journal")
    try:
        return event, _submission(run, event) if event["event"] == "submitted" else None
    except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise JobkitError(f"{where}: not a submission: {error!r}") from error


def _submission(run: Path, event: Mapping[str, Any]) -> Submission:
    listed = str(event.get("list") or "")
    first, last = int(event["first"]), int(event["last"])
    if last - first >= 1_000_000:  # a damaged line: no array is so long
        raise ValueError(f"{last - first + 1:,} tasks")
    return Submission(
        at=str(event.get("at", "")),
        scheduler=str(event["scheduler"]),
        job=JobId(str(event["job_id"]), str(event.get("cluster") or "")),
        first=first,
        last=last,
        offset=int(event.get("offset") or 0),
        scheduler_id=recorded_id(event),
        role=Role(event.get("role") or Role.POINTS),
        round=int(event.get("round") or 1),
        only=frozenset(int(task) for task in event.get("only") or ()),
        lines=read_list(run / listed) if listed else (),
        given=tuple(str(word) for word in event.get("given") or ()),
        walltime_s=int(event["walltime_s"]) if "walltime_s" in event else None,
        memory_bytes=int(event["memory_bytes"]) if "memory_bytes" in event else None,
        after=tuple(str(word) for word in event.get("after") or ()),
        waits=tuple(JobId(*job) for job in event.get("waits") or ()),
        on_path=tuple(str(word) for word in event["on_path"]) if "on_path" in event else None,
    )


def recorded_id(event: Mapping[str, Any]) -> SchedulerId | None:
    """Return the cluster of a submission; ``None`` also if each of its commands names the cluster."""
    found = None if event.get("cluster") else event.get("scheduler_id")
    return from_dict(SchedulerId, found, where=JOURNAL_FILE) if found else None


def read_list(path: Path) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(word) for word in line.split()) for line in read_text(path).splitlines())


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


@frozen
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


@frozen
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
        runs=_runs([answer for answer in answers if answer.kind != GONE], name or "", journal.submissions),
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
        words = line.completed.stdout.split()
        missed = _tasks(line.scheduler, (word for word in words if not word.startswith(FOUND)))
        again = _tasks(line.scheduler, (word[1:] for word in words if word.startswith(FOUND)))
        if line.completed.argv != CHANGES:
            again = since.keys() - missed  # a line of jobkit 0.1 lists all
        for task in again:  # it was found again, so it is not gone
            for tasks in (since, gone, waiting):
                tasks.pop(task, None)
        for task in missed - since.keys():
            waiting[task] = since[task] = line.at
        at_once = runs_here(line.scheduler)  # a process that is gone does not come back
        for task, at in [*waiting.items()]:
            if task.scheduler == line.scheduler and (at_once or _apart(at, line.at)):
                gone[task] = waiting.pop(task)
    return by_scheduler, gone


def _tasks(scheduler: str, words: Iterable[str]) -> set[JobTask]:
    parts = (word.rpartition(".") for word in words)
    return {JobTask(scheduler, job, int(task)) for job, _, task in parts if job and task.isdecimal()}


def _apart(first: str, last: str) -> bool:
    try:
        return datetime.fromisoformat(last) - datetime.fromisoformat(first) >= GONE_AFTER
    except (ValueError, TypeError):
        return False


def _runs(
    answers: Sequence[SchedulerAnswer], name: str, submissions: Sequence[Submission]
) -> dict[JobTask, tuple[Accounted, ...]]:
    """Return the latest information on every task.

    A stale queue answer never reverts a task that the accounting has reported as ended. The accounting itself
    may: a task that was preempted runs again.
    """
    jobs = {(sent.scheduler, sent.job.id): sent for sent in submissions}
    runs: dict[JobTask, tuple[Accounted, ...]] = {}
    accounted: set[JobTask] = set()
    # The newest first, and only the newest answer to a question: the file grows with every query. An answer
    # without a command comes from a driver here, which reports one point a line.
    questions: set[tuple[str, ...]] = set()
    for answer in reversed(answers):
        question = (answer.scheduler, answer.kind, *answer.completed.argv)
        if question in questions or answer.scheduler not in SCHEDULERS:
            continue
        reported: dict[JobTask, tuple[Accounted, ...]] = {}
        for account in _parse(answer):
            job = jobs.get((answer.scheduler, account.job_id))
            if job.owns(account, name) if job else not name or account.name in {"", name}:
                task = JobTask(answer.scheduler, account.job_id, account.task)
                reported[task] = (*reported.get(task, ()), account)
        if reported and answer.completed.argv:
            questions.add(question)
        for task, accounts in reported.items():
            newer = runs.get(task)
            if newer is not None and not answer.completed.argv:
                runs[task] = accounts + newer  # a driver here ran the point again
            elif newer is None or (task not in accounted and accounts[-1].ended and not newer[-1].ended):
                runs[task] = accounts
            elif newer[-1].exit_status is None is not (then := accounts[-1]).exit_status and (
                (newer[-1].ended, newer[-1].ended_at) == (then.ended, then.ended_at)
            ):
                runs[task] = (*newer[:-1], then)  # the controller still knew its status
        accounted |= reported.keys() if answer.kind == "accounting" else set()
    return runs


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
            user=queued.user,
            submitted_at=queued.submitted_at,
            ended=False,
            outcome=Outcome.QUEUE_ERROR if queued.state is State.ERROR else None,
            evidence=f"queue at {format_moment(answer.at)}: {queued.state}{reason}",
        )
