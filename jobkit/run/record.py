"""The state of a try, and the record of it."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from jobkit.core import measurements
from jobkit.core.knobs import OFF, Value
from jobkit.core.measurements import Share, Summary
from jobkit.core.records import Batch, Job, Outcome, Point, Record
from jobkit.run import process
from jobkit.run.failure import BatchHung, Stopped, outcome_of
from jobkit.run.measure import memory
from jobkit.run.measure.baseline import Wait
from jobkit.run.measure.energy import Reading, idle_power
from jobkit.run.measure.sampler import Peaks, Sampling
from jobkit.run.workloads.base import Entity, Workload


def summarise(
    batches: Sequence[Batch], *, items_total: int, batches_total: int, work_s: float | None = None
) -> Summary:
    """Summarise the batches of a try, complete or cut short.

    Parameters
    ----------
    batches
        The lines of ``batches.jsonl``; the warm-up is not among them.
    items_total, batches_total
        Items and batches of the whole try.
    work_s
        From the first batch to the last if several workers did them; else it is the sum of their seconds.
    """
    seconds = sorted(batch.seconds for batch in batches)
    sum_s = math.fsum(seconds)
    work_s = sum_s if work_s is None else work_s
    items = sum(batch.items for batch in batches)
    characters = sum(batch.characters for batch in batches)
    return Summary(
        items_total=items_total,
        batches_total=batches_total,
        items=items,
        sentences=_sum(batch.sentences for batch in batches),
        characters=characters,
        batches=len(batches),
        work_s=work_s,
        items_per_s=items / work_s if work_s > 0 else None,
        batch_mean_s=sum_s / len(batches) if batches else None,
        batch_p50_s=percentile(seconds, 0.50),
        batch_p95_s=percentile(seconds, 0.95),
        padding_efficiency=_efficiency(batches),
        load_max=max((batch.load for batch in batches), default=None),
    )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which ``share`` of the sorted values lie, linearly interpolated."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum; ``None`` if a value is unknown or there is none."""
    numbers = list(values)
    if not numbers or None in numbers:
        return None
    return sum(number for number in numbers if number is not None)


def _efficiency(batches: Sequence[Batch]) -> float | None:
    padded = _sum(batch.padded_chars for batch in batches)
    return min(1.0, sum(batch.characters for batch in batches) / padded) if padded else None


Done = tuple[Batch, list[Entity]]
"""A batch, and its entities with the numbers of their paragraphs in the text."""

ALONE = "one worker on each GPU"
"""Why ``mps: auto`` is off."""
OUT_OF_MEMORY = frozenset({Outcome.GPU_OOM, Outcome.RAM_OOM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One try, as the job script passes it to the worker.

    Attributes
    ----------
    inputs
        The folder with ``text`` and ``model`` on this node.
    out
        The folder on this node that the job script copies home.
    lengths
        The file in the run folder with the lengths of the text.
    forked
        Whether this process was forked from one that had imported the framework.
    waited_s
        Seconds that the try had waited for that import before it began.
    idle, opening
        The energy counters of idle GPUs before and after that import, by UUID.
    """

    point: Point
    try_number: int
    inputs: Path
    out: Path
    job: Job
    lengths: Path | None = None
    forked: bool = False
    waited_s: float = 0.0
    idle: Mapping[str, Reading] = field(default_factory=dict)
    opening: Mapping[str, Reading] = field(default_factory=dict)


@dataclass(slots=True)
class Measured:
    """What one process has measured so far; each of several workers sends it to the supervisor.

    Attributes
    ----------
    code
        The folder of the user's own code; ``None`` with a shipped workload.
    opening
        The energy counters of idle GPUs just before this process opens its own, by UUID.
    import_s
        From the start or the fork of this process until its framework was imported.
    reserved_bytes
        What torch's allocator held after the warm-up.
    effective, versions, failed_load
        As the workload reports them; see `Record`.
    """

    readings: memory.Readings = field(default_factory=memory.Readings)
    code: str | None = None
    opening: Mapping[str, Reading] = field(default_factory=dict)
    gpu: measurements.Gpu | None = None
    import_s: float | None = None
    load_s: float | None = None
    warm_up_s: float | None = None
    items_per_call: int = 0
    reserved_bytes: int | None = None
    needs: tuple[measurements.Need, ...] = ()
    effective: Mapping[str, Value | None] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    failed_load: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What one of several workers sends after each step.

    Attributes
    ----------
    measured
        All that it has measured so far.
    done
        The batch, if the step was one.
    failure
        The outcome and the message, if the step failed.
    """

    measured: Measured
    done: Done | None
    failure: tuple[Outcome, str] | None


@dataclass(slots=True)
class Try:
    """The state of a try: enough to write a record at any moment.

    Attributes
    ----------
    workers
        The processes that work: this one, or several of a supervisor.
    workload
        Of this process once it is loaded; a supervisor has none.
    mps
        As in `Record`.
    forked
        Whether the processes that work were forked from one that had imported the framework.
    waited_s
        Seconds of imports that they waited for.
    ends_s
        With several workers, the end of each batch, in seconds since all began to work.
    idle
        The energy counters of idle GPUs before a worker prepares to open one, by UUID.
    """

    task: Task
    started_at: str
    workers: list[Measured] = field(default_factory=lambda: [Measured()])
    workload: Workload | None = None
    mps: str = OFF
    forked: bool = False
    waited_s: float = 0.0
    batches: list[Batch] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)
    items_total: int = 0
    batches_total: int = 0
    characters_total: int = 0
    peaks: Peaks | None = None
    sampler: Sampling | None = None
    waited: Wait = field(default_factory=Wait)
    idle: Mapping[str, Reading] = field(default_factory=dict)
    device_idle_bytes: int | None = None
    cgroup_peak_bytes: int | None = None

    def ask_sampler(self, word: str) -> Peaks | None:
        """Return the sampler's answer; ``None`` if there is no sampler, or it has died."""
        return self.sampler.ask(word) if self.sampler else None


def record_of(state: Try, error: BaseException | None) -> Record:
    """Return the record of a try that has ended, with or without an error."""
    first, *others = workers = state.workers
    outcome, message = outcome_of(error, first.code) if error else (Outcome.OK, "")
    point = state.task.point
    effective = _effective(workers)
    return Record(
        point=point,
        try_number=state.task.try_number,
        outcome=outcome,
        provisional=isinstance(error, Stopped) or outcome is Outcome.LOST,
        message=message,
        hung=isinstance(error, BatchHung),
        signal=error.signal if isinstance(error, Stopped) else None,
        job=state.task.job,
        host=platform.node(),
        started_at=state.started_at,
        ended_at=now(),
        effective=effective,
        inert=tuple(
            knob for knob in point.params if effective.get(knob, point.params[knob]) != point.params[knob]
        ),
        versions={**_own_versions(), **first.versions},
        gpu=_smallest_gpu(workers),
        memory=memory.split_memory(
            [worker.readings for worker in workers],
            state.peaks,
            device_idle_bytes=state.device_idle_bytes,
            device_baseline_bytes=state.waited.baseline_bytes,
            cgroup_peak_bytes=state.cgroup_peak_bytes,
        ),
        sampler=_sampler(state.peaks),
        energy=_energy(state),
        summary=summarise(
            state.batches,
            items_total=state.items_total,
            batches_total=state.batches_total,
            work_s=max(state.ends_s, default=None),
        ),
        forked=state.forked,
        import_s=_import_s(state),
        memory_wait_s=state.waited.seconds,
        load_s=_largest(worker.load_s for worker in workers),
        warm_up_s=_largest(worker.warm_up_s for worker in workers),
        needs=next((worker.needs for worker in workers if worker.needs), ()),
        failed_load=_largest(worker.failed_load for worker in workers) if outcome in OUT_OF_MEMORY else None,
        retries=_retries(state.batches),
        workers=shares(state) if others else (),
        mps=state.mps,
        environment=process.variables(),
    )


def _smallest_gpu(workers: Iterable[Measured]) -> measurements.Gpu | None:
    """Return the GPU with the least memory: a batch must fit each of them."""
    gpus = (worker.gpu for worker in workers if worker.gpu)
    return min(gpus, key=lambda gpu: gpu.total_bytes or math.inf, default=None)


T = TypeVar("T", int, float)


def _largest(values: Iterable[T | None]) -> T | None:
    return max((value for value in values if value is not None), default=None)


def _effective(workers: Sequence[Measured]) -> dict[str, Value | None]:
    """Return the largest value of each knob over the workers; of a knob of words all that they report."""
    knobs = dict.fromkeys(knob for worker in workers for knob in worker.effective)
    return {knob: _of_all([worker.effective.get(knob) for worker in workers]) for knob in knobs}


def _of_all(values: Sequence[Value | None]) -> Value | None:
    words = dict.fromkeys(value for value in values if isinstance(value, str))
    return ", ".join(words) if words else _largest(value for value in values if isinstance(value, int))


def shares(state: Try) -> tuple[Share, ...]:
    """Return what each of several workers did."""
    return tuple(_share(state, number, worker) for number, worker in enumerate(state.workers))


def _import_s(state: Try) -> float | None:
    longest_s = _largest(worker.import_s for worker in state.workers)
    return None if longest_s is None else state.waited_s + longest_s


def _share(state: Try, number: int, worker: Measured) -> Share:
    batches = [batch for batch in state.batches if batch.worker == number]
    ends = zip(state.batches, state.ends_s, strict=False)  # a signal may come between the two
    ends_s = [end_s for batch, end_s in ends if batch.worker == number]
    readings = worker.readings
    return Share(
        worker=number,
        gpu_uuid=worker.gpu.uuid if worker.gpu else None,
        items=sum(batch.items for batch in batches),
        batches=len(batches),
        work_s=math.fsum(batch.seconds for batch in batches),
        idle_s=max(state.ends_s, default=0.0) - max(ends_s, default=0.0),
        load_s=worker.load_s,
        context_bytes=readings.context_bytes,
        weights_bytes=readings.weights_bytes,
        allocated_peak_bytes=readings.allocated_peak_bytes,
        reserved_peak_bytes=readings.reserved_peak_bytes,
        maxrss_bytes=readings.maxrss_bytes,
    )


def _retries(batches: Sequence[Batch]) -> int | None:
    retries = [batch.alloc_retries for batch in batches if batch.alloc_retries is not None]
    return sum(retries) if retries else None


def _sampler(peaks: Peaks | None) -> measurements.Sampler | None:
    if peaks is None:
        return None
    utilisation = peaks.utilisation_percent
    return measurements.Sampler(
        period_s=peaks.period_s,
        samples=peaks.samples,
        memory_query=peaks.memory_query,
        utilisation_mean_percent=sum(utilisation) / len(utilisation) if utilisation else None,
        power_mean_w=peaks.energy.power_mean_w if peaks.energy else None,
        power_max_w=peaks.power_max_w,
    )


def _energy(state: Try) -> measurements.Energy | None:
    """Return the energy of the work, with the idle power of its GPUs if that was measured."""
    energy = state.peaks.energy if state.peaks else None
    uuids = {worker.gpu.uuid for worker in state.workers if worker.gpu}
    openings = (state.task.opening, *(worker.opening for worker in state.workers))
    idle = idle_power(uuids, state.idle, openings)
    if energy is None or idle is None:
        return energy
    idle_w, idle_s = idle
    return replace(energy, idle_w=idle_w, idle_s=idle_s)


def _own_versions() -> dict[str, str]:
    return {"python": sys.version.split()[0], "jobkit": metadata.version("jobkit")}


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
