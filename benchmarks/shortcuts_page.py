"""What `shortcuts: exact` gives on a GPU: tables of the records in benchmarks/records/shortcuts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from benchmarks.archives import RECORDS, group
from benchmarks.markdown import table
from benchmarks.tune_page import corpus_row, search_row
from jobkit.core.blocks import as_text
from jobkit.extensions.tune.answer import blocks
from jobkit.extensions.tune.search import Tuning

RAW = RECORDS / "shortcuts"
RUNS = group("shortcuts")
LARGEST = tuple(sorted(RUNS.glob("largest-*")))
"""The runs that found the largest batch with shortcuts."""
SEARCH, BEFORE = RUNS / "tune-20261125-020320-8e68", RUNS / "tune-20261125-015158-5925"
"""The search that docs/tune.md shows, and the one before it on another machine."""
SEARCHES = {BEFORE: "one H200, shortcuts", SEARCH: "another H200, shortcuts"}
"""The searches with shortcuts, and where each ran: a new one is a line here."""
CORPORA = {RUNS / "tagged": "16 workers, shortcuts"}
"""The corpora tagged with shortcuts, and the setting of each."""
WIDTH = 118
MOST = 16
"""The most workers."""
MIB = 2**20


def searches() -> Iterator[tuple[str, ...]]:
    """Yield a row for each search with shortcuts."""
    yield from (search_row(machine, Tuning.read(run)) for run, machine in SEARCHES.items())


def corpora() -> Iterator[tuple[str, ...]]:
    """Yield a row for each corpus tagged with shortcuts."""
    yield from (corpus_row(setting, tagged) for tagged, setting in CORPORA.items())


def answer() -> str:
    """Return what `jobkit tune` prints of the search."""
    lines = as_text(blocks(SEARCH, Tuning.read(SEARCH)), WIDTH).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("phase"))
    last = next(number for number, line in enumerate(lines) if line.startswith("In a spec"))
    return "\n".join(lines[first:last]).rstrip()


def gains() -> str:
    """Return the table of each shortcut alone, and with those above it, in one process and in many."""
    kinds = ("alone", "with those above")
    heads = ("shortcut", *(f"{name}: {kind}" for name in ("1 process", f"{MOST}") for kind in kinds))
    return table(heads, _gains())


def _gains() -> Iterator[tuple[str, ...]]:
    rows = {(row["processes"], tuple(row["shortcuts"])): row for row in _raw("gains-gpu")}
    added = max((parts for _, parts in rows), key=len)
    for number in range(len(added) + 1):
        parts = added[:number]
        cells = [parts[-1] if parts else "none: stock Stanza"]
        for processes in (1, MOST):
            row, own = rows[processes, parts], rows.get((processes, parts[-1:]))
            cells += [f"{one['paragraphs_per_s']:,.0f}" if one else "" for one in (own, row)]
        yield tuple(cells)


def alone() -> str:
    """Return the table of one process: stock Stanza, the plain loop of tune, and `exact`, several times."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for row in _raw("alone-gpu"):
        ways = found.setdefault((row["order"], row["precision"]), [[], [], []])
        ways[min(len(row["shortcuts"]), 2)].append(row["paragraphs_per_s"])
    heads = ("order", "precision", "stock", "collector between calls", "`exact`", "times stock")
    return table(heads, (_alone(*where, *ways) for where, ways in sorted(found.items(), reverse=True)))


def _alone(
    order: str, precision: str, stock: list[float], loop: list[float], exact: list[float]
) -> tuple[str, ...]:
    times = [after / before for before, after in zip(stock, exact, strict=False)]
    ratio = f"{fmean(times):.1f} ({min(times):.1f} to {max(times):.1f})"
    return (order, precision, *(f"{fmean(one):.0f}" for one in (stock, loop, exact)), ratio)


def garbage() -> str:
    """Return the table of seconds and memory with Python's collector, and with one between calls."""
    heads = ("work", "Python's collector", "between calls", "peak memory", "between calls")
    return table(
        heads,
        (
            (
                row["work"],
                *(f"{one:.0f} s" for one in row["seconds"]),
                *(f"{one / MIB:,.0f} MiB" for one in row["peak_bytes"]),
            )
            for row in _raw("garbage")
        ),
    )


def _raw(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RAW / f"{name}.json").read_text(encoding="utf-8"))
    return found
