"""Workloads under which a disk, a signal or the end of a try goes wrong; for the fault tests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from jobkit.run.count import Count
from jobkit.run.workload import Result


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
