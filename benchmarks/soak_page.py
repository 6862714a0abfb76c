"""Runs whose jobs, nodes and clients were killed on purpose: tables of soak.json and soak-apply.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.archives import RECORDS
from benchmarks.markdown import table

RAW, APPLY_RAW = RECORDS / "soak.json", RECORDS / "soak-apply.json"
NAMES = {"slurm": "Slurm", "sge": "Grid Engine"}
Report = Mapping[str, Any]
Rows = Mapping[str, Callable[[Report], object]]
"""The lines of a table, and what a report has for each."""

POINTS: Rows = {
    "points": lambda one: one["points"],
    "killed or broken": lambda one: _counted(one["kills"]),
    "in the end": lambda one: _counted(one["rounds"][-1]),
    "lost, or succeeded twice": lambda one: one["lost_points"] + one["twice"],
}
SHARDS: Rows = {
    "shards of a corpus": lambda one: one["shards"],
    "killed or broken": lambda one: _counted(one["kills"]),
    "rows": lambda one: f"{one['rows']:,}",
    "rows lost, or twice": lambda one: one["lost"] + one["doubled"],
    "equal to an undisturbed run": lambda one: "byte for byte" if one["byte_equal"] else "**no**",
}


def reports(path: Path = RAW) -> list[Report]:
    """Return the result of each soak; see `benchmarks.soak.Report` and `benchmarks.soak_apply.Report`."""
    found: list[Report] = json.loads(path.read_text(encoding="utf-8"))
    return found


def soaks() -> str:
    """Return the table of a sweep and of a corpus on each scheduler."""
    found = ((reports(RAW), POINTS), (reports(APPLY_RAW), SHARDS))
    heads = ("", *(NAMES[one["scheduler"]] for one in reports()))
    return table(heads, [row for each, rows in found for row in _rows(each, rows)])


def _rows(found: Sequence[Report], rows: Rows) -> list[tuple[object, ...]]:
    return [(name, *map(cell, found)) for name, cell in rows.items()]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in sorted(counts.items(), key=lambda one: -one[1]))
