"""Look at runs: what is home, what the queue holds, what the accounting knows, joined point by point.

However many runs and points: at most one queue call and one accounting call a scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from jobkit.core.records import Outcome, Point
from jobkit.outcome.accounts import ended
from jobkit.outcome.submissions import Role, Submission, Task
from jobkit.outcome.trials import answers
from jobkit.outcome.tries import Tried, counting, not_started
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import Queued, State
from jobkit.status.inquiry import Inquiry, ask_about, follower_ends, inquiry_into, task_of


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
    counts: Tried
    tries: tuple[Tried, ...] = ()
    by_hand: tuple[Tried, ...] = ()
    task: Task | None = None
    queued: Queued | None = None
    vanished: tuple[Tried, ...] = ()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the try that counts."""
        return self.counts.verdict.outcome

    @property
    def cancelled(self) -> bool:
        """Whether somebody took it back: no failure to a person, though its ``standing`` is that."""
        return self.standing is Standing.FAILED and self.outcome is Outcome.CANCELLED


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
    ends
        How jobs that wait for the points ended, in words; no entry if that is not known.
    ending
        Those that `jobkit cancel` took back, and the queue still holds.
    silent
        Schedulers that did not answer: of their tasks nothing is known but what is home.
    unanswered, left
        Of the journal: a submission without an answer, and what the job that follows could not do; see
        `jobkit.outcome.submissions.Journal`.
    notes
        Lines that could not be read.
    """

    folder: Path
    points: tuple[Look, ...]
    submissions: tuple[Submission, ...]
    queued: Mapping[Task, Queued] = field(default_factory=dict)
    ended: frozenset[Task] = frozenset()
    ends: Mapping[Task, str] = field(default_factory=dict)
    ending: frozenset[Task] = frozenset()
    silent: tuple[str, ...] = ()
    unanswered: Mapping[str, Any] | None = None
    left: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


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
    runs = [inquiry_into(folder) for folder in folders]
    if ask:
        for name, scheduler in SCHEDULERS.items():
            ask_about(
                scheduler,
                [run for run in runs if any(task.scheduler == name for task in run.open)],
                max_age_s,
            )
    return tuple(_looked(run) for run in runs)


def _looked(run: Inquiry) -> RunLook:
    return RunLook(
        folder=run.folder,
        points=tuple(_point(run, point) for point in run.points),
        submissions=run.accounts.submissions,
        queued=run.queued,
        ended=ended(run.accounts) | (run.accounts.cancelled.keys() - run.queued.keys()),
        ends={task: end for task, end in follower_ends(run).items() if end and task not in run.queued},
        ending=frozenset(run.accounts.cancelled.keys() & run.queued.keys()),
        silent=tuple(sorted(run.silent)),
        unanswered=run.accounts.unanswered,
        left=run.accounts.left,
        notes=tuple(run.notes),
    )


def _point(run: Inquiry, point: Point) -> Look:
    tries = run.tries[point.index]
    counts = counting(tries) or tries[0]
    task = task_of(run, point.index)
    queued = run.queued.get(task) if task else None
    return Look(
        point=point,
        standing=Standing.DONE
        if _answered(point, counts, queued)
        else _standing(counts, tries[0], task, queued, packed=task in run.accounts.packed),
        counts=counts,
        tries=tuple(one for one in tries if one.files.number and not one.files.by_hand),
        by_hand=tuple(one for one in tries if one.files.by_hand),
        task=task,
        queued=queued,
        vanished=_vanished(run, point, tries),
    )


def _vanished(run: Inquiry, point: Point, tries: Sequence[Tried]) -> tuple[Tried, ...]:
    seen = {one.task for one in tries}
    tasks = (task for task in run.accounts.earlier.get(point.index, ()) if task not in seen)
    return tuple(not_started(point, run.accounts, task) for task in tasks)


def _answered(point: Point, counts: Tried, queued: Queued | None) -> bool:
    """Tell whether a point is done; what ran by hand is not while the scheduler still has the point."""
    outcome = counts.verdict.outcome
    if outcome is None or (counts.files.by_hand and queued is not None):
        return False
    return answers(outcome, trial=point.trial)


def _standing(
    counts: Tried, latest: Tried, task: Task | None, queued: Queued | None, *, packed: bool
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


def given_to(run: RunLook) -> dict[Task, tuple[str, ...]]:
    """Return what a person gave to each task of a run: ``key=value``."""
    return {task: one.given for one in run.submissions if one.given for task, _ in one.tasks()}


def followers(run: RunLook, role: Role) -> list[tuple[Submission, Queued | None]]:
    """Return the jobs of a run that wait for others, with what the queue holds of each."""
    return [
        (one, run.queued.get(Task(one.scheduler, one.job.id, one.first)))
        for one in run.submissions
        if one.role is role
    ]


def history(one: Look) -> tuple[Tried, ...]:
    """Return the tries of a point, the oldest first; tasks that left none count too."""
    last = (one.counts,) if one.task and not one.counts.files.number else ()
    return (*one.vanished, *reversed(one.tries), *last)
