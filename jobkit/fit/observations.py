"""From the records of a run to what a line can be fitted to. Pure, standard library only.

On a GPU what binds is the *need* of a batch: the smallest cap on the allocator under which it
passes (`jobkit.run.measure.need`). Where it was not measured, as in text order, torch's allocated peak of
every batch is taken instead, times the worst ratio of reserved to allocated memory seen: reserved
memory never shrinks, so it gives the slack and not the slope. On a CPU it is the largest resident
memory of each try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.knobs import BATCH_SIZE, LOAD_KNOBS, PADDED_CHARS, SHORTCUTS, Value
from jobkit.core.records import Batch, Outcome, Record
from jobkit.core.units import format_count, format_setting
from jobkit.fit.gpus import usable_bytes
from jobkit.fit.memory_line import Censored, Fit, Observation, fit_memory

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
"""What the records behind one line must share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryObservations:
    """What the points of a run show about memory.

    Attributes
    ----------
    kind
        `NEED`, `ALLOCATED` (need not measured) or `RAM` (a CPU).
    fit
        The line, or why there is none.
    allocated
        The line of torch's allocated peaks, batch by batch, which stands next to it; ``None``
        if there is none.
    slack
        The worst ratio of reserved to allocated memory; 1 where need or RAM was measured.
    overhead_bytes
        What comes on top of the allocators on the GPU: the context of each worker, and what the GPU
        held before. 0 on a CPU; ``None`` if NVML does not answer.
    workers, context_bytes
        Processes that share the GPU, and the context of one. On a CPU 1: the memory is that of all.
    gpu_bytes
        What CUDA has of the GPU; ``None`` if NVML does not report its memory, and on a CPU.
    check_bytes
        What the check of shortcuts took of the same memory; 0 without one.
    gpu
        The GPU's name, or ``None``.
    load_by_batch
        Batch size, or ``padded_chars``, to the largest load that was measured with it.
    knob
        Which of the two.
    points
        How many settings were measured.
    remarks
        What a reader must know of the measurements, sentences without a full stop.
    """

    kind: str
    fit: Fit | str
    allocated: Fit | None = None
    slack: float = 1.0
    overhead_bytes: int | None = 0
    workers: int = 1
    context_bytes: int = 0
    gpu_bytes: int | None = None
    check_bytes: int = 0
    gpu: str | None = None
    load_by_batch: Mapping[int, int]
    knob: str = BATCH_SIZE
    points: int
    remarks: tuple[str, ...] = ()

    def allocator_bytes(self, gpu_bytes: float) -> float:
        """Return what is left for the allocator of each worker on a GPU of a size."""
        return (gpu_bytes - (self.overhead_bytes or 0)) / self.workers

    def most_workers(self, gpu_bytes: float, load: float) -> int | None:
        """Return how many workers a GPU of a size holds at a load, by the bound; ``None`` without a line."""
        if isinstance(self.fit, str) or self.overhead_bytes is None:
            return None
        each = self.context_bytes + self.fit.upper(load)
        return max(0, int((gpu_bytes - self.overhead_bytes + self.workers * self.context_bytes) // each))


def observe_memory(
    records: Iterable[Record], batches: Mapping[str, Sequence[Batch]] | None = None
) -> MemoryObservations | str:
    """Return what the records show about memory, or in a sentence why they show nothing.

    Parameters
    ----------
    records
        Of the points of one run; those that neither succeeded nor ran out of memory are ignored.
    batches
        By point id; only needed for the line of allocated memory.

    Returns
    -------
    MemoryObservations or str
        A reason also if the records differ in one of `MUST_MATCH`: they are never mixed.
    """
    records = list(records)
    well = [record for record in records if record.outcome is Outcome.OK]
    if not well:
        return "no point has succeeded yet"
    for name, values in zip(MUST_MATCH, zip(*map(_alike, well), strict=True), strict=True):
        if len(set(values)) > 1:
            return f"the points differ in {name}: {', '.join(sorted(set(map(str, values))))}"
    if well[0].point.device == "cpu":
        return _of_ram(well, [record for record in records if record.outcome is Outcome.RAM_OOM])
    return _of_gpu(well, [record for record in records if record.outcome is Outcome.GPU_OOM], batches or {})


def _alike(record: Record) -> tuple[object, ...]:
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
        others(record),
    )


def others(record: Record) -> str:
    """Return in words the knobs of which each value has its own line: it may need different memory.

    Those that did not take effect have none, except shortcuts that were refused.

    Returns
    -------
    str
        ``sentences_per_ner_batch 50``; empty if there is no knob but the one that the line is about.
    """
    params = record.params
    own = next((knob for knob in (*LOAD_KNOBS, *sorted(params)) if knob in params), None)
    rest = sorted(params.keys() - ({own, *record.inert} - {SHORTCUTS}))
    return format_setting({knob: params[knob] for knob in rest})


def setting(record: Record) -> str:
    """Return what repeats of one setting share: they measure the same, so they count as one point."""
    return ", ".join(f"{knob} {value}" for knob, value in sorted(record.params.items()))


def measured_bytes(record: Record | None) -> int | None:
    """Return what a try that succeeded took, in the kind of memory that a prediction is of."""
    if record is None or record.outcome is not Outcome.OK:
        return None
    if record.point.device == "cpu":
        return record.memory.ram_peak_bytes
    return record.needs[0].passed_bytes if record.needs else record.memory.reserved_peak_bytes


def swept_knob(params: Mapping[str, Value]) -> str:
    """Return the knob that caps the batches of a point."""
    return PADDED_CHARS if PADDED_CHARS in params else BATCH_SIZE


def _loads(well: Sequence[Record]) -> dict[int, int]:
    loads: dict[int, int] = {}
    knob = swept_knob(well[0].point.params)
    for record in well:
        batch, summary = record.point.numbers.get(knob), record.summary
        if batch and summary and summary.load_max:
            loads[batch] = max(summary.load_max, loads.get(batch, 0))
    return loads


def _of_ram(well: Sequence[Record], failed: Sequence[Record]) -> MemoryObservations:
    observations = _peaks(well, "ram_peak_bytes")
    bounds = _censored(failed, well, lambda record: record.memory.ram_peak_bytes)
    return MemoryObservations(
        kind=RAM,
        fit=fit_memory(observations, bounds),
        load_by_batch=_loads(well),
        knob=swept_knob(well[0].point.params),
        points=len({observation.point for observation in observations}),
        check_bytes=max((record.check.rss_peak_bytes or 0 for record in well if record.check), default=0),
        remarks=_left_out(failed, bounds),
    )


def _of_gpu(
    well: Sequence[Record], failed: Sequence[Record], batches: Mapping[str, Sequence[Batch]]
) -> MemoryObservations:
    needs = [
        Observation(need.load, need.passed_bytes, setting(record)) for record in well for need in record.needs
    ]
    lines = [
        Observation(batch.load, batch.allocated_peak_bytes, setting(record))
        for record in well
        for batch in batches.get(record.point.point_id, ())
        if batch.allocated_peak_bytes
    ] or _peaks(well, "allocated_peak_bytes")
    slack = 1.0 if needs else _slack(well)
    observations = needs or [Observation(line.load, line.size_bytes * slack, line.point) for line in lines]
    allocated = fit_memory(lines)
    first, overhead = well[0].gpu, _overhead(well)
    bounds = _censored(failed, well, lambda record: _had(record, overhead or 0))
    return MemoryObservations(
        kind=NEED if needs else ALLOCATED,
        fit=fit_memory(observations, bounds, in_steps=bool(needs)),
        allocated=None if isinstance(allocated, str) else allocated,
        slack=slack,
        overhead_bytes=overhead,
        workers=well[0].point.workers,
        context_bytes=_context(well) or 0,
        gpu_bytes=usable_bytes(first.name, first.total_bytes) if first and first.total_bytes else None,
        check_bytes=max((record.check.gpu_peak_bytes or 0 for record in well if record.check), default=0),
        gpu=first.name if first else None,
        load_by_batch=_loads(well),
        knob=swept_knob(well[0].point.params),
        points=len({observation.point for observation in observations}),
        remarks=(*_remarks(well, needs=bool(needs)), *_left_out(failed, bounds)),
    )


def _peaks(well: Sequence[Record], name: str) -> list[Observation]:
    """Return a peak of each record, by its name in `jobkit.core.measurements.Memory`."""
    return [
        Observation(record.summary.load_max, peak, setting(record))
        for record in well
        if record.summary and record.summary.load_max and (peak := getattr(record.memory, name))
    ]


def _slack(well: Sequence[Record]) -> float:
    pairs = [(record.memory.reserved_peak_bytes, record.memory.allocated_peak_bytes) for record in well]
    return max((reserved / allocated for reserved, allocated in pairs if reserved and allocated), default=1.0)


def _context(well: Sequence[Record]) -> int | None:
    contexts = (record.memory.context_bytes for record in well)
    return max((size for size in contexts if size is not None), default=None)


def _overhead(well: Sequence[Record]) -> int | None:
    if (context := _context(well)) is None:
        return None
    idle = max((record.memory.device_idle_bytes or 0 for record in well), default=0)
    return well[0].point.workers * context + idle


def _had(record: Record, overhead_bytes: int) -> int | None:
    """Return what the allocator of one process of a try on a GPU could take."""
    total = record.gpu.total_bytes if record.gpu else None
    each = (total - overhead_bytes) // record.point.workers if total else None
    return record.point.cap_bytes or each


def _censored(
    failed: Sequence[Record], well: Sequence[Record], had: Callable[[Record], int | None]
) -> list[Censored]:
    """Return the evidence of points that ran out of memory: the failed batch needs more than they had.

    Only of those that ran as the others did, and of which the load of that batch is known.
    """
    alike = _alike(well[0])
    return [
        Censored(record.failed_load, above)
        for record in failed
        if record.failed_load and (above := had(record)) and _alike(record) == alike
    ]


def _left_out(failed: Sequence[Record], bounds: Sequence[Censored]) -> tuple[str, ...]:
    """Return a remark on points that ran out of memory and do not show how much they need."""
    number = len(failed) - len(bounds)
    points = f"{number} of {format_count(len(failed), 'point')} that ran out of memory"
    are, their, they = ("is", "its", "it") if number == 1 else ("are", "their", "they")
    why = f"{their} load is unknown, or {they} ran otherwise"
    return (f"{points} {are} not in the line: {why}",) if number else ()


def _remarks(well: Sequence[Record], *, needs: bool) -> tuple[str, ...]:
    remarks = []
    if not needs:
        remarks.append(
            "what the batches need was not measured: allocated memory and the worst slack are used instead"
        )
    if _overhead(well) is None:
        remarks.append("the size of the CUDA context is unknown, so no memory is kept free for it")
    points = format_count(len(well), "point")
    if shared := sum(bool(record.gpu and record.gpu.foreign_processes) for record in well):
        remarks.append(f"{shared} of {points} ran next to other processes on the GPU")
    if flushed := sum(bool(record.retries) for record in well):
        remarks.append(f"{flushed} of {points} passed only after the allocator had emptied its cache")
    return tuple(remarks)
