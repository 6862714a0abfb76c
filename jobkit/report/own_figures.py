"""The figures that workloads report, as columns: one for each name and unit. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobkit.core.records import Record
from jobkit.core.terminal import printable
from jobkit.core.units import format_count
from jobkit.fit.objective import LARGEST, NO_UNIT, reported
from jobkit.report.rows import Row

DERIVED = ("sd", "n", "low", "high")
"""What follows the name of a measure in the columns of sizes."""
OWN = "own "
"""Before the column of a figure, its name among the measures of a size."""
PREFIX = "metric_"
"""Before a name that another column has."""


@dataclass(frozen=True, slots=True)
class OwnFigure:
    """A figure that the workload reports, in one unit.

    Attributes
    ----------
    column
        The name of its column in csv and json, safe to print.
    name, unit
        As in a table, safe to print; the unit is empty if there is none.
    """

    column: str
    name: str
    unit: str

    @property
    def measure(self) -> str:
        """Its name among the measures of a size, which no other measure has."""
        return f"{OWN}{self.column}"


def name_metrics(rows: Iterable[Row], taken: Iterable[str]) -> tuple[OwnFigure, ...]:
    """Give the rows the figures of their records by column, and return the columns, in order of their names.

    Parameters
    ----------
    taken
        The names of the other columns.
    """
    rows = list(rows)
    columns = own_columns((row.record for row in rows), taken)
    for row in rows:
        found = reported(row.record).items()
        row.metrics = {columns[name, metric.unit].column: metric.value for name, metric in found}
    return tuple(columns.values())


def own_columns(
    records: Iterable[Record | None], taken: Iterable[str] = ()
) -> dict[tuple[str, str], OwnFigure]:
    """Return the columns of all figures that workloads report, by name and unit, in this order."""
    keys = {(name, metric.unit) for record in records for name, metric in reported(record).items()}
    used = {derived for name in taken for derived in _derived(name)}
    columns: dict[tuple[str, str], OwnFigure] = {}
    for name, unit in sorted(keys):
        shown = "" if unit in NO_UNIT else printable(unit)
        column = _column(printable(name), shown, used)
        used |= _derived(column)
        columns[name, unit] = OwnFigure(column, printable(name), shown)
    return columns


def _derived(name: str) -> set[str]:
    return {name, *(f"{name}_{what}" for what in DERIVED)}


def _column(name: str, unit: str, used: set[str]) -> str:
    """Return a name that no column has, nor any that is derived from it."""
    column = f"{name} [{unit}]" if unit else name
    while not _derived(column).isdisjoint(used):
        column = f"{PREFIX}{column}"
    return column


def remarks(rows: Sequence[Row], own: Sequence[OwnFigure]) -> Iterator[str]:
    """Yield what a reader must know of these figures, each thing once."""
    records = [row.record for row in rows if row.record]
    bad = [record.metrics_bad_lines for record in records if record.metrics_bad_lines]
    if bad:
        lines, points = format_count(sum(bad), "line"), format_count(len(bad), "point")
        yield f"{lines} of the workload's own figures ({points}) could not be read, and are left out"
    if large := sum(len(record.metrics) - len(reported(record)) for record in records):
        figures = format_count(large, "figure")
        yield f"{figures} of the workload's own left out: not a number, or beyond {LARGEST:g}"
    for name, number in sorted(Counter(figure.name for figure in own).items()):
        if number > 1:
            units = ", ".join(figure.unit or "none" for figure in own if figure.name == name)
            yield f"{name} has several units, each with a column of its own: {units}"
