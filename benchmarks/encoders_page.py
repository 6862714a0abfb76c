"""The table of encoders on docs/measurements.md."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.archives import RECORDS
from benchmarks.markdown import table

NAMES = {"hf-token-classification": "bert-base", "sentence-embedding": "MiniLM-L6"}


def encoders() -> str:
    """Return the speeds on an H100: of the library the fastest in fp32, of a script its best budget."""
    rows = []
    stock: dict[str, float] = {}
    for cell in json.loads((RECORDS / "encoders-h100.json").read_text(encoding="utf-8"))["cells"]:
        best: dict[str, dict[str, Any]] = {}
        for row in sorted(cell["rows"], key=lambda row: row["paragraphs_per_s"]):
            best[row["way"]] = row
        ours, name = best["jobkit"], cell["workload"]
        if cell["precision"] == "tf32":
            continue
        if "library" in best:
            stock[name] = best["library"]["paragraphs_per_s"]
        speeds = (stock[name], best["hand"]["paragraphs_per_s"], ours["paragraphs_per_s"])
        rows.append(
            (
                f"{NAMES[name]} {cell['precision']}",
                *(f"{speed:,.0f}" for speed in speeds),
                f"{ours['tokens_per_s']:,.0f}",
                f"{ours['characters_per_s']:,.0f}",
            )
        )
    return table(("a second", "library, fp32", "by hand", "jobkit", "tokens", "characters"), rows)
