"""sinfo: the partitions, by the letters of the format that jobkit asks for (sinfo(1), ``-o``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tests.fakes.common.entry import Answer
from tests.fakes.common.store import Store
from tests.fakes.common.text import clock_words
from tests.fakes.slurm.options import parse_anywhere, table
from tests.fakes.slurm.site import CPUS, GPU_TYPE, GPUS, MAX_TIME_MIN, MEMORY_MB, NODES, PARTITIONS

SHORT = table("h:noheader o:format a:all V:version e:exact")

FIELDS: Mapping[str, Callable[[str], object]] = {
    "P": lambda name: f"{name}*" if name == PARTITIONS[0] else name,
    "l": lambda _: clock_words(60 * MAX_TIME_MIN),
    "G": lambda _: f"gpu:{GPU_TYPE}:{GPUS}",
    "a": lambda _: "up",
    "D": lambda _: len(NODES),
    "c": lambda _: CPUS,
    "m": lambda _: MEMORY_MB,
}


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sinfo; its nodes are always idle, whatever runs."""
    del store
    asked = parse_anywhere("sinfo", arguments, ("format",), ("noheader", "all", "version", "exact"), SHORT)
    if "version" in asked:
        return Answer("slurm-wlm 22.05.8\n")
    letters = re.sub(r"%(.)", r"{\1}", asked["format"])
    rows = ({letter: read(name) for letter, read in FIELDS.items()} for name in PARTITIONS)
    return Answer("".join(letters.format_map(row) + "\n" for row in rows))
