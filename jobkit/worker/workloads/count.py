"""`Count`, the workload ``count``, which needs no framework and no model.

To fill ``entities.tsv``, it reports the longest word of every paragraph (the first such word) as an entity
with the label ``WORD``. ``jobkit apply`` writes one row a paragraph: its words.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from jobkit.core.knobs import BATCH_SIZE, Knob, Value, numbers
from jobkit.core.records import ModelRef
from jobkit.worker.workloads.base import DEFAULT_BATCH_SIZE, Entity, Result


class Count:
    """Count the words of each paragraph; the load is items x characters of the longest."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (BATCH_SIZE,)
    NEEDS_MODEL: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[str, ...]] = ("words",)

    def __init__(self) -> None:
        self._batch_size = DEFAULT_BATCH_SIZE
        self._largest_call: int | None = None

    @staticmethod
    def preload() -> None:
        """Import nothing, because it has no framework."""

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Set the batch size; there is no model, no device and only one thread."""
        self.change(params)

    def change(self, params: Mapping[str, Value]) -> None:
        """Set another batch size."""
        self._batch_size = numbers(params).get(BATCH_SIZE, DEFAULT_BATCH_SIZE)
        self._largest_call = None

    def items_per_call(self) -> int:
        """Return the batch size, in paragraphs."""
        return self._batch_size

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Count the words (``tokens``) and report each paragraph's longest word."""
        self._largest_call = max(self._largest_call or 0, len(paragraphs))
        matches = [list(re.finditer(r"\w+", paragraph)) for paragraph in paragraphs]
        longest = max((len(paragraph) for paragraph in paragraphs), default=0)
        entities = (
            Entity(number, word.group(), "WORD", word.start(), word.end())
            for number, words in enumerate(matches)
            if words
            for word in [max(words, key=lambda match: len(match.group()))]
        )
        load = len(paragraphs) * longest
        return Result(
            entities=tuple(entities),
            rows=tuple((number, len(words)) for number, words in enumerate(matches)),
            load=load,
            tokens=sum(map(len, matches)),
            padded_chars=load,
        )

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return each paragraph as one item with the length of its characters."""
        return [[len(paragraph)] for paragraph in paragraphs]

    def effective(self) -> Mapping[str, Value | None]:
        """Return the largest number of paragraphs in a call; ``None`` before the first."""
        return {BATCH_SIZE: self._largest_call}

    def versions(self) -> Mapping[str, str]:
        """Return the version of Python, the only import."""
        return {"python": platform.python_version()}
