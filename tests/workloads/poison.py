"""A workload for which one word of a paragraph is poison, each in another way."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.count import Count

CALLS_VARIABLE = "POISON_CALLS"


class Poison(Count):
    """Counts words, and has a score; ``POISON_CALLS`` names a file that gets the size of each call."""

    COLUMNS = ("words", "score")

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Do what a paragraph says, then count."""
        if path := os.environ.get(CALLS_VARIABLE):
            with Path(path).open("a", encoding="utf-8") as calls:
                calls.write(f"{len(paragraphs)}\n")
        for paragraph in paragraphs:
            for word in WORDS.keys() & paragraph.split():
                WORDS[word](paragraph)
        result = super().process(paragraphs)
        scores = [SCORES.get(paragraph.split()[0], 0.5) for paragraph in paragraphs]
        return replace(result, rows=tuple((*row, scores[row[0]]) for row in result.rows or ()))


def _raise(paragraph: str) -> None:
    raise ValueError(f"cannot take {paragraph}")


WORDS: Mapping[str, Callable[[str], object]] = {
    "raises": _raise,
    "segfaults": lambda _: ctypes.string_at(0),
    "lacks": lambda _: (_ for _ in ()).throw(MemoryError()),
    "hangs": lambda _: time.sleep(600),
    "killed": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda _: os._exit(7),
    "device": lambda _: (_ for _ in ()).throw(RuntimeError("CUDA error: an illegal memory access")),
    "disk": lambda _: (_ for _ in ()).throw(OSError("no answer")),
}
SCORES = {"nan": float("nan"), "infinite": float("inf")}
