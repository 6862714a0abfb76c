"""What the scaling table shows: columns as data, and the cells of a group. Units: GiB and seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jobkit.core.blocks import Column
from jobkit.core.records import Outcome
from jobkit.core.student import unknown_spread
from jobkit.core.units import GIB, format_setting
from jobkit.fit.speed import Ratio
from jobkit.report import energy
from jobkit.report.own_figures import OwnFigure
from jobkit.report.sizes import INTERVALS, Size
from jobkit.run.workloads.base import CHARACTERS, load_unit

LEGENDS = {
    "size": "n: points that succeeded; figures are means over them",
    "interval": "±: half of the 95 % interval of the mean, if no other job slows some runs",
    "unknown": "± ?: spread unknown, because that half is larger than the mean",
    "single": "one repeat has no interval and cannot show a difference",
    "part": "(n=1): the mean is over that many points, because the others lack this figure",
    "speed": "speed: of the work, no loading, no warm-up; speed-up: over {base}",
    "times": "95 % interval: of the speed-up; one that contains 1 shows no difference",
    "batch": "batch mean s: seconds of one call",
    "p95": "batch p95 s: 95 in 100 calls take no longer",
    "gpu": "GPU: total is the peak of the whole run; model is CUDA context and weights",
    "ram": "RAM: the most resident memory of the worker",
    "text": "text of padded: share of the padded characters that are text, not filling",
    "energy": "energy: of the GPU over the work, with its idle power",
    "net": "net: energy of the GPU over the work, less its idle power",
    "front": "front: no other setting beats it in both time and energy",
    "load": "load: characters of the largest batch once padded; memory follows it",
    "own": "{own}: as the workload reports it; jobkit does not measure it",
    "padded tokens": "load: tokens of the largest batch once padded; memory follows it",
    "tokens": "load: tokens of the largest batch, which is not padded; memory follows it",
    "own load": "load: of the largest batch, as the program reports it; else its items",
    "agreement": "entities differ: in one of this setting and fp32, not in both; F1: how far the two agree",
}
"""A line for each family of columns, shown below a table that has one of them, or one of the `MARKS`."""
PART, INTERVAL, UNKNOWN = " (n=", " ± ", " ± ?"
MARKS = {"part": PART, "interval": INTERVAL, "unknown": UNKNOWN}
"""What the cells contain that a line of `LEGENDS` explains."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure that has a column.

    Attributes
    ----------
    name
        Of the measure in `Size.mean`; or ``speedup``.
    head
        Two lines; the second is the unit.
    family
        A key of `LEGENDS`.
    rank
        As in `jobkit.core.blocks.Column`.
    scale
        Divides the value into the unit.
    places
        The least decimal places.
    count
        Whether it is a count: no decimal places, unless a mean has some.
    own
        Whether the workload reports it: then its size may be any.
    """

    name: str
    head: str
    family: str
    rank: int
    scale: float = 1.0
    places: int = 0
    count: bool = False
    own: bool = False


LEAST, MOST = 1e-4, 1e12
"""A figure of the workload beyond these is written with an exponent."""

MEASURES = (
    Measure("items_per_s", "speed\nparagr./s", "speed", 0),
    Measure("speedup", "speed-up\nx", "speed", 1, places=2),
    Measure("work_s", "total\ns", "speed", 2),
    Measure("entities", "entities\nfound", "agreement", 3, count=True),
    Measure("differ", "entities\ndiffer", "agreement", 0, count=True),
    Measure("f1", "F1 with\nfp32", "agreement", 1, places=4),
    Measure("batch_mean_s", "batch\nmean s", "batch", 2),
    Measure("batch_p95_s", "batch\np95 s", "p95", 5),
    Measure("context_bytes", "context\nGiB", "gpu", 7, GIB, 2),
    Measure("weights_bytes", "weights\nGiB", "gpu", 7, GIB, 2),
    Measure("model_bytes", "model\nGiB", "gpu", 4, GIB, 2),
    Measure("activations_bytes", "activ.\nGiB", "gpu", 3, GIB, 2),
    Measure("gpu_peak_bytes", "GPU total\nGiB", "gpu", 0, GIB, 2),
    Measure("ram_peak_bytes", "RAM\nGiB", "ram", 0, GIB, 2),
    Measure("padding_efficiency", "text of\npadded %", "text", 6, 0.01),
    Measure("load_max", "load\nchars", "load", 8),
    Measure("energy_j", "energy\nJ", "energy", 5),
    Measure("energy_per_1000_j", "energy\nJ/1,000", "energy", 2),
    Measure("net_energy_j", "net\nJ", "net", 5),
    Measure("net_energy_per_1000_j", "net\nJ/1,000", "net", 2),
)

SPEEDUP = "speedup"
SUM_OF = {
    "model_bytes": tuple(one.head for one in MEASURES if one.name in {"context_bytes", "weights_bytes"})
}
"""The heads of the columns that one is the sum of."""


def size_columns(sizes: Sequence[Size], knobs: Sequence[str], own: Sequence[OwnFigure] = ()) -> list[Column]:
    """Return the columns that have a value for these sizes."""
    columns = [_plain("phase\n", (size.first.phase for size in sizes))]
    columns += [
        _plain(knob.replace("_", "\n", 1), (size.params.get(knob) for size in sizes)) for knob in knobs
    ]
    if any(size.n != 1 for size in sizes):
        columns.append(_plain("n\n", (size.n for size in sizes), 1, (LEGENDS["size"],)))
    if any(size.outcomes != Outcome.OK for size in sizes):
        columns.append(_plain("outcome\n", (size.outcomes for size in sizes)))
    columns.append(_plain("no effect\nof", (size.inert for size in sizes), 2))
    hidden = energy.hidden([size.mean for size in sizes])
    shown = [measure for measure in with_own(own) if measure.name not in hidden]
    columns += [column for measure in shown for column in _columns(_in_unit(measure, sizes), sizes, own)]
    fronts = ("*" if size.front else "" for size in sizes)
    columns.append(_plain("front\n", fronts, 2, (LEGENDS["front"],)))
    return [column for column in columns if any(column.cells)]


def base_of(sizes: Sequence[Size]) -> str:
    """Return the setting that speed-ups are over: the smallest that succeeded."""
    base = next((size for size in sizes if size.speedup), None)
    return (format_setting(base.params) if base else "") or "the smallest size"


def with_own(own: Sequence[OwnFigure]) -> list[Measure]:
    """Return all measures in the order of their columns; those of the workload come after the speed.

    Their rank is 0: however narrow a terminal is, it shows them.
    """
    of_workload = [Measure(one.measure, f"{one.name}\n{one.unit}", "own", 0, own=True) for one in own]
    speed = [measure for measure in MEASURES if measure.family == "speed"]
    return [*speed, *of_workload, *(measure for measure in MEASURES if measure not in speed)]


def _in_unit(measure: Measure, sizes: Sequence[Size]) -> Measure:
    """Return the measure of the load with what the load of the workload counts."""
    if measure.name != "load_max" or not sizes:
        return measure
    first = sizes[0].first
    if first.result and first.result.point.command:
        return replace(measure, head="load\n", family="own load")
    unit = load_unit(first.workload)
    return measure if unit == CHARACTERS else replace(measure, head="load\ntokens", family=unit)


def _columns(measure: Measure, sizes: Sequence[Size], own: Sequence[OwnFigure]) -> list[Column]:
    """Return the column of a measure, and of the speed-up its interval."""
    name, scale = measure.name, measure.scale
    means = [size.speedup if name == SPEEDUP else size.mean[name] for size in sizes]
    form = _form(measure, [mean / scale for mean in means if mean is not None])
    cells = [
        "" if mean is None else f"{mean / scale:{form}}{_spread(measure, size, form)}"
        for size, mean in zip(sizes, means, strict=True)
    ]
    notes = tuple(_notes(measure, cells, sizes, own))
    column = Column(measure.head, cells, measure.rank, notes=notes, sum_of=SUM_OF.get(name, ()))
    if name != SPEEDUP:
        return [column]
    ends = [_ends(size.times) for size in sizes]
    return [column, Column("95 %\ninterval", ends, rank=1, notes=(LEGENDS["times"],))]


def _notes(
    measure: Measure, cells: Sequence[str], sizes: Sequence[Size], own: Sequence[OwnFigure]
) -> Iterator[str]:
    """Yield what a column means, and what the marks in its cells do."""
    families = {name for name, mark in MARKS.items() if any(mark in cell for cell in cells)}
    families.add(measure.family)
    if measure.family == "speed" and any(size.n == 1 for size in sizes):
        families.add("single")
    names = ", ".join(one.column for one in own if any(size.mean[one.measure] is not None for size in sizes))
    for name, line in LEGENDS.items():
        if name in families:
            yield line.format(base=base_of(sizes), own=names)


def _form(measure: Measure, means: Sequence[float]) -> str:
    """Return how the means of a column are written."""
    known = [abs(mean) for mean in means if mean]
    whole = all(mean % 1 == 0 for mean in means)
    if measure.own and known and not LEAST <= min(known) <= max(known) < MOST:
        return ".3e"
    if measure.own or measure.count:
        digits = 3 - math.floor(math.log10(min(known, default=1.0))) if measure.own else 1  # four figures
        return f",.{0 if whole else max(0, digits)}f"
    # Speeds compare by ratio, memory by difference: hundredths of a GiB do, unless all is tiny.
    decisive = 10 * max(known, default=100.0) if measure.scale == GIB else min(known, default=1000.0)
    places = max(measure.places, min(4, 2 - math.floor(math.log10(decisive))))  # three figures, at most 4
    return f",.{places}f"


def _spread(measure: Measure, size: Size, form: str) -> str:
    """Return half the interval, and over how many points a mean is if fewer than the size's ``n``."""
    half = size.half_width(measure.name) if measure.own or measure.name in INTERVALS else None
    number = size.counts.get(measure.name, size.n)
    spread = "" if half is None else f"{INTERVAL}{half / measure.scale:{form}}"
    if half is not None and unknown_spread(size.mean[measure.name], half):
        spread = UNKNOWN
    return spread if number == size.n else f"{spread}{PART}{number:,})"


def _ends(times: Ratio | None) -> str:
    """Return the ends of the interval of a speed-up."""
    return "" if times is None or times.low is None else f"{times.low:,.2f}-{times.high:,.2f}"


def _plain(head: str, values: Iterable[object], rank: int = 0, notes: tuple[str, ...] = ()) -> Column:
    """Return a column of whole numbers and words; a missing value is empty."""
    cells = ["" if value is None else value if isinstance(value, str) else f"{value:,}" for value in values]
    return Column(head, cells, rank, notes=notes)
