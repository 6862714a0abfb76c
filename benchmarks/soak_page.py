"""The part of docs/reliability.md on the soak, out of docs/benchmarks/soak.json.

``python -m benchmarks.soak_page`` writes it; tests/pages/test_soak_page.py holds the page to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
RAW, PAGE = DOCS / "benchmarks" / "soak.json", DOCS / "reliability.md"
BEGIN, END = "<!-- the soak begins -->\n", "<!-- the soak ends -->\n"
NAMES = {"slurm": "Slurm", "sge": "Grid Engine"}
Report = Mapping[str, Any]


def reports() -> list[Report]:
    """Return what each soak came to; see `benchmarks.soak.Report`."""
    found: list[Report] = json.loads(RAW.read_text(encoding="utf-8"))
    return found


def table(found: Sequence[Report]) -> str:
    """Return the soaks side by side."""
    rows: dict[str, Callable[[Report], object]] = {
        "points": lambda one: f"{one['points']:,}",
        "killed or broken during the run": lambda one: _counted(one["kills"]),
        "tries": lambda one: f"{one['tries']:,}",
        "after the sweep": lambda one: _counted(one["rounds"][0]),
        "after the last `jobkit resume`": lambda one: _counted(one["rounds"][-1]),
        "points without an outcome": lambda one: one["without_outcome"],
        "points that succeeded twice": lambda one: one["twice"],
        "points lost": lambda one: one["lost_points"],
        "reading the state of the whole run, median": lambda one: f"{median(one['status_s']):.2f} s",
        "total time": lambda one: f"{one['seconds']:.0f} s",
    }
    head = "".join(f" {NAMES[one['scheduler']]} |" for one in found)
    lines = [f"| |{head}", "|---|" + "---|" * len(found)]
    lines += [f"| {name} |" + "".join(f" {tell(one)} |" for one in found) for name, tell in rows.items()]
    return "\n".join(lines) + "\n"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in sorted(counts.items(), key=lambda one: -one[1]))


def page(text: str) -> str:
    """Return the page with the soaks as they are now."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(reports())}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
