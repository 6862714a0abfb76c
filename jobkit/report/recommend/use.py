"""What the points of a run requested, and what they used of it. Reads files, calls nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import SPEC_FILE, TUNE_GOAL_FILE, is_run_folder
from jobkit.core.records import Point, Record
from jobkit.core.terminal import shell_path
from jobkit.core.units import MIB
from jobkit.fit.tune import Tuning, read_tuning
from jobkit.outcome.journal import Journal, Submission, Task
from jobkit.outcome.results import PointResult, Run, read_run
from jobkit.outcome.timing import task_s
from jobkit.outcome.tries import TryResult
from jobkit.report.recommend.request import used_ram
from jobkit.report.recommend.run_data import site_of
from jobkit.report.rows import Row, row_of_point
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.spec.policy import Ended, grown, growth
from jobkit.spec.site import Site, load_site
from jobkit.spec.sweep_spec import Resources, SweepSpec, load_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class PointUse:
    """What a point requested and used, by its try that counts.

    Attributes
    ----------
    row
        As `jobkit collect` has it.
    asked
        What the point requested, for itself.
    pack
        How many points share its job.
    seconds
        How long the try took, with the environment and staging.
    ram_bytes
        The most memory of the host, by the record or the accounting, whichever has more.
    task
        The job that ran it; ``None`` if that is not known.
    on_path
        As in `jobkit.outcome.journal.Submission`.
    """

    row: Row
    asked: Resources
    pack: int
    seconds: float | None
    ram_bytes: int | None
    task: Task | None
    on_path: tuple[str, ...] | None = None

    @property
    def point(self) -> Point:
        """The point as planned."""
        assert self.row.result is not None  # noqa: S101 - a row of a run folder has it
        return self.row.result.point

    @property
    def record(self) -> Record | None:
        """The record of its try that counts."""
        return self.row.record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUse:
    """A run: what each point used, and how its sites are asked for resources.

    Attributes
    ----------
    run
        The folder, as named.
    scheduler
        That ran the points.
    points
        Those that have begun, without tests of a prediction and profiled points.
    to_come
        How many have not.
    threads
        The key ``threads`` of the spec.
    sites
        The site of the run; without one, the plain site of each scheduler.
    own
        Whether it is the site of the run.
    notes
        What could not be read.
    search
        If it is a run of ``jobkit tune``: what was found. Its points are then those of the answer.
    """

    run: str
    scheduler: str
    points: Sequence[PointUse]
    to_come: int
    threads: int | None
    sites: Sequence[Site]
    own: bool
    notes: tuple[str, ...]
    search: Tuning | None = None

    @property
    def noun(self) -> str:
        """What a person calls one of its points."""
        return self.points[0].point.noun if self.points else "point"

    @property
    def unended(self) -> int:
        """How many of its points have begun, and no end of them is home."""
        return sum(use.row.outcome is None for use in self.points)

    @property
    def here(self) -> bool:
        """Whether this machine ran the points, without a scheduler."""
        return runs_here(self.scheduler)


def read_use(folder: Path) -> RunUse:
    """Return what the points of a run folder requested and used.

    Raises
    ------
    JobkitError
        If it is no run folder, its spec cannot be read, or no point has begun.
    """
    if not is_run_folder(folder):
        raise JobkitError(f"{folder}: not a run folder", hint="jobkit status without RUN lists the runs")
    spec = _spec(folder)
    site, notes = site_of(spec)
    run = read_run(folder)
    meant = [point for point in run.points if point.point.swept or point.point.shard]
    search = read_tuning(folder) if (folder / TUNE_GOAL_FILE).is_file() else None
    if search and search.winner:
        finals = {record.point.index for record in search.records_of(search.winner)}
        meant = [point for point in meant if point.point.index in finals]
    points = tuple(_uses(folder, run, meant))
    if not points:
        raise JobkitError(
            f"{folder}: no point has begun, so nothing was used", hint=f"jobkit status {shell_path(folder)}"
        )
    last = next((use.task.scheduler for use in reversed(points) if use.task), spec.scheduler)
    plain = [load_site(f"{name}-default", name) for name in SCHEDULERS if not runs_here(name)]
    return RunUse(
        run=str(folder),
        scheduler=last,
        points=points,
        to_come=len(meant) - len(points),
        threads=spec.threads,
        sites=[site] if site else plain,
        own=site is not None,
        notes=(*run.notes, *notes),
        search=search,
    )


def _spec(folder: Path) -> SweepSpec:
    try:
        return load_spec(folder / SPEC_FILE)
    except JobkitError as error:
        first, *_ = error.message.splitlines()
        hint = f"a run folder has its spec as {SPEC_FILE}: copy it back, or fix it"
        raise JobkitError(f"it is not known what the run requested: {first}", hint=hint) from error


def _uses(folder: Path, run: Run, meant: Sequence[PointResult]) -> Iterator[PointUse]:
    """Yield what the points used whose try that counts was run by a scheduler, or by the driver here."""
    journal = run.accounts.journal
    sent = {task: submission for submission in journal.submissions for task, _ in submission.tasks()}

    @cache
    def spec_of(words: tuple[str, ...]) -> SweepSpec:
        return load_spec(folder / SPEC_FILE, words)

    for result in meant:
        tried = result.counts
        if not tried.files.number or tried.files.by_hand:
            continue
        words = _words(journal, sent, result.point, tried.task)
        before = [
            other
            for other in reversed(result.tries)
            if other.files.number < tried.files.number
            and _words(journal, sent, result.point, other.task) == words
        ]
        spec = spec_of(words)
        yield PointUse(
            row=row_of_point(str(folder), result),
            asked=_asked(spec, result.point, before),
            pack=1 if runs_here(spec.scheduler) else spec.pack,
            seconds=task_s(tried, shared=tried.task in run.accounts.packed),
            ram_bytes=_ram(tried),
            task=tried.task,
            on_path=sent[tried.task].on_path if tried.task in sent else None,
        )


def _words(
    journal: Journal, sent: Mapping[Task, Submission], point: Point, task: Task | None
) -> tuple[str, ...]:
    """Return what a person, or the plan of a corpus, changed in the spec for a point."""
    given = sent[task].given if task and task in sent else ()
    return given or journal.needs.get(point.index, ())


def _asked(spec: SweepSpec, point: Point, before: Sequence[TryResult]) -> Resources:
    """Return what a try requested: more, after tries with the same words that had too little."""
    ended = [Ended(tried.verdict.outcome, tried.node, tried.verdict.hung) for tried in before]
    change, asked = growth(spec.policy, ended), spec.resources.of(point)
    memory = grown(asked.memory, change.memory, step=MIB)
    walltime = grown(asked.walltime, change.walltime, step=1)
    return asked.model_copy(update={"memory": memory, "walltime": walltime})


def _ram(tried: TryResult) -> int | None:
    own = used_ram(tried.files.record) if tried.files.record else None
    accounted = tried.account.max_rss_bytes if tried.account else None
    return max((size for size in (own, accounted) if size), default=None)
