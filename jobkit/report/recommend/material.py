"""What a run folder holds for a recommendation and for the wastes: measured, requested, used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from jobkit.answers.loads import Lengths, read_lengths
from jobkit.answers.objective import Objective, SearchAnswer, read_search
from jobkit.answers.speed import Duration
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.knobs import CPU, sort_key
from jobkit.core.layout import SPEC_FILE, is_run_folder
from jobkit.core.records import RESULTS, Batch, Outcome, Point, Record
from jobkit.core.terminal import printable, shell_path, shell_quote
from jobkit.core.units import format_list
from jobkit.report.rows import Row, row_of_point, trials_of
from jobkit.report.tables import no_search_for_cycles
from jobkit.runs.agreement import Agreement, Counts, agreements, changing_knobs
from jobkit.runs.journal import JobTask
from jobkit.runs.request import WARNING_S, changed_resources, enough, held_by, held_in, scaled_request
from jobkit.runs.results import Run, batches_of, read_run
from jobkit.runs.status import PointResult
from jobkit.runs.trials import Trial, describe_trials
from jobkit.runs.tries import task_s, timed
from jobkit.schedulers.registry import SCHEDULERS, by_name, runs_here
from jobkit.spec.site import Site, directives, load_site
from jobkit.spec.sweep_spec import Resources, SweepSpec, load_spec
from jobkit.spec.yaml_files import hide_override

VALUES_OF = "sweep."
"""Begins an option that keeps of a run the points with some values of a knob."""


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The data of a run folder."""

    run: str  # the folder, as named
    records: Sequence[Record]  # of the try that counts, of every point that has one
    batches: Mapping[str, Sequence[Batch]]  # by point id
    lengths: Lengths | None  # of the text; ``None`` if they are not known
    # of every try of every point: how long it ran; ``None`` if that is not known
    seconds: Sequence[float | None]
    resources: Resources | None  # what the spec asked for; ``None`` if sweep.yaml could not be read
    site: Site | None  # the site of the run; ``None`` if it is not to be had, or runs no scheduler
    to_come: int = 0  # `to_come`, `failed`: how many points have no result yet, or will have none
    failed: int = 0
    notes: tuple[str, ...] = ()  # what could not be read
    # the results of the predictions that this run has tested, in sentences without a full stop
    trials: tuple[str, ...] = ()
    tried: tuple[Trial, ...] = ()  # the same as data: the largest safe batch is below those that did not fit
    # by the point's index, if the run sweeps the precision: how its entities agree with those of fp32
    agreements: Mapping[int, Agreement] = field(default_factory=dict)
    # knobs of the user's workload whose values found other rows, with their numbers
    changing: Mapping[str, Counts] = field(default_factory=dict)
    # what a setting is chosen by, and what it must keep
    objective: Objective = field(default_factory=Objective)
    asked_bytes: int | None = None  # as in `jobkit.answers.memory.Memory`
    search: SearchAnswer | None = None  # if it is a search: what was found

    @property
    def measured(self) -> Sequence[Record]:
        """The records by which a setting is planned: of a search only those of its answer."""
        return self.search.finals.winner_records if self.search else self.records

    @cached_property
    def held(self) -> Callable[[Record], int | None]:
        """The most RAM of the records that count for the setting of one."""
        return held_by(self.measured)


@keyed
class Lines:
    """Header lines for one scheduler's site, with their prefix, or the ``reason`` why there are none.

    ``own`` is whether it is the site of the run; else it is the scheduler's plain one, and the
    names of queues, accounts and GPU types are left out.
    """

    scheduler: str
    site: str
    own: bool
    lines: tuple[str, ...] = ()
    reason: str = ""


@keyed
class RequestAdvice:
    """What to ask the scheduler for, next to what was used."""

    gpus: int  # `gpus`, `gpu_type`, `cpus`, `memory_bytes`, `walltime_s`: to ask for
    gpu_type: str | None
    cpus: int
    memory_bytes: int
    walltime_s: int
    used_memory_bytes: int | None  # as in `jobkit.runs.request.held_by`
    lines: tuple[Lines, ...]  # for each scheduler
    jobs: int = 1  # how many such jobs do the corpus
    too_long: str = ""  # why no job can do all of it, in words; empty if one can


@no_search_for_cycles()
def read_material(folder: Path, overrides: Sequence[str] = (), run: Run | None = None) -> RunData:
    """Return the data of a run folder.

    ``folder``: of one run.
    ``run``: what it holds, if that was read already.
    ``overrides``: ``key=value`` that replace keys of ``objective`` and ``constraints`` in its spec, or keep
    of its points those with some values of a knob (``sweep.KNOB=VALUE``).
    """
    for override in overrides:
        if re.match(r"(objective\b|constraints\b|sweep\.\w+=)", override) is None:
            message = (
                f"--set {hide_override(override, SweepSpec)}: recommend takes only objective, constraints "
                "and the values of a knob that was swept"
            )
            hint = "--set objective.metric=NAME, --set constraints.NAME.min=NUMBER, --set sweep.KNOB=VALUE"
            raise JobkitError(message, hint=hint)
    if not is_run_folder(folder):
        raise JobkitError(
            f"{folder}: not a run folder, and a recommendation rests on records that a log does not have",
            hint=f"name one folder below runs/; to read an old log: jobkit collect {shell_quote(folder)}",
        )
    run = run or read_run(folder)
    values = [word for word in overrides if word.startswith(VALUES_OF)]
    overrides = [word for word in overrides if word not in values]
    spec, notes = spec_of(folder, overrides)
    site, more = site_of(spec)
    objective = Objective()
    if spec:
        direction = spec.objective.chosen_direction
        objective = Objective.of(spec.objective.metric, direction, spec.constraints.bounds)
    sweep = _chosen([point for point in run.points if point.point.kind.swept], values, folder)
    records = [record for point in sweep if (record := timed(point.verdict))]
    tried = trials_of(folder, run.points)
    return RunData(
        run=str(folder),
        records=records,
        batches=batches_of(sweep),
        lengths=read_lengths(folder),
        seconds=tuple(
            task_s(tried) if tried.record else None
            for result in sweep
            for tried in reversed(result.tries)
            if tried.outcome is not Outcome.PRUNED
        ),
        resources=spec.resources if spec else None,
        site=site,
        to_come=sum(point.outcome is None for point in sweep),
        failed=sum(bool(point.outcome) and point.outcome not in RESULTS for point in sweep),
        notes=(*run.notes, *notes, *more),
        trials=describe_trials(tried),
        tried=tuple(tried),
        asked_bytes=spec.asked_bytes if spec else None,
        agreements=agreements(sweep),
        changing=changing_knobs(sweep),
        objective=objective,
        search=read_search(folder, objective if overrides else None),
    )


def _chosen(points: Sequence[PointResult], overrides: Sequence[str], run: Path) -> list[PointResult]:
    """Return the points with those values of knobs that a person chose."""
    kept = list(points)
    for knob, text in (word.removeprefix(VALUES_OF).split("=", 1) for word in overrides):
        wanted = re.findall(r"[^\s,\[\]]+", text)
        measured = {value for one in kept if (value := one.point.params.get(knob)) is not None}
        kept = [one for one in kept if str(one.point.params.get(knob)) in wanted]
        if not kept:
            values = format_list([str(value) for value in sorted(measured, key=sort_key)], 8)
            hint = f"measured were {values}" if values else f"its knobs: jobkit collect {shell_path(run)}"
            raise JobkitError(f"{run}: no point has {printable(knob)} {printable(text)}", hint=hint)
    return kept


def spec_of(folder: Path, overrides: Sequence[str] = ()) -> tuple[SweepSpec | None, list[str]]:
    """Return the spec of a run, or why it cannot be read; with ``overrides`` that is an error."""
    try:
        return load_spec(folder / SPEC_FILE, overrides), []
    except JobkitError as error:
        if overrides:
            raise
        first, *_ = error.message.splitlines()
        return None, [f"jobkit cannot compute a request without the spec: {first}"]


def site_of(spec: SweepSpec | None) -> tuple[Site | None, list[str]]:
    """Return the site of a run, and why it is not its own; ``None`` if it ran without a scheduler."""
    if spec is None or spec.scheduler == "auto" or runs_here(spec.scheduler):
        return None, []
    try:
        return load_site(spec.site, spec.scheduler), []
    except JobkitError as error:
        return None, [f"{error.message}: the lines are a plain {spec.scheduler}'s"]


def plain_sites() -> list[Site]:
    """Return the plain site of each scheduler."""
    return [load_site(f"{name}-default", name) for name in SCHEDULERS if not runs_here(name)]


PORTABLE = ("gpus", "cpus", "memory", "walltime")
"""What of a spec means the same at every site."""


def lines(resources: Resources, site: Site, *, own: bool, kept: Sequence[str] = PORTABLE) -> Lines:
    """Return the header lines by which a site is asked for resources.

    ``resources``: what is wanted.
    ``site``: of a scheduler that reads header lines.
    ``own``: whether it is the site of the run; else it gets what is ``kept`` of the resources.
    """
    portable = {name: getattr(resources, name) for name in kept}
    wanted = resources if own else Resources().model_copy(update=portable)
    header, reason = list[str](), ""
    try:
        header = directives(wanted, site)
    except JobkitError as error:
        reason = error.message
    prefixed = tuple(f"{by_name(site.scheduler).DIRECTIVE} {line}" for line in header)
    return Lines(scheduler=site.scheduler, site=site.name, own=own, lines=prefixed, reason=reason)


def requested(material: RunData, record: Record, longest_s: float | None = None) -> Resources | None:
    """Return what to request for a record's setting; ``None`` if the spec is not known."""
    asked, point, own = material.resources, record.point, material.site
    return asked and enough(
        asked.of(point).model_copy(update={"gpus": 0 if point.device == CPU else point.gpus}),
        held_bytes=material.held(record),
        longest_s=longest_s,
        warning_s=own.warning_s if own else WARNING_S,
    )


def request(material: RunData, chosen: Record, time: Duration) -> RequestAdvice | None:
    """Return what to ask for, next to what was used; ``None`` if the spec is not known.

    ``material``: the data of the run folder.
    ``chosen``: A record of the recommended setting.
    ``time``: of the work to come.
    """
    own, wanted = material.site, requested(material, chosen, time.longest_s)
    if wanted is None:
        return None
    sites = [(own, True)] if own else [(site, False) for site in plain_sites()]
    return RequestAdvice(
        gpus=wanted.gpus,
        gpu_type=wanted.gpu_type,
        cpus=wanted.cpus,
        memory_bytes=wanted.memory,
        walltime_s=wanted.walltime,
        used_memory_bytes=material.held(chosen),
        lines=tuple(lines(wanted, site, own=mine) for site, mine in sites),
    )


@keyed
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
        return self.row.point

    @property
    def record(self) -> Record | None:
        """The record of its try that counts."""
        return self.row.record


@keyed
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


def read_use(folder: Path, run: Run | None = None) -> RunUse:
    """Return what the points of a run folder requested and used."""
    if not is_run_folder(folder):
        raise JobkitError(f"{folder}: not a run folder", hint="jobkit status without RUN lists the runs")
    try:
        spec = load_spec(folder / SPEC_FILE)
    except JobkitError as error:
        first, *_ = error.message.splitlines()
        hint = f"a run folder has its spec as {SPEC_FILE}: copy it back, or fix it"
        raise JobkitError(f"jobkit does not know what the run requested: {first}", hint=hint) from error
    site, notes = site_of(spec)
    run = run or read_run(folder)
    meant = [point for point in run.points if point.point.kind.main]
    search = read_search(folder)
    if search and search.setting:
        own = {record.point.index for record in search.finals.winner_records}
        meant = [point for point in meant if point.point.index in own]
    points = tuple(_uses(folder, run, meant))
    if not points:
        raise JobkitError(
            f"{folder}: no point has begun, so nothing was used", hint=f"jobkit status {shell_path(folder)}"
        )
    last = next((use.task.scheduler for use in reversed(points) if use.task), spec.scheduler)
    return RunUse(
        run=str(folder),
        scheduler=last,
        points=points,
        to_come=len(meant) - len(points),
        threads=spec.threads,
        sites=[site] if site else plain_sites(),
        own=site is not None,
        notes=(*run.notes, *notes),
        search=search,
    )


def _uses(folder: Path, run: Run, meant: Sequence[PointResult]) -> Iterator[PointUse]:
    """Yield what the points used whose try that counts was run by a scheduler, or by the driver here."""
    journal = run.accounts.journal
    sent = {task: submission for submission in journal.submissions for task, _ in submission.tasks()}

    @cache
    def spec_of(words: tuple[str, ...]) -> SweepSpec:
        return load_spec(folder / SPEC_FILE, words)

    def words_of(point: Point, task: JobTask | None) -> tuple[str, ...]:
        given = sent[task].given if task and task in sent else ()
        return given or journal.needs.get(point.index, ())

    for result in meant:
        tried, point = result.verdict, result.point
        if not tried.number or tried.by_hand:
            continue
        words, own = words_of(point, tried.task), sent.get(tried.task) if tried.task else None
        spec = spec_of(words)
        asked = spec.resources.of(point)
        if own and own.memory_bytes and own.walltime_s:
            asked = asked.model_copy(update={"memory": own.memory_bytes, "walltime": own.walltime_s})
        else:  # an earlier jobkit left what a submission requests to the policy alone
            before = [one for one in reversed(result.tries) if one.number < tried.number]
            alike = [one for one in before if words_of(point, one.task) == words]
            asked = changed_resources(asked, scaled_request(spec.policy, alike))
        yield PointUse(
            row=row_of_point(str(folder), result),
            asked=asked,
            pack=1 if runs_here(spec.scheduler) else spec.pack,
            seconds=task_s(tried),
            ram_bytes=held_in(tried),
            task=tried.task,
            on_path=own.on_path if own else None,
        )


def header(resources: Resources, site: Site, *, own: bool, pack: int = 1) -> Lines:
    """Return the header lines of a job; on a plain site with the type of the GPU, if that is set."""
    job = resources.model_copy(update={"walltime": resources.walltime * pack})
    return lines(job, site, own=own, kept=(*PORTABLE, "gpu_type"))


def largest(uses: Sequence[PointUse]) -> Resources:
    """Return the largest request of points: the most of each resource."""
    most = {name: max(getattr(use.asked, name) for use in uses) for name in PORTABLE}
    return uses[0].asked.model_copy(update=most)
