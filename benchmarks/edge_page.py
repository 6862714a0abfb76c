"""The largest batch, predicted and found by a search: tables of the records in benchmarks/records/edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.edge_records import BINSEARCH, BISECTION, JOBKIT, POWER, Cell, cells, reports
from benchmarks.markdown import table

NAMES = (JOBKIT, BISECTION, BINSEARCH, POWER)
LONG = 9_999
"""The paragraphs of the longer text."""


def counted() -> list[Cell]:
    """Return the cells in which memory limits the batch, with the largest load first."""
    return [cell for report in reports() for cell in cells(report) if cell.counts]


def answers() -> str:
    """Return the table of the largest batch that passes and of jobkit's safe bound, in the longer text."""
    heads = ("allocator", "limit", "largest that fits", "jobkit's bound", "share")
    rows = (
        (
            *(cell.allocator, f"{cell.cap_gib:g} GiB"),
            *(f"{cell.truth:,}", f"{cell.safe:,}", f"{100 * cell.tightness:.1f} %"),
        )
        for cell in counted()
        if cell.paragraphs == LONG
    )
    return table(heads, rows)


def cost() -> str:
    """Return the table of what each search needs: trials, and seconds on the GPU."""
    heads = ("search", "trials", "out of memory", "work", "with a start for each trial")
    return table(heads, _cost(counted()))


def _cost(found: list[Cell]) -> Iterator[tuple[str, ...]]:
    for name in NAMES:
        searches = [cell.contenders[name] for cell in found]
        yield (
            name,
            _range(one.trials for one in searches),
            _range(one.out_of_memory for one in searches),
            f"{_range(one.work_s for one in searches)} s",
            f"{_range(one.with_starts_s for one in searches)} s",
        )


def _range(values: Iterable[float]) -> str:
    """Return the least and the largest value, or one value if both print the same."""
    found = sorted(values)
    low, high = f"{found[0]:.0f}", f"{found[-1]:.0f}"
    return low if low == high else f"{low} to {high}"
