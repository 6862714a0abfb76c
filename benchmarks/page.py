# ruff: noqa: E501 - the page's sentences, a line each
"""docs/benchmarks.md, made from the raw data beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
RAW = PAGE.with_suffix("")
NAMES = ("commands", "planning", "submission", "reading", "overhead")

HEAD = """# Benchmarks

How fast jobkit itself is. This page is made by `make bench` from the raw data in [benchmarks/](benchmarks/); edit `benchmarks/page.py`, not the page.

The times are from a shared machine of two cores, on which other work ran: they differ by a factor of up to two from hour to hour.
What counts is the ratio between figures of one table, which were taken in turn, and whether a time grows in line with the number of points. Times are medians of whole processes, interpreter start and imports included.

The controller is a set of shell scripts on PATH that answer after 5 ms (`benchmarks/controller.py`): it shows what a client costs, not how fast a cluster is. On real ones jobkit's commands are tested in `tests/cluster/`.
"""

WORDS = {
    "submission": "submitit's `map_array` submits one array with no regard to the array limit, and asks the controller nothing before. jobkit asks for the limits, the partitions and `--test-only`, writes the run folder, and notes each submission on disk before and after.",
    "reading": "The three clients read the same 1,000 results as Python objects: jobkit's records, submitit's pickles of the same content, signac's (empty) job documents. `jobkit collect` does more than that: it groups and averages, and pandas alone takes a third of a second to import; the first three lines say what a person waits for (100,000 records were collected once). Of every record a row is kept, so that memory grows in line with the points, not with what lies in their folders.",
    "planning": "More points than the controller holds (Slurm's `MaxJobCount`, Grid Engine's `max_jobs` and `max_u_jobs` for the arrays) are refused before anything is written or submitted: `tests/submit/test_sweep.py`.",
    "overhead": "A pair is a pass over the text in which every call of the tagger is made twice, one after the other, with and without; which comes first changes from call to call. Without, the sampler process is stopped and no line is written. The figure is the median over all calls of all pairs of with / without - 1, and the interval is the median's, by order statistics: other work on the machine makes single calls slow by chance.",
}


def text() -> str:
    """Return the page."""
    paths = [path for name in NAMES for path in sorted(RAW.glob(f"{name}*.json"))]
    return "\n".join(
        [HEAD, *(_section(path, json.loads(path.read_text(encoding="utf-8"))) for path in paths)]
    )


def _section(path: Path, raw: dict[str, Any]) -> str:
    name = path.stem.partition("-")[0]
    machine = raw["machine"]
    where = f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB, Python {machine['python']}, load {machine['load_1min']:.1f} at the start"
    lines = [
        f"## {raw['title']}",
        "",
        *([WORDS[name], ""] if name in WORDS else []),
        "| what | measured | target | met |",
        "|---|--:|--:|---|",
        *(_row(row) for row in raw["rows"]),
        "",
        f"`{raw['command']}`, {raw['date']}, {where}. Raw data: [{path.name}](benchmarks/{path.name}).",
        "",
    ]
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    met = {None: "", True: "yes", False: "**no**"}[row["met"]]
    return f"| {row['what']} | {row['shown']} | {row['target']} | {met} |"
