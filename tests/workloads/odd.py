"""Workloads that misbehave on purpose; run in real jobs by the tests of the job script."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from jobkit.core.files import write_atomically
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.count import Count


class Slow(Count):
    """Works one batch, tells that it has, then takes for ever."""

    seen: ClassVar[int] = 0

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count; the third call (warm-up, a batch, this one) never ends."""
        type(self).seen += 1
        if self.seen == 3:
            Path(os.environ["ODD_TOLD"]).touch()
            time.sleep(600)
        return super().process(paragraphs)


class Exits(Count):
    """Ends the worker with a status of its own, no record, as a crash in C does."""

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Leave."""
        del paragraphs
        os._exit(int(os.environ["ODD_STATUS"]))


class Faulty(Count):
    """Does to each batch size what a file says, as long as the file says so.

    ``ODD_FAULTS`` names a JSON file: ``{"10": "memory"}``; words are those of `_FAULTS`, and
    ``hangs`` for one that works a batch and then takes for ever.
    """

    calls = 0

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count, or fail as the paragraph says."""
        self.calls += 1
        told = json.loads(Path(os.environ["ODD_FAULTS"]).read_text(encoding="utf-8"))
        word = told.get(str(self.items_per_call()), "")
        if word == "hangs":
            word = "slow" if self.calls == 3 else ""  # after the warm-up and a batch
        _FAULTS.get(word, lambda: None)()
        return super().process(paragraphs)


def _raise(error: type[Exception]) -> None:
    raise error("on purpose")


def _once() -> None:
    write_atomically(Path(os.environ["ODD_FAULTS"]), "{}")  # other points may read it now
    raise MemoryError("the first try alone")


_FAULTS: Mapping[str, Callable[[], object]] = {
    "memory": lambda: _raise(MemoryError),
    "memory once": _once,
    "bug": lambda: _raise(ValueError),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "slow": lambda: time.sleep(600),
}
