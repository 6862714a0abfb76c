"""A workload whose batches hold memory on a card that is not there; for the tests of the worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.count import Count
from tests.support.fake_torch import FakeTorch

BYTES_PER_LOAD = 8 * 2**20


class Held(Count):
    """Counts, and holds 8 MiB for each unit of load; does no more than it can."""

    NEEDS_MODEL: ClassVar[bool] = True
    card: ClassVar[FakeTorch] = FakeTorch(100 * 2**30)

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count and hold."""
        result = super().process(paragraphs)
        self.card.hold(BYTES_PER_LOAD * result.load)
        return result


class Tells(Held):
    """Tells the load of the call that failed."""

    attempted = 0

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Keep in mind what is tried."""
        self.attempted = len(paragraphs) * max(map(len, paragraphs))
        return super().process(paragraphs)

    def attempted_load(self) -> int:
        """Return the load of the last call."""
        return self.attempted
