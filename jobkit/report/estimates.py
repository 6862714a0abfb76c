"""The largest batch of every group of measurements: predicted with a bound, else by a straight line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

from jobkit.core.knobs import BATCH_SIZE
from jobkit.core.records import Outcome
from jobkit.core.units import format_count
from jobkit.fit.batch_line import Estimate, estimate
from jobkit.fit.largest_batch import Prediction, capped, predict
from jobkit.fit.loads import agreeing, loads_of
from jobkit.fit.memory_line import MIN_DISTINCT_LOADS
from jobkit.fit.observations import observe_memory, others
from jobkit.outcome.conditions import memory_condition
from jobkit.report.rows import Row
from jobkit.report.tables import Collected, no_search_for_cycles
from jobkit.run.workloads.base import CHARACTERS, load_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEstimate:
    """The estimate of one group.

    Attributes
    ----------
    group
        Its number, a row of ``Collected.groups``.
    knob
        The knob that the estimate is about.
    by_knob
        The line in the knob: the answer that a user asks for.
    by_load
        The line in the load, what the framework pads to: ``None`` if a point has no load.
    prediction
        What to use instead: the line through the needs of the batches; ``None`` if too few points have one.
    run
        The folder of the first run of the group.
    unit
        What a load counts.
    others
        The values of all other knobs that it holds for, in words; empty if none varies.
    allocator
        The allocator setting that it holds for, in words after a comma.
    """

    group: int
    knob: str
    by_knob: Estimate
    by_load: Estimate | None
    prediction: Prediction | None = None
    run: str = ""
    unit: str = CHARACTERS
    others: str = ""
    allocator: str = ""


def estimates(collected: Collected, gpu_memory_bytes: int | None = None) -> tuple[GroupEstimate, ...]:
    """Return an estimate for each group measured on a GPU: one for each value of the other knobs.

    There is none of a knob with which the load does not grow, such as ``precision`` or ``gpus``.

    Parameters
    ----------
    collected
        What was read.
    gpu_memory_bytes
        The GPU to fit; by default the one that the group was measured on.
    """
    with no_search_for_cycles():
        return tuple(
            _estimate(collected, group, words, rows, gpu_memory_bytes)
            for group, first in enumerate(collected.by_group)
            if first.device != "cpu"
            for words, rows in _apart(collected, group).items()
            if _grows_load(rows, _the_knob(rows, collected.knobs))
        )


def _apart(collected: Collected, group: int) -> dict[str, list[Row]]:
    """Return the rows of a group's sweep by the values of the other knobs; all, if no line is gained."""
    rows = [row for row in collected.rows if row.group == group and not row.trial]
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(others(row.params, (row.inert or "").split(", ")), []).append(row)
    if len(parts) > 1 and any(any(row.params != part[0].params for row in part) for part in parts.values()):
        return parts
    return {"": rows}


def _estimate(
    collected: Collected, group: int, words: str, rows: Sequence[Row], gpu_memory_bytes: int | None
) -> GroupEstimate:
    knob = _the_knob(rows, collected.knobs)
    capacity = gpu_memory_bytes or rows[0].gpu_capacity_bytes
    well = (row for row in rows if row.outcome is Outcome.OK and row.gpu_peak_bytes is not None)
    measured = [row for row in well if knob is None or knob in row.numbers]
    reason = _why_not(knob, capacity, measured)
    by_knob = Estimate(line=None, capacity_bytes=capacity, reason=reason)
    by_load = None
    if knob and capacity and not reason:
        failed = [row for row in rows if row.outcome is Outcome.GPU_OOM and knob in row.numbers]
        sizes, too_large = ([row.numbers[knob] for row in some] for some in (measured, failed))
        items_total = max((row.items_total for row in measured if row.items_total), default=math.inf)
        by_knob = _line(sizes, measured, capacity, too_large, items_total)
        loads, too_large = ([row.load_max for row in some if row.load_max] for some in (measured, failed))
        by_load = _line(loads, measured, capacity, too_large) if len(loads) == len(measured) else None
    return GroupEstimate(
        group=group,
        knob=knob or BATCH_SIZE,
        by_knob=by_knob,
        by_load=by_load,
        prediction=_predicted(collected, rows, gpu_memory_bytes),
        run=rows[0].folder,
        unit=load_unit(rows[0].workload),
        others=words,
        allocator=memory_condition(row.record for row in rows if row.record),
    )


def _predicted(collected: Collected, rows: Sequence[Row], gpu_memory_bytes: int | None) -> Prediction | None:
    """Return the prediction from what the batches need, ``None`` if too few loads have a need."""
    records = [row.record for row in rows if row.record]
    records = [record for record in records if record.needs or record.outcome is Outcome.GPU_OOM]
    if len({need.load for record in records for need in record.needs}) < MIN_DISTINCT_LOADS:
        return None
    evidence = observe_memory(records)
    if isinstance(evidence, str) or not evidence.load_by_batch:
        return None
    gpu_bytes = gpu_memory_bytes or evidence.gpu_bytes
    if not gpu_bytes:
        return None
    loads = loads_of(collected.lengths(rows), (record.point for record in records))
    loads = agreeing(loads, evidence.load_by_batch)
    prediction = predict(evidence, max(0.0, evidence.allocator_bytes(gpu_bytes)), loads)
    tried = (collected.trials.get(folder, ()) for folder in dict.fromkeys(row.folder for row in rows))
    return capped(prediction, evidence, loads, chain.from_iterable(tried))


def _the_knob(rows: Sequence[Row], knobs: Iterable[str]) -> str | None:
    """Return the only knob that varies, knobs that always move together counted once."""
    values = {knob: [row.params.get(knob) for row in rows] for knob in knobs}
    varying: list[str] = []
    for knob, own in values.items():
        if len(set(own)) > 1 and all(own != values[other] for other in varying):
            varying.append(knob)
    if len(varying) > 1:
        return None
    return next(iter(varying or values), None)


def _grows_load(rows: Sequence[Row], knob: str | None) -> bool:
    """Return whether the load grows with a knob, as far as the points say."""
    declared = [row.result.point.load_knobs for row in rows if row.result]
    return knob is None or not declared or any(knob in names for names in declared)


def _why_not(knob: str | None, capacity: float | None, measured: Sequence[Row]) -> str:
    if not measured:
        return "no GPU memory was measured"
    if knob is None:
        return "more than one knob varies, or none is named"
    return "" if capacity else "the GPU's size is not recorded: give it with --gpu-memory"


def _line(
    sizes: Sequence[float],
    measured: Sequence[Row],
    capacity_bytes: float,
    too_large: Sequence[float],
    items_total: float = math.inf,
) -> Estimate:
    """Return the estimate in one column; a batch beyond the whole text gets a warning."""
    models = [row.model_bytes for row in measured if row.model_bytes is not None]
    result = estimate(
        sizes,
        [row.gpu_peak_bytes or 0 for row in measured],
        capacity_bytes,
        model_bytes=fmean(models) if models else 0.0,
        failed_at=min(too_large, default=None),
    )
    if result.largest is None or not result.largest > items_total:
        return result
    text = f"the text has only {format_count(round(items_total), 'paragraph')}"
    beyond = f"{text}, so a larger batch cannot be tested on it"
    return replace(result, warnings=(*result.warnings, beyond))
