"""What the scaling table shows: columns as data, and the cells of a group. Units: GiB and seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from jobkit.answers.setting import Mean, Ratio
from jobkit.core import figures
from jobkit.core.blocks import Column
from jobkit.core.figures import LOAD, SPEED, SPEEDUP, WORK, Figure, in_table
from jobkit.core.records import Outcome
from jobkit.core.student import unknown_spread
from jobkit.core.units import format_setting
from jobkit.report import energy
from jobkit.report.tables import Size
from jobkit.worker.workloads.base import CHARACTERS, load_unit

LEGENDS = {
    "size": "n: points that succeeded; figures are means over them",
    "interval": "±: half of the 95 % interval of the mean, if no other job slows some runs",
    "unknown": "± ?: spread unknown, because that half is larger than the mean",
    "part": "(n=1): the mean is over that many points, because the other points lack this figure",
    "speed": "speed: of the work, no loading, no warm-up; speed-up: over {base}",
    "work": "total: of the work, no loading, no warm-up",
    "single": "one repeat has no interval and cannot show a difference",
    "times": "95 % interval: of the speed-up; one that contains 1 shows no difference",
    "batch": "batch mean s: seconds of one call",
    "p95": "batch p95 s: 95 in 100 calls take no longer",
    "model": "model: CUDA context and weights",
    "gpu": "GPU total: the peak of the whole run",
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
"""What a cell may contain that a line of `LEGENDS` explains."""


LEAST, MOST = 1e-4, 1e12
"""A workload's figure beyond these is written with an exponent."""

SUM_OF = {figures.MODEL.name: (figures.CONTEXT.head, figures.WEIGHTS.head)}
"""The heads of the columns that one is the sum of."""


def size_columns(sizes: Sequence[Size], knobs: Sequence[str], own: Sequence[Figure] = ()) -> list[Column]:
    columns = [_plain("phase\n", (size.first.phase for size in sizes))]
    columns += [
        _plain(knob.replace("_", "\n", 1), (size.params.get(knob) for size in sizes)) for knob in knobs
    ]
    if any(size.n != 1 for size in sizes):
        columns.append(_plain("n\n", (size.n for size in sizes), 1, (LEGENDS["size"],)))
    if any(size.outcomes != Outcome.OK for size in sizes):
        columns.append(_plain("outcome\n", (size.outcomes for size in sizes)))
    columns.append(_plain("no effect\nof", (size.of("inert") for size in sizes), 2))
    hidden = energy.hidden(sizes)
    for figure in in_table(own):
        if figure not in hidden:
            columns.append(_column(_in_unit(figure, sizes), sizes, own))
        if figure is SPEEDUP:
            ends = [_ends(size.times) for size in sizes]
            columns.append(Column("95 %\ninterval", ends, rank=1, notes=(LEGENDS["times"],)))
    fronts = ("*" if size.front else "" for size in sizes)
    columns.append(_plain("front\n", fronts, 2, (LEGENDS["front"],)))
    return [column for column in columns if any(column.cells)]


def base_of(sizes: Sequence[Size]) -> str:
    """Return the setting that speed-ups are over: the smallest that succeeded."""
    base = next((size for size in sizes if size.times), None)
    return (format_setting(base.params) if base else "") or "the smallest size"


def _in_unit(figure: Figure, sizes: Sequence[Size]) -> Figure:
    if figure is not LOAD or not sizes:
        return figure
    first = sizes[0].first
    if first.result and first.result.point.command:
        return replace(figure, head="load\n", family="own load")
    unit = load_unit(first.workload)
    return figure if unit == CHARACTERS else replace(figure, head="load\ntokens", family=unit)


def _column(figure: Figure, sizes: Sequence[Size], own: Sequence[Figure]) -> Column:
    scale, means = figure.scale, [size.mean(figure) for size in sizes]
    form = _form(figure, [mean.value / scale for mean in means if mean])
    cells = [
        f"{mean.value / scale:{form}}{_spread(figure, mean, size, form)}" if mean else ""
        for size, mean in zip(sizes, means, strict=True)
    ]
    notes = tuple(_notes(figure, cells, sizes, own))
    return Column(figure.head, cells, figure.rank, notes=notes, sum_of=SUM_OF.get(figure.name, ()))


def _notes(
    figure: Figure, cells: Sequence[str], sizes: Sequence[Size], own: Sequence[Figure]
) -> Iterator[str]:
    families = {name for name, mark in MARKS.items() if any(mark in cell for cell in cells)}
    if figure is not WORK or not any(size.mean(SPEED) for size in sizes):
        families.add(figure.family)
    if figure is SPEEDUP and {size.n > 1 for size in sizes if size.n} == {False, True}:
        families.add("single")
    names = ", ".join(one.name for one in own if any(size.mean(one) for size in sizes))
    for name, line in LEGENDS.items():
        if name in families:
            yield line.format(base=base_of(sizes), own=names)


def _form(figure: Figure, means: Sequence[float]) -> str:
    """Return how the means of a column are written."""
    known = [float(f"{abs(mean):.{figures.DIGITS}g}") for mean in means if mean]
    whole = all(mean % 1 == 0 for mean in means)
    if figure.own and known and not LEAST <= min(known) <= max(known) < MOST:
        return ".3e"
    if figure.own or figure.count:
        digits = 3 - math.floor(math.log10(min(known, default=1.0))) if figure.own else 1  # four figures
        return f",.{0 if whole else max(0, digits)}f"
    # Speeds compare by ratio, memory by difference: hundredths of a GiB do, unless all is tiny.
    decisive = 10 * max(known, default=100.0) if figure.unit == figures.BYTES else min(known, default=1000.0)
    places = max(figure.places, min(4, 2 - math.floor(math.log10(decisive))))  # three figures, at most 4
    return f",.{places}f"


def _spread(figure: Figure, mean: Mean, size: Size, form: str) -> str:
    """Return half the interval, and the number of points of a mean if it is less than the size's ``n``."""
    half = mean.half_width if figure.interval else None
    spread = "" if half is None else f"{INTERVAL}{half / figure.scale:{form}}"
    if unknown_spread(mean.value, half):
        spread = UNKNOWN
    return spread if mean.n == size.n else f"{spread}{PART}{mean.n:,})"


def _ends(times: Ratio | None) -> str:
    return "" if times is None or times.low is None else f"{times.low:,.2f}-{times.high:,.2f}"


def _plain(head: str, values: Iterable[object], rank: int = 0, notes: tuple[str, ...] = ()) -> Column:
    """Return a column of whole numbers and words; a missing value is empty."""
    cells = ["" if value is None else value if isinstance(value, str) else f"{value:,}" for value in values]
    return Column(head, cells, rank, notes=notes)
