"""From a spec file to a run that could be submitted: all that the spec names, its points and its scripts.

It submits nothing and writes only to the cache. Every error of a spec is reported at once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from jobkit.answers.loads import Lengths
from jobkit.core import extensions
from jobkit.core.errors import WOULD_REFUSE, JobkitError
from jobkit.core.extras import cpu_build_problem, cuda_install_command
from jobkit.core.files import digest
from jobkit.core.frozen import keyed
from jobkit.core.knobs import (
    AUTO,
    CUDA,
    EXACT,
    LOAD_KNOBS,
    PADDED,
    PROMPT,
    SHORTCUTS,
    SPEC_KNOBS,
    THREADS,
    WORKERS,
)
from jobkit.core.paths import cache_dir
from jobkit.core.records import FULL, MODEL_OPTIONS, FileRef, ModelRef, Point, TextRef
from jobkit.core.shell import usable_cpus
from jobkit.core.terminal import Say
from jobkit.core.units import MAX_SECONDS, format_count, format_setting, format_walltime
from jobkit.planning import batch_sizes
from jobkit.planning.job_script import find_template, job_python, render, render_find, render_follow
from jobkit.planning.points import Inputs, PointGroup, group_points, offered, plan
from jobkit.planning.texts import (
    SAMPLE,
    cached_lengths,
    find_text,
    is_sample,
    one_paragraph,
    text_lengths,
    text_on_disk,
)
from jobkit.planning.workload_traits import JobPython, Traits, command_traits, traits
from jobkit.runs.after import resolved
from jobkit.runs.which_run import RUNS
from jobkit.schedulers.registry import SCHEDULERS, by_name, choose_scheduler, runs_here
from jobkit.spec.axes import name_faults, value_faults
from jobkit.spec.checks import add_offer_faults, command_faults, file_refs, sources, swept
from jobkit.spec.fields import AutoNumber
from jobkit.spec.site import Site, find_site, load_site, portable_name
from jobkit.spec.sweep_spec import (
    SPEC_HINT,
    Axes,
    Environment,
    Resources,
    SweepSpec,
    read_spec,
    setting_overrides,
)
from jobkit.spec.yaml_files import YamlDocument, hide_override, sound
from jobkit.worker.workloads.base import SHIPPED, class_name, missing_framework
from jobkit.worker.workloads.pairs import PAIRS, QUERIES_FILE, queries_of, read_queries
from jobkit.worker.workloads.user_file import file_ref, names_file, source_path


@keyed
class Options:
    overrides: tuple[str, ...] = ()  # ``key=value`` of each ``--set``
    # the run of ``jobkit tune``, or its ``setting.yaml``, whose setting applies before ``overrides``
    setting: Path | None = None
    scheduler: str | None = None  # overrides the spec's, as does ``site``
    site: str | None = None
    runs_dir: Path | None = None  # overrides the site's if it is given
    # whether a stand-in replaces a missing model, and is permitted for any text
    stand_in: bool = False
    text: str | None = None  # of a spec that has no file; its paths begin in the working directory

    @property
    def named(self) -> dict[str, str]:
        return {key: value for key in ("scheduler", "site") if (value := getattr(self, key))}

    @property
    def all_overrides(self) -> tuple[str, ...]:
        found = setting_overrides(self.setting) if self.setting else ()
        return (*found, *self.overrides, *(f"{key}={value}" for key, value in self.named.items()))

    @property
    def words(self) -> tuple[str, ...]:
        """The options without ``--setting``, as a person types them."""
        named = {**self.named, **({"runs-dir": str(self.runs_dir)} if self.runs_dir else {})}
        pairs = [("--set", hide_override(change, SweepSpec)) for change in self.overrides]
        pairs += [(f"--{name}", value) for name, value in named.items()]
        return (*(word for pair in pairs for word in pair), *["--stand-in"] * self.stand_in)

    def runs_folder(self, site: Site) -> Path:
        """Return the absolute folder of the run folders."""
        named = self.runs_dir or Path(os.path.expandvars(site.runs_dir or RUNS))
        return named.expanduser().absolute()


@keyed
class NamedSpec:
    """A spec, and all that it names."""

    spec: SweepSpec  # has nothing ``auto`` but batch sizes
    written: SweepSpec  # as a person wrote it
    site: Site
    why: str  # why this scheduler, for a person
    inputs: Inputs  # what the points share; the run id is empty until there is a run
    # of the workload; a corpus, whose setting is known, asks for none of them
    traits: Traits = Traits(needs_model=False, reports_lengths=False, knobs=())
    # the resources that are ``auto``: what was decided, and by what
    auto: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@keyed
class Prepared(NamedSpec):
    """A run that could be submitted now, and all that its folder will have; nothing is ``auto``."""

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


# -- the steps from a spec to a run


def prepare(
    path: Path | str,
    options: Options | None = None,
    *,
    build: bool = False,
    say: Say = lambda _: None,
) -> Prepared:
    """Return the run that a spec describes.

    ``build``: build a missing stand-in and fetch a missing text now; ``--dry-run`` writes nothing.
    """
    options = options or Options()
    named = read_real(Path(path), options, say, build=build)
    lengths = None
    if batch_sizes.is_auto(named.spec):
        lengths = lengths_of(named, say)
        loads = batch_sizes.loads_of(named.spec, lengths)
        limit_bytes = batch_sizes.named_gpu_bytes(named.spec)
        chosen = batch_sizes.choose(named.spec, named.inputs.model, loads, limit_bytes)
        say(chosen.line)
        named = replace(named, spec=batch_sizes.decided(named.spec, chosen.sizes.batch_sizes))
    elif not named.spec.command:  # only the program knows what its text pads to
        text, model = named.inputs.text, named.inputs.model
        if model is not None and not build:  # a preview spends no time on what it does not need
            lengths = cached_lengths(named.spec.workload_name, text, model, cache_dir())
        else:
            lengths = lengths_of(named, say, or_estimate=True)
    return begin(named, options, say, lengths)


def read_real(path: Path, options: Options, say: Say, *, build: bool, command: str = "") -> NamedSpec:
    """Return a spec that is about to run with all that it names; as `prepare`.

    ``command`` needs the real model unless the text is the sample; a sweep does for its ``find_max``.
    """
    named = read_named(path, options, fetch=build, say=say)
    spec, model = named.spec, named.inputs.model
    if why := _unusable_gpu(named):
        if build:
            raise why
        say(f"jobkit {WOULD_REFUSE}: {why}")
    command = command or ("find_max" if spec.find_max else "")
    if command and model and not options.stand_in and not is_sample(named.inputs.text):
        from jobkit.planning.models import refuse_stand_in  # as in `_Lookup`

        ways = [] if model.size == FULL else ["then again with --set model.size=full"]
        refuse_stand_in(spec.workload_name, model, command, *ways)
    return build_model(named, say) if build else named


def build_model(named: NamedSpec, say: Say) -> NamedSpec:
    """Return what a spec names, with its stand-in built if that is missing."""
    if named.inputs.model is None:
        return named
    from jobkit.planning import models  # as in `_Lookup`

    model = models.build(named.spec.workload_name, named.inputs.model, cache_dir(), say=say)
    return replace(named, inputs=replace(named.inputs, model=model))


def begin(
    named: NamedSpec,
    options: Options,
    say: Say,
    lengths: Lengths | None,
    points_of: Callable[[SweepSpec, Inputs], tuple[Point, ...]] = plan,
) -> Prepared:
    """Return a run of its own, with a new id; ``points_of`` returns the points with which it begins."""
    spec, text = named.spec, named.inputs.text
    run_dir = options.runs_folder(named.site) / run_id(spec.name)
    if idle := idle_gpus(spec, named.site.scheduler, spec.device):
        say(f"warning: {idle} ({NO_GPU})")
    if unnamed := unnamed_gpus(spec, named.site):
        say(f"warning: {unnamed} ({NAMING})")
    few = lengths is None or len(lengths.paragraphs) == 1  # else the text need not be read once more
    if not spec.command and few and (alone := one_paragraph(text)):
        say(f"warning: {alone}")
    inputs = replace(named.inputs, run_id=run_dir.name)
    return run_of(replace(named, inputs=inputs), points_of(spec, inputs), run_dir, lengths=lengths)


def run_of(
    named: NamedSpec,
    points: tuple[Point, ...],
    run_dir: Path,
    *,
    lengths: Lengths | None = None,
    places: Sequence[str] = (),
    needs: Mapping[int, tuple[str, ...]] | None = None,
) -> Prepared:
    """Return a run of these points, with its scripts; ``places`` as in `render`."""
    spec, site = shared_by(named.spec, len(points)), named.site
    if spec.resources.walltime * spec.pack > MAX_SECONDS:
        each = format_walltime(spec.resources.walltime)
        message = f"pack: {spec.pack:,} points of {each} each need a job of more than ten years"
        raise JobkitError(message, hint="lower pack or resources.walltime")
    if here := runs_here(spec.scheduler):
        most = max(points, key=lambda point: spec.resources.of(point).cpus)
        needed, cpus = spec.resources.of(most).cpus, usable_cpus()
        if needed > cpus and needed != spec.resources.cpus:
            setting = format_setting({WORKERS: most.workers, THREADS: most.threads})
            raise JobkitError(
                f"{most.point_id} needs {needed} CPUs ({setting}), and jobkit may use {cpus} here",
                hint="lower workers, threads or resources.cpus",
            )
    wanted = spec.find_max is not None and spec.find_max.verify
    followed = spec.policy.follow_up and not here
    return Prepared(
        spec=spec,
        written=named.written,
        site=site,
        why=named.why,
        inputs=named.inputs,
        auto=named.auto,
        points=points,
        run_dir=run_dir,
        script=render(spec, site, points[0], run_dir, places=places),
        lengths=lengths,
        find_script=render_find(spec, site, points[0], run_dir) if wanted else None,
        follow_script=render_follow(spec, site, points[0], run_dir) if followed else None,
        needs={} if here else needs or {},
    )


def lengths_of(named: NamedSpec, say: Say, *, fast: bool = False, or_estimate: bool = False) -> Lengths:
    """Return the lengths of the text, found now if they are not in the cache; as `text_lengths`."""
    inputs = named.inputs
    return text_lengths(
        named.spec.workload_name,
        inputs.text,
        None if fast else inputs.model,
        cache=cache_dir(),
        say=say,
        or_estimate=or_estimate,
        folder=inputs.workload_folder,
        python=job_python(named.spec.environment, named.site),
        queries=queries_of(inputs.files),
    )


def shared_by(spec: SweepSpec, points: int) -> SweepSpec:
    """Return the spec with no more points a job than there are: a job requests the walltime of each."""
    return spec.model_copy(update={"pack": min(spec.pack, points)})


def run_id(name: str) -> str:
    """Return a new run id: the name, the local time, and four random hexadecimal digits."""
    now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return f"{name}-{now}-{secrets.token_hex(2)}"


# -- all that a spec names


def spec_folder(path: Path) -> str:
    return os.path.abspath(path.parent)  # noqa: PTH100 - without `..`, and links as they are


def read_named(path: Path, options: Options, *, fetch: bool, say: Say) -> NamedSpec:
    """Return a spec with everything that it names; `build_model` builds a stand-in that is missing."""
    document, written = read_spec(path, options.all_overrides, options.text)
    lookup = _Lookup(path, fetch, options.stand_in)
    lookup.look_up(document)
    spec = written = sound(document, written, SPEC_HINT)
    text, workload, site, model = lookup.text, lookup.traits, lookup.site, lookup.model
    if text is None or workload is None or site is None:
        raise AssertionError  # it would be a fault; for the type checker
    name, told = site.scheduler, (spec if "on_end" in spec.model_fields_set else site).on_end
    decided: dict[str, object] = {
        "scheduler": name,
        "text": spec.text
        if SAMPLE.fullmatch(spec.text) or "://" in spec.text
        else str(text_on_disk(spec.text, path.parent)),
        "device": device(spec, name),
        "pack": 1 if runs_here(name) else spec.pack if "pack" in spec.model_fields_set else site.pack,
        "on_end": told and told.of_folder(path.parent),
        "max_gpu_hours": (spec if "max_gpu_hours" in spec.model_fields_set else site).max_gpu_hours,
        "site": lookup.site_name,
        "template": lookup.template,
        "after": list(map(resolved, spec.after)),
        "environment": spec.environment.of_folder(path.parent),
        "queries": queries_of(lookup.files) if workload.pairs else None,
        **offered(spec, workload.knobs),
    }
    if workload.unseen:
        say(f"note: {spec.workload_name} is not imported here, only parsed: {workload.unseen}")
        say("  whether it can be imported, and the lengths of the text, are known once a job runs")
    resources, variables = asked_by_shell(spec.resources, name)
    autos = {key: value for key, value in resources if isinstance(value, AutoNumber)}
    auto = {
        key: found
        for decide in extensions.each(lambda one: one.auto)
        for key, found in decide(spec.name, name, autos).items()
    }
    for key, found in auto.items():
        say(f"resources.{key}: {found['line']}")
    asked = {key: AutoNumber(found["request"]) for key, found in auto.items()}
    decided["resources"] = resources.model_copy(update=asked)
    if model and options.stand_in and model.stand_in:
        decided["model"] = spec.model.model_copy(update={"size": model.size, "fallback": "stand-in"})
    spec = spec.model_copy(update=decided)
    exact = {(SHORTCUTS, EXACT), (f"sweep.{SHORTCUTS}", EXACT)} & {*_values(spec)}
    window, budget = workload.windows.get(spec.device), workload.budgets.get(spec.device)
    if exact and window and not spec.work_unit:
        spec = spec.model_copy(update={"work_unit": window})
    if exact and budget and {f"sweep.{name}" for name in LOAD_KNOBS}.isdisjoint(dict(_values(spec))):
        axes = Axes.model_validate({**spec.sweep.model_dump(), PADDED: [budget]})
        spec = spec.model_copy(update={"sweep": axes})
    by_name = {knob.name: knob for knob in workload.knobs}
    for key, value in _values(spec):
        knob = by_name.get(key.removeprefix("sweep."))
        if knob and spec.device not in (devices := knob.devices_of(value)):
            what = f"{value} means" if value in knob.cuda_words else "means"
            message = f"{key}: {what} nothing with device: {spec.device}"
            raise JobkitError(message, hint=f"leave it out, or set device: {devices[0]}")
    refuse_missing_packages(spec, site)
    inputs = Inputs(
        run_id="",
        text=text,
        model=model,
        device=spec.device,
        workload_folder=None if spec.command or spec.workload in SHIPPED else spec_folder(path),
        load_knobs=tuple(knob.name for knob in workload.knobs if knob.grows_load),
        files=lookup.files,
    )
    why = "; ".join([lookup.why, *variables])
    return NamedSpec(
        spec=spec, written=written, site=site, why=why, inputs=inputs, traits=workload, auto=auto
    )


def asked_by_shell(resources: Resources, scheduler: str) -> tuple[Resources, list[str]]:
    """Return resources with what variables such as SBATCH_ACCOUNT, not the spec, request; a line on each."""
    asking = SCHEDULERS[scheduler].ASKING_VARIABLES.items()
    names = [name for name, key in asking if os.environ.get(name) and getattr(resources, key) is None]
    asked = {key: os.environ[name] for name, key in asking if name in names}
    return resources.model_copy(update=asked), [f"{name} is {os.environ[name]}" for name in names]


def _values(spec: SweepSpec) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of knobs; of the keys at the top level those that ask for something."""
    for knob in SPEC_KNOBS:
        if (value := getattr(spec, knob.name)) not in {None, knob.plain, AUTO}:
            yield knob.name, value
    rows: list[Mapping[str, object]] = [*spec.sweep.include, spec.sweep.zip, spec.sweep.product]
    for name, values in ((name, values) for row in rows for name, values in row.items()):
        yield from ((f"sweep.{name}", value) for value in (values if isinstance(values, list) else [values]))


@dataclass(slots=True)
class _Lookup:
    """Finds what the raw data of a spec names, and adds an error for what it cannot find."""

    path: Path
    fetch: bool
    stand_in: bool = False
    text: TextRef | None = None
    traits: Traits | None = None
    model: ModelRef | None = None
    site: Site | None = None
    site_name: str = ""
    why: str = ""
    template: str | None = None
    files: tuple[FileRef, ...] = ()

    def look_up(self, document: YamlDocument) -> None:
        data, base = document.data, self.path.parent
        if isinstance(name := data.get("text", "sample"), str):
            drawn = {"number": data.get("text_sample"), "seed": data.get("text_seed", 0)}
            if not all(value is None or type(value) is int for value in drawn.values()):
                drawn = {}  # a fault of the spec
            with _faults_of(document, "text"):
                self.text = find_text(name, base=base, cache=cache_dir(), write=self.fetch, **drawn)
        scheduler = data.get("scheduler", "auto")
        if isinstance(name := data.get("site", "auto"), str) and scheduler in ["auto", *SCHEDULERS]:
            chosen, self.why = choose_scheduler(scheduler)
            if scheduler != "auto":
                self.why = "from --scheduler" if ("scheduler",) in document.overrides else "from the spec"
            with _faults_of(document, "site"):
                self.site, file = find_site(name, chosen)
                self.site_name = portable_name(file)
        workload = data.get("workload", "stanza-ner")
        if isinstance(workload, dict):
            self._look_up_command(document, workload)
        elif isinstance(workload, str) and ":" in class_name(workload):
            self._look_up_workload(document, workload)
        self._look_up_queries(document)
        if self.traits and isinstance(model := data.get("model", {}), dict):
            self._look_up_model(document, workload if isinstance(workload, str) else "a command", model)
        if isinstance(name := data.get("template"), str):
            with _faults_of(document, "template"):
                self.template = find_template(name, base)

    def _look_up_workload(self, document: YamlDocument, workload: str) -> None:
        python, folder = JobPython(), spec_folder(self.path)
        with contextlib.suppress(ValueError):  # a fault of the spec, or no site
            environment = Environment.model_validate(document.data.get("environment") or {})
            python = job_python(environment, self.site) if self.site else python
        with _faults_of(document, "workload"):
            self.traits = traits(workload, folder, None, python)
            if names_file(workload):
                self.files = (file_ref(workload, folder),)
            if workload not in SHIPPED:
                knobs, axes = self.traits.knobs, document.part("sweep")
                add_offer_faults(document, knobs, workload)
                for loc, what in (*name_faults(axes, knobs, workload), *value_faults(axes, knobs)):
                    document.add(("sweep", *loc), what, on_key=True)

    def _look_up_queries(self, document: YamlDocument) -> None:
        name = document.data.get("queries")
        if self.traits and self.traits.pairs and name is None:
            document.add(("workload",), "the function takes pairs, so the spec needs `queries: FILE`")
        elif self.traits and not self.traits.pairs and name is not None:
            what = f"only a function whose first parameter is `{PAIRS}` takes queries"
            document.add(("queries",), what, on_key=True)
        if isinstance(name, str):
            path = Path(os.path.abspath(self.path.parent / os.path.expanduser(name)))  # noqa: PTH100, PTH111 - links as they are
            with _faults_of(document, "queries"):
                read_queries(path)
                sha256, size = digest(path)
                self.files += (FileRef(path=str(path), name=QUERIES_FILE, sha256=sha256, size_bytes=size),)

    def _look_up_command(self, document: YamlDocument, command: Mapping[str, object]) -> None:
        names = command.get("files")
        for number, name in enumerate(names if isinstance(names, list) else ()):
            if isinstance(name, str) and name:
                with _faults_of(document, "workload", "files", number):
                    self.files += file_refs([name], self.path.parent)
        for loc, what in command_faults(document, self.path.parent, self.files):
            document.add(loc, what, on_key=loc[0] == "sweep")
        template, staged = str(command.get("command", "")), sources(self.files)
        self.traits = command_traits(template, swept(document.data), staged)

    def _look_up_model(self, document: YamlDocument, workload: str, model: Mapping[str, object]) -> None:
        needed = self.traits is not None and self.traits.needs_model
        prompt = document.data.get(PROMPT)
        if not needed and not any(map(model.get, MODEL_OPTIONS)) and prompt is None:
            return
        from jobkit.planning import models  # here: a workload without a model starts sooner
        from jobkit.planning.saved_model import refuse_keys

        with _faults_of(document, "model"):
            if needed:
                search = models.find_or_stand_in if self.stand_in else models.find
                self.model = search(workload, model, self.path.parent, cache_dir())
            else:
                refuse_keys(workload, model)
        if isinstance(prompt, str) and isinstance(document.data.get("workload", ""), str):
            with _faults_of(document, PROMPT):
                self.model = models.with_prompt(workload, self.model, prompt)


@contextlib.contextmanager
def _faults_of(document: YamlDocument, key: str, *below: int | str) -> Iterator[None]:
    """Add an error inside the block to the faults of a key."""
    try:
        yield
    except JobkitError as error:
        hint = f" ({error.hint})" if error.hint else ""
        named = "" if error.message.startswith(key) else f"{key}: "
        document.add((key, *below), f"{named}{error.message}{hint}")


# -- what may not run, or not again


def idle_gpus(spec: SweepSpec, scheduler: str, device: str) -> str:
    """Return a line about GPUs that every point holds and no point uses; empty if there are none."""
    gpus = spec.resources.gpus
    if runs_here(scheduler) or not gpus or device == CUDA:
        return ""
    held = "a GPU" if gpus == 1 else format_count(gpus, "GPU")
    return f"device: cpu with resources.gpus: {gpus}: each point would hold {held} and use none"


NO_GPU = "--set resources.gpus=0"
NAMING = "in the site file `gpus: choose` takes free ones, `gpus: given` says that the site does"


def unnamed_gpus(spec: SweepSpec, site: Site) -> str:
    """Return a line about GPUs that the scheduler counts and does not name; empty if there are none."""
    scheduler = by_name(site.scheduler)
    if scheduler.NAMES_GPUS or site.gpus or not spec.resources.gpus:
        return ""
    return f"{scheduler.TITLE} counts GPUs: if the site names none to a job, tasks on a node share the first"


def device(spec: SweepSpec, scheduler: str) -> str:
    """Return ``cpu`` or ``cuda``; ``auto`` is what the job requests, without a scheduler this machine's."""
    if spec.device != "auto":
        return spec.device
    if runs_here(scheduler):
        from jobkit.worker.measure import nvml  # imported here, because a submission asks no GPU

        return "cuda" if spec.resources.gpus and nvml.list_gpus() else "cpu"
    return "cuda" if spec.resources.gpus else "cpu"


def _unusable_gpu(named: NamedSpec) -> JobkitError | None:
    """Return why points would not run on a GPU, if the Python that will run them is this one."""
    spec, possible = named.spec, named.spec.device == "cuda" and named.inputs.model
    if spec.command or not possible or not (why := _wrong_torch(spec, named.site)):
        return None
    ways = [
        f"{cuda_install_command(sys.executable)}   (or the index for your driver)",
        "or name the Python that jobs use: environment.venv or environment.conda in the spec",
        "or measure on the CPU: --set device=cpu --set resources.gpus=0",
    ]
    if not runs_here(named.site.scheduler):
        ways.append(
            "or, if the nodes have another torch at this path: --set 'environment.setup=[\":\"]'\n"
            "        (a setup of any kind may change the Python, so jobkit does not check this one)"
        )
    return JobkitError(f"the sweep requests a GPU, {why}", hint="\n        ".join(ways))


def refuse_missing_packages(spec: SweepSpec, site: Site) -> None:
    """Refuse points for which the Python that will run them, if it is this one, lacks a package."""
    if not _another_python(spec, site):
        if lack := missing_framework(spec.workload_name):
            raise lack
        for refuse in extensions.each(lambda one: one.packages):
            refuse(spec)


def _another_python(spec: SweepSpec, site: Site) -> bool:
    environment = spec.environment
    return bool(environment.python or environment.modules or environment.setup or site.setup)


def _wrong_torch(spec: SweepSpec, site: Site) -> str:
    """Return why the Python of the jobs, if it is this one, cannot use a GPU; empty if nothing shows it."""
    why = "" if _another_python(spec, site) else cpu_build_problem()
    return f"but its jobs would use {sys.executable}, {why}" if why else ""


def warn_again(say: Say, spec: SweepSpec, points: Iterable[Point], *more: str) -> None:
    """Warn of points that run again where a sweep would be refused for its torch, or a file has changed."""
    points = list(points)
    if points and points[0].files and names_file(points[0].workload):
        function, *others = points[0].files
        original = source_path(points[0].workload, points[0].workload_folder)
        for path, file in ((original, function), *((one.path, one) for one in others)):
            with contextlib.suppress(OSError):
                if digest(Path(path))[0] == file.sha256:
                    continue
            say(f"note: {path} has changed; the run goes on with its own copy of it, in files/")
            say("  to run the changed file, start a new sweep")
    if not any(point.device == "cuda" and point.model for point in points):
        return
    if why := _wrong_torch(spec, load_site(spec.site, spec.scheduler)):
        say(f"warning: the run requests a GPU, {why}: the points that start now will end as no_gpu")
        install = f"{cuda_install_command(sys.executable)}   (or the index for your driver)"
        for line in (install, *more):
            say(f"  hint: {line}")
