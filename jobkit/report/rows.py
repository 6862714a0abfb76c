"""One row a point, from a run folder or an old log. Bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import fsum

from jobkit.core.knobs import BATCH_SIZE, CUDA, MPS, ON, Value, numbers
from jobkit.core.layout import repeat_id
from jobkit.core.measurements import Memory
from jobkit.core.records import Batch, Outcome, Record
from jobkit.core.units import GIB
from jobkit.fit.energy import joules
from jobkit.fit.objective import gpu_memory, rate
from jobkit.outcome.overlaps import attributed
from jobkit.outcome.results import PointResult
from jobkit.report.logs.tagger import LogRun

LOG = "tagger log"
"""The workload of a row that comes from an old log."""


@dataclass(slots=True, kw_only=True)
class Row:
    """A point: what was planned, what was measured, and its place in the tables.

    A value that is not known is ``None``. The fields up to ``energy_reason``, in this
    order, are the columns of ``jobkit collect --format csv``.

    Attributes
    ----------
    phase
        Of a search (`jobkit.fit.tune_steps`); ``None`` of any other point.
    versions
        Of the libraries, and of the driver and CUDA.
    machine
        The host of a point on a CPU, which is what is measured there; of an old log its file.
    precision
        What it computed in; ``None`` if the workload offers no choice, and in a run of an earlier version.
    shortcuts
        ``off`` or ``exact``; ``off: `` and the reason if ``exact`` was refused; ``None`` as for precision.
    model_bytes
        Context and weights together.
    entities, differ, f1
        As in `jobkit.outcome.agreement.Agreement`; ``None`` unless the run sweeps the precision.
    energy_j, energy_per_1000_j, net_energy_j, net_energy_per_1000_j
        Of the point and of 1,000 of its items, if the energy is attributable; net is above idle.
    energy_counter_j, energy_power_j, energy_span_s, idle_w
        As in `jobkit.core.measurements.Energy`, whoever used it.
    overlaps
        How many other points ran at the same time on the same GPU, or on a CPU on the same host.
    params
        The values of the knobs.
    metrics
        By column the figures that the workload itself reports (`jobkit.report.own_figures`).
    result
        What the run folder holds of the point.
    group, size
        Numbers of its group and of its size in the tables; ``None`` for a point without figures.
    speedup
        Over the smallest size of its group that succeeded.
    """

    run: str
    folder: str
    point: str
    index: int
    repeat: int
    phase: str | None = None
    trial: bool = False
    tries: int = 1
    outcome: Outcome | None = None
    provisional: bool = False
    evidence: str = ""
    workload: str
    text: str | None = None
    text_sha256: str | None = None
    model: str | None = None
    model_fingerprint: str | None = None
    stand_in: bool = False
    architecture: str = ""
    device: str
    order: str | None = None
    allocator: str | None = None
    threads: int | None = None
    workers: int | None = None
    gpus: int | None = None
    mps: str | None = None
    precision: str | None = None
    shortcuts: str | None = None
    gpu: str | None = None
    gpu_capacity_bytes: int | None = None
    versions: str | None = None
    machine: str | None = None
    items_per_s: float | None = None
    work_s: float | None = None
    batch_mean_s: float | None = None
    batch_p95_s: float | None = None
    load_s: float | None = None
    context_bytes: int | None = None
    weights_bytes: int | None = None
    model_bytes: int | None = None
    activations_bytes: int | None = None
    gpu_peak_bytes: int | None = None
    ram_peak_bytes: int | None = None
    padding_efficiency: float | None = None
    load_max: int | None = None
    entities: int | None = None
    differ: int | None = None
    f1: float | None = None
    energy_j: float | None = None
    energy_per_1000_j: float | None = None
    net_energy_j: float | None = None
    net_energy_per_1000_j: float | None = None
    items: int | None = None
    items_total: int | None = None
    effective: str | None = None
    inert: str | None = None
    host: str | None = None
    gpu_uuid: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    overlaps: int | None = None
    gpu_instrument: str | None = None
    disagreement: str | None = None
    foreign: int | None = None
    energy_counter_j: float | None = None
    energy_power_j: float | None = None
    energy_span_s: float | None = None
    idle_w: float | None = None
    energy_attribution: str | None = None
    energy_reason: str | None = None
    params: Mapping[str, Value] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    result: PointResult | None = None
    group: int | None = None
    size: int | None = None
    speedup: float | None = None

    @property
    def record(self) -> Record | None:
        """The record of the try that counts."""
        return self.result.record if self.result else None

    @property
    def numbers(self) -> Mapping[str, int]:
        """The knobs of ``params`` whose values are whole numbers."""
        return numbers(self.params)

    @property
    def fixed(self) -> tuple[object, ...]:
        """Its values of `SETTING`; ``None`` in place of one that is a knob of the sweep."""
        values = {name: getattr(self, name) for name in SETTING} | {MPS: self.sharing}
        return tuple(None if name in self.params else value for name, value in values.items())

    @property
    def sharing(self) -> str | None:
        """What it ran with of MPS, if that is not what its number of workers and the spec mean.

        ``None`` on a CPU.
        """
        as_planned = self.result and self.mps and (self.mps == ON or self.workers == 1)
        return self.result.point.mps if self.result and as_planned else self.mps

    @property
    def unneeded(self) -> bool:
        """Whether it was skipped because other repeats of its setting were enough (`repeats: auto`)."""
        exit_ = self.result.chosen.exit if self.result and self.result.chosen else None
        because = exit_.because if exit_ and self.outcome is Outcome.PRUNED else ""
        return repeat_id(because, self.repeat) == self.point

    @property
    def has_figures(self) -> bool:
        """Whether it belongs in the tables of sizes: what it ran on and with is known."""
        return self.outcome is Outcome.OK or (self.outcome is Outcome.GPU_OOM and self.versions is not None)


_NAMES = tuple(column.name for column in fields(Row))
FIXED = _NAMES[: _NAMES.index("params")]
"""The columns that every point has."""
SETTING = FIXED[FIXED.index("workload") : FIXED.index("items_per_s")]
"""What two points must share, apart from the knobs, before a mean over both means anything."""
MEASURES = FIXED[FIXED.index("items_per_s") : FIXED.index("items")]
"""What is averaged over repeats."""
AGREEMENT = ("entities", "differ", "f1")
"""The measures that only a run with several precisions has."""


def row_of_point(folder: str, result: PointResult) -> Row:
    """Return the row of a point of a run folder."""
    point, record, model = result.point, result.record, result.point.model
    exit_ = result.chosen.exit if result.chosen else None
    row = Row(
        run=point.run_id,
        folder=folder,
        point=point.point_id,
        index=point.index,
        repeat=point.repeat,
        phase=point.phase or None,
        trial=point.trial,
        tries=len(result.tries),
        outcome=result.verdict.outcome,
        provisional=result.verdict.provisional,
        evidence=result.verdict.evidence,
        workload=point.workload,
        text=point.text.name,
        text_sha256=point.text.sha256,
        model=f"{model.title}{' (stand-in)' if model.stand_in else ''}" if model else None,
        model_fingerprint=model.fingerprint if model else None,
        stand_in=model.stand_in if model else False,
        architecture=model.architecture if model else "",
        device=point.device,
        order=None if point.command else point.order,
        allocator=point.allocator,
        threads=point.threads,
        workers=point.workers,
        gpus=point.gpus if point.device == CUDA else None,
        precision=point.precision,
        shortcuts=point.shortcuts,
        host=record.host if record else (exit_.host if exit_ else "") or result.node or None,
        params=record.params if record else point.params,
        result=result,
    )
    if record:
        _add_record(row, record)
    elif result.batches:
        _add_batches(row, result.batches)
    return row


def _add_batches(row: Row, batches: Iterable[Batch]) -> None:
    """Add how far a try without a record came, from the batches that are home."""
    batches = list(batches)
    row.items, row.work_s = sum(b.items for b in batches), fsum(b.seconds for b in batches)
    row.items_per_s = row.items / row.work_s if row.items and row.work_s > 0 else None
    row.batch_mean_s = row.work_s / len(batches)
    row.load_max = max(b.load for b in batches)


def _add_record(row: Row, record: Record) -> None:
    """Add what a record measured."""
    versions = dict(record.versions)
    row.mps = record.mps if row.device == CUDA else None
    row.precision, row.shortcuts = record.precision, record.shortcuts
    if gpu := record.gpu:
        versions |= {"driver": gpu.driver or "unknown", "cuda": gpu.cuda or versions.get("cuda", "unknown")}
        row.gpu, row.gpu_uuid = gpu.name, gpu.uuid
        row.gpu_capacity_bytes, row.foreign = gpu.total_bytes, gpu.foreign_processes
    row.versions = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    row.machine = record.host if row.device == "cpu" else None
    row.started_at, row.ended_at = record.started_at, record.ended_at
    row.effective = ", ".join(f"{k}={'unknown' if v is None else v}" for k, v in record.effective.items())
    row.inert = ", ".join(record.inert)
    row.load_s = record.load_s
    _add_memory(row, record.memory)
    row.gpu_peak_bytes, row.gpu_instrument = gpu_memory(record)
    if summary := record.summary:
        row.items, row.items_total = summary.items, summary.items_total
        row.items_per_s, row.work_s = rate(record), summary.work_s
        row.batch_mean_s, row.batch_p95_s = summary.batch_mean_s, summary.batch_p95_s
        row.padding_efficiency, row.load_max = summary.padding_efficiency, summary.load_max


def add_energy(row: Row) -> None:
    """Add the energy of a point whose ``overlaps`` are known."""
    record = row.record
    if record is None or record.energy is None:
        return
    energy = attributed(record.energy, row.overlaps)
    row.energy_counter_j, row.energy_power_j = energy.counter_j, energy.power_j
    row.energy_span_s, row.idle_w = energy.span_s, energy.idle_w
    row.energy_attribution, row.energy_reason = energy.attribution, energy.reason
    row.energy_j, row.net_energy_j = joules(energy)
    if row.items:
        row.energy_per_1000_j = None if row.energy_j is None else 1000 * row.energy_j / row.items
        row.net_energy_per_1000_j = None if row.net_energy_j is None else 1000 * row.net_energy_j / row.items


def _add_memory(row: Row, memory: Memory) -> None:
    row.context_bytes, row.weights_bytes = memory.context_bytes, memory.weights_bytes
    row.model_bytes = _sum(memory.context_bytes, memory.weights_bytes)
    row.activations_bytes = memory.activations_bytes
    row.ram_peak_bytes = memory.ram_peak_bytes
    row.disagreement = memory.disagreement


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def rows_of_log(file: str, runs: Iterable[LogRun]) -> list[Row]:
    """Return the rows of an old log; the file stands for the text, model and versions that it hides."""
    rows: list[Row] = []
    repeats: dict[int, int] = {}
    for index, run in enumerate(runs, 1):
        repeats[run.batch_size] = repeats.get(run.batch_size, 0) + 1
        capacity = run.gpu_capacity_bytes
        row = Row(
            run=file,
            folder=file,
            point=f"run {index}",
            index=index,
            repeat=repeats[run.batch_size],
            outcome=Outcome.OK,
            evidence="log of a run that ended",
            workload=LOG,
            device="cpu" if capacity is None else "cuda",
            machine=file,
            gpu=None if capacity is None else f"unknown GPU, {capacity / GIB:.1f} GiB",
            gpu_capacity_bytes=capacity,
            items=run.items,
            items_total=run.items,
            items_per_s=run.items / run.total_s,
            work_s=run.total_s,
            batch_mean_s=run.batch_mean_s,
            model_bytes=run.gpu_model_bytes,
            activations_bytes=run.gpu_batch_peak_bytes,
            gpu_peak_bytes=run.gpu_peak_bytes,
            gpu_instrument=None if capacity is None else "NVML device, sampled every 50 paragraphs",
            ram_peak_bytes=run.ram_peak_bytes,
            params={BATCH_SIZE: run.batch_size},
        )
        rows.append(row)
    return rows
