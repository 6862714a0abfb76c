"""What points requested and used, and what to request: in the header lines that jobkit itself would write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from jobkit.answers.search_answer import SearchAnswer, read_search
from jobkit.answers.speed import Duration
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import CPU
from jobkit.core.layout import SPEC_FILE, is_run_folder
from jobkit.core.records import Point, Record
from jobkit.core.terminal import shell_path
from jobkit.report.recommend.run_data import site_of
from jobkit.report.recommend.types import Lines, RequestAdvice, RunData
from jobkit.report.rows import Row, row_of_point
from jobkit.runs.journal import JobTask, Journal, Submission
from jobkit.runs.request import WARNING_S, changed_resources, enough, held_by, held_in, scaled_request
from jobkit.runs.results import Run, read_run
from jobkit.runs.status import PointResult
from jobkit.runs.tries import Try, task_s
from jobkit.schedulers.registry import SCHEDULERS, by_name, runs_here
from jobkit.spec.directives import directives
from jobkit.spec.site import Site, load_site
from jobkit.spec.sweep_spec import Resources, SweepSpec, load_spec

PORTABLE = ("gpus", "cpus", "memory", "walltime")
"""What of a spec means the same at every site."""


def lines(resources: Resources, site: Site, *, own: bool) -> Lines:
    """Return the header lines by which a site is asked for resources.

    ``resources``: what is wanted.
    ``site``: of a scheduler that reads header lines.
    ``own``: whether it is the site of the run.
    """
    portable = {name: getattr(resources, name) for name in PORTABLE}
    wanted = resources if own else Resources().model_copy(update=portable)
    prefix = by_name(site.scheduler).DIRECTIVE
    try:
        header = tuple(f"{prefix} {line}" for line in directives(wanted, site))
    except JobkitError as error:
        return Lines(scheduler=site.scheduler, site=site.name, own=own, reason=error.message)
    return Lines(scheduler=site.scheduler, site=site.name, own=own, lines=header)


def request(material: RunData, chosen: Record, time: Duration) -> RequestAdvice | None:
    """Return what to ask for, next to what was used; ``None`` if the spec is not known.

    ``material``: the data of the run folder.
    ``chosen``: A record of the recommended setting.
    ``time``: of the work to come.
    """
    asked = material.resources
    if asked is None:
        return None
    point = chosen.point
    own, peak = material.site, held_by(material.measured, chosen)
    wanted = enough(
        asked.of(point).model_copy(update={"gpus": 0 if point.device == CPU else point.gpus}),
        held_bytes=peak,
        longest_s=time.longest_s,
        warning_s=own.warning_s if own else WARNING_S,
    )
    sites = [(own, True)] if own else [(site, False) for site in material.plain_sites]
    return RequestAdvice(
        gpus=wanted.gpus,
        gpu_type=wanted.gpu_type,
        cpus=wanted.cpus,
        memory_bytes=wanted.memory,
        walltime_s=wanted.walltime,
        used_memory_bytes=peak,
        lines=tuple(lines(wanted, site, own=mine) for site, mine in sites),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PointUse:
    """What a point requested and used, by its try that counts."""

    row: Row  # as `jobkit collect` has it
    asked: Resources  # what the point requested, for itself
    pack: int  # how many points share its job
    seconds: float | None  # how long the try took, with the environment and staging
    ram_bytes: int | None  # the most memory of the host, by the record or the accounting, whichever has more
    task: JobTask | None  # the job that ran it; ``None`` if that is not known
    on_path: tuple[str, ...] | None = None  # as in `jobkit.runs.journal.Submission`

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
    """A run: what each point used, and how its sites are asked for resources."""

    run: str  # the folder, as named
    scheduler: str  # that ran the points
    points: Sequence[PointUse]  # those that have begun, without tests of a prediction and profiled points
    to_come: int  # how many have not
    threads: int | None  # the key ``threads`` of the spec
    sites: Sequence[Site]  # the site of the run; without one, the plain site of each scheduler
    own: bool  # whether it is the site of the run
    notes: tuple[str, ...]  # what could not be read
    # if it is a search: what was found. Its points are then those of the answer.
    search: SearchAnswer | None = None

    @property
    def noun(self) -> str:
        """What a person calls one of its points."""
        return self.points[0].point.kind.noun if self.points else "point"

    @property
    def unended(self) -> int:
        """How many of its points have begun, and no end of them is home."""
        return sum(use.row.outcome is None for use in self.points)

    @property
    def here(self) -> bool:
        """Whether this machine ran the points, without a scheduler."""
        return runs_here(self.scheduler)


def read_use(folder: Path) -> RunUse:
    """Return what the points of a run folder requested and used."""
    if not is_run_folder(folder):
        raise JobkitError(f"{folder}: not a run folder", hint="jobkit status without RUN lists the runs")
    spec = _spec(folder)
    site, notes = site_of(spec)
    run = read_run(folder)
    meant = [point for point in run.points if point.point.kind.main]
    search = read_search(folder)
    if search and search.setting:
        own = {record.point.index for record in search.winner_records}
        meant = [point for point in meant if point.point.index in own]
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
        raise JobkitError(f"jobkit does not know what the run requested: {first}", hint=hint) from error


def _uses(folder: Path, run: Run, meant: Sequence[PointResult]) -> Iterator[PointUse]:
    """Yield what the points used whose try that counts was run by a scheduler, or by the driver here."""
    journal = run.accounts.journal
    sent = {task: submission for submission in journal.submissions for task, _ in submission.tasks()}

    @cache
    def spec_of(words: tuple[str, ...]) -> SweepSpec:
        return load_spec(folder / SPEC_FILE, words)

    for result in meant:
        tried = result.counts
        if not tried.number or tried.by_hand:
            continue
        words = _words(journal, sent, result.point, tried.task)
        before = [
            other
            for other in reversed(result.tries)
            if other.number < tried.number and _words(journal, sent, result.point, other.task) == words
        ]
        spec = spec_of(words)
        yield PointUse(
            row=row_of_point(str(folder), result),
            asked=_asked(spec, result.point, before, sent.get(tried.task) if tried.task else None),
            pack=1 if runs_here(spec.scheduler) else spec.pack,
            seconds=task_s(tried, shared=tried.task in run.accounts.packed),
            ram_bytes=held_in(tried),
            task=tried.task,
            on_path=sent[tried.task].on_path if tried.task in sent else None,
        )


def _words(
    journal: Journal, sent: Mapping[JobTask, Submission], point: Point, task: JobTask | None
) -> tuple[str, ...]:
    given = sent[task].given if task and task in sent else ()
    return given or journal.needs.get(point.index, ())


def _asked(spec: SweepSpec, point: Point, before: Sequence[Try], sent: Submission | None) -> Resources:
    """Return what a try requested, by its submission; an earlier jobkit left it to the policy alone."""
    asked = spec.resources.of(point)
    if sent and sent.memory_bytes and sent.walltime_s:
        return asked.model_copy(update={"memory": sent.memory_bytes, "walltime": sent.walltime_s})
    return changed_resources(asked, scaled_request(spec.policy, before))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """What to change."""

    does: str  # in words
    keys: Mapping[str, str | int] = field(default_factory=dict)  # of the spec, with their new values
    lines: tuple[Lines, ...] = ()  # by scheduler, the header lines that are new or have changed
    leave_out: tuple[Lines, ...] = ()  # by scheduler, header lines that go
    command: str = ""  # to type, if no key of a spec does it; else empty


def fix_of(
    run: RunUse,
    uses: Sequence[PointUse],
    does: str,
    keys: Mapping[str, str | int],
    pack: int | None = None,
    **changes: object,
) -> Fix:
    """Return a fix with the header lines that it changes.

    The largest of ``uses`` counts, the points whose request changes; ``pack`` points share a job then.
    """
    before, now_pack = largest(uses), max(use.pack for use in uses)
    before = before if run.own else before.model_copy(update={"gpu_type": None})
    after = before.model_copy(update=changes)
    new, gone = [], []
    for site in run.sites:
        old = header(before, site, own=run.own, pack=now_pack)
        after_lines = header(after, site, own=run.own, pack=pack or now_pack)
        changed = tuple(line for line in after_lines.lines if line not in old.lines)
        new.append(replace(after_lines, lines=changed))
        if not changed and not after_lines.reason:
            left = tuple(line for line in old.lines if line not in after_lines.lines)
            gone.append(replace(after_lines, lines=left))
    return Fix(
        does=does,
        keys=keys,
        lines=tuple(line for line in new if line.lines or line.reason),
        leave_out=tuple(line for line in gone if line.lines),
    )


def header(resources: Resources, site: Site, *, own: bool, pack: int = 1) -> Lines:
    """Return the header lines of a job; on a plain site with the type of the GPU, if that is set."""
    job = resources.model_copy(update={"walltime": resources.walltime * pack})
    if own or job.gpu_type is None:
        return lines(job, site, own=own)
    portable = {name: getattr(job, name) for name in (*PORTABLE, "gpu_type")}
    return replace(lines(Resources().model_copy(update=portable), site, own=True), own=False)


def largest(uses: Sequence[PointUse]) -> Resources:
    """Return the largest request of points: the most of each resource."""
    most = {
        name: max(getattr(use.asked, name) for use in uses) for name in ("gpus", "cpus", "memory", "walltime")
    }
    return uses[0].asked.model_copy(update=most)
