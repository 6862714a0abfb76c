"""The spec: the one YAML file that a user writes, as frozen data, with all its faults at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from jobkit.axes import axis_faults
from jobkit.errors import JobkitError
from jobkit.nearest import nearest
from jobkit.run.workload import SHIPPED
from jobkit.site import SchedulerName, known_scheduler
from jobkit.units import format_size, format_walltime, parse_duration, parse_size
from jobkit.yaml_files import Document, as_yaml, read_document, refuse, validated


def _parsed(parse: Callable[[str], int], wanted: str) -> Callable[[object], object]:
    """Return a validator of text; a bare number is refused, for schedulers disagree on its unit."""

    def parsed(value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(wanted)  # noqa: TRY004 - pydantic collects ValueError
        try:
            return parse(value)
        except JobkitError as error:
            raise ValueError(error.message) from error

    return parsed


Size = Annotated[
    int,
    BeforeValidator(_parsed(parse_size, "a size needs a unit, for instance 8GiB")),
    PlainSerializer(format_size),
    Field(gt=0),
]
Duration = Annotated[
    int,
    BeforeValidator(_parsed(parse_duration, 'a duration is text, for instance "00:10:00" or 90m')),
    PlainSerializer(format_walltime),
    Field(gt=0),
]
Positive = Annotated[int, Field(gt=0)]
Setting = dict[str, Positive]
Values = Annotated[list[Positive], BeforeValidator(lambda v: v if isinstance(v, list) else [v])]


def _known_or_auto(name: str) -> str:
    return name if name == "auto" else known_scheduler(name)


def _not_yet(value: object) -> object:
    if value:
        raise ValueError("this jobkit does not act on it yet; leave it out")
    return value


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ModelSpec(_Part):
    """Which model.

    Attributes
    ----------
    name
        Stanza's name of the language: ``en``.
    size
        Of the stand-in: ``full`` has the English model's real dimensions, ``tiny`` builds in
        under a minute on two cores.
    fallback
        ``stand-in`` builds a small trained model of jobkit's own where the named one is missing;
        without it a missing model is an error.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")] = "en"
    size: Literal["full", "tiny"] = "full"
    fallback: Literal["stand-in"] | None = None


class Resources(_Part):
    """What one point asks of the scheduler.

    Attributes
    ----------
    memory
        For the whole task: ``8GiB``, ``500MiB``.
    walltime
        For one point: ``"00:10:00"``, ``90m``, ``1-12:00:00``.
    queue
        Queue (SGE) or partition (Slurm); ``null`` for the site's.
    options
        Further header lines by scheduler: ``{slurm: [--constraint=a100], sge: [-m e]}``.
    """

    gpus: Annotated[int, Field(ge=0)] = 1
    gpu_type: str | None = None
    cpus: Positive = 2
    memory: Size = 8 * 2**30
    walltime: Duration = 600
    queue: str | None = None
    account: str | None = None
    qos: str | None = None
    options: dict[SchedulerName, list[str]] = {}


class Environment(_Part):
    """What the job makes ready before the worker starts.

    Attributes
    ----------
    modules
        Loaded with ``module load``, in order.
    conda, venv
        Activated after the modules: an environment's name or folder; at most one of the two.
        With neither, the job runs the Python that ran ``jobkit sweep``.
    setup
        Shell lines run last; a line that fails ends the try with outcome ``environment``.
    variables
        Exported to the worker.
    """

    modules: list[str] = []
    conda: str | None = None
    venv: str | None = None
    setup: list[str] = []
    variables: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = {}


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

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    __pydantic_extra__: dict[str, Values]

    zip: dict[str, Values] = {}
    include: list[Setting] = []
    exclude: list[Setting] = []

    @property
    def product(self) -> dict[str, list[int]]:
        """The knobs whose values are combined with each other."""
        return dict(self.__pydantic_extra__ or {})


class SweepSpec(_Part):
    """The whole spec; every key with its default stands in docs/spec.md."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=40)]
    workload: str = "stanza-ner"
    text: str = "sample"
    model: ModelSpec = ModelSpec()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    order: Literal["load", "text"] = "load"
    sweep: Axes = Axes()
    repeats: Positive = 3
    resources: Resources = Resources()
    scheduler: Annotated[str, AfterValidator(_known_or_auto)] = "auto"
    site: str = "auto"
    environment: Environment = Environment()
    max_parallel: Positive | None = 4
    policy: Annotated[dict[str, Any], AfterValidator(_not_yet)] = {}
    find_max: Annotated[Any, AfterValidator(_not_yet)] = None

    def as_yaml(self) -> str:
        """Return the spec as YAML with every default written out."""
        return as_yaml(self.model_dump(mode="json"))


Semantic = Callable[[Document], None]
"""Adds to a document the faults that no type can see."""


def load_spec(path: Path, overrides: Sequence[str] = (), semantics: Sequence[Semantic] = ()) -> SweepSpec:
    """Return the spec that a file holds.

    Parameters
    ----------
    path
        The YAML file.
    overrides
        ``key=value`` as given by ``--set``.
    semantics
        Further checks of the raw data; run whether or not the types are right, so that all
        faults are told at once.

    Raises
    ------
    JobkitError
        Lists every fault with file:line:column (or ``--set``), the value, and the nearest key.
    """
    document = read_document(path, overrides)
    spec = validated(document, SweepSpec)
    for check in (check_axes, check_workload, check_environment, *semantics):
        check(document)
    refuse(document, "every key of the spec stands in docs/spec.md")
    if spec is None:  # a fault that pydantic saw has been told by refuse
        raise JobkitError(f"{path}: not a spec")
    return spec


def check_workload(document: Document) -> None:
    """Add a fault for a workload that is neither shipped nor ``module:Class``."""
    name = document.data.get("workload")
    if isinstance(name, str) and name not in SHIPPED and ":" not in name:
        what = f"workload: {name!r}: no such workload{nearest(name, list(SHIPPED))}"
        document.faults.append(document.fault(("workload",), what))


def check_environment(document: Document) -> None:
    """Add a fault where both ``conda`` and ``venv`` are given."""
    environment = document.data.get("environment")
    if isinstance(environment, dict) and environment.get("conda") and environment.get("venv"):
        what = "environment.venv: given beside conda; keep one of the two"
        document.faults.append(document.fault(("environment", "venv"), what, on_key=True))


def check_axes(document: Document) -> None:
    """Add the faults of the sweep: unknown knobs, uneven ``zip``, a knob on two axes, no points."""
    axes = document.data.get("sweep", {})
    if not isinstance(axes, dict):
        return
    workload = document.data.get("workload", "stanza-ner")
    for loc, what in axis_faults(axes, workload if isinstance(workload, str) else ""):
        document.faults.append(document.fault(("sweep", *loc), what, on_key=True))
