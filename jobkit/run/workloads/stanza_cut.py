"""How the sentences of a call become the batches of Stanza's tagger.

Standard library only at import. Stanza takes a fixed number of sentences in text order
(``DataLoader.chunk_batches`` in ``stanza/models/ner/data.py``, 1.15.0). Tags are attached to the
sentences themselves, so their order inside a call changes nothing of what is returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobkit.run.paragraphs import cut_by_budget
from jobkit.run.workloads.stanza_lengths import columns_of


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
        return _slices(ordered, self.sizes(ordered))

    def set_up(self, processor: Any) -> None:  # noqa: ANN401 - Stanza is untyped
        """Have Stanza's tagger take its batches from here, if it would take others by itself."""
        if not (self.padded_chars or self.by_length):
            return
        process = processor.process

        def process_arranged(document: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
            document.sentences = self.arranged(document.sentences)
            with _cut_into(self.sizes(document.sentences)):
                return process(document)

        processor.process = process_arranged


def _slices(items: Sequence[Any], sizes: Iterable[int]) -> list[list[Any]]:
    """Return consecutive parts of these sizes."""
    left = iter(items)
    return [[next(left) for _ in range(size)] for size in sizes]


@contextlib.contextmanager
def _cut_into(sizes: Sequence[int]) -> Iterator[None]:
    """Have the tagger's loader make batches of these sizes."""
    from stanza.pipeline import ner_processor

    loader = ner_processor.DataLoader

    class Loader(loader):  # type: ignore[misc, valid-type]  # Stanza is untyped
        def chunk_batches(self, data: Sequence[Any]) -> list[list[Any]]:
            return _slices(data, sizes)

    ner_processor.DataLoader = Loader
    try:
        yield
    finally:
        ner_processor.DataLoader = loader
