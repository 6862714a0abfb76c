"""Stanza's tagger, driven with the batches that jobkit cuts.

It imports Stanza and torch. The classes are subclasses of Stanza's that share the state of the objects
that a pipeline has loaded, so no weight is loaded twice and nothing of Stanza is patched. Stanza's own
ways to extend it do not serve: ``register_processor_variant("ner", ...)`` fails in 1.15.0, because a
variant has no attribute ``trainers``, and a subclass with ``@register_processor("ner")`` runs twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from stanza.models.common.doc import MULTI_NER, NER, Document
from stanza.models.ner.data import DataLoader
from stanza.models.ner.utils import merge_tags
from stanza.pipeline.ner_processor import NERProcessor

from jobkit.worker.workloads.base import Heavy
from jobkit.worker.workloads.stanza_batches import SentenceCut, columns_of, slices

SHARES = (1.0, 0.85, 0.7)
"""Parts of the heaviest NER batch that are tagged again to measure the memory they need. The need scatters
about its line by the block size of the allocator, which one measurement per point would not show."""


def seen_as(cls: Any, original: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
    """Return an object of a class that shares all attributes of an object of a base class of it."""
    made = cls.__new__(cls)
    vars(made).update(vars(original))
    return made


class StanzaBatches(DataLoader):  # type: ignore[misc]  # Stanza is untyped
    """Stanza's batches of a document, with as many sentences as each is to have.

    ``DataLoader.chunk_batches`` of ``stanza/models/ner/data.py`` takes a fixed number.
    """

    def __init__(self, document: Any, sizes: Sequence[int], trainer: Any, config: Any) -> None:  # noqa: ANN401
        self._sizes = sizes
        super().__init__(
            document,
            max(sizes, default=1),
            config,
            vocab=trainer.vocab,
            evaluation=True,
            preprocess_tags=False,
            bert_tokenizer=trainer.model.bert_tokenizer,
        )

    def chunk_batches(self, data: Sequence[Any]) -> list[list[Any]]:
        """Return the batches."""
        return slices(data, self._sizes)


class Tagger(NERProcessor):  # type: ignore[misc]  # Stanza is untyped
    """Stanza's tagger with batches that jobkit cuts: takes the place of the processor in a pipeline."""

    BATCHES: ClassVar[type[StanzaBatches]] = StanzaBatches

    @classmethod
    def of(cls, processor: Any, cut: SentenceCut) -> Tagger:  # noqa: ANN401 - Stanza is untyped
        """Return a tagger with the models of a processor that is loaded."""
        tagger: Tagger = seen_as(cls, processor)
        tagger.cut = cut
        return tagger

    cut: SentenceCut

    def process(self, document: Any) -> Any:  # noqa: ANN401 - Stanza is untyped
        """Tag the sentences of a document, as ``NERProcessor.process`` does unless they are cut otherwise."""
        if self.cut.is_stock:
            return super().process(document)
        document.sentences = self.cut.arranged(document.sentences)
        self.tag(document)
        document.build_ents()
        return document

    def tag(self, document: Any) -> None:  # noqa: ANN401 - Stanza is untyped
        """Attach a tag to every token of a document; where several models disagree, the first one counts."""
        found = self.predictions(document, self.cut.sizes(document.sentences))
        merged = [merge_tags(*tags) for tags in zip(*found, strict=True)]
        document.set([NER], [tag for tags in merged for tag in tags], to_token=True)
        all_tags = [tags for rows in zip(*found, strict=True) for tags in zip(*rows, strict=True)]
        document.set([MULTI_NER], all_tags, to_token=True)

    def predictions(self, document: Any, sizes: Sequence[int]) -> list[list[Any]]:  # noqa: ANN401
        """Return the tags of every sentence, by each model."""
        with torch.no_grad():
            return [
                [
                    tags
                    for batch in self.BATCHES(document, sizes, trainer, config)
                    for tags in trainer.predict(batch)
                ]
                for trainer, config in zip(self.trainers, self.configs, strict=True)
            ]

    def again(self, sentences: Sequence[Any]) -> Callable[[], object]:
        """Return a function that tags these sentences, which are tokenised, as one batch."""
        document = Document([sentence.to_dict() for sentence in sentences])
        return partial(self.predictions, document, [len(sentences)] if sentences else [])

    def parts(self, sentences: Sequence[Any], columns: int) -> list[Heavy]:
        """Return a batch to tag again, whole and in part; ``columns`` has its longest sentence."""
        counts = {max(1, round(share * len(sentences))): None for share in SHARES}
        return [Heavy(count * columns, self.again(with_longest(sentences, count))) for count in counts]


def with_longest(sentences: Sequence[Any], count: int) -> list[Any]:
    """Return ``count`` sentences: the longest first, then the others in their order."""
    longest = max(range(len(sentences)), key=lambda at: columns_of(sentences[at]))
    others = [sentence for at, sentence in enumerate(sentences) if at != longest]
    return [sentences[longest], *others[: count - 1]]
