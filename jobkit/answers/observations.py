"""From the records of a run to what a line can be fitted to. Pure, standard library only.

On a GPU the *need* of a batch binds: the smallest cap on the allocator under which it passes
(`jobkit.worker.measure.memory`). If it was not measured, as in text order, the allocated peak of
every batch counts, times the worst ratio of reserved to allocated memory: reserved memory never shrinks, so
it gives the slack and not the slope. On a CPU it is the largest resident memory of each try.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jobkit.answers.memory_line import Censored, Observation
from jobkit.answers.setting import other_knobs
from jobkit.core.knobs import BATCH_SIZE, PADDED, Value
from jobkit.core.measurements import largest
from jobkit.core.records import Batch, Outcome, Record
from jobkit.core.units import format_count

NEED, ALLOCATED, RAM = "need", "allocated", "ram"

MUST_MATCH = (
    "GPU",
    "allocator setting",
    "order of work",
    "version of torch",
    "model",
    "workload",
    "device",
    "number of workers",
    "MPS",
    "precision",
    "shortcuts",
    "another knob than batch_size",
)


def alike(record: Record) -> tuple[object, ...]:
    point = record.point
    return (
        (record.gpu.name, record.gpu.total_bytes) if record.gpu else None,
        point.allocator,
        point.order,
        record.versions.get("torch"),
        point.model.fingerprint if point.model else None,
        point.workload,
        point.device,
        point.workers,
        record.mps,
        record.precision,
        record.shortcuts,
        other_knobs(record),
    )


def _setting(record: Record) -> str:
    """Return what repeats of one setting share: they measure the same, so they count as one point."""
    return ", ".join(f"{knob} {value}" for knob, value in sorted(record.params.items()))


def measured_bytes(record: Record | None) -> int | None:
    """Return the memory that a try took, in the kind that a prediction is about."""
    if record is None or record.outcome is not Outcome.OK:
        return None
    if record.point.device == "cpu":
        return record.memory.ram_peak_bytes
    return record.needs[0].passed_bytes if record.needs else record.memory.reserved_peak_bytes


def swept_knob(params: Mapping[str, Value]) -> str:
    return PADDED if PADDED in params else BATCH_SIZE


def load_by_batch(well: Sequence[Record]) -> dict[int, int]:
    """Return the largest load that was measured with each batch size or budget."""
    loads: dict[int, int] = {}
    knob = swept_knob(well[0].point.params)
    for record in well:
        batch, summary = record.point.numbers.get(knob), record.summary
        if batch and summary and summary.load_max:
            loads[batch] = max(summary.load_max, loads.get(batch, 0))
    return loads


def on_gpu(well: Sequence[Record], batches: Mapping[str, Sequence[Batch]]) -> list[Observation]:
    """Return the need of each batch; if none was measured, its allocated peak times the worst slack."""
    if any(record.needs for record in well):
        return [
            Observation(one.load, one.passed_bytes, _setting(record))
            for record in well
            for one in record.needs
        ]
    used = [
        Observation(batch.load, batch.allocated_peak_bytes, _setting(record))
        for record in well
        for batch in batches.get(record.point.point_id, ())
        if batch.allocated_peak_bytes
    ] or peaks(well, "allocated_peak_bytes")
    worst = slack(well)
    return [Observation(one.load, one.size_bytes * worst, one.point) for one in used]


def peaks(well: Sequence[Record], name: str) -> list[Observation]:
    """Return a peak of each record, by its name in `jobkit.core.measurements.MemoryReadings`."""
    return [
        Observation(record.summary.load_max, peak, _setting(record))
        for record in well
        if record.summary and record.summary.load_max and (peak := getattr(record.memory, name))
    ]


def slack(well: Sequence[Record]) -> float:
    """Return the worst ratio of reserved to allocated memory; 1 if none is known."""
    pairs = [(record.memory.reserved_peak_bytes, record.memory.allocated_peak_bytes) for record in well]
    return max((reserved / used for reserved, used in pairs if reserved and used), default=1.0)


def context_bytes(well: Sequence[Record]) -> int | None:
    """Return the size of the CUDA context of a worker; ``None`` if it is not known."""
    return largest(record.memory.context_bytes for record in well)


def overhead_bytes(well: Sequence[Record]) -> int | None:
    """Return the contexts, and what the GPU held before; ``None`` if the contexts are not known."""
    if (context := context_bytes(well)) is None:
        return None
    idle = max((record.memory.device_idle_bytes or 0 for record in well), default=0)
    return well[0].point.workers * context + idle


def had_bytes(record: Record, overhead: int) -> int | None:
    """Return what the allocator of one process of a try on a GPU could take."""
    total = record.gpu.total_bytes if record.gpu else None
    each = (total - overhead) // record.point.workers if total else None
    return record.point.cap_bytes or each


def bounds(
    failed: Sequence[Record], well: Sequence[Record], had: Callable[[Record], int | None]
) -> list[Censored]:
    """Return the evidence of points out of memory: the failed batch needs more than they had.

    Points count that ran as the others did and whose failed batch has a known load.
    """
    first = alike(well[0])
    return [
        Censored(record.failed_load, above)
        for record in failed
        if record.failed_load and (above := had(record)) and alike(record) == first
    ]


def left_out(failed: Sequence[Record], counted: Sequence[Censored]) -> tuple[str, ...]:
    """Return a remark on points that ran out of memory and do not show how much they need."""
    number = len(failed) - len(counted)
    points = f"{number} of {format_count(len(failed), 'point')} that ran out of memory"
    are, their, they = ("is", "its", "it") if number == 1 else ("are", "their", "they")
    why = f"{their} load is unknown, or {they} ran otherwise"
    return (f"{points} {are} not in the line: {why}",) if number else ()


def remarks(well: Sequence[Record], kind: str) -> tuple[str, ...]:
    """Return what to know of measurements on a GPU, in sentences without a full stop."""
    notes = []
    if kind != NEED:
        notes.append(
            "no point measured what its batches need: jobkit takes allocated memory and the worst slack"
        )
    if overhead_bytes(well) is None:
        notes.append(
            "the size of the CUDA context is unknown, so jobkit keeps no memory free for the context"
        )
    points = format_count(len(well), "point")
    if shared := sum(bool(record.gpu and record.gpu.foreign_processes) for record in well):
        notes.append(f"{shared} of {points} ran next to other processes on the GPU")
    if flushed := sum(bool(record.retries) for record in well):
        notes.append(f"{flushed} of {points} passed only after the allocator had emptied its cache")
    return tuple(notes)
