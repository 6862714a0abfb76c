"""A grid of 44 settings on a GPU, and workers and threads on a CPU: tables of their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.archives import group
from benchmarks.markdown import table
from benchmarks.tune_page import SECOND, read, speeds
from jobkit.core.knobs import ORDER, PADDED, WORKERS, numbers
from jobkit.core.records import Record
from jobkit.extensions.tune.search import Tuning

FINALS = next(group("grid").glob("finals-2*"))
CPU, GPU = (next(group("cpu").glob(f"{name}-2*")) for name in ("cpu", "gpu"))
COLUMNS = (("sorted", 15_000), ("sorted", 60_000), ("sorted", 240_000), ("text", 60_000))
"""The order and the padded characters of the grid."""

Cell = tuple[int, str, str, int]
"""Workers, MPS, order and padded characters."""


def grid() -> dict[Cell, Record]:
    """Return the records of the grid, by workers, MPS, order and padded characters."""
    runs = sorted(group("grid").glob("grid-*"))
    return {_cell(record): record for run in runs for record in read(run)}


def _cell(record: Record) -> Cell:
    point = record.point
    return point.workers, record.mps or "", str(point.params[ORDER]), numbers(point.params)[PADDED]


def settings() -> str:
    """Return the table of paragraphs a second: a row for each number of workers, a column for each way."""
    columns = [f"{size:,}{', text' if order == 'text' else ''}" for order, size in COLUMNS]
    heads = ("workers", *(f"{mps}, {name}" for mps in ("off", "on") for name in columns))
    return table(heads, _grid(grid()))


def _grid(records: Mapping[Cell, Record]) -> Iterator[tuple[object, ...]]:
    columns = [(mps, *column) for mps in ("off", "on") for column in COLUMNS]
    for workers in sorted({cell[0] for cell in records}):
        cells = [records.get((workers, *column)) for column in columns]
        yield workers, *(f"{speeds([record])[0]:,.0f}" if record else "" for record in cells)


def finals() -> dict[tuple[int, int], list[float]]:
    """Return the speeds of the finals, by workers and padded characters."""
    found: dict[tuple[int, int], list[float]] = {}
    for record in read(FINALS):
        found.setdefault((record.point.workers, numbers(record.point.params)[PADDED]), []).extend(
            speeds([record])
        )
    return found


def answer() -> tuple[int, int]:
    """Return the workers and padded characters that the second search found."""
    best = Tuning.read(SECOND).winner
    if best is None:
        raise ValueError(SECOND)
    found = numbers(best.params)
    return found[WORKERS], found[PADDED]


def _by_size(run: Path) -> dict[tuple[int, int], Record]:
    """Return the records of a run by workers and threads."""
    return {(record.point.workers, record.point.threads): record for record in read(run)}


def cpu() -> str:
    """Return the table of workers and threads on a CPU, compared with as many workers on a GPU."""
    heads = ("workers", "threads of each", "CPU: paragraphs/s", "GPU: paragraphs/s", "GPU, times the CPU")
    return table(heads, _cpu(_by_size(CPU), _by_size(GPU)))


def _cpu(
    cpu: Mapping[tuple[int, int], Record], gpu: Mapping[tuple[int, int], Record]
) -> Iterator[tuple[object, ...]]:
    for (workers, threads), record in sorted(cpu.items()):
        speed, other = _items_per_s(record), gpu.get((workers, threads))
        compared = (
            (f"{_items_per_s(other):,.0f}", f"{_items_per_s(other) / speed:.1f}") if other else ("", "")
        )
        yield workers, threads, f"{speed:.1f}", *compared


def _items_per_s(record: Record) -> float:
    if record.summary is None:
        raise ValueError(record.point.point_id)
    return record.summary.items_per_s or 0.0
