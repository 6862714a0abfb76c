"""Where a run and each of its points stand, and what differs between kinds of run: a sweep here.

A room asks `kind_of` a run folder, or `kind_for` a point, and calls a hook; it never asks which kind it is.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from math import fsum
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import ExitCode, JobkitError, NotFoundError
from jobkit.core.extensions import of_name, of_run
from jobkit.core.frozen import frozen, keyed
from jobkit.core.layout import POINTS_FILE, SPEC_FILE, repeat_id
from jobkit.core.records import Batch, Outcome, Point, PointKind, Record
from jobkit.core.terminal import did_you_mean, shell_path
from jobkit.core.units import format_count, format_list, moment
from jobkit.runs.journal import ADDERS, PLANNERS, Accounts, JobTask, Role, Submission
from jobkit.runs.tries import Progress, Try, elapsed_s, progress_of, task_s, try_that_counts
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import JobId, Queued, State

if TYPE_CHECKING:
    from jobkit.spec.sweep_spec import SweepSpec

NextStep = tuple[str, str]  # a command, and what it does; empty if the command says so


@frozen
class Order:
    """What is known of a run whose points a job writes, before it has written them."""

    run_id: str = ""  # of the run, and the name of its jobs; empty if it cannot be read
    caveat: str = ""  # the label of a stand-in model; empty for a real one


@frozen
class Foreseen:
    """What was known of a point before it ran: its time, and the most RAM of a try; ``None`` if unknown."""

    seconds: float | None = None
    peak_bytes: int | None = None


class RunKind:
    """The hooks of a sweep, which every other kind of run inherits."""

    command = "sweep"  # the command that makes such a run
    look = "collect"  # the command that shows its results while it is under way
    noun = "point"  # what a person calls one of its points
    subject = "the run"  # what a job plans: the points are its parts
    untabled = ""  # why no table has its points; empty if tables have them
    again = "jobkit sweep SPEC --new"  # what runs all points once more, in another run
    new_run = "jobkit sweep SPEC"  # what runs them with changed files
    # what makes fewer, larger points of the same work; empty if several points may share a job
    fewer_points = ""

    def order(self, folder: Path) -> Order | None:
        """Return the order of a run whose points a job writes; ``None`` for any other."""
        return None

    def unplanned(self, folder: Path) -> Order | None:
        """Return the order of a run whose points are still to be written."""
        try:
            empty = (folder / POINTS_FILE).stat().st_size == 0
        except OSError:
            return None
        return self.order(folder) if empty else None

    def settle(self, folder: Path) -> str:
        """Do what the jobs of a run could not do; return the closing line of a run that is done."""
        return ""

    def title(self, run: RunStatus) -> str:
        """Return what a person calls the run."""
        return run.name

    def status_lines(self, run: RunStatus) -> Iterator[str]:
        """Yield what `jobkit status` says of the run besides its points."""
        yield from ()

    def status_data(self, run: RunStatus) -> Mapping[str, object]:
        """Return the further keys of ``jobkit status --json``."""
        return {}

    def looks(self, run: RunStatus, typed: str) -> Iterator[NextStep]:
        """Yield what shows the results of a run; ``typed`` is its folder as a shell takes it."""
        if any(point.standing is PointStanding.DONE for point in run.points):
            yield f"jobkit collect {typed}", "the table of what is done"

    def steps_after(self, folder: Path, outcomes: Collection[Outcome | None]) -> Iterator[NextStep]:
        """Yield what to type next of a run by its points' outcomes; nothing if its setting can be used."""
        if None in outcomes or Outcome.OK not in outcomes:
            yield f"jobkit status {shell_path(folder)}", "how it stands"

    def refusal(self, folder: Path, command: str) -> JobkitError | None:
        """Return why a command that reads measured settings has nothing to say of a run."""
        return None

    def foreseen(self, folder: Path, point: Point) -> Foreseen:
        return Foreseen()

    def finished(self, folder: Path) -> bool:
        """Return whether the job that adds points to a run, if it has one, has added the last."""
        from jobkit.runs.trials import finished  # here, for most runs have no such job

        return finished(folder)

    def awaited(self, folder: Path) -> Role | None:
        """Return the role of the job without whose end the run cannot go on; ``None`` if there is none."""
        return None

    def search_s(self, spec: SweepSpec) -> float:
        """Return how long the job that adds points may take at most."""
        return spec.resources.walltime

    def places(self, folder: Path) -> tuple[str, ...]:
        """Return the folders that the points read besides text and model: a container must see them."""
        return ()

    def gone(self, run: RunStatus) -> Sequence[str]:
        """Return the ids of points that are done, and whose results are gone since."""
        return ()

    def is_home(self, home: str, folder: str) -> bool:
        """Return whether a try that ended well has brought home all that it must.

        ``home`` and ``folder``, of the point and of the try, are text: a Path costs as much as to open a
        file.
        """
        return True

    def judged(self, home: str, tries: Iterable[Try]) -> Iterable[Try]:
        """Return the tries of a point, judged by more than their own files."""
        return tries


SWEEP = RunKind()


def kind_of(folder: Path) -> RunKind:
    return of_run(folder).run() or SWEEP


def kind_for(point: Point) -> RunKind:
    return of_name(point.kind.extension).run() or SWEEP


def run_id_of(folder: Path, points: Collection[Point] = ()) -> str | None:
    """Return the id of a run: of its points, or of the order to write them; ``None`` if it has neither."""
    for point in points:
        return point.run_id
    order = kind_of(folder).order(folder)
    return order.run_id or None if order else None


@keyed
class PointResult:
    point: Point
    # as `jobkit.runs.results.read_tries` yields them; one of number 0 if none has begun
    all_tries: tuple[Try, ...]
    batches: Sequence[Batch] = ()  # of the try that counts, read only if it has no record: how far it came

    @property
    def tries(self) -> tuple[Try, ...]:
        """The tries that the scheduler or the local driver ran, the latest first."""
        return tuple(tried for tried in self.all_tries if tried.number and not tried.by_hand)

    @property
    def by_hand(self) -> tuple[Try, ...]:
        """The tries that a person ran with ``bash job.sh K``, the latest first."""
        return tuple(tried for tried in self.all_tries if tried.by_hand)

    @property
    def latest(self) -> Try:
        """The latest try; number 0 if the point was submitted again and has not begun."""
        return self.all_tries[0]

    @property
    def verdict(self) -> Try:
        """The try that counts (`jobkit.runs.tries.try_that_counts`), begun or not."""
        return try_that_counts(self.all_tries)

    @property
    def record(self) -> Record | None:
        """The record of the try that counts; ``None`` if it left none."""
        return self.verdict.record

    @property
    def outcome(self) -> Outcome | None:
        return self.verdict.outcome

    @property
    def node(self) -> str:
        """Where the try that counts ran, as far as is known, else empty."""
        return self.verdict.node


def exit_code(*, failed: bool, to_come: bool) -> ExitCode:
    """Return the exit code for the points of a run: still to come goes before failed."""
    if to_come:
        return ExitCode.TO_COME
    return ExitCode.FAILED if failed else ExitCode.DONE


HELD = "held"  # the state of a point or a job that waits until a person releases it
ENDED = "ended"
SUSPENDED = "suspended"  # of a point that runs, but is stopped on its node until it is resumed
CANCELLED = str(Outcome.CANCELLED)
TEST_CANCELLED = "test cancelled"  # of a trial: the sweep itself lacks nothing


class PointStanding(StrEnum):
    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"
    WAITING = "waiting"
    STUCK = "stuck"
    UNSETTLED = "unsettled"
    MISSING = "missing"


IN_QUEUE = frozenset({PointStanding.RUNNING, PointStanding.WAITING, PointStanding.STUCK})
"""The scheduler still holds the point's task."""
LIVE = IN_QUEUE | {PointStanding.UNSETTLED}  # an unlisted task may still be there (nextflow#1007)
MOVING = LIVE - {PointStanding.STUCK}
TO_COME = MOVING | {PointStanding.MISSING}
ENDINGS = frozenset({PointStanding.DONE, PointStanding.FAILED})


def standing_of(
    result: PointResult, task: JobTask | None, queued: Queued | None, accounts: Accounts
) -> PointStanding:
    """Return where a point stands by its tries, by its last ``task`` and by what the queue holds of that."""
    packed = task in accounts.packed
    # A try by hand is no answer while the scheduler has the point.
    by_hand = result.verdict.by_hand and queued is not None
    if result.outcome in result.point.kind.answers and not by_hand:
        return PointStanding.DONE
    if queued is not None and queued.state is State.ERROR:
        return PointStanding.STUCK
    latest = result.latest
    begun = bool(latest.number) and latest.task == task
    over = begun and bool(latest.record or latest.exit)
    if over and queued is not None and latest.provisional:
        over = queued.state is State.RUNNING and packed  # else the scheduler may be about to requeue it
    if queued is not None and queued.state in {State.RUNNING, State.ENDING} and not over:
        return PointStanding.RUNNING if begun or (queued.task and not packed) else PointStanding.WAITING
    if queued is not None and queued.state not in {State.RUNNING, State.ENDING}:
        return PointStanding.WAITING  # also a task that the scheduler will run again by itself
    if result.outcome is not None:
        return PointStanding.FAILED
    here = task is not None and runs_here(task.scheduler) and task in accounts.gone
    return PointStanding.UNSETTLED if task and not here else PointStanding.MISSING


@keyed
class Pace:
    setting: str  # points of one setting take as long as their texts are
    state: str  # ``done``, ``running``, ``waiting``; any other counts for nothing
    elapsed_s: float | None = None  # how long it took, staging and environment included, or has been running
    left_s: float | None = None  # what it has to go by its own batches
    work: float = 1.0  # the size of its text, which differs between shards

    def is_late(self, whole_s: float | None) -> bool:
        """Return whether it has run for much longer than such points take, and reports nothing."""
        if self.left_s is not None or self.elapsed_s is None or whole_s is None:
            return False
        # Times the expected time of a point, until it is not known any more when it ends
        late = 1.5
        return self.elapsed_s > late * whole_s

    def left(self, whole_s: float | None) -> float | None:
        """Return what it has to go by its own batches, else by such points; ``None`` if that is not known."""
        if self.left_s is not None or whole_s is None or self.elapsed_s is None or self.is_late(whole_s):
            return self.left_s
        return max(0.0, whole_s - self.elapsed_s)


def to_go(points: Sequence[Pace], *, at_a_time: int = 0) -> float | None:
    """Return the time that a sweep still needs if the number of running points stays as it is, else ``None``.

    A point that waits is expected to need the mean of its setting, else the mean of all points. ``at_a_time``
    is how many run at a time if that is known, as 1 on this machine, because between two points none runs.
    Points that wait while none runs on a cluster make it unknown.
    """
    expected = [*zip(points, _expected(points), strict=True)]
    left = [point.left(whole_s) for point, whole_s in expected if point.state == PointStanding.RUNNING]
    to_come = [whole_s for point, whole_s in expected if point.state == PointStanding.WAITING]
    slots = [seconds for seconds in left if seconds is not None]
    if to_come:
        slots += [0.0] * (at_a_time - len(left))
    known = [seconds for seconds in to_come if seconds is not None]
    if len(slots) + len(known) < len(left) + len(to_come) or not slots:
        return None
    heapq.heapify(slots)
    for seconds in known:
        heapq.heapreplace(slots, slots[0] + seconds)
    return max(slots)


def overdue(points: Sequence[Pace]) -> list[int]:
    """Return the places of the points that run for much longer than such points take, and report nothing."""
    expected = enumerate(zip(points, _expected(points), strict=True))
    return [
        place for place, (point, s) in expected if point.state == PointStanding.RUNNING and point.is_late(s)
    ]


def _expected(points: Sequence[Pace]) -> list[float | None]:
    """Return how long each point takes by the mean of its setting, else of all; ``None`` if unknown."""
    spans: dict[str | None, list[tuple[float, float]]] = {}
    for point in points:
        left_s = 0.0 if point.state == PointStanding.DONE else point.left_s
        if point.elapsed_s is not None and left_s is not None:
            for name in (point.setting, None):  # ``None`` stands for every setting
                spans.setdefault(name, []).append((point.elapsed_s + left_s, point.work))
    paces = {name: fsum(s for s, _ in some) / fsum(work for _, work in some) for name, some in spans.items()}
    known = (paces.get(point.setting, paces.get(None)) for point in points)
    return [None if pace is None else pace * point.work for pace, point in zip(known, points, strict=True)]


@keyed
class PointStatus(PointResult):
    standing: PointStanding
    task: JobTask | None = None  # it was last submitted as; ``None`` if it never was
    queued: Queued | None = None  # what the queue holds of that task
    vanished: tuple[Try, ...] = ()  # the ends of earlier tasks of it that left no try, the oldest first
    silent: str = ""  # why its scheduler reports nothing of it; empty if it answers
    now: datetime = field(default_factory=lambda: datetime.now(UTC))  # when the schedulers were asked

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled: no failure to a person, though its ``standing`` is that."""
        return self.standing is PointStanding.FAILED and self.outcome is Outcome.CANCELLED

    @property
    def failed(self) -> bool:
        return self.standing is PointStanding.FAILED and not self.cancelled

    @property
    def suspended(self) -> bool:
        return self.standing is PointStanding.RUNNING and self.queued is not None and self.queued.suspended

    @property
    def blocked(self) -> bool:
        """Whether it waits until a person acts."""
        return self.state in {HELD, PointStanding.STUCK}

    @property
    def state(self) -> str:
        """Its outcome, else its standing, in a word; ``held`` if a person must release it."""
        if self.standing in ENDINGS:
            return str(self.outcome)
        held = self.queued is not None and self.queued.state is State.HELD
        if self.suspended:
            return SUSPENDED
        return HELD if held and self.standing is PointStanding.WAITING else str(self.standing)

    @property
    def why(self) -> str:
        """What led to its outcome, or why it waits; empty if there is nothing to report."""
        evidence = self.verdict.evidence
        if self.standing in ENDINGS:
            return "" if self.outcome is Outcome.OK else evidence
        if self.task is None or self.standing is PointStanding.MISSING:
            return "never submitted" if self.task is None else evidence
        if self.queued is None:
            return self.silent or f"left the queue: {evidence}"
        if self.standing is PointStanding.WAITING and self.queued.state is State.RUNNING and self.queued.task:
            return "the job that it shares has begun, and its turn is to come"
        if self.standing is PointStanding.RUNNING and not self.queued.task:
            return ""  # the queue only reports that a driver here lives
        return explain_wait(self.task.scheduler, self.queued, self.now)

    @property
    def elapsed_s(self) -> float | None:
        """How long it has been running, or the try that counts took; ``None`` if that is not known.

        It has been running by its task's time, from the scheduler's one clock; if several points share the
        task, since its try began, by the node's clock.
        """
        if self.standing is not PointStanding.RUNNING:
            return elapsed_s(self.verdict) if self.standing in ENDINGS else None
        queued = self.queued
        if queued is None or not queued.task or not self.verdict.alone or self.verdict.by_hand:
            begin = next((tried.begin for tried in self.tries), None)
            began = moment(begin.at) if begin else None
        elif queued.elapsed_s is not None:
            return queued.elapsed_s
        else:
            began = moment(queued.start_at)
        return max(0.0, (self.now - began).total_seconds()) if began else None

    @property
    def progress(self) -> Progress | None:
        runs = self.standing is PointStanding.RUNNING and not self.verdict.by_hand
        return progress_of(self.batches) if runs else None

    @property
    def pace(self) -> Pace:
        """How long it takes; no time for a point whose outcome does not apply to other points."""
        done = self.standing is PointStanding.DONE
        measured = self.outcome is Outcome.OK and self.point.kind.main
        elapsed_s = task_s(self.verdict) if done else self.elapsed_s
        left_s = self.progress.left_s if self.progress else None
        return Pace(
            setting=repr(sorted(self.point.params.items())),
            state=str(self.standing) if measured or not done else "",
            elapsed_s=None if self.suspended else elapsed_s,
            left_s=None if self.suspended else left_s,
            work=(self.point.text.size_bytes or 1) / self.point.every,
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


@keyed
class JobStatus:
    """A job that waits for the points: it tries the largest batch, or runs points again."""

    submission: Submission
    state: str  # ``ended``, or a state of points
    why: str = ""  # it waits, or how it ended
    queued: Queued | None = None


@frozen
class Requested:
    """What the spec of a run requests: GPUs for a point, their type, and the queue, or several of them."""

    gpus: int = 0
    gpu_type: str = ""
    queue: str = ""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    folder: Path
    points: tuple[PointStatus, ...]  # in their order
    submissions: tuple[Submission, ...]  # the jobs that the schedulers accepted
    queued: Mapping[JobTask, Queued] = field(default_factory=dict)  # jobs that follow included
    ended: frozenset[JobTask] = frozenset()  # the tasks that are known to have ended, or to be gone
    # how jobs that wait for the points ended, in words; no entry if that is not known
    ends: Mapping[JobTask, str] = field(default_factory=dict)
    ending: frozenset[JobTask] = frozenset()  # tasks that `jobkit cancel` cancelled and the queue still holds
    # schedulers that did not answer, or are of another cluster, and why: only files are known
    silent: Mapping[str, JobkitError] = field(default_factory=dict)
    foreign: frozenset[tuple[str, str]] = frozenset()  # schedulers and numbers of jobs that others have now
    unanswered: Mapping[str, Any] | None = None  # submission without an answer, from the journal
    left: Mapping[str, Any] | None = None  # what the job that follows could not do, from the journal
    notes: tuple[str, ...] = ()  # lines that could not be read
    mine: bool = True  # whether the run folder can be written: else only its owner can change the run
    now: datetime = field(default_factory=lambda: datetime.now(UTC))  # when the schedulers were asked

    def __repr__(self) -> str:
        """Return a line: of a run with many points a notebook would show pages."""
        return f"<jobkit.RunStatus {self.folder}: {count_by_state(self)}>"

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
        """What its spec requests; nothing if that cannot be read."""
        from jobkit.spec.yaml_files import read_document  # here: of most runs the records name the GPU

        try:
            resources = read_document(self.folder / SPEC_FILE).data["resources"]
            gpus, gpu_type = int(resources["gpus"]), str(resources["gpu_type"] or "")
            return Requested(gpus, gpu_type, str(resources.get("queue") or ""))
        except (JobkitError, KeyError, TypeError, ValueError):
            return Requested()

    @property
    def noun(self) -> str:
        return self.points[0].point.kind.noun if self.points else "point"

    @property
    def schedulers(self) -> list[str]:
        return sorted({submission.scheduler for submission in self.submissions})

    def arrays_in_queue(self) -> dict[JobId, int]:
        """Return the queued arrays and their numbers of tasks, without those that need a person."""
        tasks = Counter(task.job_id for task in self.queued)
        stuck = {task.job_id for task, one in self.queued.items() if one.state in {State.HELD, State.ERROR}}
        arrays = (one.job for one in self.submissions if one.role is Role.POINTS)
        return {job: tasks[job.id] for job in arrays if tasks[job.id] and job.id not in stuck}

    def by_job(self, tasks: Iterable[JobTask]) -> list[tuple[Submission, tuple[int, ...]]]:
        """Return tasks of this run job by job, each with their numbers."""
        numbers: dict[tuple[str, str], set[int]] = {}
        for task in tasks:
            numbers.setdefault((task.scheduler, task.job_id), set()).add(task.task)
        jobs = {(submission.scheduler, submission.job.id): submission for submission in self.submissions}
        return [(jobs[key], tuple(sorted(found))) for key, found in numbers.items()]

    @property
    def counts(self) -> Counter[str]:
        """How many points stand where; cancelled points are counted apart from failed ones."""
        return Counter(
            (CANCELLED if point.point.kind.missed else TEST_CANCELLED)
            if point.cancelled
            else SUSPENDED
            if point.suspended
            else str(point.standing)
            for point in self.points
        )

    @property
    def exit_code(self) -> ExitCode:
        if not self.points:
            return ExitCode.TO_COME if self.planner else ExitCode.FAILED
        counted = (point for point in self.points if point.point.kind.missed or not point.cancelled)
        states = {point.standing for point in counted}
        failed = states & {PointStanding.FAILED, PointStanding.STUCK} or self.gone
        return exit_code(failed=bool(failed), to_come=bool(states & TO_COME))

    @cached_property
    def gone(self) -> Sequence[str]:
        """The ids of points that are done, and whose results are gone since."""
        return self.kind.gone(self)

    @cached_property
    def jobs(self) -> list[JobStatus]:
        """The jobs that are no arrays of points: they plan, search, or run points again."""
        jobs = []
        standings = {
            State.ERROR: PointStanding.STUCK,
            **dict.fromkeys((State.RUNNING, State.ENDING), PointStanding.RUNNING),
            **dict.fromkeys((State.PENDING, State.HELD), PointStanding.WAITING),
        }
        for submission, queued in (*followers(self, *ADDERS), *followers(self, Role.FOLLOW)):
            if queued is not None:
                state = str(standings.get(queued.state, PointStanding.UNSETTLED))
                why = explain_wait(submission.scheduler, queued, self.now)
            else:
                why = self.ends.get(first_task(submission), "")
                state = ENDED if why else str(PointStanding.UNSETTLED)
            jobs.append(JobStatus(submission=submission, state=state, why=why, queued=queued))
        return jobs

    @cached_property
    def planner(self) -> JobStatus | None:
        """The job that writes the points, or submits them; ``None`` if none does or is to do it."""
        roles = {*PLANNERS, Role.FOLLOW} if self.kind.awaited(self.folder) is Role.FOLLOW else PLANNERS
        jobs = [job for job in self.jobs if job.submission.role in roles]
        return jobs[-1] if jobs and jobs[-1].state != ENDED else None

    @cached_property
    def to_go_s(self) -> float | None:
        """The time that it still needs if the number of running points stays as it is.

        ``None`` if that is not known, if a point waits for a person, or if one is still to be submitted.
        """
        if any(point.blocked or point.standing is PointStanding.MISSING for point in self.points):
            return None
        at_a_time = 1 if self.schedulers and all(map(runs_here, self.schedulers)) else 0
        return to_go([point.pace for point in self.points], at_a_time=at_a_time)

    @cached_property
    def saved(self) -> tuple[int, float] | None:
        """How many pruned points are counted, and the seconds that they would have taken.

        Each counts with the mean of the tries of the point that is the reason: for a repeat those that
        succeeded, else the others. A ``stopped`` point saves nothing.
        """
        by_id = {point.point.point_id: point for point in self.points}
        spans = []
        for point in self.points:
            exit_ = point.verdict.exit if point.outcome is Outcome.PRUNED else None
            cause = by_id.get(exit_.because) if exit_ else None
            if cause is None:
                continue
            repeat = repeat_id(cause.point.point_id, point.point.repeat) == point.point.point_id
            alike = (one for one in cause.tries if one.outcome and (one.outcome is Outcome.OK) is repeat)
            if known := [seconds for tried in alike if (seconds := elapsed_s(tried)) is not None]:
                spans.append(fmean(known))
        return (len(spans), sum(spans)) if spans else None

    def gpu_of(self, point: PointStatus) -> str:
        """Return the GPU of a point's record, else the type that was requested; empty if unknown."""
        record = point.record
        return record.gpu.name if record and record.gpu else self.requested.gpu_type


def first_task(submission: Submission) -> JobTask:
    """Return the first task of a job; a job that follows has no other."""
    return JobTask(submission.scheduler, submission.job.id, submission.first)


def followers(run: RunStatus, *roles: Role) -> list[tuple[Submission, Queued | None]]:
    """Return the jobs of a run that wait for others, with what the queue holds of each."""
    jobs = (submission for submission in run.submissions if submission.role in roles)
    return [(submission, run.queued.get(first_task(submission))) for submission in jobs]


def given_to(run: RunStatus) -> dict[JobTask | None, tuple[str, ...]]:
    """Return what a person gave to each task of a run: ``key=value``."""
    return {
        task: submission.given
        for submission in run.submissions
        if submission.given
        for task, _ in submission.tasks()
    }


def history(point: PointStatus) -> tuple[Try, ...]:
    """Return the tries of a point, the oldest first, tasks that left none included."""
    last = (point.verdict,) if point.task and not point.verdict.number else ()
    return (*point.vanished, *reversed(point.tries), *last)


def find_point(points: Sequence[PointStatus], word: str) -> PointStatus:
    index = point_named([point.point for point in points], word).index
    return next(point for point in points if point.point.index == index)


def count_by_state(run: RunStatus) -> str:
    """Return how many points stand where: ``40 points: 36 done, 3 failed (2 bug, 1 lost), 1 cancelled``."""
    if not run.points:
        return f"{run.kind.subject} is not planned yet"
    done, failed, running, *others = map(str, PointStanding)
    words = (done, failed, CANCELLED, running, SUSPENDED, *others, TEST_CANCELLED)
    counts = run.counts
    parts = [
        f"{counts[word]:,} {word}{why_failed(run) if word == failed else ''}"
        for word in words
        if counts[word]
    ]
    return f"{format_count(len(run.points), run.noun)}: {', '.join(parts)}"


def why_failed(run: RunStatus) -> str:
    """Return the outcomes of the points that failed, each with its number: `` (2 bug, 1 timeout)``."""
    failed = Counter(
        str(point.outcome)
        for point in run.points
        if point.standing is PointStanding.FAILED and not point.cancelled
    )
    return f" ({', '.join(f'{number:,} {outcome}' for outcome, number in failed.most_common())})"


def point_named(points: Sequence[Point], word: str) -> Point:
    """Return the point that a word names: its index, its id, or how its id alone begins."""
    number = _number(points[0].kind, word) or word
    for point in points:
        if word == point.point_id or number == str(point.index):
            return point
    begun = [point for point in points if word and point.point_id.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    known = [point.point_id for point in points]
    noun = points[0].kind.noun
    hint = f"{noun}s are named by number, 1 to {points[-1].index}, or by id, such as {known[0]}"
    if begun:
        listed = format_list([point.point_id for point in begun], 8)
        raise JobkitError(f"{word!r} begins {len(begun)} {noun}s: {listed}", hint=hint)
    if 0 < int(_number(points[0].kind, word) or 0) < points[-1].index:  # left out of those that count
        message = f"{noun} {word!r} was planned again: other {noun}s do its work"
        raise JobkitError(message, hint=f"jobkit status DIR lists the {noun}s that count")
    close = did_you_mean(word, known)
    raise NotFoundError(f"no {noun} {word!r}{f'; {close}' if close else ''}", hint=hint)


def _number(kind: PointKind, word: str) -> str:
    """Return the number of a point of a plan that a word names, ``2`` of ``shard-2``; empty if none."""
    digits = word.removeprefix(f"{kind.noun}-")
    return str(int(digits)) if kind.replanned and digits.isdecimal() else ""
