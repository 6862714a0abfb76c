"""How fast jobkit itself is: a table of the raw data of ``python -m benchmarks``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from benchmarks.archives import RECORDS
from benchmarks.markdown import table

NAMES = ("commands", "planning", "submission", "reading", "overhead", "forked", "corpus", "apply")
"""The parts of `make bench`; `harness`, `shards` and `replan` take minutes or need a package of Debian."""
SHOWN: Mapping[str, tuple[str, ...]] = {
    "commands": ("`jobkit --help`", "`jobkit sweep --dry-run`"),
    "reading": ("`jobkit collect` of 10,000",),
    "settings": ("`jobkit recommend` of 2,000", "`jobkit report` of 2,000"),
    "overhead-gpu": ("wall time added",),
    "forked-cuda": ("a fresh try", "a forked try"),
    "corpus": ("text, one process", "JSONL", "100 GiB"),
    "apply": ("jobkit: beyond", "datatrove: beyond"),
    "harness": ("jobkit,", "ReFrame,"),
    "requests": ("ten workloads",),
}
"""Of each file the rows that the page shows, by their first words."""


def speeds() -> str:
    """Return the table of the figures that a user waits for."""
    return table(("what", "measured", "target", "command"), _rows())


def _rows() -> Iterator[tuple[str, ...]]:
    for name, starts in SHOWN.items():
        raw = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
        command = f"`benchmarks {raw['command'].partition('benchmarks')[2].lstrip(' .').split()[0]}`"
        for row in raw["rows"]:
            if row["what"].startswith(starts):
                yield row["what"], row["shown"], row["target"], command
