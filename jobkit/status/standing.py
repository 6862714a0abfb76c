"""Where every point of a run stands, and why, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from jobkit.core.records import Outcome, Point
from jobkit.core.units import format_count
from jobkit.outcome.accounting import ended_tasks
from jobkit.outcome.journal import Role, Submission, Task
from jobkit.outcome.logs import point_named
from jobkit.outcome.timing import moment
from jobkit.outcome.trials import answers
from jobkit.outcome.tries import TryResult, counting, not_started
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import Queued, State
from jobkit.status.refresh import OpenRun, ask_about, follower_ends, open_run, task_of


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
class PointStanding:
    """A point, all that is known of it now.

    Attributes
    ----------
    tries
        Those that the scheduler ran, the latest first.
    by_hand
        Those that a person ran with ``bash job.sh K``, the latest first.
    counts
        The try that counts (`jobkit.outcome.tries.counting`); one of number 0 where none began.
    task
        It was last submitted as; ``None`` where it never was.
    queued
        What the queue holds of that task.
    vanished
        What became of earlier tasks of it that left no try, the oldest first.
    """

    point: Point
    standing: Standing
    counts: TryResult
    tries: tuple[TryResult, ...] = ()
    by_hand: tuple[TryResult, ...] = ()
    task: Task | None = None
    queued: Queued | None = None
    vanished: tuple[TryResult, ...] = ()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the try that counts."""
        return self.counts.verdict.outcome

    @property
    def cancelled(self) -> bool:
        """Whether somebody took it back: no failure to a person, though its ``standing`` is that."""
        return self.standing is Standing.FAILED and self.outcome is Outcome.CANCELLED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStanding:
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
    ends
        How jobs that wait for the points ended, in words; no entry if that is not known.
    ending
        Those that `jobkit cancel` took back, and the queue still holds.
    silent
        Schedulers that did not answer: of their tasks nothing is known but what is home.
    unanswered, left
        Of the journal: a submission without an answer, and what the job that follows could not do; see
        `jobkit.outcome.journal.Journal`.
    notes
        Lines that could not be read.
    """

    folder: Path
    points: tuple[PointStanding, ...]
    submissions: tuple[Submission, ...]
    queued: Mapping[Task, Queued] = field(default_factory=dict)
    ended: frozenset[Task] = frozenset()
    ends: Mapping[Task, str] = field(default_factory=dict)
    ending: frozenset[Task] = frozenset()
    silent: tuple[str, ...] = ()
    unanswered: Mapping[str, Any] | None = None
    left: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


def read_standings(
    folders: Sequence[Path], *, ask: bool = True, max_age_s: float = 0
) -> tuple[RunStanding, ...]:
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
    runs = [open_run(folder) for folder in folders]
    if ask:
        for name, scheduler in SCHEDULERS.items():
            ask_about(
                scheduler,
                [run for run in runs if any(task.scheduler == name for task in run.open)],
                max_age_s,
            )
    return tuple(_looked(run) for run in runs)


def _looked(run: OpenRun) -> RunStanding:
    return RunStanding(
        folder=run.folder,
        points=tuple(_point(run, point) for point in run.points),
        submissions=run.accounts.submissions,
        queued=run.queued,
        ended=ended_tasks(run.accounts) | (run.accounts.cancelled.keys() - run.queued.keys()),
        ends={task: end for task, end in follower_ends(run).items() if end and task not in run.queued},
        ending=frozenset(run.accounts.cancelled.keys() & run.queued.keys()),
        silent=tuple(sorted(run.silent)),
        unanswered=run.accounts.unanswered,
        left=run.accounts.left,
        notes=tuple(run.notes),
    )


def _point(run: OpenRun, point: Point) -> PointStanding:
    tries = run.tries[point.index]
    counts = counting(tries) or tries[0]
    task = task_of(run, point.index)
    queued = run.queued.get(task) if task else None
    return PointStanding(
        point=point,
        standing=Standing.DONE
        if _answered(point, counts, queued)
        else _standing(counts, tries[0], task, queued, packed=task in run.accounts.packed),
        counts=counts,
        tries=tuple(tried for tried in tries if tried.files.number and not tried.files.by_hand),
        by_hand=tuple(tried for tried in tries if tried.files.by_hand),
        task=task,
        queued=queued,
        vanished=_vanished(run, point, tries),
    )


def _vanished(run: OpenRun, point: Point, tries: Sequence[TryResult]) -> tuple[TryResult, ...]:
    seen = {tried.task for tried in tries}
    tasks = (task for task in run.accounts.earlier.get(point.index, ()) if task not in seen)
    return tuple(not_started(point, run.accounts, task) for task in tasks)


def _answered(point: Point, counts: TryResult, queued: Queued | None) -> bool:
    """Tell whether a point is done; what ran by hand is not while the scheduler still has the point."""
    outcome = counts.verdict.outcome
    if outcome is None or (counts.files.by_hand and queued is not None):
        return False
    return answers(outcome, trial=point.trial)


def _standing(
    counts: TryResult, latest: TryResult, task: Task | None, queued: Queued | None, *, packed: bool
) -> Standing:
    """Return where a point stands that is not done."""
    if queued is not None and queued.state is State.ERROR:
        return Standing.STUCK
    begun = bool(latest.files.number) and latest.task == task
    over = begun and bool(latest.files.record or latest.files.exit)
    if over and queued is not None and latest.verdict.provisional:
        over = queued.state is State.RUNNING and packed  # else the scheduler may be about to requeue it
    if queued is not None and queued.state in {State.RUNNING, State.ENDING} and not over:
        return Standing.RUNNING if begun or (queued.task and not packed) else Standing.WAITING
    if queued is not None and queued.state not in {State.RUNNING, State.ENDING}:
        return Standing.WAITING  # also a task that the scheduler will run again by itself
    if counts.verdict.outcome is not None:
        return Standing.FAILED
    return Standing.UNSETTLED if task else Standing.MISSING


def given_to(run: RunStanding) -> dict[Task, tuple[str, ...]]:
    """Return what a person gave to each task of a run: ``key=value``."""
    return {
        task: submission.given
        for submission in run.submissions
        if submission.given
        for task, _ in submission.tasks()
    }


def followers(run: RunStanding, role: Role) -> list[tuple[Submission, Queued | None]]:
    """Return the jobs of a run that wait for others, with what the queue holds of each."""
    return [
        (submission, run.queued.get(Task(submission.scheduler, submission.job.id, submission.first)))
        for submission in run.submissions
        if submission.role is role
    ]


def history(one: PointStanding) -> tuple[TryResult, ...]:
    """Return the tries of a point, the oldest first; tasks that left none count too."""
    last = (one.counts,) if one.task and not one.counts.files.number else ()
    return (*one.vanished, *reversed(one.tries), *last)


def running_s(one: PointStanding, now: datetime, *, shared: bool = False) -> float | None:
    """Return how long a point has been running that runs.

    As its task has, for that is the scheduler's one clock; where several points share the task,
    since its try began, by the node's clock.

    Parameters
    ----------
    now
        With a time zone.
    shared
        Whether its task runs other points too.
    """
    queued = one.queued
    if queued is None or not queued.task or shared:
        begin = one.tries[0].files.begin if one.tries else None
        began = moment(begin.at) if begin else None
    elif queued.elapsed_s is not None:
        return queued.elapsed_s
    else:
        began = moment(queued.start_at)
    return max(0.0, (now - began).total_seconds()) if began else None


HELD = "held"
"""A wait that somebody must end."""
CANCELLED = str(Outcome.CANCELLED)


def find_point(looks: Sequence[PointStanding], word: str) -> PointStanding:
    """Return the point that a word names, as `jobkit.outcome.logs.point_named`.

    Raises
    ------
    JobkitError
        Where there is none, or there are several.
    """
    index = point_named([look.point for look in looks], word).index
    return next(look for look in looks if look.point.index == index)


def count_by_state(seen: RunStanding) -> str:
    """Return how many points stand where: ``40 points: 36 done, 3 failed (2 bug, 1 lost), 1 cancelled``."""
    numbers = Counter(CANCELLED if point.cancelled else str(point.standing) for point in seen.points)
    known = [word for one in Standing for word in ([one, CANCELLED] if one is Standing.FAILED else [one])]
    parts = [
        f"{numbers[word]:,} {word}" + (why_failed(seen) if word == Standing.FAILED else "")
        for word in known
        if numbers[word]
    ]
    return f"{format_count(len(seen.points), 'point')}: {', '.join(parts)}"


def why_failed(seen: RunStanding) -> str:
    """Return the outcomes of those that failed, each with its number: `` (2 bug, 1 timeout)``."""
    failed = Counter(
        str(point.outcome)
        for point in seen.points
        if point.standing is Standing.FAILED and not point.cancelled
    )
    return f" ({', '.join(f'{number:,} {outcome}' for outcome, number in failed.most_common())})"


def state_of(one: PointStanding) -> str:
    """Return a point's outcome, else where it stands, in a word."""
    if one.standing in {Standing.DONE, Standing.FAILED}:
        return str(one.outcome)
    held = one.queued is not None and one.queued.state is State.HELD
    return HELD if held and one.standing is Standing.WAITING else str(one.standing)


def reason(one: PointStanding, silent: tuple[str, ...], now: datetime) -> str:
    """Return what led to a point's outcome, or why it waits; empty where there is nothing to say.

    Parameters
    ----------
    silent
        Schedulers that did not answer.
    now
        With a time zone.
    """
    evidence = one.counts.verdict.evidence
    if one.standing in {Standing.DONE, Standing.FAILED}:
        return "" if one.outcome is Outcome.OK else evidence
    if one.task is None:
        return "never submitted"
    if one.queued is None:
        dumb = one.task.scheduler in silent
        return f"{one.task.scheduler} does not answer" if dumb else f"left the queue: {evidence}"
    if one.standing is Standing.WAITING and one.queued.state is State.RUNNING and one.queued.task:
        return "the job that it shares has begun, and its turn is to come"
    if one.standing is Standing.RUNNING and not one.queued.task:
        return ""  # the queue only says that a driver here lives
    return explain_wait(one.task.scheduler, one.queued, now)


def explain_wait(scheduler: str, queued: Queued, now: datetime) -> str:
    """Return why a task waits, and when it is to begin where the scheduler says so."""
    words = SCHEDULERS[scheduler].explain(queued)
    start = moment(queued.start_at)
    if queued.state is not State.PENDING or start is None or start <= now:
        return words
    today = start.date() == now.astimezone().date()
    begins = f"to begin about {start:%H:%M}" if today else f"to begin about {start:%Y-%m-%d %H:%M}"
    return f"{words}; {begins}" if words else begins
