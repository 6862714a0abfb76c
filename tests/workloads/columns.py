"""Workloads that differ in their columns, and in what they return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.count import Count


class Longest(Count):
    """Has entities alone, as a workload of before `jobkit apply`."""

    COLUMNS = ("text", "label", "start", "end")

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Return the longest words as the rows, the last paragraph's first."""
        result = super().process(paragraphs)
        return replace(result, entities=result.entities[::-1], rows=None)


class Lengths(Count):
    """Returns a vector for each paragraph: its characters, and their number."""

    COLUMNS = ("embedding",)

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Return the vectors of the call."""
        vectors = [[len(text), *text.encode()[:20].ljust(20)] for text in paragraphs]
        return replace(super().process(paragraphs), rows=None, vectors=np.array(vectors, np.float32))


class Changing(Lengths):
    """Returns something else from the first call of a paragraph that is named ``CHANGE`` on: `CHANGES`."""

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Return the vectors of the call, or what the call's first word says."""
        result = super().process(paragraphs)
        return replace(result, **CHANGES.get(paragraphs[0].split()[0], lambda _: {})(result.vectors))


CHANGES: dict[str, Any] = {
    "Nothing": lambda _: {"vectors": None, "entities": ()},
    "Fewer": lambda vectors: {"vectors": vectors[1:]},
    "Other": lambda vectors: {"vectors": vectors[:, 1:]},
    "Half": lambda vectors: {"vectors": vectors.astype(np.float16)},
    "Outside": lambda _: {"vectors": None, "rows": ((-1, 1),)},
}
