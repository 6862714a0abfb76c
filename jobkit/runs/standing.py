"""Where a run and each of its points stand, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from jobkit.core.errors import ExitCode
from jobkit.core.records import Outcome
from jobkit.core.units import format_count, moment
from jobkit.runs.journal import ADDERS, PLANNERS, JobTask, Role, Submission
from jobkit.runs.kinds import RunKind, kind_of, run_id_of
from jobkit.runs.progress import Pace, Progress, SkippedTime, progress_of, skipped_time, to_go
from jobkit.runs.results import PointResult, elapsed_s, exit_code, task_s
from jobkit.runs.tries import Try
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import JobId, Queued, State

HELD = "held"  # the state of a point or a job that waits until a person releases it
ENDED = "ended"
CANCELLED = str(Outcome.CANCELLED)
TEST_CANCELLED = "test cancelled"  # of a trial: the sweep itself lacks nothing


class PointState(StrEnum):
    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"
    WAITING = "waiting"
    STUCK = "stuck"
    UNSETTLED = "unsettled"
    MISSING = "missing"


IN_QUEUE = frozenset({PointState.RUNNING, PointState.WAITING, PointState.STUCK})
"""The scheduler still holds the point's task."""
LIVE = IN_QUEUE | {PointState.UNSETTLED}  # an unlisted task may still be there (nextflow#1007)
MOVING = LIVE - {PointState.STUCK}
TO_COME = MOVING | {PointState.MISSING}
ENDINGS = frozenset({PointState.DONE, PointState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PointStatus(PointResult):
    standing: PointState
    task: JobTask | None = None  # it was last submitted as; ``None`` if it never was
    queued: Queued | None = None  # what the queue holds of that task
    vanished: tuple[Try, ...] = ()  # the ends of earlier tasks of it that left no try, the oldest first
    shared_tasks: frozenset[JobTask] = frozenset()  # of the run, the tasks that run several points
    silent: bool = False  # whether its scheduler did not answer
    now: datetime = field(default_factory=lambda: datetime.now(UTC))  # when the schedulers were asked

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled: no failure to a person, though its ``standing`` is that."""
        return self.standing is PointState.FAILED and self.outcome is Outcome.CANCELLED

    @property
    def state(self) -> str:
        """Its outcome, else its state, in a word; ``held`` if a person must release it."""
        if self.standing in ENDINGS:
            return str(self.outcome)
        held = self.queued is not None and self.queued.state is State.HELD
        return HELD if held and self.standing is PointState.WAITING else str(self.standing)

    @property
    def why(self) -> str:
        """What led to its outcome, or why it waits; empty if there is nothing to report."""
        evidence = self.verdict.evidence
        if self.standing in ENDINGS:
            return "" if self.outcome is Outcome.OK else evidence
        if self.task is None or self.standing is PointState.MISSING:
            return "never submitted" if self.task is None else evidence
        if self.queued is None:
            silent = f"{self.task.scheduler} does not answer"
            return silent if self.silent else f"left the queue: {evidence}"
        if self.standing is PointState.WAITING and self.queued.state is State.RUNNING and self.queued.task:
            return "the job that it shares has begun, and its turn is to come"
        if self.standing is PointState.RUNNING and not self.queued.task:
            return ""  # the queue only reports that a driver here lives
        return explain_wait(self.task.scheduler, self.queued, self.now)

    @property
    def elapsed_s(self) -> float | None:
        """How long it has been running, or the try that counts took; ``None`` if that is not known."""
        if self.standing is PointState.RUNNING:
            return self._running_s()
        return self.elapsed_of(self.counts) if self.standing in ENDINGS else None

    def elapsed_of(self, tried: Try) -> float | None:
        return elapsed_s(tried, shared=tried.task in self.shared_tasks)

    def _running_s(self) -> float | None:
        """Return how long a point has been running.

        By its task's time, from the scheduler's one clock; if several points share the task, since its try
        began, by the node's clock.
        """
        queued = self.queued
        if queued is None or not queued.task or self.task in self.shared_tasks:
            begin = next((tried.begin for tried in self.tries), None)
            began = moment(begin.at) if begin else None
        elif queued.elapsed_s is not None:
            return queued.elapsed_s
        else:
            began = moment(queued.start_at)
        return max(0.0, (self.now - began).total_seconds()) if began else None

    @property
    def progress(self) -> Progress | None:
        runs = self.standing is PointState.RUNNING and not self.counts.by_hand
        return progress_of(self.batches) if runs else None

    @property
    def pace(self) -> Pace:
        """How long it takes; no time for a point whose outcome does not apply to other points."""
        done = self.standing is PointState.DONE
        measured = self.outcome is Outcome.OK and self.point.kind.main
        shared = self.counts.task in self.shared_tasks
        return Pace(
            setting=repr(sorted(self.point.params.items())),
            standing=str(self.standing) if measured or not done else "",
            elapsed_s=task_s(self.counts, shared=shared) if done else self.elapsed_s,
            left_s=self.progress.left_s if self.progress else None,
        )


def explain_wait(scheduler: str, queued: Queued, now: datetime) -> str:
    """Return why a task waits, and when it is to begin if the scheduler reports it."""
    words = SCHEDULERS[scheduler].explain(queued)
    start = moment(queued.start_at)
    if queued.state is not State.PENDING or start is None or start <= now:
        return words
    today = start.date() == now.astimezone().date()
    begins = f"to begin about {start:%H:%M}" if today else f"to begin about {start:%Y-%m-%d %H:%M}"
    return f"{words}; {begins}" if words else begins


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    """A job that waits for the points: it tries the largest batch, or runs points again."""

    submission: Submission
    state: str  # ``ended``, or a standing
    why: str = ""  # why it waits, or how it ended
    queued: Queued | None = None


_JOB_STATES = {
    State.ERROR: str(PointState.STUCK),
    State.RUNNING: str(PointState.RUNNING),
    State.ENDING: str(PointState.RUNNING),
    State.PENDING: str(PointState.WAITING),
    State.HELD: str(PointState.WAITING),
}


@dataclass(frozen=True, slots=True)
class Requested:
    """What the spec of a run requests: GPUs for a point, their type, and the queue, or several of them."""

    gpus: int = 0
    gpu_type: str = ""
    queue: str = ""


@dataclass(frozen=True, kw_only=True)
class RunStanding:
    folder: Path
    points: tuple[PointStatus, ...]  # in their order
    submissions: tuple[Submission, ...]  # the jobs that the schedulers accepted
    queued: Mapping[JobTask, Queued] = field(default_factory=dict)  # jobs that follow included
    ended: frozenset[JobTask] = frozenset()  # the tasks that are known to have ended, or to be gone
    # how jobs that wait for the points ended, in words; no entry if that is not known
    ends: Mapping[JobTask, str] = field(default_factory=dict)
    ending: frozenset[JobTask] = frozenset()  # tasks that `jobkit cancel` cancelled and the queue still holds
    # schedulers that did not answer: only what is home is known of their tasks
    silent: tuple[str, ...] = ()
    unanswered: Mapping[str, Any] | None = None  # submission without an answer, from the journal
    left: Mapping[str, Any] | None = None  # what the job that follows could not do, from the journal
    notes: tuple[str, ...] = ()  # lines that could not be read
    request: Callable[[], Requested] = Requested  # returns what its spec requests
    mine: bool = True  # whether the run folder can be written: else only its owner can change the run
    now: datetime = field(default_factory=lambda: datetime.now(UTC))  # when the schedulers were asked

    @property
    def name(self) -> str:
        return run_id_of(self.folder, [point.point for point in self.points[:1]]) or self.folder.name

    @property
    def title(self) -> str:
        return self.kind.title(self)

    @cached_property
    def kind(self) -> RunKind:
        return kind_of(self.folder)

    @cached_property
    def requested(self) -> Requested:
        return self.request()

    @property
    def noun(self) -> str:
        return self.points[0].point.kind.noun if self.points else "point"

    @property
    def schedulers(self) -> list[str]:
        return sorted({submission.scheduler for submission in self.submissions})

    def arrays_in_queue(self, *, held: bool = True) -> dict[JobId, int]:
        """Return the queued arrays and their numbers of tasks; ``held`` includes those that need a person."""
        tasks = Counter(task.job_id for task in self.queued)
        stuck = {task.job_id for task, one in self.queued.items() if one.state in {State.HELD, State.ERROR}}
        arrays = (one.job for one in self.submissions if one.role is Role.POINTS)
        return {job: tasks[job.id] for job in arrays if tasks[job.id] and (held or job.id not in stuck)}

    @property
    def counts(self) -> Counter[str]:
        """How many points stand where; cancelled points are counted apart from failed ones."""
        return Counter(
            (CANCELLED if point.point.kind.missed else TEST_CANCELLED)
            if point.cancelled
            else str(point.standing)
            for point in self.points
        )

    @property
    def exit_code(self) -> ExitCode:
        if not self.points:
            return ExitCode.TO_COME if self.planner else ExitCode.FAILED
        counted = (point for point in self.points if point.point.kind.missed or not point.cancelled)
        standings = {point.standing for point in counted}
        return exit_code(
            failed=bool(standings & {PointState.FAILED, PointState.STUCK}), to_come=bool(standings & TO_COME)
        )

    @cached_property
    def jobs(self) -> list[JobStanding]:
        """The jobs that are no arrays of points: they plan, search, or run points again."""
        jobs = []
        for submission, queued in (*followers(self, *ADDERS), *followers(self, Role.FOLLOW)):
            if queued is not None:
                state = _JOB_STATES.get(queued.state, str(PointState.UNSETTLED))
                why = explain_wait(submission.scheduler, queued, self.now)
            else:
                why = self.ends.get(first_task(submission), "")
                state = ENDED if why else str(PointState.UNSETTLED)
            jobs.append(JobStanding(submission=submission, state=state, why=why, queued=queued))
        return jobs

    @property
    def planner(self) -> JobStanding | None:
        """The job that writes the points, or submits them; ``None`` if none does or is to do it."""
        jobs = [job for job in self.jobs if job.submission.role in PLANNERS]
        return jobs[-1] if jobs and jobs[-1].state != ENDED else None

    @cached_property
    def to_go_s(self) -> float | None:
        """The time that it still needs if the number of running points stays as it is.

        ``None`` if that is not known, or if a point waits for a person.
        """
        if any(point.state in {HELD, PointState.STUCK} for point in self.points):
            return None
        at_a_time = 1 if self.schedulers and all(map(runs_here, self.schedulers)) else 0
        return to_go([point.pace for point in self.points], at_a_time=at_a_time)

    @cached_property
    def saved(self) -> SkippedTime | None:
        return skipped_time(self.points)

    def gpu_of(self, point: PointStatus) -> str:
        """Return the GPU of a point's record, else the type that was requested; empty if unknown."""
        record = point.record
        return record.gpu.name if record and record.gpu else self.requested.gpu_type


def first_task(submission: Submission) -> JobTask:
    """Return the first task of a job; a job that follows has no other."""
    return JobTask(submission.scheduler, submission.job.id, submission.first)


def followers(run: RunStanding, *roles: Role) -> list[tuple[Submission, Queued | None]]:
    """Return the jobs of a run that wait for others, with what the queue holds of each."""
    jobs = (submission for submission in run.submissions if submission.role in roles)
    return [(submission, run.queued.get(first_task(submission))) for submission in jobs]


def given_to(run: RunStanding) -> dict[JobTask, tuple[str, ...]]:
    """Return what a person gave to each task of a run: ``key=value``."""
    return {
        task: submission.given
        for submission in run.submissions
        if submission.given
        for task, _ in submission.tasks()
    }


def history(point: PointStatus) -> tuple[Try, ...]:
    """Return the tries of a point, the oldest first, tasks that left none included."""
    last = (point.counts,) if point.task and not point.counts.number else ()
    return (*point.vanished, *reversed(point.tries), *last)


def find_point(points: Sequence[PointStatus], word: str) -> PointStatus:
    from jobkit.runs.logs import point_named  # here: few commands name a point

    index = point_named([point.point for point in points], word).index
    return next(point for point in points if point.point.index == index)


def count_by_state(run: RunStanding) -> str:
    """Return how many points stand where: ``40 points: 36 done, 3 failed (2 bug, 1 lost), 1 cancelled``."""
    if not run.points:
        return f"{run.kind.subject} is not planned yet"
    words = [str(standing) for standing in PointState]
    words.insert(words.index(PointState.FAILED) + 1, CANCELLED)
    words.append(TEST_CANCELLED)
    parts = [
        f"{run.counts[word]:,} {word}{why_failed(run) if word == PointState.FAILED else ''}"
        for word in words
        if run.counts[word]
    ]
    return f"{format_count(len(run.points), run.noun)}: {', '.join(parts)}"


def why_failed(run: RunStanding) -> str:
    """Return the outcomes of the points that failed, each with its number: `` (2 bug, 1 timeout)``."""
    failed = Counter(
        str(point.outcome)
        for point in run.points
        if point.standing is PointState.FAILED and not point.cancelled
    )
    return f" ({', '.join(f'{number:,} {outcome}' for outcome, number in failed.most_common())})"
