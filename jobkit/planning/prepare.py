"""From a spec file to everything that a run needs. It submits nothing and writes only to the cache."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from jobkit.answers.loads import Lengths
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import THREADS, WORKERS
from jobkit.core.paths import cache_dir
from jobkit.core.records import FULL, Point
from jobkit.core.shell import usable_cpus
from jobkit.core.terminal import Say
from jobkit.core.units import MAX_SECONDS, format_setting, format_walltime
from jobkit.planning import batch_sizes, resolve
from jobkit.planning.job_script import render, render_find, render_follow
from jobkit.planning.points import Inputs, PointGroup, group_points, plan
from jobkit.planning.resolve import Options, ResolvedSpec
from jobkit.planning.texts import cached_lengths, is_sample, lengths_or_estimate, one_paragraph, text_lengths
from jobkit.planning.workload_traits import Traits
from jobkit.schedulers.registry import runs_here
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import SweepSpec

__all__ = ["Options", "Prepared", "lengths_of", "planned", "prepare", "resolved", "run_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    spec: SweepSpec  # has nothing ``auto``
    site: Site
    why: str  # why this scheduler, for a person
    inputs: Inputs  # what the points share, for `jobkit.planning.points.plan`
    points: tuple[Point, ...]
    run_dir: Path  # the run folder, which does not exist yet
    script: str  # the text of ``job.sh``
    # of the text's items; ``None`` for a preview that would have to run a model to find them
    lengths: Lengths | None = None
    find_script: str | None = None  # the text of ``find.sh``, if the spec's ``find_max`` requests it
    # the text of ``follow.sh`` if the spec's ``policy`` requests it and there is a scheduler
    follow_script: str | None = None
    more_files: Mapping[str, str] = field(default_factory=dict)
    # by index the points that need more than the others, as ``key=value``; they are a round of their own
    needs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[PointGroup, ...]:
        points = [point for point in self.points if point.index not in self.needs]
        return group_points(self.spec, self.site, points or self.points)


NeedsReal = Callable[[SweepSpec], str]


def find_max_needs_real(spec: SweepSpec) -> str:
    """Return ``find_max`` if a spec has it: the largest batch of a stand-in says nothing of the model."""
    return "find_max" if spec.find_max else ""


def prepare(
    path: Path | str,
    options: Options | None = None,
    *,
    build: bool = False,
    say: Say = lambda _: None,
    needs_real: NeedsReal = find_max_needs_real,
) -> Prepared:
    """Return the run that a spec describes.

    ``build``: build a missing stand-in and fetch a missing text now; ``--dry-run`` writes nothing.
    ``needs_real``: returns what needs the real model unless the text is the sample; empty if nothing does.
    """
    options = options or Options()
    named = resolved(path, options, say, build=build, needs_real=needs_real)
    spec, lengths = _sized(named, say, build=build)
    return planned(named, options, spec, lengths, say)


def resolved(
    path: Path | str,
    options: Options,
    say: Say,
    *,
    build: bool,
    needs_real: NeedsReal,
) -> ResolvedSpec:
    """Return a spec with everything that it names; see `prepare`."""

    def check(named: ResolvedSpec, workload: Traits) -> None:
        if build:
            resolve.refuse_unusable_gpu(named.spec, named.site, workload)
        else:
            resolve.warn(say, named.spec, named.site, workload)
        command, model = needs_real(named.spec), named.model
        if command and model and not options.stand_in and not is_sample(named.text):
            from jobkit.planning.models import refuse_stand_in  # as in `resolve`

            ways = [] if model.size == FULL else ["then again with --set model.size=full"]
            refuse_stand_in(named.spec.workload_name, model, command, *ways)

    return resolve.resolve(Path(path), options, fetch=build, build=build, say=say, check=check)


def planned(
    named: ResolvedSpec,
    options: Options,
    spec: SweepSpec,
    lengths: Lengths | None,
    say: Say,
    points_of: Callable[[SweepSpec, Inputs], tuple[Point, ...]] = plan,
) -> Prepared:
    """Return a run whose spec has nothing ``auto``; ``points_of`` returns the points with which it begins."""
    run_dir = options.runs_folder(named.site) / run_id(spec.name)
    inputs = Inputs(
        run_id=run_dir.name,
        text=named.text,
        model=named.model,
        device=spec.device,
        workload_folder=named.workload_folder,
        load_knobs=named.load_knobs,
        files=named.files,
    )
    if idle := resolve.idle_gpus(spec, named.site.scheduler, spec.device):
        say(f"warning: {idle} ({resolve.needed_gpus(spec.device)})")
    few = lengths is None or len(lengths.paragraphs) == 1  # else the text need not be read once more
    if not spec.command and few and (alone := one_paragraph(named.text)):
        say(f"warning: {alone}")
    points = points_of(spec, inputs)
    spec = shared_by(spec, len(points))
    if spec.resources.walltime * spec.pack > MAX_SECONDS:
        each = format_walltime(spec.resources.walltime)
        message = f"pack: {spec.pack:,} points of {each} each need a job of more than ten years"
        raise JobkitError(message, hint="lower pack or resources.walltime")
    refuse_too_many_threads(spec, points)
    wanted = spec.find_max is not None and spec.find_max.verify
    followed = spec.policy.follow_up and not runs_here(spec.scheduler)
    return Prepared(
        spec=spec,
        site=named.site,
        why=named.why,
        inputs=inputs,
        points=points,
        run_dir=run_dir,
        script=render(spec, named.site, points[0], run_dir),
        lengths=lengths,
        find_script=render_find(spec, named.site, points[0], run_dir) if wanted else None,
        follow_script=render_follow(spec, named.site, points[0], run_dir) if followed else None,
    )


def _sized(named: ResolvedSpec, say: Say, *, build: bool) -> tuple[SweepSpec, Lengths | None]:
    """Return the spec with ``batch_size: auto`` decided, and the lengths of the text.

    They are found here once for every later command; a preview spends no time on what it does not need.
    """
    spec, text, model, folder = named.spec, named.text, named.model, named.workload_folder
    if spec.command:
        return spec, None  # only the program knows what its text pads to
    if batch_sizes.is_auto(spec):
        lengths = lengths_of(named, say)
        chosen = batch_sizes.choose(
            spec, model, batch_sizes.loads_of(spec, lengths), batch_sizes.named_gpu_bytes(spec)
        )
        say(chosen.line)
        return batch_sizes.decided(spec, chosen.sizes.batch_sizes), lengths
    if model is not None and not build:
        return spec, cached_lengths(spec.workload_name, text, model, cache_dir())
    return spec, lengths_or_estimate(
        spec.workload_name, text, model, cache=cache_dir(), say=say, folder=folder
    )


def lengths_of(named: ResolvedSpec, say: Say) -> Lengths:
    """Return the lengths of the text, found now if they are not in the cache."""
    spec, cache = named.spec, cache_dir()
    return text_lengths(
        spec.workload_name, named.text, named.model, cache=cache, say=say, folder=named.workload_folder
    )


def shared_by(spec: SweepSpec, points: int) -> SweepSpec:
    """Return the spec with no more points a job than there are: a job requests the walltime of each."""
    return spec.model_copy(update={"pack": min(spec.pack, points)})


def run_id(name: str) -> str:
    """Return a new run id: the name, the local time, and four random hexadecimal digits."""
    now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return f"{name}-{now}-{secrets.token_hex(2)}"


def refuse_too_many_threads(spec: SweepSpec, points: Sequence[Point]) -> None:
    """Refuse workers and threads that need more CPUs than this machine gives its processes."""
    cpus = usable_cpus()
    most = max(points, key=lambda point: spec.resources.of(point).cpus)
    needed = spec.resources.of(most).cpus
    if not runs_here(spec.scheduler) or needed <= cpus or needed == spec.resources.cpus:
        return
    setting = format_setting({WORKERS: most.workers, THREADS: most.threads})
    raise JobkitError(
        f"{most.point_id} needs {needed} CPUs ({setting}), and jobkit may use {cpus} here",
        hint="lower workers, threads or resources.cpus",
    )
