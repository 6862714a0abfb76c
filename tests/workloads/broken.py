"""Workloads under which a disk, a signal or the end of a try goes wrong; for the fault tests."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from jobkit.core.knobs import Value
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.count import Count


def fill(folder: Path) -> Path:
    """Fill a disk to the last byte; return the file that did it."""
    filler = folder / "filler"
    for size in (2**20, 4096, 1):
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as stream:
            while True:
                stream.write(bytes(size))
    return filler


class Fills(Count):
    """Fills the disk that ``BROKEN_DISK`` names, after two batches, and works on."""

    seen: ClassVar[int] = 0

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count; before the fourth call (warm-up, two batches, this one) fill."""
        type(self).seen += 1
        if self.seen == 4:
            fill(Path(os.environ["BROKEN_DISK"]))
        return super().process(paragraphs)


class Waits(Count):
    """Writes its process id to ``BROKEN_TOLD`` and waits for the file ``BROKEN_GO``.

    ``BROKEN_AT`` says where: ``load``, ``batch`` (after one), or ``record`` (when all is done).
    """

    seen: ClassVar[int] = 0

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Count needs none."""
        super().load(model, device, params, threads)
        self.wait("load")

    def change(self, params: Mapping[str, Value]) -> None:
        """Count the calls of each try."""
        super().change(params)
        type(self).seen = 0

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count; the third call (warm-up, a batch, this one) may wait."""
        type(self).seen += 1
        if self.seen == 3:
            self.wait("batch")
        return super().process(paragraphs)

    def versions(self) -> Mapping[str, str]:
        """Tell Python's, for the record."""
        self.wait("record")
        return super().versions()

    def wait(self, place: str) -> None:
        """Wait, if it is here."""
        if os.environ["BROKEN_AT"] == place:
            told, go = (self.file(name) for name in ("BROKEN_TOLD", "BROKEN_GO"))
            part = told.with_suffix(f".{os.getpid()}")  # several workers may wait
            part.write_text(str(os.getpid()), encoding="ascii")
            part.replace(told)
            while not go.exists():
                time.sleep(0.05)

    def file(self, name: str) -> Path:
        """Return the file that a variable names, ``{}`` in it being the batch size."""
        return Path(os.environ[name].replace("{}", str(self.items_per_call())))


class Deaf(Waits):
    """Takes no notice of TERM, as a long call into C does."""

    def wait(self, place: str) -> None:
        """Wait, if it is here."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().wait(place)


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


class TooLarge(Count):
    """Has no room on the card for batches of ``BROKEN_FROM`` paragraphs and more."""

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count, or fail as torch does."""
        if self.items_per_call() >= int(os.environ["BROKEN_FROM"]):
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return super().process(paragraphs)
