"""What the scaling table shows: columns as data, and the cells of a group. Units: GiB and seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.units import GIB

Row = Mapping[str, object]

LEGENDS = {
    "size": "n: points that went well; figures are means over them ± standard deviation",
    "part": "(n=1): the mean is over that many points, because the others lack this figure",
    "speed": "speed: of the work, no loading, no warm-up; speed-up: over {base}",
    "batch": "batch mean s: seconds of one call",
    "p95": "batch p95 s: 95 in 100 calls take no longer",
    "gpu": "GPU: total is the peak of the whole run; model is CUDA context and weights",
    "ram": "RAM: the most resident memory of the worker",
    "text": "text of padded: share of the padded characters that are text, not filling",
    "load": "load: characters of the largest batch once padded; memory follows it",
}
"""A line for each family of columns, shown where one of them is; ``part`` where a cell has `PART`."""
PART = " (n="


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table.

    Attributes
    ----------
    name
        Of the column of ``Collected.sizes``.
    head
        Two lines; the second is the unit.
    family
        A key of `LEGENDS`.
    rank
        When room is short, the column of the highest rank goes first; 0 stays.
    scale
        Divides the value into the unit.
    places
        The least decimal places.
    spread
        Whether the standard deviation is shown.
    """

    name: str
    head: str
    family: str
    rank: int
    scale: float = 1.0
    places: int = 0
    spread: bool = False


COLUMNS = (
    Column("items_per_s", "speed\nparagr./s", "speed", 0, spread=True),
    Column("speedup", "speed-up\nx", "speed", 1, places=2),
    Column("work_s", "total\ns", "speed", 1, spread=True),
    Column("batch_mean_s", "batch\nmean s", "batch", 2),
    Column("batch_p95_s", "batch\np95 s", "p95", 5),
    Column("context_bytes", "context\nGiB", "gpu", 7, GIB, 2),
    Column("weights_bytes", "weights\nGiB", "gpu", 7, GIB, 2),
    Column("model_bytes", "model\nGiB", "gpu", 4, GIB, 2),
    Column("activations_bytes", "activ.\nGiB", "gpu", 3, GIB, 2),
    Column("gpu_peak_bytes", "GPU total\nGiB", "gpu", 0, GIB, 2),
    Column("ram_peak_bytes", "RAM\nGiB", "ram", 0, GIB, 2),
    Column("padding_efficiency", "text of\npadded %", "text", 6, 0.01),
    Column("load_max", "load\nchars", "load", 8),
)

CONTEXT, WEIGHTS, MODEL = "context_bytes", "weights_bytes", "model_bytes"


@dataclass(frozen=True, slots=True)
class Strip:
    """A column with its cells, ready to be printed."""

    name: str
    head: str
    family: str
    rank: int
    cells: tuple[str, ...]


def strips(rows: Sequence[Row], knobs: Sequence[str]) -> list[Strip]:
    """Return the columns that say anything about these rows of ``Collected.sizes``."""
    found = [
        Strip(knob, knob.replace("_", "\n", 1), "size", 0, tuple(_plain(row[knob]) for row in rows))
        for knob in knobs
    ]
    if any(row["n"] != 1 for row in rows):
        found.append(Strip("n", "n\n", "size", 1, tuple(_plain(row["n"]) for row in rows)))
    if any(row["outcomes"] != "ok" for row in rows):
        found.append(Strip("outcomes", "outcome\n", "size", 0, tuple(str(row["outcomes"]) for row in rows)))
    inert = [_plain(row["inert"]) for row in rows]
    if any(inert):
        found.append(Strip("inert", "no effect\nof", "size", 2, tuple(inert)))
    found += [_strip(column, rows) for column in COLUMNS]
    return [strip for strip in found if any(strip.cells)]


def narrowed(found: Sequence[Strip]) -> list[Strip] | None:
    """Return the columns less the most dispensable ones, ``None`` where all must stay."""
    rank = max(strip.rank for strip in found)
    return [strip for strip in found if strip.rank < rank] if rank else None


def without_repetition(found: Sequence[Strip]) -> list[Strip]:
    """Return the columns less the sum of context and weights where both are there."""
    names = {strip.name for strip in found}
    return [strip for strip in found if strip.name != MODEL or not {CONTEXT, WEIGHTS} <= names]


def _strip(column: Column, rows: Sequence[Row]) -> Strip:
    values = [_number(row[column.name], column.scale) for row in rows]
    spreads = [_number(row[f"{column.name}_sd"], column.scale) if column.spread else None for row in rows]
    known = [abs(value) for value in values if value]
    # Speeds compare by ratio, memory by difference: hundredths of a GiB do, unless all is tiny.
    decisive = 10 * max(known, default=100.0) if column.scale == GIB else min(known, default=1000.0)
    places = max(column.places, _places(decisive))
    cells = tuple(
        _cell(value, spread, places) + (_part(row, column.name) if value is not None else "")
        for row, value, spread in zip(rows, values, spreads, strict=True)
    )
    return Strip(column.name, column.head, column.family, column.rank, cells)


def _part(row: Row, name: str) -> str:
    """Return over how many points a mean is, where they are fewer than the row's ``n``."""
    number = row.get(f"{name}_n", row["n"])
    return "" if number == row["n"] else f"{PART}{_plain(number)})"


def _number(value: object, scale: float) -> float | None:
    number = float(value) if isinstance(value, int | float) else math.nan
    return number / scale if math.isfinite(number) else None


def _places(value: float) -> int:
    """Return how many decimals show three figures of a value, at most 4."""
    return min(4, max(0, 2 - math.floor(math.log10(value))))


def _cell(value: float | None, spread: float | None, places: int) -> str:
    if value is None:
        return ""
    cell = f"{value:,.{places}f}"
    return cell if spread is None else f"{cell} ± {spread:,.{places}f}"


def _plain(value: object) -> str:
    """Return a whole number or a word; a missing one is empty."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int | float) and math.isfinite(value) else ""
