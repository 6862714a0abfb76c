"""Whether the load of each shipped workload explains its memory: a table of their records.

The records are five batch sizes of each workload, and the largest batch that ``find_max`` then ran.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.archives import group
from benchmarks.gpu_page import GIB
from benchmarks.markdown import table
from benchmarks.tune_page import read
from jobkit.core.records import Record
from jobkit.setup.check_workload import line_of

RUNS = group("workloads")
HEADS = (
    "workload, architecture",
    "device",
    "R² of the line",
    "limit",
    "largest batch",
    "predicted",
    "needed",
)


def workloads() -> str:
    """Return the table of all workloads."""
    return table(HEADS, _rows())


def _rows() -> Iterator[tuple[str, ...]]:
    for run in sorted(RUNS.glob("*-2*")):
        records = [record for record in read(run) if record.summary]
        r2, _ = line_of(*zip(*(_load_and_bytes(one) for one in records if not one.point.trial), strict=True))
        point = records[0].point
        name = f"`{point.workload}`, {point.model.architecture if point.model else ''}"
        yield name, "H200" if point.device == "cuda" else "CPU", f"{r2:.4f}", *_trial(run)


def _load_and_bytes(record: Record) -> tuple[int, int]:
    """Return the largest load of a point and the memory that it needs: of a CPU, the resident memory."""
    if record.needs:
        return record.needs[0].load, record.needs[0].passed_bytes or 0
    return (record.summary.load_max or 0) if record.summary else 0, record.memory.rss_peak_bytes or 0


def _trial(run: Path) -> tuple[str, ...]:
    """Return what the last trial of a run tested, and what it needed."""
    last = json.loads((run / "trials.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    limit, expected, needed = (last[f"{name}_bytes"] / GIB for name in ("capacity", "expected", "measured"))
    return f"{limit:.0f} GiB", f"{last['batch_size']:,}", f"{expected:.2f} GiB", f"{needed:.2f} GiB"
