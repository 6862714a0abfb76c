"""Which setting works through a corpus: that of a run, or of a spec, and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from jobkit.answers.memory import Memory
from jobkit.answers.speed import CorpusVolume, Speed, speeds
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.knobs import CUDA, EVERY, OFF, OFFERED, Value, accepted
from jobkit.core.layout import (
    FILES_FOLDER,
    SETTING_FILE,
    SPEC_FILE,
    read_points,
)
from jobkit.core.paths import cache_dir, ledger_path
from jobkit.core.records import FULL, ModelRef, Point, TextRef
from jobkit.core.terminal import note, relative_path
from jobkit.core.units import first_lines, format_count, format_setting
from jobkit.extensions.corpus import ledger
from jobkit.extensions.corpus.provenance import Promise
from jobkit.extensions.corpus.scan import find_sources
from jobkit.launch.resume import measure_again
from jobkit.planning.points import Inputs, plan
from jobkit.planning.prepare import Options, build_model, read_named, refuse_missing_packages
from jobkit.planning.texts import is_sample_file
from jobkit.report.recommend.advice import (
    energy_answer,
    memory_of_setting,
    paragraphs,
    recommend,
)
from jobkit.report.recommend.material import VALUES_OF, RunData, read_material
from jobkit.runs.which_run import find_run, refuse_unmeasured
from jobkit.schedulers.registry import choose_scheduler
from jobkit.spec.fields import Auto
from jobkit.spec.site import Site, find_site, portable_name
from jobkit.spec.sweep_spec import Axes, Constraints, SweepSpec, Tune, load_spec, setting_overrides
from jobkit.spec.yaml_files import hide_override

MOST_WINDOW = 10_000
"""Paragraphs that are sorted together if the setting sorts the whole text: a corpus is too long for that."""
NO_TEXT = TextRef(path="", sha256="", size_bytes=0, name="")


@keyed
class AppliedSetting(Promise):
    """A setting, ready to be applied, and what is known of it."""

    # with this setting alone, everything ``auto`` decided: ``sweep.yaml`` of the folder to come
    spec: SweepSpec
    site: Site  # as in `jobkit.planning.prepare.Prepared`
    why: str
    inputs: Inputs  # what the shards share, without the run id and the corpus
    point: Point  # A shard with neither run id nor corpus
    memory: Memory | None = None  # with its largest load; ``None`` if that is not known
    call_characters: int = 0  # of a mean call; 0 if not measured
    call_load: int = 0  # the largest that was measured; 0 if none was

    @property
    def promise(self) -> Promise:
        """What was measured, as the run folder keeps it; the times are of whole jobs."""
        known = {one.name: getattr(self, one.name) for one in fields(Promise)}
        return Promise(**{**known, "whole": True})

    def sets(self, key: str) -> bool:
        """Return whether a person has set this key of ``resources``."""
        return not {"resources", f"resources.{key}"}.isdisjoint(self.given)

    def longest_walltime(self) -> float | None:
        """Return the walltime that its queue allows, in seconds; ``None`` if no limit is known."""
        from jobkit.setup.ask import asked_queues  # here: only a plan for a cluster asks for it

        asked = asked_queues(self.spec.resources, self.site)
        return asked.longest_s if asked else None

    @property
    def words(self) -> str:
        """The setting in words: ``workers 16, padded 40000, order sorted``."""
        shown: dict[str, Value] = {"workers": self.point.workers} if self.point.workers > 1 else {}
        shown |= {name: value for name, value in self.point.params.items() if name != EVERY}
        shown |= {key: word for key, words in OFFERED.items() if (word := getattr(self.point, key)) in words}
        return format_setting(shown) or "the workload's own"


def find_setting(word: Path, options: Options, *, build: bool, corpus: Sequence[str] = ()) -> AppliedSetting:
    """Return the setting that a run folder, its name, or a spec names.

    ``build`` builds a missing stand-in model now. A stand-in is refused for the files of ``corpus``, unless
    they are the sample's.
    """
    refuse_keys(options.overrides)
    if run := find_run(word):
        return _of_run(run, options, corpus)
    if word.is_dir():
        raise JobkitError(
            f"{word}: neither a run folder nor a spec", hint="jobkit status without RUN lists the runs"
        )
    return _of_spec(word, options, corpus, build=build)


def refuse_keys(overrides: Sequence[str]) -> None:
    # Keys that `--set` may change: none of the measured setting
    changeable = (
        *("resources", "environment", "max_parallel", "max_gpu_hours", "pack", "policy", "on_end"),
        *("scheduler", "nan", "after"),
    )
    for override, key in zip(overrides, keys_of(overrides), strict=True):
        if key.partition(".")[0] not in (*changeable, "sweep") or key == "sweep":
            shown = hide_override(override, SweepSpec)
            raise JobkitError(
                f"--set {shown}: {key} belongs to the setting, or to the conditions of its measurement",
                hint=f"apply takes {', '.join(changeable)}, sweep.KNOB; for others name another run or spec",
            )


def _refuse_stand_in(workload: str, model: ModelRef | None, corpus: Sequence[str], *ways: str) -> None:
    if model is None or not model.stand_in or not corpus:
        return
    if not all(is_sample_file(Path(found.path), cache_dir()) for found in find_sources(corpus).files):
        from jobkit.planning.models import refuse_stand_in  # only for a stand-in

        refuse_stand_in(workload, model, "jobkit apply", *ways)


def _of_run(run: Path, options: Options, corpus: Sequence[str]) -> AppliedSetting:
    refuse_unmeasured(run, "apply")
    before = load_spec(run / SPEC_FILE)
    before.refuse_command("jobkit apply")
    chosen = [word for word in options.overrides if word.startswith(VALUES_OF)]
    material, points = read_material(run, chosen), read_points(run)[0]
    for point in points[:1]:
        _refuse_stand_in(point.workload, point.model, corpus, *measure_again(run, point))
    params, speed, found = _chosen(run, material)
    alike = [record for record in material.measured if speed and record.params == speed.params]
    sums = [record.summary for record in alike if record.summary]
    answer = energy_answer(alike, speed, CorpusVolume(paragraphs=1)) if speed else None
    # the scheduler is chosen apart
    given = [word for word in without(options.overrides, "scheduler") if word not in chosen]
    spec = load_spec(run / SPEC_FILE, ("after=[]", *found, *given))
    spec, site, why = _placed(spec, options, before.scheduler)
    if "max_gpu_hours" not in keys_of(given):  # that of the measurements was for them alone
        update = {"max_gpu_hours": site.max_gpu_hours, "on_end": spec.on_end or site.on_end}
        spec = spec.model_copy(update=update)
    refuse_missing_packages(spec, site)
    first = alike[0].point if alike else points[0]
    if first.model and not Path(first.model.path).is_dir():
        raise JobkitError(
            f"{first.model.path}: the model of {relative_path(run)} is no longer there",
            hint="jobkit models fetches or builds models; then measure again",
        )
    inputs = Inputs(
        run_id="",
        text=NO_TEXT,
        model=first.model,
        device=first.device,
        workload_folder=first.workload_folder,
        load_knobs=first.load_knobs,
        files=tuple(replace(file, path=str(run / FILES_FOLDER / file.name)) for file in first.files),
    )
    spec = _alone(spec, params, options, first, paragraphs(material.records))
    setting = _applied(spec, site, why, inputs, run, options)
    return replace(
        setting,
        speed=speed if speed and speed.rates else None,
        energy=answer.recommended if answer else None,
        memory=memory_of_setting(material, alike[0]) if alike else None,
        peak_bytes=material.held(alike[0]) if alike else None,
        call_characters=max((one.characters // max(1, one.batches) for one in sums), default=0),
        call_load=max((one.load_max or 0 for one in sums), default=0),
        measured=paragraphs(material.records),
        past=past_of(first, next((record.gpu.name for record in alike if record.gpu), None)),
    )


def past_of(point: Point, gpu: str | None) -> tuple[float, ...]:
    """Return the shares by which the predicted times of such corpora were off, by the user's ledger."""
    model = point.model.fingerprint if point.model else None
    return ledger.offs(ledger.corpora(ledger_path()), point.workload, model, gpu)


def _chosen(run: Path, material: RunData) -> tuple[Mapping[str, Value], Speed | None, tuple[str, ...]]:
    """Return the setting that a search wrote or ``jobkit recommend`` names: knobs, speed, other keys."""
    if material.search:
        found = setting_overrides(run)
        return material.search.setting, material.search.finals.winner, found
    if (run / SETTING_FILE).is_file():
        found = setting_overrides(run)
        params = _only(load_spec(run / SPEC_FILE, found), None, run / SETTING_FILE).params
        matching = [speed for speed in speeds(material.records) if speed.params == params]
        return params, matching[0] if matching else None, found
    speed = recommend(material).recommended
    return accepted(speed.params), speed, ()


def _of_spec(path: Path, options: Options, corpus: Sequence[str], *, build: bool) -> AppliedSetting:
    sample = replace(options, overrides=("text=sample", "text_sample=null", *options.overrides))
    named = read_named(path, sample, fetch=False, say=note)
    model = named.inputs.model
    way = f"then again with `model.size: full` in {relative_path(path.absolute())}"
    small = model is not None and model.size != FULL
    _refuse_stand_in(named.spec.workload_name, model, corpus, *[way] * small)
    named = build_model(named, note) if build else named
    named.spec.refuse_command("jobkit apply")
    inputs = replace(named.inputs, text=NO_TEXT)
    only = _only(named.spec, inputs, path)
    spec = _alone(named.spec, only.params, options, only, 0)
    return _applied(spec, named.site, named.why, inputs, path, options)


def _applied(
    spec: SweepSpec, site: Site, why: str, inputs: Inputs, path: Path, options: Options
) -> AppliedSetting:
    (point,) = plan(spec, inputs)
    return AppliedSetting(
        spec=spec,
        site=site,
        why=why,
        inputs=inputs,
        point=replace(point, shard=True),
        source=f"from {relative_path(path.absolute())}",
        given=keys_of(options.overrides),
    )


def _only(spec: SweepSpec, inputs: Inputs | None, path: Path) -> Point:
    """Return the only setting of a spec, which is that of a file; refuse several."""
    if any(isinstance(values, Auto) for values in spec.sweep.product.values()):
        message = f"spec {spec.name}: auto stands for several settings, and a corpus needs one"
        raise JobkitError(message, hint="jobkit sweep measures them; then name its run")
    found = plan(spec.model_copy(update={"repeats": 1}), inputs)
    if len(found) == 1:
        return found[0]
    lines = first_lines([format_setting(point.params) for point in found], 8)
    head = f"{path}: {format_count(len(found), 'setting')}, and a corpus is tagged with one:"
    raise JobkitError(
        "\n  ".join([head, *lines]),
        hint="leave one in the spec; or measure them: jobkit sweep, then jobkit apply RUN",
    )


def keys_of(overrides: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.partition("=")[0].strip() for word in overrides)


def without(overrides: Sequence[str], *keys: str) -> tuple[str, ...]:
    return tuple(word for word in overrides if keys_of([word])[0] not in keys)


def asked_scheduler(overrides: Sequence[str], named: str | None = None) -> str | None:
    """Return the scheduler that a person names, by ``--scheduler`` or by ``--set``."""
    words = (word.partition("=") for word in reversed(overrides))
    return named or next((value.strip() for key, _, value in words if key.strip() == "scheduler"), None)


def _placed(spec: SweepSpec, options: Options, before: str) -> tuple[SweepSpec, Site, str]:
    """Return the spec with its scheduler and site decided, the site, and why this scheduler."""
    asked = asked_scheduler(options.overrides, options.scheduler)
    name, why = choose_scheduler(asked or spec.scheduler)
    why = "as requested" if asked else "as in the run" if spec.scheduler != "auto" else why
    site, path = find_site(options.site or (spec.site if name == before else "auto"), name)
    update = {"scheduler": name, "site": portable_name(path)}
    return spec.model_copy(update=update), site, why


def _alone(
    spec: SweepSpec, params: Mapping[str, Value], options: Options, like: Point, measured: int
) -> SweepSpec:
    """Return a spec with one setting: knobs that are keys of the spec stand there.

    What follows from the resources is fixed as it was in a point like it, whatever is requested now.
    """
    keys = {name: value for name, value in params.items() if name in SweepSpec.model_fields}
    knobs = {name: [value] for name, value in params.items() if name not in keys and name != EVERY}
    window = spec.sort_window or min(MOST_WINDOW, measured or MOST_WINDOW)
    packed = {} if "pack" in keys_of(options.overrides) else {"pack": 1}
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
