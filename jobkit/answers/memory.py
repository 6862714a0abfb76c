"""GPU memory, on a CPU the RAM, over the batch: line, bound, largest batch and doubts. Pure.

On a GPU the *need* of a batch binds: the smallest cap on the allocator under which it passes
(`jobkit.worker.measure.memory`). If it was not measured, as in text order, the allocated peak of
every batch counts, times the worst ratio of reserved to allocated memory: reserved memory never shrinks, so
it gives the slack and not the slope. On a CPU it is the largest resident memory of each try.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jobkit.answers.gpus import usable_bytes
from jobkit.answers.loads import NONE, PUNCTUATION, Budgets, Lengths, TextLoads, agreeing, loads_of
from jobkit.answers.memory_line import Censored, Fit, Observation, doubts, fit_memory
from jobkit.answers.setting import other_knobs
from jobkit.core.frozen import keyed
from jobkit.core.knobs import BATCH_SIZE, CPU, REPORTED, SIZES, size_knob
from jobkit.core.measurements import largest
from jobkit.core.records import Batch, Outcome, Record
from jobkit.core.units import format_bytes_gib, format_count
from jobkit.runs.trials import Trial

NEED, ALLOCATED, RAM = "need", "allocated", "ram"

SAME_CAPACITY = 0.99  # trials with at least this share of a capacity count for it: the rest is rounding

NOTHING = "no point has succeeded yet"


def too_small(knob: str) -> str:
    return f"not even a batch of {'1' if knob == BATCH_SIZE else 'the longest sentence'} fits"


@keyed
class Prediction:
    """How large a batch may be, or the reason why that is not known."""

    capacity_bytes: float  # what must not be exceeded: of the allocator on a GPU, of the process on a CPU
    largest_load: float = 0.0  # by the line
    safe_load: float = 0.0  # by the bound, which a new batch keeps with 95 % confidence
    largest_batch: int = 0  # of this text at most at ``largest_load``; 0 if not even 1 fits
    safe_batch: int = 0  # of this text at most at ``safe_load``; 0 if not even 1 fits
    # whether the whole text in one batch stays within the bound: the text ends the batch, not the memory
    saturated: bool = False
    expected_bytes: float = 0.0  # by the line, at the load of ``safe_batch``
    bound_bytes: float = 0.0  # by the bound, at the load of ``safe_batch``
    knob: str = BATCH_SIZE  # the knob of ``largest_batch`` and ``safe_batch``
    tested_batch: int = 0  # ``safe_batch``, or a larger batch, if a test held; else 0
    measured_bytes: int | None = None  # what the tested batch needed; ``None`` without a test
    doubts: tuple[str, ...] = ()  # sentences without a full stop, the weightiest first
    reason: str = ""  # why there is no prediction; empty if there is one

    @property
    def ends(self) -> str:
        """What ends the largest batch, in words."""
        return "which is the whole text" if self.saturated else "where memory ends"

    def holds(self, batch: int, load: float | None) -> bool | None:
        """Return whether a batch with a load stays within the bound; ``None`` if that is not known."""
        if self.reason or load is None:
            return None
        return self.saturated or (batch <= self.safe_batch and load <= self.safe_load)


@keyed
class Wanted:
    """What the largest batch has to fit."""

    limit_bytes: float | None = None  # of the GPU, on a CPU the RAM to request; ``None`` if unknown
    # the limit of all allocators, on a CPU of the process, for which the run was asked for its largest
    # batch; ``None`` without one
    asked_bytes: float | None = None
    margin: float = 0.0  # share of the memory to keep free besides what the bound keeps
    tried: Sequence[Trial] = ()  # the predictions that were tested


ALL_MEMORY = Wanted()


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of points whose other knobs agree, and the largest batch by it."""

    records: Sequence[Record] = ()  # points that succeeded or ran out of memory
    kind: str  # `NEED`, `ALLOCATED` (need not measured) or `RAM` (a CPU)
    line: Fit | str  # the line over the load, with its bound, or why there is none
    slack: float = 1.0  # the worst ratio of reserved to allocated memory; 1 where need or RAM was measured
    # context of each worker and what the GPU held before, on top of the allocators; 0 on a CPU; ``None`` if
    # NVML does not answer
    overhead_bytes: int | None = 0
    workers: int = 1  # processes that share the GPU; 1 on a CPU, where the memory is that of all
    context_bytes: int = 0  # of one worker
    check_bytes: int = 0  # memory that the check of shortcuts took; 0 without one
    gpu: str | None = None  # the GPU's name, or ``None``
    # from batch size or budget to the largest load that was measured with it
    load_by_batch: Mapping[int, int]
    knob: str = BATCH_SIZE  # which of the two
    remarks: tuple[str, ...] = ()  # what to know of the measurements, sentences without a full stop
    # loads of the text; ``None`` if unknown: the load is then taken to grow with the batch size as it did at
    # worst in the measurements, with a doubt
    loads: TextLoads | None = None
    wanted: Wanted = ALL_MEMORY

    @property
    def on_cpu(self) -> bool:
        return self.kind == RAM

    @property
    def limit_bytes(self) -> float | None:
        return self.wanted.limit_bytes

    @cached_property
    def largest(self) -> Prediction:
        return self.within(self.limit_bytes)

    @cached_property
    def asked(self) -> Prediction | None:
        """The largest batch within ``asked_bytes``; ``None`` if that leaves as much as `limit_bytes` does."""
        if self.wanted.asked_bytes is None:
            return None
        capacity, whole = self.wanted.asked_bytes / self.workers, self.largest.capacity_bytes
        return None if whole and capacity >= SAME_CAPACITY * whole else self._of_capacity(capacity)

    def within(self, limit_bytes: float | None) -> Prediction:
        """Return the largest batch within another limit, below every batch that was tried and did not fit."""
        if limit_bytes is None:
            return self._unknown(0, "how much memory there is was not recorded: name it with --gpu-memory")
        return self._of_capacity(self.allocator_bytes(limit_bytes))

    def _of_capacity(self, capacity: float) -> Prediction:
        if self.records and not self.load_by_batch:
            swept = any(self.knob in record.params for record in self.records)
            no_knob = f"neither {' nor '.join(SIZES)} is a knob of this sweep"
            return self._unknown(capacity, "the workload reports no load" if swept else no_knob)
        return self._after_trials(self.predict(max(0.0, capacity)))

    def predict(self, capacity_bytes: float) -> Prediction:
        """Return the largest batch by line and bound alone; a GPU's capacity is `allocator_bytes`."""
        line = self.line
        if isinstance(line, str):
            return self._unknown(capacity_bytes, line)
        if self.check_bytes > self.workers * max(capacity_bytes, 0):  # it runs alone
            why = f"the check of shortcuts alone takes {format_bytes_gib(self.check_bytes)}"
            return self._unknown(capacity_bytes, why)
        largest_load = line.largest(capacity_bytes * (1 - self.wanted.margin))
        safe_load = line.safe_load(capacity_bytes, self.wanted.margin)
        safe = self.largest_batch(safe_load)
        at = self.loads.load(safe) if self.loads else safe_load
        saturated = self.loads is not None and safe >= self.loads.limit
        return Prediction(
            capacity_bytes=capacity_bytes,
            largest_load=largest_load,
            safe_load=safe_load,
            largest_batch=self.largest_batch(largest_load),
            safe_batch=safe,
            saturated=saturated,
            expected_bytes=line.at(at),
            bound_bytes=line.upper(at),
            knob=self.knob,
            doubts=self._doubts(line, at, safe_load, saturated=saturated),
        )

    def allocator_bytes(self, limit_bytes: float) -> float:
        """Return what is left of a limit for the allocator of each worker; on a CPU all of it."""
        return (limit_bytes - (self.overhead_bytes or 0)) / self.workers

    def most_workers(self, limit_bytes: float, load: float) -> int | None:
        """Return how many workers a GPU of a size holds at a load, by the bound; ``None`` without a line."""
        if isinstance(self.line, str) or self.overhead_bytes is None:
            return None
        each = self.context_bytes + self.line.upper(load)
        return max(0, int((limit_bytes - self.overhead_bytes + self.workers * self.context_bytes) // each))

    def largest_batch(self, load: float) -> int:
        if self.loads is not None:
            return self.loads.largest_batch(load)
        if self.knob != BATCH_SIZE:
            return max(0, math.floor(load))  # it caps the load itself
        return math.floor(load / self._worst_rate)

    def own_load(self, batch: int) -> int:
        """Return the load of exactly this batch; if no lengths are known, at the worst rate measured."""
        if self.loads is not None:
            return self.loads.own(batch)
        return batch if self.knob != BATCH_SIZE else round(batch * self._worst_rate)

    def testable(self, batch: int) -> int:
        """Return this batch, or the largest batch of the text if that is smaller."""
        if self.loads is not None:
            return min(batch, self.loads.limit)
        items = (record.summary.items_total for record in self.records if record.summary)
        return batch if self.knob != BATCH_SIZE else min(batch, max(items, default=0))

    @property
    def _worst_rate(self) -> float:
        """The largest load measured for each item of a batch."""
        return max((load / batch for batch, load in self.load_by_batch.items()), default=1.0)

    def _unknown(self, capacity_bytes: float, why: str) -> Prediction:
        return Prediction(capacity_bytes=capacity_bytes, knob=self.knob, reason=why)

    def _after_trials(self, largest: Prediction) -> Prediction:
        """Return a prediction that stays below every batch that was tried and did not fit.

        A trial that failed counts for at most its memory, one that held for at least its memory.
        """
        least, most = SAME_CAPACITY * largest.capacity_bytes, largest.capacity_bytes / SAME_CAPACITY
        tried = self.wanted.tried
        failed = [trial for trial in tried if trial.too_large and trial.capacity_bytes >= least]
        held = [trial for trial in tried if trial.held and trial.capacity_bytes <= most]
        proof = max(held, key=lambda trial: trial.size, default=None)
        if failed and not isinstance(self.line, str):
            smallest = min(failed, key=lambda trial: trial.size)
            load = min(largest.safe_load, min(trial.load for trial in failed) - 1)
            batch = min(self.largest_batch(load), smallest.size - 1)
            at = self.loads.load(batch) if self.loads else load
            if proof and proof.capacity_bytes >= least and proof.size < smallest.size:
                batch, at = proof.size, (load := proof.load)  # between them nothing is known
            if batch < largest.safe_batch:
                why = f"{smallest.setting} is not safe: a trial of it did not fit into memory"
                largest = replace(
                    largest,
                    safe_load=load,
                    safe_batch=batch,
                    saturated=False,
                    expected_bytes=self.line.at(at),
                    bound_bytes=self.line.upper(at),
                    doubts=(why, *largest.doubts),
                )
        if proof and not largest.reason and proof.size >= largest.safe_batch:
            largest = replace(largest, tested_batch=proof.size, measured_bytes=proof.measured_bytes)
        return largest

    def _doubts(self, line: Fit, load: float, safe_load: float, *, saturated: bool) -> tuple[str, ...]:
        notes, loads = [], self.loads
        if line.curves:
            # a load this many times the largest measured distinguishes a curve from a line
            batch = self.largest_batch(min(safe_load, 2.0 * line.load_max))  # would show how it curves
            more = f": a sweep with {self.knob} {batch:,} as well shows how much faster"
            notes.append(
                "memory grows faster than a straight line over what was measured, so the bound follows a "
                f"curve{more if batch > max(self.load_by_batch, default=0) else ''}"
            )
        ran = max((trial.load for trial in self.wanted.tried if trial.held), default=0)
        notes += [*doubts(line, load if load > ran else None), *self.remarks]
        if loads is None and self.knob == BATCH_SIZE:
            notes.append("the lengths of the text are unknown: the load is taken to grow with the batch size")
        elif loads and loads.lengths.source == PUNCTUATION:
            notes.append("the lengths are estimated from punctuation")
        elif loads and loads.lengths.source == NONE:
            why = "because the workload reports no lengths: it does not show long texts"
            notes.append(f"the load is the batch size, {why}")
        if saturated and loads is not None:
            limit = format_count(loads.limit, "paragraph")
            if isinstance(loads, Budgets):
                limit = f"{loads.limit:,} {loads.lengths.unit}"
            notes.append(f"the text ends the batch at {limit}: memory would allow more")
        return tuple(notes)


def alike(record: Record) -> dict[str, object]:
    """Return by name what must agree: records that differ in one of these are never mixed."""
    point = record.point
    return {
        "GPU": (record.gpu.name, record.gpu.total_bytes) if record.gpu else None,
        "allocator setting": point.allocator,
        "order of work": point.order,
        "version of torch": record.versions.get("torch"),
        "model": point.model.fingerprint if point.model else None,
        "workload": point.workload,
        "device": point.device,
        "number of workers": point.workers,
        **{knob.title: record.ran(knob.name) for knob in REPORTED},
        "another knob than batch_size": other_knobs(record),
    }


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


def load_by_batch(well: Sequence[Record]) -> dict[int, int]:
    """Return the largest load that was measured with each batch size or budget."""
    loads: dict[int, int] = {}
    knob = size_knob(well[0].point.params)
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


def bounds(failed: Sequence[Record], well: Sequence[Record], overhead: int) -> list[Censored]:
    """Return the evidence of points out of memory: the failed batch needs more than they had.

    Points count that ran as the others did and whose failed batch has a known load. On a GPU the allocator of
    one process could take its cap, or its share of what the ``overhead`` leaves.
    """
    found, ran = [], alike(well[0])
    for record in failed:
        total = record.gpu.total_bytes if record.gpu else None
        each = (total - overhead) // record.point.workers if total else None
        ram = record.memory.ram_peak_bytes
        above = ram if record.point.device == CPU else record.point.cap_bytes or each
        if record.failed_load and above and alike(record) == ran:
            found.append(Censored(record.failed_load, above))
    return found


def remarks(
    well: Sequence[Record], kind: str, context: int | None, failed: int, counted: int
) -> tuple[str, ...]:
    """Return what to know of the measurements, in sentences without a full stop.

    ``failed`` is the number of points that ran out of memory, ``counted`` of those that show what they need.
    """
    notes = []
    if kind == ALLOCATED:
        notes.append(
            "no point measured what its batches need: jobkit takes allocated memory and the worst slack"
        )
    if kind != RAM and context is None:
        notes.append(
            "the size of the CUDA context is unknown, so jobkit keeps no memory free for the context"
        )
    points = format_count(len(well), "point")
    if shared := sum(bool(record.gpu and record.gpu.foreign_processes) for record in well):
        notes.append(f"{shared} of {points} ran next to other processes on the GPU")
    if flushed := sum(bool(record.retries) for record in well):
        notes.append(f"{flushed} of {points} passed only after the allocator had emptied its cache")
    if number := failed - counted:
        points = f"{number} of {format_count(failed, 'point')} out of memory"
        notes.append(f"the line leaves out {points}, of unknown load or with another way to run")
    return tuple(notes)


def memory_by_setting(
    records: Iterable[Record],
    batches: Mapping[str, Sequence[Batch]],
    lengths: Lengths | None,
    wanted: Wanted = ALL_MEMORY,
) -> dict[str, Memory] | str:
    """Return memory by the other knobs in words, or why nothing is known of any, as `memory_of` does."""
    apart: dict[str, list[Record]] = {}
    for record in records:
        apart.setdefault(other_knobs(record), []).append(record)
    found = {words: memory_of(part, batches, lengths, wanted) for words, part in apart.items()}
    known = next((memory for memory in found.values() if isinstance(memory, Memory)), None)
    if known is None:
        return next(map(str, found.values()), NOTHING)
    return {
        words: replace(known, line=memory, records=()) if isinstance(memory, str) else memory
        for words, memory in found.items()
    }


def memory_of(
    records: Iterable[Record],
    batches: Mapping[str, Sequence[Batch]] | None = None,
    lengths: Lengths | None = None,
    wanted: Wanted = ALL_MEMORY,
) -> Memory | str:
    """Return what the records of one run show about memory, or in a sentence why they show nothing.

    Records that neither succeeded nor ran out of memory are ignored. ``batches``, by point id, count if the
    need of a batch was not measured. ``wanted``: without a limit it is the memory of the measured GPU.
    A process that had worked before holds more than its try needs, so that no such record counts.
    """
    records = [record for record in records if not record.standing]
    well = [record for record in records if record.outcome is Outcome.OK]
    if not well:
        return NOTHING
    facts = [alike(record) for record in well]
    for name in facts[0]:
        if len({fact[name] for fact in facts}) > 1:
            values = sorted({str(fact[name]) for fact in facts})
            return f"the points differ in {name}: {', '.join(values)}"
    point, on_cpu = well[0].point, well[0].point.device == CPU
    gpu = None if on_cpu else well[0].gpu
    failed = [one for one in records if one.outcome is (Outcome.RAM_OOM if on_cpu else Outcome.GPU_OOM)]
    kind = RAM if on_cpu else NEED if any(record.needs for record in well) else ALLOCATED
    context = 0 if on_cpu else largest(record.memory.context_bytes for record in well)
    idle = 0 if on_cpu else max(record.memory.device_idle_bytes or 0 for record in well)
    overhead = None if context is None else point.workers * context + idle
    counted = bounds(failed, well, overhead or 0)
    used = peaks(well, "ram_peak_bytes") if on_cpu else on_gpu(well, batches or {})
    checks = [record.check for record in well if record.check]
    loads = load_by_batch(well)
    usable = usable_bytes(gpu.name, gpu.total_bytes) if gpu and gpu.total_bytes else None
    return Memory(
        records=(*well, *failed),
        kind=kind,
        line=fit_memory(used, counted, in_steps=kind == NEED),
        slack=slack(well) if kind == ALLOCATED else 1.0,
        overhead_bytes=overhead,
        workers=1 if on_cpu else point.workers,
        context_bytes=context or 0,
        check_bytes=largest(one.rss_peak_bytes if on_cpu else one.gpu_peak_bytes for one in checks) or 0,
        gpu=gpu.name if gpu else None,
        load_by_batch=loads,
        knob=size_knob(point.params),
        remarks=remarks(well, kind, context, len(failed), len(counted)),
        loads=agreeing(loads_of(lengths, [record.point for record in records]), loads),
        wanted=replace(wanted, limit_bytes=None if on_cpu else wanted.limit_bytes or usable),
    )
