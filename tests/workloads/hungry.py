"""A workload whose memory is a line in its load: for tests of finding the largest batch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobkit.core.knobs import Value
from jobkit.core.records import ModelRef
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.count import Count

BYTES_PER_LOAD = 20_000
PAGE = 4096


class Hungry(Count):
    """Counts, and holds as many bytes as its largest load asks for, every page of them touched.

    With more than ``HUNGRY_LIMIT_BYTES`` of the environment it runs out of memory; where
    ``HUNGRY_ONCE`` names a file only until that is there, and it makes it.
    """

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Take the batch size and the limit."""
        super().load(model, device, params, threads)
        self._held = bytearray()
        self._limit_bytes = int(os.environ.get("HUNGRY_LIMIT_BYTES") or 2**62)

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count, with the memory of this load."""
        result = super().process(paragraphs)
        wanted = result.load * BYTES_PER_LOAD
        if wanted > self._limit_bytes and not self._had_enough():
            raise MemoryError(f"{wanted} bytes wanted, and the limit is {self._limit_bytes}")
        if wanted > len(self._held):
            self._held = bytearray()  # the smaller one goes first: they are never held together
            self._held = bytearray(wanted)
            self._held[::PAGE] = b"\1" * len(range(0, wanted, PAGE))
        return result

    def _had_enough(self) -> bool:
        once = os.environ.get("HUNGRY_ONCE")
        if not once:
            return False
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return True
        return False

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return each paragraph as one item, as long as it has characters."""
        return Count.lengths(paragraphs, model)


class Unmeasured(Hungry):
    """The same with no lengths to tell: its loads are known only where they were measured."""

    lengths = None  # type: ignore[assignment]  # as a workload without the method
