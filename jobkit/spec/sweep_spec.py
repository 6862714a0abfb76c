"""The spec: the one YAML file that a user writes, as frozen data with all its faults; its JSON schema."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from jobkit.core.errors import HIDDEN, JobkitError
from jobkit.core.figures import SPEED, by_key
from jobkit.core.files import MOST_BYTES, read_text
from jobkit.core.knobs import AUTO, AUTOMATIC, BATCH_SIZE, BUDGET, CUDA, RUN_KNOBS, Value, renamed
from jobkit.core.layout import SETTING_FILE, is_run_folder
from jobkit.core.records import Point
from jobkit.core.terminal import SCHEDULER_WORDS
from jobkit.core.units import format_count
from jobkit.spec import fields
from jobkit.spec.axes import RepeatsOrNumber
from jobkit.spec.checks import CHECKS, CommandSpec, NameOrCommand, check_profiler, check_renamed
from jobkit.spec.fields import POSITIVE, one_or_list
from jobkit.spec.policy import OnEnd, Policy
from jobkit.spec.yaml_files import YamlDocument, as_yaml, read_document, sound, validated
from jobkit.worker.workloads.base import SHIPPED, knobs, offered

Setting = dict[str, fields.KnobValue]


class _Part(BaseModel):
    model_config = fields.STRICT


class ModelSpec(_Part):
    """Which model.

    Attributes
    ----------
    name
        For stanza-ner Stanza's name of the language; for spacy-ner an installed package of spaCy; for
        others a model of the Hugging Face hub. ``en`` is the usual English model of each.
    path
        A folder of your own with the model, relative to the spec's; not for stanza-ner.
    size
        Of the stand-in: ``full`` has the real model's dimensions, ``tiny`` builds in
        about a minute on one core.
    fallback
        ``stand-in`` builds a model of jobkit's own where the named one is missing: trained for
        stanza-ner, with random weights for others; without it a missing model is an error.
    pooling
        Of sentence-embedding, with a folder that was not saved as a sentence embedder: what is taken of
        the vectors of a text's tokens.
    trust_remote_code
        Whether Python code in the model's folder may run.
    """

    name: fields.ModelName = "en"
    path: str | None = None
    size: Literal["full", "tiny"] = "full"
    fallback: Literal["stand-in"] | None = None
    pooling: Literal["mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"] | None = None
    trust_remote_code: bool = False


class Resources(_Part):
    """What one point asks of the scheduler.

    Attributes
    ----------
    gpus
        GPUs for one point.
    gpu_type
        The kind of GPU, as the cluster calls it.
    cpus
        CPUs for each worker of a point.
    memory
        For the whole task: ``8GiB``, ``500MiB``, or ``auto``: by the accounting, of jobs of this name.
    walltime
        For one point: ``"00:10:00"``, ``90m``, ``1-12:00:00``, or ``auto``.
    queue
        Queue (SGE) or partition (Slurm), or several: a job starts where there is room first. ``null`` for the
        site's.
    account
        Account (Slurm) or project (SGE) to charge.
    qos
        Slurm's quality of service.
    mail
        An address that gets a mail when all points of a round have ended; on Grid Engine without a job that
        follows, when each has.
    constraint
        Features that the nodes must have (Slurm): ``a100&infiniband``.
    exclude
        Nodes to stay away from: ``[node07, node12]``.
    reservation
        The reservation to run in (Slurm), or the number of an advance reservation (SGE).
    exclusive
        Whether a point has its node to itself.
    options
        Further header lines by scheduler: ``{slurm: [--nice=100], sge: [-p -10]}``.
    """

    gpus: Annotated[int, Field(ge=0, le=fields.MOST)] = 1
    gpu_type: fields.Word | None = None
    cpus: fields.Positive = 2
    memory: fields.SizeOrAuto = fields.DEFAULT_MEMORY
    walltime: fields.DurationOrAuto = fields.DEFAULT_WALLTIME_S
    queue: fields.Queues | None = None
    account: fields.Word | None = None
    qos: fields.Word | None = None
    mail: fields.Address | None = None
    constraint: fields.Constraint | None = None
    exclude: list[fields.Node] = []
    reservation: fields.Word | None = None
    exclusive: bool = False
    options: dict[fields.SchedulerName, list[fields.Line]] = {}

    def of(self, point: Point) -> Resources:
        """Return what a point requests: CPUs for each of its workers, at least one for each thread."""
        cpus = point.workers * point.gpus * max(self.cpus, point.threads)
        gpus = point.gpus if point.device == CUDA else self.gpus
        return self.model_copy(update={"cpus": cpus, "gpus": gpus})


class Environment(_Part):
    """What the job makes ready before the worker starts.

    Attributes
    ----------
    modules
        Loaded with ``module load``, in order.
    conda, venv
        Activated after the modules: an environment's name or folder; at most one of the two.
        With neither, the job runs the Python that ran ``jobkit sweep``.
    container
        The image whose ``python3`` runs the worker, by ``apptainer exec`` or ``singularity exec``: a
        path, relative to the spec's folder, or a URI; in place of ``conda`` and ``venv``.
    setup
        Shell lines run last; a line that fails ends the try with outcome ``environment``.
    variables
        Exported to the worker.
    """

    modules: list[str] = []
    conda: str | None = None
    venv: str | None = None
    container: fields.Image | None = None
    setup: list[str] = []
    variables: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = {}

    @property
    def python(self) -> str | None:
        """What the job calls Python; ``None`` for the one that ran ``jobkit sweep``."""
        if self.container:
            return "python3"
        return "python" if self.conda or self.venv else None

    def shown(self, file: Path | str) -> dict[str, Any]:
        """Return what is shown of its keys whose values are hidden; a file has them."""
        lines = f"{format_count(len(self.setup), 'line')}, in {file}" if self.setup else []
        return {"setup": lines, "variables": dict.fromkeys(self.variables, HIDDEN)}

    def hidden_in(self, script: str, file: Path | str, template: str | None) -> str:
        """Return a script without these values, also one of a template that has its own words for them."""
        for name, value in self.variables.items():
            script = script.replace(f"{name}={shlex.quote(value)}\n", f"{name}={HIDDEN}\n")
        if self.setup:
            lines = r"( \|\| return)?\n[ \t]*".join(map(re.escape, self.setup))
            shown = shlex.quote(f"environment.setup: {self.shown(file)['setup']}")
            script = re.sub(rf"(?m)(?<=^    ){lines}(?= \|\| return$)", lambda _: f": {shown}", script)
        for value in (*self.variables.values(), *self.setup) if template else ():
            # Characters of a value that is hidden wherever a user's own template has it
            script = script.replace(value, HIDDEN) if len(value) >= 4 else script
        return script

    def of_folder(self, folder: Path) -> Environment:
        """Return it with the image as seen from anywhere, for a spec in this folder."""
        if self.container is None or "://" in self.container:
            return self
        image = os.path.abspath(folder / os.path.expanduser(self.container))  # noqa: PTH100, PTH111 - links as they are
        return self.model_copy(update={"container": image})


class Axes(BaseModel):
    """The sweep: knob to values; every combination runs.

    Attributes
    ----------
    zip
        Knobs that advance together.
    include
        Settings to add.
    exclude
        Settings to leave out: a point that matches all knobs of one is dropped.
    """

    KEYS: ClassVar = "knobs"
    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    __pydantic_extra__: dict[str, fields.ValuesOrAuto]

    zip: dict[str, fields.Values] = {}
    include: list[Setting] = []
    exclude: list[Setting] = []

    @property
    def product(self) -> dict[str, list[Value]]:
        """The knobs whose values are combined with each other."""
        given = self.__pydantic_extra__ or {}
        return {
            name: [AUTO] if name in AUTOMATIC and isinstance(values, fields.Auto) else values
            for name, values in given.items()
        }


class FindMax(_Part):
    """Find the largest batch by running it, after the sweep.

    Attributes
    ----------
    memory
        What it must fit: ``device`` for all of the GPU, or so much for PyTorch's allocator, which
        is then capped, the CUDA context on top. On a CPU ``device`` is what the job asks for.
    verify
        Whether the predicted batch is run; without, `jobkit recommend` tells the prediction.
    """

    memory: fields.SizeOrDevice = "device"
    verify: bool = True


class Tune(_Part):
    """How ``jobkit tune`` searches for the fastest setting.

    Attributes
    ----------
    workers
        The most workers; ``null`` for as many as this machine has CPUs for, on a cluster for 16, or fewer if
        its largest node has fewer CPUs.
    repeats
        How often the finalists and the plain loop run: a number, and up to three times as often until the
        answer is shown, or until their speeds are known.
    budget
        How long the search may hold the GPU, or the CPUs.
    """

    workers: fields.Positive | None = None
    repeats: RepeatsOrNumber = 3
    budget: fields.Duration = 1800


class ObjectiveSpec(_Part):
    """What ``jobkit recommend`` and ``jobkit tune`` choose a setting by.

    Attributes
    ----------
    metric
        ``items_per_s``, ``work_s``, ``batch_p95``, ``joules_per_1000``, ``gpu_memory``, or a figure that the
        workload reports.
    direction
        Whether the highest (``max``) or the lowest (``min``) is the best; ``null`` for the usual one of a
        figure that jobkit measures.
    """

    metric: Annotated[str, Field(min_length=1)] = SPEED.key
    direction: Literal["max", "min"] | None = None

    @property
    def chosen_direction(self) -> str:
        """The direction, or the usual one; without either, `jobkit.spec.checks` refuses the spec."""
        return self.direction or by_key(self.metric).direction


def _ends(value: object) -> object:
    """Return the ends of a bound if they are a mapping."""
    if not isinstance(value, dict | BoundSpec):
        names = ", ".join(Constraints.model_fields)
        raise ValueError(f"should be {{min: NUMBER}}, {{max: NUMBER}} or both; other names are {names}")  # noqa: TRY004 - as in `fields`
    return value


class BoundSpec(_Part):
    """Which values of a figure are accepted.

    Attributes
    ----------
    min, max
        The least and the highest; ``null`` for no limit.
    """

    min: Annotated[float, Field(allow_inf_nan=False)] | None = None
    max: Annotated[float, Field(allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _has_an_end(self) -> BoundSpec:
        if self.min is None and self.max is None:
            raise ValueError("should have min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("no value is at least min and at most max")
        return self


class Constraints(BaseModel):
    """What a setting must keep to be chosen; ``null`` for no constraint.

    Attributes
    ----------
    gpu_memory
        Of the GPU, all workers together.
    batch_p95
        Of 20 calls, 19 are shorter.
    joules_per_1000
        Energy of the GPU for 1,000 items.
    cpus
        CPUs of a job.
    """

    KEYS: ClassVar = "figures"
    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    __pydantic_extra__: dict[str, Annotated[BoundSpec, BeforeValidator(_ends)]]

    gpu_memory: fields.Size | None = None
    batch_p95: fields.Seconds | None = None
    joules_per_1000: fields.PositiveNumber | None = None
    cpus: fields.Positive | None = None

    @property
    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """The least and the highest value of each figure that has a limit."""
        names = [name for name in type(self).model_fields if by_key(name).key]
        limits = {name: (None, limit) for name in names if (limit := getattr(self, name)) is not None}
        given = self.__pydantic_extra__ or {}
        return {**limits, **{name: (bound.min, bound.max) for name, bound in given.items()}}


class SweepSpec(_Part):
    """The whole spec; every key with its default: jobkit help spec.

    Attributes
    ----------
    name
        Begins the run id and so the job's name.
    workload
        What runs: a shipped workload, or your own: ``./FILE.py:FUNCTION``, ``package.module:Class``, the
        name of an entry point, or the keys of a command.
    text
        The text to work on: ``sample``, ``sample:300``, a path of a file or folder, or an http(s) address.
    text_sample
        So many paragraphs are drawn of all its files; ``null`` for all.
    text_seed
        Another seed draws other paragraphs.
    queries
        A file with a query a line: a function that takes pairs gets each with each paragraph.
    model
        Which model.
    prompt
        What sentence-embedding puts before each text: the name of one of the model's prompts, or the text
        itself; ``null`` for the model's own, if it has one.
    device
        ``auto`` is ``cuda`` where GPUs are asked for.
    order
        Of the calls inside a try: largest load first, as the text stands, or paragraphs and sentences
        sorted by length before they are cut.
    sort_window
        Paragraphs that are sorted together with ``order: sorted``; ``null`` for the whole text.
    work_unit
        Paragraphs of one call if ``padded`` caps the load of a batch; ``null`` for 100, of an encoder on a
        GPU for 10,000.
    every
        Of so many paragraphs a point works on one: 4 for a quarter of the text.
    workers
        Processes that share the GPU of a point, or the CPU; each has a copy of the model.
    threads
        CPU threads of the framework in each worker; ``null`` for ``resources.cpus``.
    gpus
        GPUs of a point, each with as many workers; ``null`` for ``resources.gpus``.
    mps
        Whether workers share a GPU through NVIDIA's MPS; ``auto``: if they can.
    precision
        The format of numbers in which the workload computes; ``null`` leaves the framework as it is.
    shortcuts
        ``exact``: the workload leaves out work that changes no result.
    trim
        Whether the blanks at both ends of an entity are left out, and an entity of blanks alone.
    fork
        Whether processes that work are forked from one that has imported the framework; else each is
        a fresh one.
    hang_s
        A batch hangs that takes longer than this, and than 20 times the longest so far. It is watched in a
        corpus, and with several workers.
    nan
        What ``jobkit apply`` does about a paragraph with NaN or infinity in its rows: ``quarantine``, or
        ``null`` in place of the number.
    sweep
        Knobs and their values; every combination runs.
    repeats
        How often each setting runs, each time as a point of its own; `auto`: until the mean of its
        speed is known well enough.
    resources
        What one point asks of the scheduler.
    scheduler
        ``auto`` is the first whose commands are on PATH, else this machine.
    site
        The name of a site file, or a path to one; ``auto`` is your own, else the scheduler's default.
    environment
        What the job makes ready before the worker starts.
    template
        A job template of your own, relative to the spec's folder.
    after
        Jobs and runs that must have ended well before: a number or a run folder; ``any:4711``: ended at all.
    max_parallel
        Most tasks at a time; ``null`` for no limit.
    max_gpu_hours
        The ceiling of the run: jobkit submits nothing, and no retry, with which it may take more GPU-hours.
        ``null`` for none.
    pack
        How many points share one job, one after the other, each in a process of its own and with
        its own walltime: for points so short that the queue costs more than they do.
    policy
        What is done about each outcome: what is pruned, stopped, and run again.
    on_end
        Who is told, once, that the run has ended, has failed or needs you; ``null`` for nobody.
    find_max
        Find the largest batch by running it, after the sweep; ``null`` for not.
    profile
        The profiler that records where the time of each point goes; such a point is in no table.
    tune
        How ``jobkit tune`` searches for the fastest setting; it does not use ``sweep``.
    objective
        What ``jobkit recommend`` and ``jobkit tune`` choose a setting by: the speed, or another figure.
    constraints
        What a setting must keep to be chosen by them.
    """

    MEANT: ClassVar = {
        **{key: f"environment.{key}" for key in Environment.model_fields},
        **{key: f"resources.{key}" for key in Resources.model_fields},
        **SCHEDULER_WORDS,
    }
    """What is typed for a key and is none, or stands at the wrong level."""

    name: Annotated[fields.Name, Field(max_length=40)]
    workload: NameOrCommand = "stanza-ner"
    text: str = "sample"
    text_sample: fields.Positive | None = None
    text_seed: Annotated[int, Field(ge=0, le=fields.MOST)] = 0
    queries: str | None = None
    model: ModelSpec = ModelSpec()
    prompt: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    order: Literal["load", "text", "sorted"] = "load"
    sort_window: fields.Positive | None = None
    work_unit: fields.Positive | None = None
    every: fields.Positive = 1
    workers: fields.Positive = 1
    threads: fields.Positive | None = None
    gpus: fields.Positive | None = None
    mps: Literal["off", "on", "auto"] = "off"
    precision: Literal["fp32", "tf32", "fp16", "bf16"] | None = "fp32"
    shortcuts: Literal["off", "exact"] | None = "off"
    trim: bool = False
    fork: bool = True
    hang_s: fields.Positive = 60
    nan: Literal["quarantine"] | None = "quarantine"
    sweep: Axes = Axes()
    repeats: RepeatsOrNumber = 3
    resources: Resources = Resources()
    scheduler: fields.SchedulerOrAuto = "auto"
    site: str = "auto"
    environment: Environment = Environment()
    template: str | None = None
    after: fields.Parents = []
    max_parallel: fields.Positive | None = 4
    max_gpu_hours: fields.PositiveNumber | None = None
    pack: fields.Positive = 1
    policy: Policy = Policy()
    on_end: OnEnd | None = None
    find_max: FindMax | None = None
    profile: Literal["off", "torch", "python"] = "off"
    tune: Tune = Tune()
    objective: ObjectiveSpec = ObjectiveSpec()
    constraints: Constraints = Constraints()

    @property
    def asked_bytes(self) -> int | None:
        """The memory for which ``find_max`` finds the largest batch; ``None`` for all of it."""
        return self.find_max.memory if self.find_max and isinstance(self.find_max.memory, int) else None

    @property
    def command(self) -> CommandSpec | None:
        """The command, if the workload is one."""
        return self.workload if isinstance(self.workload, CommandSpec) else None

    @property
    def workload_name(self) -> str:
        """The name of the workload; of a command its text."""
        return (
            " ".join(self.workload.command.split())
            if isinstance(self.workload, CommandSpec)
            else self.workload
        )

    def refuse_command(self, what: str) -> None:
        """Refuse what jobkit can only do if it calls the workload batch by batch.

        Raises
        ------
        JobkitError
            If the workload is a command.
        """
        if self.command:
            message = f"{what} needs a workload that jobkit calls batch by batch; this one is a command"
            raise JobkitError(message, hint="a Python function is one: jobkit help workloads")

    def as_yaml(self) -> str:
        """Return the spec as YAML with every default written out."""
        return as_yaml(self.model_dump(mode="json"))


def setting_overrides(path: Path) -> tuple[str, ...]:
    """Return the keys of a setting that ``jobkit tune`` found, as ``key=value`` of ``--set``.

    Parameters
    ----------
    path
        Its ``setting.yaml``, or the run folder that has it.

    Raises
    ------
    JobkitError
        If there is none, or the search found no setting.
    """
    path = path / SETTING_FILE if path.is_dir() else path
    if is_run_folder(path.parent) and not path.is_file():
        message = f"{path}: not there: a search writes it at its end"
        raise JobkitError(message, hint=f"jobkit status {path.parent}")
    if path.is_file() and all(line.startswith("#") for line in read_text(path, MOST_BYTES).splitlines()):
        raise JobkitError(f"{path}: has no setting: the search found none", hint=f"jobkit tune {path.parent}")
    data = read_document(path).data
    nested = {key: value for key, value in data.items() if isinstance(value, dict) and key != "sweep"}
    flat = {key: value for key, value in data.items() if key not in nested}
    flat |= {f"{key}.{name}": value for key, part in nested.items() for name, value in part.items()}
    return tuple(f"{key}={json.dumps(value)}" for key, value in flat.items())


def load_spec(path: Path | str, overrides: Sequence[str] = ()) -> SweepSpec:
    """Return the spec that a file holds.

    Parameters
    ----------
    path
        The YAML file.
    overrides
        ``key=value`` as given by ``--set``.

    Raises
    ------
    InvalidSpecError
        Lists every fault with file:line:column (or ``--set``), the value, and the nearest key.
    """
    return sound(*read_spec(Path(path), overrides), SPEC_HINT)


def read_spec(
    path: Path, overrides: Sequence[str] = (), text: str | None = None
) -> tuple[YamlDocument, SweepSpec | None]:
    """Return a spec file, with the faults that it shows alone, and the spec if all its types are right.

    ``text``: what the file would hold, if there is none.
    """
    document = read_document(path, overrides, SweepSpec, text)
    if not isinstance(document.data.get("workload"), dict) and "sweep" in document.data:
        check_renamed(document)
        document.data["sweep"] = renamed(document.data["sweep"])
    check_profiler(document)
    spec = validated(document, SweepSpec)
    for check in CHECKS:
        check(document)
    return document, spec


SPEC_HINT = "every key of the spec: jobkit help spec"
FILE = "jobkit.schema.json"
"""Its name next to the shipped sweeps, which name it in their first line."""


def schema_text() -> str:
    """Return the schema of `jobkit.spec.sweep_spec.SweepSpec` as JSON, as `jobkit schema` prints it."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


def spec_schema() -> dict[str, Any]:
    """Return the schema of a spec: every key with its type, its default and what it means."""
    whole: dict[str, Any] = SweepSpec.model_json_schema()
    parts: dict[str, dict[str, Any]] = whole.pop("$defs")
    models = {kind.__name__: kind for kind in _models(SweepSpec)}
    for name, part in [("SweepSpec", whole), *parts.items()]:
        _describe(part, models[name])
    _add_knobs(parts[Axes.__name__])
    whole["properties"]["workload"]["anyOf"][0]["enum"] = offered()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "$defs": parts}


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and those that its keys hold."""
    annotations = [field.annotation for field in model.model_fields.values()]
    annotations.append(get_type_hints(model).get("__pydantic_extra__"))  # keys that a user names
    kinds = [kind for annotation in annotations for kind in (annotation, *get_args(annotation))]
    below = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [model, *(model for kind in below for model in _models(kind))]


def _describe(part: dict[str, Any], model: type[BaseModel]) -> None:
    """Put the words of the docstring into a part of the schema, and defaults as YAML has them."""
    summary, described = docstring(model)
    defaults = model.model_construct().model_dump(mode="json", warnings=False)
    part["description"] = summary
    part.pop("title", None)
    for name, key in part["properties"].items():
        key.pop("title", None)
        key.pop("default", None)
        key["description"] = described[name]
        if "$ref" not in key and name in defaults:
            key["default"] = defaults[name]


def docstring(model: type[BaseModel]) -> tuple[str, dict[str, str]]:
    """Return the first line of a model's docstring, and the text of its Attributes for each key."""
    summary, _, rest = inspect.cleandoc(model.__doc__ or "").partition("\n")
    _, _, section = rest.partition("Attributes\n----------\n")
    found = re.findall(r"^(\w[\w, ]*)\n((?:(?: +.*)?\n)+)", section + "\n", re.MULTILINE)
    words = {
        name: " ".join(text.replace("``", "`").split()) for names, text in found for name in names.split(", ")
    }
    return summary, words


def _add_knobs(axes: dict[str, Any]) -> None:
    """Name the knobs of the shipped workloads, so that an editor offers them."""
    for knob in dict.fromkeys(knob for workload in SHIPPED for knob in knobs(workload) or ()):
        of = " and ".join(workload for workload in SHIPPED if knob in (knobs(workload) or ()))
        of = "every workload" if knob in RUN_KNOBS else of
        of = "every workload that finds the lengths of a text" if knob == BUDGET else of
        what = f"A knob of {of}: a list of values, or one; combined with those of the other knobs."
        allowed: dict[str, Any] = one_or_list({"enum": list(knob.words)} if knob.words else POSITIVE)
        if knob.name == BATCH_SIZE:
            allowed["anyOf"].append({"const": AUTO})
            what += " `auto`: those worth measuring, chosen from the text."
        axes["properties"][knob.name] = {**allowed, "description": what}
