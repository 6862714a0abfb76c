"""The table of docs/next-to-others.md. ``python -m benchmarks.next_to.page`` writes it into the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

PAGE = Path(__file__).parents[2] / "docs" / "next-to-others.md"
RAW = Path(__file__).parents[1] / "records" / "next-to.json"
ROWS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text(encoding="utf-8"))[
    "rows"
]
PROGRAMS = ("jobkit", "submitit", "signac-flow", "ReFrame", "Snakemake", "JUBE")


def table_of(rows: dict[str, Any]) -> str:
    """Return the table in Markdown: a row for each claim, a column for each program."""
    lines = [["row", "what", *PROGRAMS], ["---"] * (len(PROGRAMS) + 2)]
    for name, row in rows.items():
        cells = [_cell(row["cells"].get(program)) for program in PROGRAMS]
        lines.append([f"`{name}`", row["claim"], *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: dict[str, str] | None) -> str:
    if cell is None:
        return "not checked"
    note = f": {cell['note']}" if "note" in cell else ""
    answer = f"**{cell['answer']}**" if cell["answer"] == "yes" else cell["answer"]
    return answer + note


def main() -> None:
    """Replace the table of the page."""
    text = PAGE.read_text(encoding="utf-8")
    made = table_of(ROWS)
    PAGE.write_text(
        re.sub(r"(?m)^(TABLE|(\| row .*\n(\|.*\n?)*\|.*\|))$", lambda _: made, text), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
