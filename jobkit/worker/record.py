"""The state of a try, the hooks of its kind of work, and the record of it."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from jobkit.core import measurements
from jobkit.core.extensions import of_name
from jobkit.core.files import digest
from jobkit.core.frozen import keyed
from jobkit.core.knobs import EXACT, OFF, SHORTCUTS, Value
from jobkit.core.layout import LENGTHS_FILE
from jobkit.core.measurements import Share, largest, total
from jobkit.core.records import Batch, JobFacts, Outcome, Point, Record
from jobkit.worker import process
from jobkit.worker.failure import OUT_OF_MEMORY, BatchHung, Stopped, TryFailed, limits, outcome_of
from jobkit.worker.measure import memory
from jobkit.worker.measure.figures import GrowingFile, OwnFigures, Tally
from jobkit.worker.measure.sampler import EnergyReading, Peaks, Sampling, idle_power
from jobkit.worker.paragraphs import Call, Todo, Window, read_paragraphs
from jobkit.worker.workloads.base import Output, Result, Row

Done = tuple[Batch, list[Row]]
"""A batch, and its rows with the numbers of their paragraphs in the work of the try."""

ALONE = "one worker on each GPU"
"""Why ``mps: auto`` is off."""


@keyed
class Task:
    point: Point
    try_number: int
    inputs: Path  # the folder with ``text`` and ``model`` on this node
    out: Path  # the folder on this node that the job script copies home
    job: JobFacts
    run_dir: Path | None = None  # the run folder; ``None`` in tests that need none
    # whether this process was forked from one that had imported the framework: its processes may stay for
    # another try
    forked: bool = False
    waited_s: float = 0.0  # seconds that the try had waited for that import before it began
    copier: str = ""  # the program that copies inputs and results, as the job script names it
    # the energy counters of idle GPUs before and after that import, by UUID
    idle: Mapping[str, EnergyReading] = field(default_factory=dict)
    opening: Mapping[str, EnergyReading] = field(default_factory=dict)
    refused: str = ""  # why the workload must do without its shortcuts; empty if it need not
    # whether its calls may be recorded here: only by the first process that works
    observed: bool = True

    @property
    def takes_shortcuts(self) -> bool:
        return self.point.shortcuts == EXACT and not self.refused

    @property
    def switched_off(self) -> dict[str, Value]:
        return {SHORTCUTS: f"{OFF}: {self.refused}"} if self.refused else {}

    @property
    def lengths(self) -> Path | None:
        """The file in the run folder with the lengths of the text, if the point works through that text."""
        return None if self.run_dir is None or not self.point.kind.from_text else self.run_dir / LENGTHS_FILE


@dataclass(slots=True)
class WorkerState:
    """What one process has measured so far; each of several workers sends it to the supervisor."""

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
    stands: bool = False  # whether it may do another point with what is loaded
    vectors: str | None = None  # the type of those of its last call, empty of rows
    rows: tuple[int, ...] = ()  # of columns of its own: their number, and the sum of their CRC-32
    reserved_bytes: int | None = None  # what torch's allocator held after the warm-up
    # of `MemoryReadings`, for this process
    context_bytes: int | None = None
    weights_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    rss_before_bytes: int | None = None
    rss_model_bytes: int | None = None
    maxrss_bytes: int | None = None
    needs: tuple[measurements.Need, ...] = ()
    # as the workload reports them; see `Record`
    effective: Mapping[str, Value | None] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    failed_load: int | None = None
    refused: str = ""  # as in `Task`, set by the process that checks the shortcuts
    checked: str = ""  # what that process found

    def go_on(self) -> WorkerState:
        """Return what is known of the process when it begins another try."""
        return replace(
            self,
            import_s=0.0,
            load_s=0.0,
            warm_up_s=None,
            rows=(),
            allocated_peak_bytes=None,
            reserved_peak_bytes=None,
            needs=(),
            effective={},
            failed_load=None,
        )


Report = tuple[WorkerState, Done | None, tuple[Outcome, str, bool] | None]
"""All that a worker has measured; the batch, if the step was a call; why the step failed, if it did, and
whether it may have failed by its text."""


@dataclass(slots=True)
class TryState:
    task: Task
    started_at: str
    standing: bool = False  # as in `Record`
    workers: list[WorkerState] = field(default_factory=lambda: [WorkerState()])
    mps: str = OFF  # as in `Record`
    forked: bool = False
    waited_s: float = 0.0  # seconds that the workers waited for imports
    tally: Tally = field(default_factory=Tally)
    # the work, once it is read; and where the rows go, which only a command writes itself
    todo: Todo | None = None
    output: Output | None = None
    vectors: str | None = None  # their type in all calls so far, and in what earlier tries have left
    heaviest: tuple[Batch, Call] | None = None  # the batch with the largest load, and its call
    items_total: int = 0
    batches_total: int = 0
    characters_total: int = 0
    quarantined: int = 0  # paragraphs, with those of earlier tries
    peaks: Peaks = field(default_factory=Peaks)
    sampler: Sampling | None = None
    waited: memory.Wait = field(default_factory=memory.Wait)
    limits: Mapping[str, int] = field(default_factory=limits)
    unnamed_gpus: str = ""  # a note for the record if nothing has named its GPUs
    # the energy counters of idle GPUs before a worker prepares to open one, by UUID
    idle: Mapping[str, EnergyReading] = field(default_factory=dict)
    device_idle_bytes: int | None = None
    # what the workload reports itself, and the file in which it does
    figures: OwnFigures = field(default_factory=OwnFigures)
    figures_file: GrowingFile | None = None
    wall_s: float | None = None  # how long the command of the point has run
    check: measurements.ShortcutCheck | None = None  # as in `Record`
    cpu_before_s: float = field(default_factory=process.cpu_s)  # the CPU time of this process before the try

    @property
    def stands(self) -> bool:
        """Whether its processes stay for another try: they can, and no batch was short of memory."""
        able = self.task.forked and all(worker.stands for worker in self.workers)
        return able and not self.tally.total.retries

    def go_on(self, task: Task) -> TryState:
        """Return the state in which its processes begin another try."""
        return TryState(
            replace(task, refused=self.task.refused, opening=self.task.opening),
            now(),
            standing=True,
            workers=[worker.go_on() for worker in self.workers],
            mps=self.mps,
            forked=self.forked,
            waited=replace(self.waited, seconds=self.waited.seconds and 0.0),
            idle=self.idle,
            device_idle_bytes=self.device_idle_bytes,
            check=self.check and replace(self.check, reused=True),
        )

    def ask_sampler(self, word: str) -> Peaks:
        return self.sampler.ask(word) if self.sampler else Peaks()


# -- what differs between the kinds of work of a point: a step calls a hook and never asks for the kind


class Recording:
    """What is recorded of the calls of a process besides their batches; nothing in a sweep."""

    def of_call(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write(self, out: Path, try_number: int) -> None:
        """Write what was recorded into the folder of the try."""


class PointWork:
    """The hooks of the work of a sweep, on the text of the spec; the other kinds inherit them."""

    def read(self, state: TryState) -> Todo:
        point = state.task.point
        paragraphs = read_paragraphs(check_text(state.task), point.text.path)
        chosen = paragraphs[:: point.every]
        state.items_total = len(chosen)
        state.characters_total = sum(map(len, chosen))
        return Todo(Window(0, paragraphs))

    def output(self, folder: Path) -> Output:
        """Return the file for the rows of a try, in the folder that is copied home."""
        return Output(folder)

    def rows(
        self, result: Result, columns: Sequence[str], items: Sequence[int], nan: str | None = None
    ) -> list[Row]:
        """Return the rows of a call for the output, with the numbers of its paragraphs, ``items``.

        ``columns`` are those of the workload's rows; for ``nan`` see `Point`.
        """
        return [(items[number], *values) for number, *values in result.entities]

    def recording(self, task: Task) -> Recording:
        return Recording()

    def quarantine(self, state: TryState, why: TryFailed) -> None:
        """Count a paragraph that no process can take; raise ``why`` if such a paragraph ends the try."""
        raise why


def work_of(point: Point) -> PointWork:
    return of_name(point.kind.extension).work() or PointWork()


def check_text(task: Task) -> Path:
    """Return the path of the staged text; refuse one that was not planned."""
    path = task.inputs / "text"
    check_staged(path, task.point.text.path, "text", task.point.text.sha256)
    return path


def check_staged(path: Path, name: str, noun: str, planned: str) -> None:
    sha256, _ = digest(path)
    if sha256 != planned:
        message = f"{name} is not the {noun} that was planned: sha256 {sha256[:12]}, not {planned[:12]}"
        raise TryFailed(Outcome.STAGE_IN, message)


# -- the record


def record_of(state: TryState, error: BaseException | None) -> Record:
    first, *others = workers = state.workers
    outcome, message = outcome_of(error, first.code) if error else (Outcome.OK, "")
    point, import_s = state.task.point, largest(worker.import_s for worker in workers)
    summary = state.tally.summary(
        items_total=state.items_total, batches_total=state.batches_total, wall_s=state.wall_s
    )
    if found := [worker.rows for worker in workers if worker.rows]:
        summary = replace(summary, rows=sum(one[0] for one in found), rows_sum=sum(one[1] for one in found))
    # what is off is said also if no batch was done, or the workload does not report it
    effective = _effective(workers) | state.task.switched_off
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
        versions={
            "python": sys.version.split()[0],
            "jobkit": metadata.version("jobkit"),
            **first.versions,
        },
        gpu=_smallest_gpu(workers),
        memory=_memory(state),
        sampler=state.peaks.sampler,
        energy=_energy(state),
        summary=summary,
        forked=state.forked,
        standing=state.standing,
        import_s=None if import_s is None else state.waited_s + import_s,
        memory_wait_s=state.waited.seconds,
        load_s=largest(worker.load_s for worker in workers),
        warm_up_s=largest(worker.warm_up_s for worker in workers),
        needs=next((worker.needs for worker in workers if worker.needs), ()),
        failed_load=largest(worker.failed_load for worker in workers) if outcome in OUT_OF_MEMORY else None,
        retries=state.tally.total.retries,
        workers=tuple(shares(state)) if others else (),
        mps=state.mps,
        environment=process.variables(),
        metrics=dict(state.figures.metrics),
        metrics_bad_lines=state.figures.bad_lines,
        copier=state.task.copier,
        check=state.check,
        notes=(*process.unseen_modules(), *filter(None, (state.unnamed_gpus,))),
        limits=state.limits,
        cpu_s=process.cpu_s() - state.cpu_before_s,
    )


SHARED = "context_bytes", "weights_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "maxrss_bytes"
"""What the record has of the memory of each worker."""


def _memory(state: TryState) -> measurements.MemoryReadings:
    """Split the memory of a try by instrument."""
    workers, peaks = state.workers, state.peaks
    names = (*SHARED, "rss_before_bytes", "rss_model_bytes")
    peak_bytes = memory.process_peak(peaks, state.device_idle_bytes)
    contexts = total(worker.context_bytes for worker in workers)
    reserved = total(worker.reserved_peak_bytes for worker in workers)
    return measurements.MemoryReadings(
        **{name: largest(getattr(worker, name) for worker in workers) for name in names},
        activations_bytes=largest(
            memory.subtract(worker.allocated_peak_bytes, worker.weights_bytes) for worker in workers
        ),
        other_bytes=memory.subtract(
            peak_bytes, contexts, total(worker.allocated_peak_bytes for worker in workers)
        ),
        process_peak_bytes=peak_bytes,
        device_peak_bytes=peaks.device_bytes,
        device_idle_bytes=state.device_idle_bytes,
        device_baseline_bytes=state.waited.baseline_bytes,
        rss_peak_bytes=peaks.rss_bytes,
        cgroup_peak_bytes=process.cgroup_peak(),
        disagreement=memory.disagreement(peak_bytes, contexts, reserved),
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
    effective: dict[str, Value | None] = {}
    for knob in dict.fromkeys(knob for worker in workers for knob in worker.effective):
        values = [worker.effective.get(knob) for worker in workers]
        words = dict.fromkeys(value for value in values if isinstance(value, str))
        numbers = (value for value in values if isinstance(value, int))
        effective[knob] = ", ".join(words) if words else largest(numbers)
    return effective


def shares(state: TryState) -> Iterator[Share]:
    last_s = state.tally.total.end_s or 0.0
    for number, worker in enumerate(state.workers):
        own = state.tally.of(number)
        yield Share(
            worker=number,
            gpu_uuid=worker.gpu.uuid if worker.gpu else None,
            items=own.items,
            batches=own.batches,
            work_s=own.seconds,
            idle_s=last_s - (own.end_s or 0.0),
            load_s=worker.load_s,
            **{name: getattr(worker, name) for name in SHARED},
        )


def _energy(state: TryState) -> measurements.Energy | None:
    energy = state.peaks.energy
    uuids = {worker.gpu.uuid for worker in state.workers if worker.gpu}
    openings = (state.task.opening, *(worker.opening for worker in state.workers))
    idle = idle_power(uuids, state.idle, openings)
    return replace(energy, idle_w=idle[0], idle_s=idle[1]) if energy and idle else energy


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
