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

from jobkit.core import measurements
from jobkit.core.knobs import OFF, SHORTCUTS, Value
from jobkit.core.layout import LENGTHS_FILE
from jobkit.core.measurements import Share, largest
from jobkit.core.records import Batch, JobFacts, Outcome, Point, Record
from jobkit.worker import process
from jobkit.worker.failure import BatchHung, Stopped, outcome_of
from jobkit.worker.measure import memory
from jobkit.worker.measure.energy import EnergyReading, idle_power
from jobkit.worker.measure.figures import GrowingFile, OwnFigures, Tally
from jobkit.worker.measure.memory import Wait
from jobkit.worker.measure.sampler import Peaks, Sampling
from jobkit.worker.paragraphs import Call
from jobkit.worker.windows import Todo
from jobkit.worker.workloads.base import Output, Row, Workload

Done = tuple[Batch, list[Row]]
"""A batch, and its rows with the numbers of their paragraphs in the work of the try."""

ALONE = "one worker on each GPU"
"""Why ``mps: auto`` is off."""
OUT_OF_MEMORY = frozenset({Outcome.GPU_OOM, Outcome.RAM_OOM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    point: Point
    try_number: int
    inputs: Path  # the folder with ``text`` and ``model`` on this node
    out: Path  # the folder on this node that the job script copies home
    job: JobFacts
    run_dir: Path | None = None  # the run folder; ``None`` in tests that need none
    forked: bool = False  # whether this process was forked from one that had imported the framework
    waited_s: float = 0.0  # seconds that the try had waited for that import before it began
    copier: str = ""  # the program that copies inputs and results, as the job script names it
    # the energy counters of idle GPUs before and after that import, by UUID
    idle: Mapping[str, EnergyReading] = field(default_factory=dict)
    opening: Mapping[str, EnergyReading] = field(default_factory=dict)
    refused: str = ""  # why the workload must do without its shortcuts; empty if it need not
    # whether its calls may be recorded here: only by the first process that works
    observed: bool = True

    @property
    def lengths(self) -> Path | None:
        """The file in the run folder with the lengths of the text, if the point works through that text."""
        return None if self.run_dir is None or not self.point.kind.from_text else self.run_dir / LENGTHS_FILE


@dataclass(slots=True)
class WorkerState:
    """What one process has measured so far; each of several workers sends it to the supervisor."""

    readings: memory.Readings = field(default_factory=memory.Readings)
    code: str | None = None  # the folder of the user's own code; ``None`` with a shipped workload
    columns: tuple[str, ...] = ()  # columns of the workload's rows
    # the energy counters of idle GPUs just before this process opens its own, by UUID
    opening: Mapping[str, EnergyReading] = field(default_factory=dict)
    gpu: measurements.Gpu | None = None
    # from the start or the fork of this process until its framework was imported
    import_s: float | None = None
    load_s: float | None = None
    warm_up_s: float | None = None
    items_per_call: int = 0
    tokenizes_ahead: bool = False  # whether it tokenizes the next call while it does one
    reserved_bytes: int | None = None  # what torch's allocator held after the warm-up
    needs: tuple[measurements.Need, ...] = ()
    # as the workload reports them; see `Record`
    effective: Mapping[str, Value | None] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    failed_load: int | None = None
    refused: str = ""  # as in `Task`, set by the process that checks the shortcuts
    checked: str = ""  # what that process found


@dataclass(frozen=True, slots=True)
class Report:
    measured: WorkerState  # all that it has measured so far
    done: Done | None  # the batch, if the step was a call
    failure: tuple[Outcome, str] | None  # the outcome and the message, if the step failed


@dataclass(slots=True)
class TryState:
    task: Task
    started_at: str
    workers: list[WorkerState] = field(default_factory=lambda: [WorkerState()])
    workload: Workload | None = None  # the workload of this process once it is loaded; a supervisor has none
    mps: str = OFF  # as in `Record`
    forked: bool = False
    waited_s: float = 0.0  # seconds that the workers waited for imports
    tally: Tally = field(default_factory=Tally)
    # the work, once it is read; and where the rows go, which only a command writes itself
    todo: Todo | None = None
    output: Output | None = None
    heaviest: tuple[Batch, Call] | None = None  # the batch with the largest load, and its call
    items_total: int = 0
    batches_total: int = 0
    characters_total: int = 0
    peaks: Peaks | None = None
    sampler: Sampling | None = None
    waited: Wait = field(default_factory=Wait)
    # the energy counters of idle GPUs before a worker prepares to open one, by UUID
    idle: Mapping[str, EnergyReading] = field(default_factory=dict)
    device_idle_bytes: int | None = None
    cgroup_peak_bytes: int | None = None
    # what the workload reports itself, and the file in which it does
    figures: OwnFigures = field(default_factory=OwnFigures)
    figures_file: GrowingFile | None = None
    wall_s: float | None = None  # how long the command of the point has run
    check: measurements.ShortcutCheck | None = None  # as in `Record`
    cpu_before_s: float = field(default_factory=process.cpu_s)  # the CPU time of this process before the try

    def ask_sampler(self, word: str) -> Peaks | None:
        return self.sampler.ask(word) if self.sampler else None


def record_of(state: TryState, error: BaseException | None) -> Record:
    first, *others = workers = state.workers
    outcome, message = outcome_of(error, first.code) if error else (Outcome.OK, "")
    point = state.task.point
    effective = _effective(workers)
    if state.task.refused:  # also if no batch was done, or the workload does not report it
        effective[SHORTCUTS] = f"{OFF}: {state.task.refused}"
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
        summary=state.tally.summary(
            items_total=state.items_total, batches_total=state.batches_total, wall_s=state.wall_s
        ),
        forked=state.forked,
        import_s=_import_s(state),
        memory_wait_s=state.waited.seconds,
        load_s=largest(worker.load_s for worker in workers),
        warm_up_s=largest(worker.warm_up_s for worker in workers),
        needs=next((worker.needs for worker in workers if worker.needs), ()),
        failed_load=largest(worker.failed_load for worker in workers) if outcome in OUT_OF_MEMORY else None,
        retries=state.tally.total.retries,
        workers=shares(state) if others else (),
        mps=state.mps,
        environment=process.variables(),
        metrics=dict(state.figures.metrics),
        metrics_bad_lines=state.figures.bad_lines,
        copier=state.task.copier,
        check=state.check,
        cpu_s=process.cpu_s() - state.cpu_before_s,
    )


def _smallest_gpu(workers: Iterable[WorkerState]) -> measurements.Gpu | None:
    """Return the GPU with the least memory, with the most foreign processes that any GPU has."""
    gpus = [worker.gpu for worker in workers if worker.gpu]
    if not gpus:
        return None
    smallest = min(gpus, key=lambda gpu: gpu.total_bytes or math.inf)
    return replace(smallest, foreign_processes=largest(gpu.foreign_processes for gpu in gpus))


def _effective(workers: Sequence[WorkerState]) -> dict[str, Value | None]:
    """Return the largest value of each knob over the workers; all values of a knob of words."""
    knobs = dict.fromkeys(knob for worker in workers for knob in worker.effective)
    return {knob: _of_all([worker.effective.get(knob) for worker in workers]) for knob in knobs}


def _of_all(values: Sequence[Value | None]) -> Value | None:
    words = dict.fromkeys(value for value in values if isinstance(value, str))
    return ", ".join(words) if words else largest(value for value in values if isinstance(value, int))


def shares(state: TryState) -> tuple[Share, ...]:
    return tuple(_share(state, number, worker) for number, worker in enumerate(state.workers))


def _import_s(state: TryState) -> float | None:
    longest_s = largest(worker.import_s for worker in state.workers)
    return None if longest_s is None else state.waited_s + longest_s


def _share(state: TryState, number: int, worker: WorkerState) -> Share:
    own, last_s = state.tally.of(number), state.tally.total.end_s
    readings = worker.readings
    return Share(
        worker=number,
        gpu_uuid=worker.gpu.uuid if worker.gpu else None,
        items=own.items,
        batches=own.batches,
        work_s=own.seconds,
        idle_s=(last_s or 0.0) - (own.end_s or 0.0),
        load_s=worker.load_s,
        context_bytes=readings.context_bytes,
        weights_bytes=readings.weights_bytes,
        allocated_peak_bytes=readings.allocated_peak_bytes,
        reserved_peak_bytes=readings.reserved_peak_bytes,
        maxrss_bytes=readings.maxrss_bytes,
    )


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


def _energy(state: TryState) -> measurements.Energy | None:
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
    return datetime.now(UTC).isoformat(timespec="milliseconds")
