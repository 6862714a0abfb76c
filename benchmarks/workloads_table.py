"""Print the tables of docs/workloads.md that show whether the load of a shipped workload explains its memory.

``python -m benchmarks.workloads_table`` reads benchmarks/records/workloads.tar.xz: five batch sizes of each
workload, and the largest batch that ``find_max`` then ran. The second table is of spaCy on a GPU, of which
the load does not explain all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.archives import group
from benchmarks.gpu_page import GIB
from benchmarks.tune_page import read
from jobkit.core.layout import read_batches
from jobkit.core.records import Record
from jobkit.setup.check_workload import line_of

RUNS = group("workloads")
HEAD = """\
| workload | architecture, device | tokens | R² | worst residual | limit: batch size | predicted | needed |
|---|---|--:|--:|--:|--:|--:|--:|"""
FIRST_CALLS = """\
| tokens of the first call | its peak | of each token | calls of the point | largest peak, times the first |
|--:|--:|--:|--:|--:|"""


def rows() -> Iterator[str]:
    """Yield the lines of the table, one for each run folder."""
    for run in sorted(RUNS.glob("*-2*")):
        records = [record for record in read(run) if record.summary]
        sizes = [_load_and_bytes(record) for record in records if not record.point.trial]
        loads, needed = zip(*sizes, strict=True)
        r2, worst = line_of(loads, needed)
        model, device = records[0].point.model, records[0].point.device
        where = f"{model.architecture if model else ''}, {'H200' if device == 'cuda' else 'CPU'}"
        yield (
            f"| `{records[0].point.workload}` | {where} | {min(loads):,} to {max(loads):,} | {r2:.5f}"
            f" | {worst / 2**20:.1f} MiB of {(max(needed) - min(needed)) / GIB:.2f} GiB | {_trial(run)} |"
        )


def _load_and_bytes(record: Record) -> tuple[int, int]:
    """Return the largest load of a point and the memory that it needs: of a CPU, the resident memory."""
    if record.needs:
        return record.needs[0].load, record.needs[0].passed_bytes or 0
    return (record.summary.load_max or 0) if record.summary else 0, record.memory.rss_peak_bytes or 0


def _trial(run: Path) -> str:
    """Return what the last trial of a run tested, and what it took."""
    trials: Sequence[str] = (run / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    last = json.loads(trials[-1])
    limit, expected, needed = (last[f"{name}_bytes"] / GIB for name in ("capacity", "expected", "measured"))
    off = 100 * (needed / expected - 1)
    return f"{limit:.0f} GiB: {last['batch_size']:,} | {expected:.2f} GiB | {needed:.2f} GiB ({off:+.1f} %)"


def table() -> str:
    """Return the table of all workloads."""
    return "\n".join([HEAD, *rows()])


def first_calls() -> str:
    """Return the table of what spaCy's tensors take in the first call of a point, and later."""
    (run,) = (run for run in RUNS.glob("spacy-ner-2*") if read(run)[0].point.device == "cuda")
    lines = []
    for home in run.glob("results/*/try-1"):
        calls, _ = read_batches(home)
        load, first = calls[0].load or 0, calls[0].allocated_peak_bytes or 0
        most = max(call.allocated_peak_bytes or 0 for call in calls)
        shown = f"{load:,} | {first / 2**20:,.0f} MiB | {first / load / 1024:.1f} KiB"
        lines.append((load, f"| {shown} | {len(calls)} | {most / first:.2f} |"))
    return "\n".join([FIRST_CALLS, *(line for _, line in sorted(lines))])


if __name__ == "__main__":
    print(table(), first_calls(), sep="\n\n")  # noqa: T201 - a script prints
