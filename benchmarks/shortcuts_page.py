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
from jobkit.core.terminal import shell_path
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
    return "\n".join(lines[first:last]).rstrip().replace(shell_path(SEARCH.parent), "runs")


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


STAGES = {
    "the text, and its features": (
        "tokenization/data.py",
        "Features",
        "ArrayTokenizer.cut",
        "ArrayTokenizer._predict",
    ),
    "tokens and sentences": (
        "tokenization/utils",
        "tokenization/vocab",
        "tokenize_processor",
        "ArrayTokenizer",
        "pieces",
    ),
    "objects for them": ("common/doc.py", "stanza_ner.py"),
    "batches of the tagger": (
        "common/data.py",
        "ner/data.py",
        "common/vocab.py",
        "get_repr",
        "_ids",
        "_batch",
        "ranges",
    ),
    "tags and entities": ("_on_gpu", "best_paths", "decode", "predict", "entities", "ArrayTagger"),
}
"""The parts of a paragraph's time in Python, and what the place of a line has in it; the first one counts."""


def where() -> str:
    """Return the table of where the CPU time of a paragraph goes, before and now."""
    before, now = _record()["profile"]
    columns = [_stages(before["where_ms"]), _stages(now["where_ms"])]
    rest = [one["cpu_ms"] - sum(column.values()) for one, column in zip((before, now), columns, strict=True)]
    rows = [(stage, *(f"{column[stage]:.3f}" for column in columns)) for stage in STAGES]
    rows += [("the networks' launches, waiting, all else", *(f"{one:.3f}" for one in rest))]
    rows += [("all", *(f"{one['cpu_ms']:.3f}" for one in (before, now)))]
    return table(("ms of CPU a paragraph", "4e7b24bd", "now"), rows)


def _stages(lines: dict[str, float]) -> dict[str, float]:
    found = dict.fromkeys(STAGES, 0.0)
    for line, spent in lines.items():
        stage = next((name for name, parts in STAGES.items() if any(part in line for part in parts)), None)
        if stage:
            found[stage] += spent
    return found


def sides() -> str:
    """Return the table of two builds in one command on one card, of several machines: least to most."""
    rows, sides = list[tuple[str, ...]](), _record()["sides"]
    for cores in sorted({one["cores"] for one in sides}):
        found: dict[str, list[float]] = {"loop": [], "4e7b24bd": [], "arrays": [], "ratio": [], "times": []}
        for machine in sorted({one["machine"] for one in sides}):
            loop, old, new = (
                [one["paragraphs_per_s"] for one in sides if _key(one) == (machine, cores, way)]
                for way in ("loop", "4e7b24bd", "arrays")
            )
            found["ratio"] += [after / before for before, after in zip(old, new, strict=True)]
            found["times"] += [fmean(new) / fmean(loop)] if loop else []
            for way, speeds in zip(found, (loop, old, new), strict=False):
                found[way] += speeds
        shown = (_range(found[way], ",.0f") for way in ("loop", "4e7b24bd", "arrays"))
        rows.append((f"{cores}", *shown, _range(found["ratio"], ".2f"), _range(found["times"], ".0f")))
    return table(("CPUs, workers", "the loop", "4e7b24bd", "now", "ratio", "times the loop"), rows)


def _key(row: dict[str, Any]) -> tuple[int, int, str]:
    return row["machine"], row["cores"], row["way"]


def _range(values: list[float], how: str) -> str:
    return f"{min(values):{how}} to {max(values):{how}}" if values else ""


def _record() -> Any:  # noqa: ANN401 - of a file
    return json.loads((RAW / "where.json").read_text(encoding="utf-8"))


def _raw(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RAW / f"{name}.json").read_text(encoding="utf-8"))
    return found
