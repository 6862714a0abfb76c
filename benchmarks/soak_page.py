"""The parts of docs/reliability.md on the soaks, out of benchmarks/records/soak.json and soak-apply.json.

``python -m benchmarks.soak_page`` writes it; tests/pages/test_soak_page.py holds the page to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

RECORDS = Path(__file__).with_name("records")
RAW, PAGE = RECORDS / "soak.json", Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- the soak begins -->\n", "<!-- the soak ends -->\n"
APPLY_RAW = RECORDS / "soak-apply.json"
APPLY_BEGIN, APPLY_END = "<!-- the soak of apply begins -->\n", "<!-- the soak of apply ends -->\n"
NAMES = {"slurm": "Slurm", "sge": "Grid Engine"}
Report = Mapping[str, Any]


Rows = Mapping[str, Callable[[Report], object]]
"""The lines of a table, and what a report has for each."""


def reports(path: Path = RAW) -> list[Report]:
    """Return the result of each soak; see `benchmarks.soak.Report` and `benchmarks.soak_apply.Report`."""
    found: list[Report] = json.loads(path.read_text(encoding="utf-8"))
    return found


POINTS: Rows = {
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
SHARDS: Rows = {
    "shards at first": lambda one: f"{one['shards']:,}",
    "killed or broken during the run": lambda one: _counted(one["kills"]),
    "shards replaced by another plan": lambda one: f"{one['superseded']:,}",
    "shards in the end": lambda one: f"{one['planned']:,}",
    "tries": lambda one: f"{one['tries']:,}: {_counted(one['outcomes'])}",
    "rows": lambda one: f"{one['rows']:,}",
    "rows lost": lambda one: one["lost"],
    "rows twice": lambda one: one["doubled"],
    "merged output equal to that of one undisturbed process": lambda one: (
        "byte for byte" if one["byte_equal"] else "**no**"
    ),
    "total time": lambda one: f"{one['seconds']:.0f} s",
}


def table(found: Sequence[Report], rows: Rows = POINTS) -> str:
    """Return the soaks side by side."""
    head = "".join(f" {NAMES[one['scheduler']]} |" for one in found)
    lines = [f"| |{head}", "|---|" + "---|" * len(found)]
    lines += [f"| {name} |" + "".join(f" {tell(one)} |" for one in found) for name, tell in rows.items()]
    return "\n".join(lines) + "\n"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {word}" for word, number in sorted(counts.items(), key=lambda one: -one[1]))


def page(text: str) -> str:
    """Return the page with the soaks as they are now."""
    text = _between(text, BEGIN, END, table(reports()))
    return _between(text, APPLY_BEGIN, APPLY_END, table(reports(APPLY_RAW), SHARDS))


def _between(text: str, begin: str, end: str, content: str) -> str:
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
