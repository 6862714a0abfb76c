"""A workload that does what its paragraphs tell; for the tests of several workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jobkit.core.knobs import Value
from jobkit.worker.pool import KEPT
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.count import Count

DEADLINE_S = 120
MEET, WAIT, TERM = "Meet.", "Wait.", "Term."


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


class Told(Count):
    """Counts, and first does what a paragraph tells it; `WORDS` has the words.

    ``TOLD`` names a folder. There each process leaves an empty file when it has loaded, and when it
    meets the others, and takes as long to load as ``TOLD_LOAD_S`` says.
    """

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Load for so long; do what ``TOLD_LOAD`` says."""
        super().load(model, device, params, threads)
        time.sleep(float(os.environ.get("TOLD_LOAD_S", "0")))
        if word := os.environ.get("TOLD_LOAD"):
            WORDS[word]()
        _leave("loaded")

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Do what a paragraph says, then count."""
        for paragraph in paragraphs:
            WORDS.get(paragraph.strip(), lambda: None)()
        return super().process(paragraphs)


def _leave(what: str) -> None:
    if folder := os.environ.get("TOLD"):
        (Path(folder) / f"{what}-{os.getpid()}").touch()


def _meet() -> None:
    """Wait for another process that has come here; all must have loaded."""
    folder, wanted = Path(os.environ["TOLD"]), int(os.environ["TOLD_WORKERS"])
    assert len(list(folder.glob("loaded-*"))) == wanted
    _leave("met")
    deadline = time.monotonic() + DEADLINE_S
    while len(list(folder.glob("met-*"))) < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def _wait() -> None:
    """Leave the process id, and wait for ever."""
    _leave("waits")
    time.sleep(600)


def _raise(error: Exception) -> None:
    raise error


def _end_try() -> None:
    """End the supervisor: the parent, or the parent of what keeps a worker of a user's code."""
    above = os.getppid()
    if KEPT in Path(f"/proc/{above}/cmdline").read_text(encoding="utf-8").split("\0"):
        above = int(Path(f"/proc/{above}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    os.kill(above, signal.SIGTERM)


WORDS: Mapping[str, Callable[[], object]] = {
    MEET: _meet,
    WAIT: _wait,
    TERM: _end_try,
    "Card.": lambda: _raise(OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")),
    "Bug.": lambda: _raise(ValueError("on purpose")),
    "Kill.": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "Crash.": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "Leave.": lambda: os._exit(7),
    "Exit.": lambda: sys.exit(7),
}
