"""How the sentences of a call become the batches of Stanza's tagger. Standard library only.

Tags are attached to the sentences themselves, so their order inside a call changes nothing of what is
returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jobkit.run.paragraphs import cut_by_budget
from jobkit.run.workloads.stanza.lengths import columns_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceCut:
    """How sentences are arranged and cut.

    Attributes
    ----------
    size
        Sentences of a batch.
    padded_chars
        The limit of sentences x characters of the longest, in place of ``size``; ``None`` for no limit.
    by_length
        Whether the longest sentences of a call come first.
    """

    size: int = 1
    padded_chars: int | None = None
    by_length: bool = False

    @property
    def is_stock(self) -> bool:
        """Whether Stanza cuts so by itself: a fixed number of sentences in text order."""
        return not (self.padded_chars or self.by_length)

    def arranged(self, sentences: Iterable[Any]) -> list[Any]:
        """Return the sentences of a call in the order in which they are cut."""
        return sorted(sentences, key=columns_of, reverse=True) if self.by_length else list(sentences)

    def sizes(self, sentences: Sequence[Any]) -> list[int]:
        """Return how many sentences each batch holds, of sentences in order."""
        if self.padded_chars:
            return cut_by_budget(map(columns_of, sentences), self.padded_chars)
        return [min(self.size, len(sentences) - at) for at in range(0, len(sentences), self.size)]

    def batches(self, sentences: Iterable[Any]) -> list[list[Any]]:
        """Return the batches of a call."""
        ordered = self.arranged(sentences)
        return slices(ordered, self.sizes(ordered))


def slices(items: Sequence[Any], sizes: Iterable[int]) -> list[list[Any]]:
    """Return consecutive parts of these sizes."""
    left = iter(items)
    return [[next(left) for _ in range(size)] for size in sizes]
