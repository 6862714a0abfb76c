"""One row a point, from a run folder or a file of another program. Bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import fsum

from jobkit.core.figures import (
    BATCH_MEAN,
    FIGURES,
    LOAD,
    SPEED,
    WORK,
    Figure,
    gpu_memory,
)
from jobkit.core.knobs import CUDA, MPS, ON, Value, numbers
from jobkit.core.layout import repeat_id
from jobkit.core.records import SWEPT, TRIAL, Batch, Outcome, Record
from jobkit.runs.results import attributed
from jobkit.runs.status import PointResult


@dataclass(frozen=True, slots=True)
class FileFormat:
    """What rows of a file that jobkit did not write have in common: they have figures, but no record."""

    about: str  # a line on the file, below the title of its table
    remark: str  # a remark on its figures


@dataclass(slots=True, kw_only=True)
class Row:
    """A point: what was planned, what was measured, and its place in the tables.

    A value that is not known is ``None``. The fields up to ``energy_reason``, in this order and with all
    figures before ``items``, are the columns of ``jobkit collect --format csv``.
    """

    run: str
    folder: str
    point: str
    index: int
    repeat: int
    phase: str | None = None  # of a search (`jobkit.answers.search_answer`); ``None`` for other points
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
    # the precision in which it computed; ``None`` if the workload offers no choice, or in a run of an earlier
    # version
    precision: str | None = None
    # ``off`` or ``exact``; ``off: `` and the reason if ``exact`` was refused; ``None`` as for precision
    shortcuts: str | None = None
    gpu: str | None = None
    gpu_capacity_bytes: int | None = None
    versions: str | None = None  # versions of the libraries, the driver and CUDA
    # the host of a point on a CPU, because the CPU is measured; the file, for rows without a record
    machine: str | None = None
    items: int | None = None
    items_total: int | None = None
    effective: str | None = None
    inert: str | None = None
    host: str | None = None
    gpu_uuid: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    # how many other points ran at the same time on its GPU, or for a point on a CPU on its host
    overlaps: int | None = None
    gpu_instrument: str | None = None
    disagreement: str | None = None
    foreign: int | None = None
    # as in `jobkit.core.measurements.Energy`, whoever used the energy
    energy_counter_j: float | None = None
    energy_power_j: float | None = None
    energy_span_s: float | None = None
    idle_w: float | None = None
    energy_attribution: str | None = None
    energy_reason: str | None = None
    params: Mapping[str, Value] = field(default_factory=dict)
    # by name the figures that its record does not have: of another program's file, of a try that left no
    # record, how its entities agree with those of fp32, and its speed over that of the smallest setting of
    # its group
    figures: dict[str, float | None] = field(default_factory=dict)
    # of the try that counts; its energy is attributed by all points that were collected
    record: Record | None = None
    result: PointResult | None = None  # the content of the run folder about the point
    # of the file that it comes from; ``None`` for a point of a run folder
    file_format: FileFormat | None = None
    # numbers of its group and of its size in the tables; ``None`` for a point without figures
    group: int | None = None
    size: int | None = None

    @property
    def answered(self) -> bool:
        return self.outcome in (TRIAL if self.trial else SWEPT).answers

    def value(self, figure: Figure) -> float | None:
        if figure.name in self.figures:
            return self.figures[figure.name]
        return figure.read(self.record) if self.record else None

    @property
    def numbers(self) -> Mapping[str, int]:
        return numbers(self.params)

    @property
    def fixed(self) -> tuple[object, ...]:
        """Its values of `SETTING`; ``None`` in place of a value that is a knob of the sweep."""
        values = {name: getattr(self, name) for name in SETTING} | {MPS: self.sharing}
        return tuple(None if name in self.params else value for name, value in values.items())

    @property
    def sharing(self) -> str | None:
        """The MPS that it ran with, if that differs from what its number of workers and the spec mean.

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
_BEFORE, _AFTER = _NAMES[: _NAMES.index("items")], _NAMES[_NAMES.index("items") : _NAMES.index("params")]
SETTING = _BEFORE[_BEFORE.index("workload") :]
"""Columns, besides the knobs, that two points must share before a mean over both means anything."""


def fixed_columns() -> list[str]:
    return [*_BEFORE, *FIGURES, *_AFTER]


def cells(row: Row, figures: Iterable[Figure]) -> dict[str, object]:
    """Return the cells of a point in the columns that every point has, with some of the figures."""
    before, after = ({name: getattr(row, name) for name in names} for names in (_BEFORE, _AFTER))
    return {**before, **{figure.name: row.value(figure) for figure in figures}, **after}


def row_of_point(folder: str, result: PointResult) -> Row:
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
        outcome=result.outcome,
        provisional=result.counts.provisional,
        evidence=result.counts.evidence,
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
        record=record,
        result=result,
    )
    if record:
        _add_record(row, record)
    elif result.batches:
        _add_batches(row, result.batches)
    return row


def _add_batches(row: Row, batches: Sequence[Batch]) -> None:
    """Add how far a try without a record came, from the batches that are home."""
    row.items, work_s = sum(b.items for b in batches), fsum(b.seconds for b in batches)
    row.figures |= {
        SPEED.name: row.items / work_s if row.items and work_s > 0 else None,
        WORK.name: work_s or None,
        BATCH_MEAN.name: work_s / len(batches),
        LOAD.name: max(b.load for b in batches),
    }


def _add_record(row: Row, record: Record) -> None:
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
    row.disagreement = record.memory.disagreement
    row.gpu_instrument = gpu_memory(record)[1]
    if summary := record.summary:
        row.items, row.items_total = summary.items, summary.items_total


def add_energy(row: Row) -> None:
    """Attribute the energy of a point whose ``overlaps`` are known."""
    if row.record is None or row.record.energy is None:
        return
    energy = attributed(row.record.energy, row.overlaps)
    row.record = replace(row.record, energy=energy)
    row.energy_counter_j, row.energy_power_j = energy.counter_j, energy.power_j
    row.energy_span_s, row.idle_w = energy.span_s, energy.idle_w
    row.energy_attribution, row.energy_reason = energy.attribution, energy.reason
