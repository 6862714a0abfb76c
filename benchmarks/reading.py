"""Reading back: ``jobkit collect`` of many records."""

from __future__ import annotations

from pathlib import Path

from benchmarks.raw import Row, below
from benchmarks.runs import write_run
from benchmarks.timing import JOBKIT, middle, once

TITLE = "Reading back"
MOST_S = 2.0
SIZES = {1_000: 7, 10_000: 5, 100_000: 1}
"""How many records, and how often they are collected."""


def measure(folder: Path) -> list[Row]:
    """Return the medians by the number of records."""
    rows = []
    for records, runs in SIZES.items():
        argv = [*JOBKIT, "collect", str(write_run(folder, records))]
        timing = middle([once(argv) for _ in range(runs)])
        each, rss = timing["wall_s"] / records * 1e6, timing["maxrss_bytes"] / 2**20
        what = f"`jobkit collect` of {records:,} records ({each:.0f} µs each, {rss:.0f} MiB at most)"
        row = below(what, timing["wall_s"], MOST_S, {**timing})
        plain = Row(what=what, shown=f"{timing['wall_s']:.2f} s", raw=row.raw)
        rows.append(row if records == 10_000 else plain)
    return rows
