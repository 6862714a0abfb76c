"""From the spec to the points: what runs, in which order, under which name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobkit.core.errors import JobkitError
from jobkit.core.records import BATCH_SIZE, ModelRef, Point, TextRef
from jobkit.spec.axes import settings
from jobkit.spec.fields import AUTO, Auto
from jobkit.spec.sweep_spec import SweepSpec

ALLOCATOR = "expandable_segments:True"
"""PyTorch's allocator setting unless the spec's variables say otherwise: with it, reserved memory
follows the load; without, it is a ratchet (measured: 6 to 19 % more batch on one GPU)."""

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The variable's name today, and in torch before 2.9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the points of a run share, found before planning.

    Attributes
    ----------
    device
        ``cpu`` or ``cuda``, decided.
    workload_folder
        As in `jobkit.core.records.Point`.
    """

    run_id: str
    text: TextRef
    model: ModelRef | None
    device: str
    workload_folder: str | None = None


def plan(spec: SweepSpec, inputs: Inputs | None = None) -> tuple[Point, ...]:
    """Return the points of a sweep: repeat 1 of every setting in ascending load, then repeat 2, and so on.

    The load of a batch grows with every knob, so settings are ordered by the product of their
    values. Repeats are interleaved so that a machine that slows down does not look like a batch size.

    Parameters
    ----------
    spec
        What to run.
    inputs
        Found before planning. Without them the points say what would run and in which order,
        but cannot be run: their text has no checksum, and their model is missing.

    Raises
    ------
    JobkitError
        If nothing is left to run, or ``auto`` is not decided yet.
    """
    if inputs is None:  # nothing that the spec names has been looked up
        text = TextRef(path=spec.text, sha256="", size_bytes=0, name=spec.text)
        inputs = Inputs(run_id=spec.name, text=text, model=None, device=spec.device)
    axes = spec.sweep
    if any(isinstance(values, Auto) for values in axes.product.values()):
        raise JobkitError(
            f"spec {spec.name}: sweep.{BATCH_SIZE}: {AUTO!r} is decided from the text, which is not read yet",
            hint="jobkit.prepare reads it and decides",
        )
    rows = settings(axes.product, axes.zip, axes.include, axes.exclude)
    if not rows:
        raise JobkitError(f"spec {spec.name}: exclude leaves no point to run", hint="see `sweep` in the spec")
    ordered = sorted(rows, key=_size)
    pairs = [(row, repeat) for repeat in range(1, spec.repeats + 1) for row in ordered]
    return tuple(_point(spec, inputs, index, *pair) for index, pair in enumerate(pairs, 1))


def _size(row: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
    total = 1
    for value in row.values():
        total *= value
    return total, tuple(row.values())


def _point(spec: SweepSpec, inputs: Inputs, index: int, params: Mapping[str, int], repeat: int) -> Point:
    return Point(
        run_id=inputs.run_id,
        index=index,
        point_id=point_id(params, repeat),
        workload=spec.workload,
        params=params,
        repeat=repeat,
        text=inputs.text,
        model=inputs.model,
        device=inputs.device,
        order=spec.order,
        allocator=_allocator(spec) if inputs.device == "cuda" else None,
        threads=spec.resources.cpus,
        workload_folder=inputs.workload_folder,
    )


def _allocator(spec: SweepSpec) -> str | None:
    given = (spec.environment.variables.get(name) for name in ALLOCATOR_VARIABLES)
    return next((value for value in given if value is not None), ALLOCATOR) or None


def point_id(params: Mapping[str, int], repeat: int) -> str:
    """Return the name of a point's folder: ``batch_size-50-r1``."""
    return "-".join([*(f"{knob}-{value}" for knob, value in params.items()), f"r{repeat}"])
