"""The figures of jobkit: what each is called, how it is read from a record, and where it is shown.

Tables, CSV, JSON, reports, pictures, comparisons, objectives and constraints all read `FIGURES`: a new figure
is one entry. Standard library only. A figure that is not known is ``None``, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from jobkit.core.frozen import keyed
from jobkit.core.measurements import Metric
from jobkit.core.records import Record
from jobkit.core.student import unknown_spread
from jobkit.core.terminal import printable
from jobkit.core.units import GIB, format_memory

MIN, MAX = "min", "max"
BYTES, SHARE = "bytes", "share"
NO_UNIT = frozenset({"", "1"})
LARGEST = 1e100
"""The largest figure, up or down, that is taken from a workload."""
DIGITS = 12
"""Digits of a mean beyond which only rounding differs."""


@keyed
class Figure:
    name: str  # the name of its column in CSV and JSON
    label: str
    unit: str = ""  # `BYTES` are shown as GiB, a `SHARE` in percent
    # returns the figure of a record, or ``None`` if it is not known
    read: Callable[[Record], float | None] = lambda _: None
    direction: str = ""  # which values are better: `MIN` or `MAX`; empty if neither is
    key: str = ""  # its name in ``objective`` and ``constraints``; empty if no setting is chosen by it
    # whether a setting keeps a bound of a figure that is not known: not every machine can measure it
    optional: bool = True
    compared: bool = False
    more: str = "more"  # how a setting with a larger, or a smaller, mean is called
    less: str = "less"
    interval: bool = False  # whether its means have a 95 % interval in tables and JSON
    head: str = ""  # the two lines above its column, the second with the unit; empty if no table has it
    # the line below a table that explains its column; {base} stands for the setting that speed-ups are over,
    # {own} for the names of the workload's figures
    legend: str = ""
    rank: int = 5  # as in `jobkit.core.terminal.Column`
    places: int = 0  # the least decimal places
    count: bool = False  # whether it is a count: no decimal places, unless a mean has some
    own: bool = False  # whether the workload reports it: then its size may be any

    @property
    def scale(self) -> float:
        return {BYTES: GIB, SHARE: 0.01}.get(self.unit, 1.0)

    @property
    def title(self) -> str:
        unit = {BYTES: "GiB", SHARE: "%"}.get(self.unit, self.unit)
        return self.label if unit in NO_UNIT else f"{self.label}, {unit}"


def _speed(record: Record) -> float | None:
    """Items a second; ``None`` if the workload reports no items."""
    summary = record.summary
    return summary.items_per_s if summary and summary.items and summary.items_per_s else None


def _model(record: Record) -> int | None:
    memory = record.memory
    known = memory.context_bytes is not None and memory.weights_bytes is not None
    return (memory.context_bytes or 0) + (memory.weights_bytes or 0) if known else None


def gpu_memory(record: Record) -> tuple[int | None, str | None]:
    """Return the peak of the GPU memory of all processes of a point, and the instrument that measured it.

    Context and reserved memory are measured for one process, so they count only for a point with one.
    """
    memory, alone = record.memory, record.point.workers * max(1, record.point.gpus) == 1
    if memory.process_peak_bytes is not None:
        return memory.process_peak_bytes, "NVML process"
    if alone and memory.context_bytes is not None and memory.reserved_peak_bytes is not None:
        return memory.context_bytes + memory.reserved_peak_bytes, "context + torch reserved"
    unshared = record.gpu is not None and record.gpu.foreign_processes == 0
    if unshared and memory.device_peak_bytes is not None and memory.device_idle_bytes is not None:
        return memory.device_peak_bytes - memory.device_idle_bytes, "NVML device above idle"
    return None, None


def _joules(record: Record, *, net: bool = False, per_1000: bool = False) -> float | None:
    energy, items = record.energy, record.summary.items if record.summary else 0
    if energy is None:
        return None
    joules = energy.net_joules if net else energy.joules
    if joules is None or not per_1000:
        return joules
    return 1000 * joules / items if items else None


SPEED = Figure(
    name="items_per_s",
    label="Speed",
    unit="paragraphs/s",
    read=_speed,
    direction=MAX,
    key="items_per_s",
    optional=False,
    compared=True,
    more="faster",
    less="slower",
    interval=True,
    head="speed\nparagr./s",
    legend="speed: of the work, no loading, no warm-up; speed-up: over {base}",
    rank=0,
)
WORK = Figure(
    name="work_s",
    label="Time of the work",
    unit="s",
    read=lambda record: (record.summary.work_s or None) if record.summary else None,
    direction=MIN,
    key="work_s",
    optional=False,
    interval=True,
    head="total\ns",
    legend="total: of the work, no loading, no warm-up",
    rank=2,
)
BATCH_MEAN = Figure(
    name="batch_mean_s",
    label="Mean time of a call",
    unit="s",
    read=lambda record: record.summary.batch_mean_s if record.summary else None,
    direction=MIN,
    head="batch\nmean s",
    legend="batch mean s: seconds of one call",
    rank=2,
)
BATCH_P95 = Figure(
    name="batch_p95_s",
    label="Time of a call, 95 in 100 are shorter",
    unit="s",
    read=lambda record: record.summary.batch_p95_s if record.summary else None,
    direction=MIN,
    key="batch_p95",
    head="batch\np95 s",
    legend="batch p95 s: 95 in 100 calls take no longer",
    rank=5,
)
_memory = partial(Figure, unit=BYTES, places=2)
_energy = partial(Figure, unit="J", direction=MIN)
_agreement = partial(
    Figure,
    legend="entities differ: in one of this setting and fp32, not in both; F1: how far the two agree",
)
CONTEXT = _memory(
    name="context_bytes",
    label="CUDA context",
    read=lambda record: record.memory.context_bytes,
    head="context\nGiB",
    rank=7,
)
WEIGHTS = _memory(
    name="weights_bytes",
    label="Weights",
    read=lambda record: record.memory.weights_bytes,
    head="weights\nGiB",
    rank=7,
)
MODEL = _memory(
    name="model_bytes",
    label="CUDA context and weights",
    read=_model,
    head="model\nGiB",
    legend="model: CUDA context and weights",
    rank=4,
)
ACTIVATIONS = _memory(
    name="activations_bytes",
    label="Activations",
    read=lambda record: record.memory.activations_bytes,
    head="activ.\nGiB",
    rank=3,
)
GPU_MEMORY = _memory(
    name="gpu_peak_bytes",
    label="GPU memory, total",
    read=lambda record: gpu_memory(record)[0],
    direction=MIN,
    key="gpu_memory",
    compared=True,
    head="GPU total\nGiB",
    legend="GPU total: the peak of the whole run",
    rank=0,
)
RAM = _memory(
    name="ram_peak_bytes",
    label="RAM",
    read=lambda record: record.memory.ram_peak_bytes,
    direction=MIN,
    compared=True,
    head="RAM\nGiB",
    legend="RAM: the most resident memory of the worker",
    rank=0,
)
PADDING = Figure(
    name="padding_efficiency",
    label="Text of padded characters",
    unit=SHARE,
    read=lambda record: record.summary.padding_efficiency if record.summary else None,
    head="text of\npadded %",
    legend="text of padded: share of the padded characters that are text, not filling",
    rank=6,
)
LOAD = Figure(
    name="load_max",
    label="Largest load",
    unit="characters",
    read=lambda record: record.summary.load_max if record.summary else None,
    head="load\nchars",
    legend="load: characters of the largest batch once padded; memory follows it",
    rank=8,
)
ENTITIES = _agreement(
    name="entities",
    label="Entities found",
    head="entities\nfound",
    rank=3,
    count=True,
)
DIFFER = _agreement(
    name="differ",
    label="Entities that differ from those of fp32",
    head="entities\ndiffer",
    rank=0,
    count=True,
)
F1 = _agreement(
    name="f1",
    label="F1 with fp32",
    head="F1 with\nfp32",
    rank=1,
    places=4,
)
ENERGY = _energy(
    name="energy_j",
    label="Energy of the GPU",
    read=_joules,
    head="energy\nJ",
    legend="energy: of the GPU over the work, with its idle power",
    rank=5,
)
ENERGY_PER_1000 = _energy(
    name="energy_per_1000_j",
    label="Energy of the GPU for 1,000 paragraphs",
    read=lambda record: _joules(record, per_1000=True),
    key="joules_per_1000",
    compared=True,
    head="energy\nJ/1,000",
    legend="energy: of the GPU over the work, with its idle power",
    rank=2,
)
NET_ENERGY = _energy(
    name="net_energy_j",
    label="Energy of the GPU above idle",
    read=lambda record: _joules(record, net=True),
    head="net\nJ",
    legend="net: energy of the GPU over the work, less its idle power",
    rank=5,
)
NET_PER_1000 = _energy(
    name="net_energy_per_1000_j",
    label="Energy of the GPU above idle for 1,000 paragraphs",
    read=lambda record: _joules(record, net=True, per_1000=True),
    head="net\nJ/1,000",
    legend="net: energy of the GPU over the work, less its idle power",
    rank=2,
)

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        *(SPEED, WORK, BATCH_MEAN, BATCH_P95),
        Figure(name="load_s", label="Time to load the model", unit="s", read=lambda record: record.load_s),
        *(CONTEXT, WEIGHTS, MODEL, ACTIVATIONS, GPU_MEMORY, RAM),
        *(PADDING, LOAD, ENTITIES, DIFFER, F1),
        *(ENERGY, ENERGY_PER_1000, NET_ENERGY, NET_PER_1000),
    )
}
AGREEMENT = (ENTITIES, DIFFER, F1)
SPEEDUP = Figure(
    name="speedup",
    label="Speed-up",
    head="speed-up\nx",
    legend="speed: of the work, no loading, no warm-up; speed-up: over {base}",
    rank=1,
    places=2,
)
"""The speed of a setting over that of the smallest setting in its table; no point has it."""


def choosable() -> dict[str, Figure]:
    return {figure.key: figure for figure in FIGURES.values() if figure.key}


def by_key(key: str) -> Figure:
    """Return the figure with this name in ``objective`` or ``constraints``: jobkit's, or a workload's own."""
    if key in (figures := choosable()):
        return figures[key]
    label, read = printable(key), _reported_as(key)
    return Figure(name=key, label=label, read=read, optional=False, own=True)


def units_of(records: Iterable[Record], figure: Figure) -> list[str]:
    if not figure.own:
        return [figure.unit]
    return sorted({printable(own.unit) for record in records if (own := reported(record).get(figure.name))})


def _reported_as(name: str, unit: str | None = None) -> Callable[[Record], float | None]:
    """Return what reads a figure that a workload reports, in any unit or in one."""

    def read(record: Record) -> float | None:
        metric = reported(record).get(name)
        return metric.value if metric and unit in {None, metric.unit} else None

    return read


def own_columns(records: Iterable[Record | None], taken: Iterable[str] = ()) -> tuple[Figure, ...]:
    """Return all figures that workloads report, one for each name and unit; no column is in ``taken``."""
    keys = {(name, metric.unit) for record in records for name, metric in reported(record).items()}
    used = {derived for name in taken for derived in _derived(name)}
    figures: list[Figure] = []
    for name, unit in sorted(keys):
        shown = "" if unit in NO_UNIT else printable(unit)
        label = printable(name)
        column = f"{label} [{shown}]" if shown else label
        while not _derived(column).isdisjoint(used):
            column = f"metric_{column}"
        used |= _derived(column)
        figure = Figure(
            name=column,
            label=label,
            unit=shown,
            read=_reported_as(name, unit),
            interval=True,
            head=f"{label}\n{shown}",
            legend="{own}: as the workload reports it; jobkit does not measure it",
            rank=0,
            own=True,
        )
        figures.append(figure)
    return tuple(figures)


def _derived(name: str) -> set[str]:
    return {name, *(f"{name}_{what}" for what in ("sd", "n", "low", "high"))}


def reported(record: Record | None) -> dict[str, Metric]:
    """Return the figures that a workload reported, without those beyond `LARGEST`, whose squares overflow."""
    return {
        name: Metric(value=float(metric.value), unit=metric.unit)
        for name, metric in (record.metrics if record else {}).items()
        if -LARGEST <= metric.value <= LARGEST  # false of NaN
    }


def pace(record: Record) -> float:
    """Return the items a second of a point, or without items the texts a second; 0 if neither is known."""
    work_s = record.summary.work_s if record.summary else 0.0
    return _speed(record) or (1 / (work_s * record.point.every) if work_s else 0.0)


def in_table(own: Iterable[Figure] = ()) -> Iterator[Figure]:
    """Yield the figures that have a column in tables, in order; ``own`` are those of the workload."""
    shown = [SPEED, SPEEDUP, *(figure for figure in FIGURES.values() if figure.head and figure != SPEED)]
    first = [figure for figure in shown if figure in {SPEED, SPEEDUP, WORK}]
    yield from (*first, *own, *AGREEMENT)
    yield from (figure for figure in shown if figure not in {*first, *AGREEMENT})


def format_figure(value: float, unit: str = "", half: float | None = None) -> str:
    """Return a figure with its unit, in four digits, and ``half`` of its 95 % interval if there is one."""
    if half is not None and half < abs(value) / 10**DIGITS:
        half = 0.0
    unknown = ", spread unknown" if unknown_spread(value, half) else ""
    half = None if unknown else half
    if unit == BYTES:
        interval = "" if half is None else f" ± {format_memory(half)}"
        return f"{format_memory(value)}{interval}{unknown}"
    interval = "" if half is None else f" ± {half:,.2g}"
    return f"{value:,.4g}{interval}{'' if unit in NO_UNIT else f' {unit}'}{unknown}"
