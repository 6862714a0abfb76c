"""Which setting works through a corpus: that of a run, or of a spec, and what was measured of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobkit.answers import ledger
from jobkit.answers.memory import Memory
from jobkit.answers.speed import CorpusVolume, Speed, not_sampled, speeds
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import CUDA, EVERY, EXACT, OFF, REFUSED, SHORTCUTS, Value
from jobkit.core.layout import (
    FILES_FOLDER,
    SETTING_FILE,
    SPEC_FILE,
    is_run_folder,
    read_points,
)
from jobkit.core.paths import ledger_path
from jobkit.core.records import FULL, ModelRef, Outcome, Point, Record, TextRef
from jobkit.core.terminal import Say, relative_path, shell_path
from jobkit.core.units import format_count, format_setting
from jobkit.launch.guards import measure_again
from jobkit.planning import resolve
from jobkit.planning.points import Inputs, plan
from jobkit.planning.resolve import Options, ResolvedSpec
from jobkit.planning.workload_traits import Traits
from jobkit.report.recommend.advice import memory_of_setting, paragraphs, recommend
from jobkit.report.recommend.energy import EnergyUse, energy_answer
from jobkit.report.recommend.request import used_ram
from jobkit.report.recommend.run_data import read_material
from jobkit.report.recommend.types import RecommendOptions, RunData
from jobkit.runs.which_run import find_run, refuse_unmeasured
from jobkit.schedulers.registry import choose_scheduler, runs_here
from jobkit.spec.fields import Auto
from jobkit.spec.site import Site, find_site, portable_name
from jobkit.spec.sweep_spec import Axes, Constraints, SweepSpec, Tune, load_spec, setting_overrides

CHANGEABLE = ("resources", "environment", "max_parallel", "pack", "policy", "scheduler")
"""Keys of the spec that ``--set`` may change: none that the measured setting consists of."""
MOST_WINDOW = 10_000
"""Paragraphs that are sorted together if the setting sorts the whole text, which a corpus is too long for."""
MOST_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSetting:
    """A setting, ready to be applied, and what is known of it.

    Attributes
    ----------
    spec
        With this setting alone, everything ``auto`` decided: ``sweep.yaml`` of the folder to come.
    site, why
        As in `jobkit.planning.prepare.Prepared`.
    inputs
        What the shards share, without the run id and the corpus.
    point
        A shard with neither run id nor corpus.
    source
        Where the setting is from, in words.
    given
        The keys that a person set.
    speed, energy
        ``None`` if they were not measured.
    memory
        With its largest load; ``None`` if that is not known.
    peak_bytes
        The most RAM that a try of the setting held; ``None`` if unknown.
    measured
        Paragraphs of the text that was measured; 0 if none was.
    past
        How far the times that were predicted of earlier corpora with this workload, model and GPU were off.
    """

    spec: SweepSpec
    site: Site
    why: str
    inputs: Inputs
    point: Point
    source: str
    given: tuple[str, ...] = ()
    speed: Speed | None = None
    energy: EnergyUse | None = None
    memory: Memory | None = None
    peak_bytes: int | None = None
    measured: int = 0
    past: tuple[float, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the interval of its times does not include, in sentences."""
        if self.speed is None:
            return ()
        elsewhere = not runs_here(self.spec.scheduler)
        shared = elsewhere and not self.spec.resources.exclusive
        return not_sampled(self.speed, elsewhere=elsewhere, shared=shared, past=self.past)

    @property
    def spares_import(self) -> bool:
        """Whether all shards but the first are forked from a process that has imported the framework."""
        return self.point.fork and runs_here(self.spec.scheduler)

    @property
    def words(self) -> str:
        """The setting in words: ``workers 16, padded 40000, order sorted``."""
        known = {**self.point.params}
        shown: dict[str, Value] = {"workers": self.point.workers} if self.point.workers > 1 else {}
        shown |= {name: value for name, value in known.items() if name != EVERY}
        shown |= {SHORTCUTS: EXACT} if self.point.shortcuts == EXACT else {}
        return format_setting(shown) or "the workload's own"


Refuse = Callable[[str, ModelRef | None, tuple[str, ...]], None]
"""Refuses the model of a workload; the last are what to do once the real model is there."""


def find_setting(
    word: Path, options: Options, *, build: bool, say: Say, refuse: Refuse = lambda *_: None
) -> AppliedSetting:
    """Return the setting that a run or a spec names.

    Parameters
    ----------
    word
        A run folder, or its name, or a spec.
    options
        What the command line adds.
    build
        Whether a missing stand-in model is built now.
    say
        Prints what takes time.
    refuse
        Is called with the model before it is built.

    Raises
    ------
    JobkitError
        If it is neither, names no setting or several, or a key may not change.
    """
    refuse_keys(options.overrides)
    if run := find_run(word):
        return _of_run(run, options, refuse)
    if word.is_dir():
        raise JobkitError(
            f"{word}: neither a run folder nor a spec", hint="jobkit status without RUN lists the runs"
        )
    return _of_spec(word, options, build=build, say=say, refuse=refuse)


def refuse_keys(overrides: Sequence[str]) -> None:
    """Refuse to change a key that belongs to the setting.

    Raises
    ------
    JobkitError
        With the keys that may change.
    """
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key.partition(".")[0] not in CHANGEABLE:
            raise JobkitError(
                f"--set {override}: {key} belongs to the setting, or to what it was measured with",
                hint=f"apply takes {', '.join(CHANGEABLE)}; for another setting name another run or spec",
            )


def _of_run(run: Path, options: Options, refuse: Refuse) -> AppliedSetting:
    refuse_unmeasured(run, "apply")
    load_spec(run / SPEC_FILE).refuse_command("jobkit apply")
    material, points = read_material(run), read_points(run)[0]
    for point in points[:1]:
        refuse(point.workload, point.model, measure_again(run, point))
    params, speed, found = _chosen(run, material)
    measured = material.search.winner_records if material.search else material.records
    alike = [record for record in measured if speed and record.params == speed.params]
    spec = load_spec(run / SPEC_FILE, (*found, *_spec_words(options)))
    spec, site, why = _placed(spec, options, _scheduler_of(run))
    first = alike[0].point if alike else points[0]
    if first.model and not Path(first.model.path).is_dir():
        raise JobkitError(
            f"{first.model.path}: the model of {relative_path(run)} is no longer there",
            hint="jobkit models fetches or builds models; then measure again",
        )
    inputs = Inputs(
        run_id="",
        text=_no_text(),
        model=first.model,
        device=first.device,
        workload_folder=first.workload_folder,
        load_knobs=first.load_knobs,
        files=tuple(replace(file, path=str(run / FILES_FOLDER / file.name)) for file in first.files),
    )
    spec = _alone(spec, params, options, first, paragraphs(material.records))
    (point,) = plan(spec, inputs)
    return AppliedSetting(
        spec=spec,
        site=site,
        why=why,
        inputs=inputs,
        point=replace(point, shard=True),
        source=f"from {relative_path(run)}",
        given=_keys(options),
        speed=speed if speed and speed.rates else None,
        energy=_energy(alike, speed) if speed else None,
        memory=memory_of_setting(material, alike[0]) if alike else None,
        peak_bytes=_peak(alike),
        measured=paragraphs(material.records),
        past=past_of(first, next((record.gpu.name for record in alike if record.gpu), None)),
    )


def past_of(point: Point, gpu: str | None) -> tuple[float, ...]:
    """Return how far the times that were predicted of corpora like this were off, by the user's ledger."""
    model = point.model.fingerprint if point.model else None
    return ledger.offs(ledger.corpora(ledger_path()), point.workload, model, gpu)


def _chosen(run: Path, material: RunData) -> tuple[dict[str, Value], Speed | None, tuple[str, ...]]:
    """Return the knobs, their speed, and the keys of the spec that have the setting besides.

    It is what a search wrote, else what ``jobkit recommend`` names.
    """
    if material.search:
        found = setting_overrides(run)
        return material.search.setting, material.search.winner, found
    if (run / SETTING_FILE).is_file():
        found = setting_overrides(run)
        spec = load_spec(run / SPEC_FILE, found)
        params = _one_of([point.params for point in _settings(spec, None)], run / SETTING_FILE)
        matching = [speed for speed in speeds(material.records) if speed.params == params]
        return params, matching[0] if matching else None, found
    speed = recommend(material, RecommendOptions()).batch.recommended
    without = {SHORTCUTS: OFF} if speed.params.get(SHORTCUTS) == REFUSED else {}
    return {**speed.params, **without}, speed, ()


def _of_spec(path: Path, options: Options, *, build: bool, say: Say, refuse: Refuse) -> AppliedSetting:
    def check(named: ResolvedSpec, _: Traits) -> None:
        small = named.model is not None and named.model.size != FULL
        way = (f"then again with `model.size: full` in {relative_path(path.absolute())}",)
        refuse(named.spec.workload_name, named.model, way if small else ())

    sample = replace(options, overrides=("text=sample", *options.overrides))
    named = resolve.resolve(path, sample, fetch=False, build=build, say=say, check=check)
    named.spec.refuse_command("jobkit apply")
    inputs = Inputs(
        run_id="",
        text=_no_text(),
        model=named.model,
        device=named.spec.device,
        workload_folder=named.workload_folder,
        load_knobs=named.load_knobs,
        files=named.files,
    )
    found = _settings(named.spec, inputs)
    params = _one_of([point.params for point in found], path)
    spec = _alone(named.spec, params, options, found[0], 0)
    (point,) = plan(spec, inputs)
    return AppliedSetting(
        spec=spec,
        site=named.site,
        why=named.why,
        inputs=inputs,
        point=replace(point, shard=True),
        source=f"from {relative_path(path.absolute())}",
        given=_keys(options),
    )


def _settings(spec: SweepSpec, inputs: Inputs | None) -> tuple[Point, ...]:
    """Return a point of each setting of a spec."""
    if any(isinstance(values, Auto) for values in spec.sweep.product.values()):
        message = f"spec {spec.name}: auto stands for several settings, and a corpus needs one"
        raise JobkitError(message, hint="jobkit sweep measures them; then name its run")
    return plan(spec.model_copy(update={"repeats": 1}), inputs)


def _one_of(settings: Sequence[dict[str, Value]] | Sequence[object], path: Path) -> dict[str, Value]:
    """Return the only setting of a spec.

    Raises
    ------
    JobkitError
        With the settings, if there are several.
    """
    found = [dict(params) for params in settings if isinstance(params, dict)]
    if len(found) == 1:
        return found[0]
    lines = [f"  {format_setting(params)}" for params in found[:MOST_LISTED]]
    lines += [f"  and {len(found) - MOST_LISTED:,} more"] if len(found) > MOST_LISTED else []
    raise JobkitError(
        "\n".join(
            [f"{path}: {format_count(len(found), 'setting')}, and a corpus is tagged with one:", *lines]
        ),
        hint="leave one in the spec; or measure them: jobkit sweep, then jobkit apply RUN",
    )


def _spec_words(options: Options) -> tuple[str, ...]:
    """Return the ``--set`` words that the spec itself takes: the scheduler is chosen apart."""
    return tuple(word for word in options.overrides if word.partition("=")[0].strip() != "scheduler")


def _keys(options: Options) -> tuple[str, ...]:
    return tuple(word.partition("=")[0].strip() for word in options.overrides)


def _asked_scheduler(options: Options) -> str | None:
    """Return the scheduler that a person names, by ``--scheduler`` or by ``--set``."""
    words = [word.partition("=") for word in options.overrides]
    named = [value.strip() for key, _, value in words if key.strip() == "scheduler"]
    return options.scheduler or (named[-1] if named else None)


def _scheduler_of(run: Path) -> str:
    return load_spec(run / SPEC_FILE).scheduler


def _placed(spec: SweepSpec, options: Options, before: str) -> tuple[SweepSpec, Site, str]:
    """Return the spec with its scheduler and site decided, the site, and why this scheduler."""
    asked = _asked_scheduler(options)
    name, why = choose_scheduler(asked or spec.scheduler)
    why = "as requested" if asked else "as the run" if spec.scheduler != "auto" else why
    site, path = find_site(options.site or (spec.site if name == before else "auto"), name)
    update = {"scheduler": name, "site": portable_name(path)}
    return spec.model_copy(update=update), site, why


def _alone(
    spec: SweepSpec, params: dict[str, Value], options: Options, like: Point, measured: int
) -> SweepSpec:
    """Return a spec with one setting: knobs that are keys of the spec stand there.

    What follows from the resources is fixed as it was in a point like it, whatever is requested now.
    """
    keys = {name: value for name, value in params.items() if name in SweepSpec.model_fields}
    knobs = {name: [value] for name, value in params.items() if name not in keys and name != EVERY}
    window = spec.sort_window or min(MOST_WINDOW, measured or MOST_WINDOW)
    packed = {} if "pack" in _keys(options) else {"pack": 1}
    fixed = {"threads": like.threads, **({"gpus": like.gpus} if like.device == CUDA else {})}
    update: dict[str, object] = {
        **fixed,
        **keys,
        **packed,
        "every": 1,
        "sort_window": window,
        "sweep": Axes.model_validate(knobs),
        "repeats": 1,
        "find_max": None,
        "profile": OFF,
        "tune": Tune(),
        "constraints": Constraints(),
    }
    return spec.model_copy(update=update)


def _energy(records: Sequence[Record], speed: Speed) -> EnergyUse | None:
    answer = energy_answer(records, speed, CorpusVolume(paragraphs=1))
    return answer.recommended if answer else None


def _peak(records: Sequence[Record]) -> int | None:
    well = [record for record in records if record.outcome is Outcome.OK]
    return max((used for record in well if (used := used_ram(record))), default=None)


def _no_text() -> TextRef:
    return TextRef(path="", sha256="", size_bytes=0, name="")


def advise_run(run: Path) -> str:
    """Return the command that applies a finished run to a corpus."""
    return f"jobkit apply {shell_path(run)} --corpus PATH... --out DIR" if is_run_folder(run) else ""
