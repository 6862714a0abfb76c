"""From the spec to the points: what runs, in which order, under which name. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.knobs import (
    AUTO,
    BATCH_SIZE,
    BF16,
    CUDA,
    DEFAULT_WORK_UNIT,
    FP16,
    GPUS,
    LOAD_KNOBS,
    OFFERED,
    RUN_KNOBS,
    SPEC_KNOBS,
    THREADS,
    WORK_UNIT,
    WORKERS,
    Knob,
    Value,
)
from jobkit.core.records import FileRef, ModelRef, Point, TextRef
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.types import JobRequest
from jobkit.spec.axes import most, settings
from jobkit.spec.fields import Auto
from jobkit.spec.site import Site, directives, queue_of
from jobkit.spec.sweep_spec import Resources, SweepSpec
from jobkit.worker.process import ALLOCATOR_VARIABLES
from jobkit.worker.workloads.base import knobs


@keyed
class Inputs:
    """What all points of a run have in common: fields of a `Point`."""

    run_id: str
    text: TextRef
    model: ModelRef | None
    device: str
    workload_folder: str | None = None
    load_knobs: tuple[str, ...] = LOAD_KNOBS
    files: tuple[FileRef, ...] = ()


def plan(spec: SweepSpec, inputs: Inputs | None = None) -> tuple[Point, ...]:
    """Return the points of a sweep: repeat 1 of every setting, then repeat 2, and so on.

    Settings are in ascending need of device memory, by the knobs with which the load grows and the number of
    workers; settings of equal need are in ascending order of their values. Repeats are interleaved so that a
    machine that slows down does not look like an effect of the batch size.

    Without ``inputs`` the points cannot be run: their text has no checksum, and their model is missing.
    """
    if inputs is None:  # jobkit has not looked up anything that the spec names
        text = TextRef(path=spec.text, sha256="", size_bytes=0, name=spec.text)
        inputs = Inputs(run_id=spec.name, text=text, model=None, device=spec.device)
        spec = spec.model_copy(update=offered(spec, knobs(spec.workload_name) or ()))
    axes = spec.sweep
    if any(isinstance(values, Auto) for values in axes.product.values()):
        raise JobkitError(
            f"spec {spec.name}: sweep.{BATCH_SIZE}: {AUTO!r} is decided from the text, which is not read yet",
            hint="jobkit.prepare reads it and decides",
        )
    rows = settings(axes.product, axes.zip, axes.include, axes.exclude)
    if not rows:
        raise JobkitError(f"spec {spec.name}: exclude leaves no point to run", hint="see `sweep` in the spec")
    ordered = sorted((_point(spec, inputs, row) for row in _filled(rows, _defaults(spec))), key=_need)
    pairs = [(point, repeat) for repeat in range(1, most(spec.repeats) + 1) for point in ordered]
    return tuple(
        replace(point, index=index, repeat=repeat, point_id=point_id(point.params, repeat))
        for index, (point, repeat) in enumerate(pairs, 1)
    )


def offered(spec: SweepSpec, knobs: Iterable[Knob]) -> dict[str, str | None]:
    """Return the keys of a spec that only some workloads obey; ``None`` if this workload offers no choice."""
    words = {knob.name: knob.words for knob in knobs}
    return {key: value if (value := getattr(spec, key)) in words.get(key, ()) else None for key in OFFERED}


def _need(point: Point) -> tuple[float, tuple[int, ...]]:
    """Return a key that sorts points by the device memory that they need, as far as the knobs show it."""
    load = math.prod(point.numbers.get(name, 1) for name in point.load_knobs)
    # The share of a load's memory that a precision of two bytes needs
    load_share = min({FP16: 0.5, BF16: 0.5}.get(getattr(point, key), 1) for key in OFFERED)
    # GPU memory of a process for its context and the model, as the batch size that needs as much (full-size
    # model on an H200, docs/measurements.md)
    return point.workers * (100 + load_share * load), tuple(point.numbers.values())


def _defaults(spec: SweepSpec) -> dict[str, Value]:
    return {
        WORKERS: spec.workers,
        THREADS: spec.threads or spec.resources.cpus,
        GPUS: spec.gpus or spec.resources.gpus,
        WORK_UNIT: spec.work_unit or DEFAULT_WORK_UNIT,
        **{knob.name: value for knob in SPEC_KNOBS if (value := getattr(spec, knob.name))},
    }


def _filled(rows: Sequence[Mapping[str, Value]], defaults: Mapping[str, Value]) -> list[dict[str, Value]]:
    """Return the settings, each with all of jobkit's own knobs that any of them names, without duplicates."""
    named = {name: value for name, value in defaults.items() if any(name in row for row in rows)}
    filled = [{**row, **{name: row.get(name, value) for name, value in named.items()}} for row in rows]
    return list({tuple(sorted(row.items())): row for row in filled}.values())


def _point(spec: SweepSpec, inputs: Inputs, params: Mapping[str, Value]) -> Point:
    given = {**_defaults(spec), **params}
    variables = (spec.environment.variables.get(name) for name in ALLOCATOR_VARIABLES)
    # PyTorch's allocator setting unless the spec's variables say otherwise. With it reserved memory follows
    # the load; without it reserved memory only grows (measured: 6 to 19 % more batch on one GPU).
    allocator = next((value for value in variables if value is not None), "expandable_segments:True") or None
    # Keys of a spec that are fields of a point
    as_written = ("sort_window", "trim", "fork", "hang_s", "nan", "profile")
    return Point(
        **{part.name: getattr(inputs, part.name) for part in fields(inputs)},
        **{key: getattr(spec, key) for key in as_written},
        **_fields(given, inputs.device),
        index=1,
        point_id=point_id(params, 1),
        workload=spec.workload_name,
        params=params,
        repeat=1,
        allocator=allocator if inputs.device == CUDA else None,
        command=spec.command.of_point if spec.command else None,
    )


def _fields(given: Mapping[str, Value], device: str) -> dict[str, Any]:
    """Return the fields of a point that are knobs; a user's own knob of such a name may have other values."""
    return {
        knob.name: (given.get(knob.name) or knob.plain) if device in knob.devices else knob.plain
        for knob in SPEC_KNOBS
        if knob in RUN_KNOBS or isinstance(given.get(knob.name), str)
    }


def point_id(params: Mapping[str, Value], repeat: int) -> str:
    return "-".join([*(f"{knob}-{value}" for knob, value in params.items()), f"r{repeat}"])


@keyed
class PointGroup:
    """The points of a run that request the same resources and share an array."""

    points: tuple[int, ...]  # the indices of the points, in order
    resources: Resources  # the request of one point
    request: JobRequest
    # the header lines that differ from the request of the run's first point, which the script has
    options: tuple[str, ...] = ()


def group_points(spec: SweepSpec, site: Site, points: Sequence[Point]) -> tuple[PointGroup, ...]:
    """Return points by their requests, in the order of the first of each group."""
    groups: dict[tuple[int, int], list[Point]] = {}
    for point in points:
        asked = spec.resources.of(point)
        groups.setdefault((asked.cpus, asked.gpus), []).append(point)
    requests = [spec.resources.of(same[0]) for same in groups.values()]
    packed = [one.model_copy(update={"walltime": one.walltime * spec.pack}) for one in requests]
    headers = [directives(one, site) for one in packed]
    return tuple(
        PointGroup(
            points=tuple(point.index for point in same),
            resources=resources,
            request=request(same[0].run_id, spec, site, resources),
            options=tuple(line for line in header if line not in headers[0]),
        )
        for same, resources, header in zip(groups.values(), requests, headers, strict=True)
    )


def request(name: str, spec: SweepSpec, site: Site, asked: Resources) -> JobRequest:
    scheduler, header = by_name(site.scheduler), directives(asked, site)
    return JobRequest(
        name=name,
        queue=queue_of(asked, site),
        gpus=asked.gpus,
        gpu_type=asked.gpu_type,
        cpus=asked.cpus,
        memory_bytes=asked.memory,
        walltime_s=asked.walltime * spec.pack,
        pack=spec.pack,
        account=asked.account or site.account,
        qos=asked.qos or site.qos,
        slots=scheduler.slots(header, asked.cpus),
        resources=scheduler.resource_names(header),
        exclude=tuple(asked.exclude),
    )
