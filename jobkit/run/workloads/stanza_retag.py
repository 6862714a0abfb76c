"""Tag sentences again that Stanza has tokenised already: only the tagger, in one batch.

Standard library only at import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jobkit.run.workloads.base import Heavy
from jobkit.run.workloads.stanza_lengths import columns_of

SHARES = (1.0, 0.85, 0.7)
"""Parts of the heaviest NER batch that are tagged again to measure the memory they need. The need scatters
about its line by the block size of the allocator, which one measurement per point would not show."""


def parts(processor: Any, sentences: Sequence[Any], columns: int) -> list[Heavy]:  # noqa: ANN401 - Stanza is untyped
    """Return a batch to tag again, whole and in part; ``columns`` is the length of its longest sentence."""
    counts = {max(1, round(share * len(sentences))): None for share in SHARES}
    return [Heavy(count * columns, again(processor, with_longest(sentences, count))) for count in counts]


def again(processor: Any, sentences: Sequence[Any]) -> Callable[[], object]:  # noqa: ANN401 - Stanza is untyped
    """Return a function that tags these sentences as one batch."""
    from stanza.models.common.doc import Document

    return partial(_tag, processor, Document([sentence.to_dict() for sentence in sentences]))


def _tag(processor: Any, document: Any) -> None:  # noqa: ANN401 - Stanza is untyped
    """Tag a document in one batch like Stanza's processor, without building entities."""
    import torch
    from stanza.models.ner.data import DataLoader

    with torch.no_grad():
        for trainer, config in zip(processor.trainers, processor.configs, strict=True):
            batches = DataLoader(
                document,
                len(document.sentences),
                config,
                vocab=trainer.vocab,
                evaluation=True,
                preprocess_tags=False,
                bert_tokenizer=trainer.model.bert_tokenizer,
            )
            for batch in batches:
                trainer.predict(batch)


def with_longest(sentences: Sequence[Any], count: int) -> list[Any]:
    """Return ``count`` sentences: the longest first, then the others in their order."""
    longest = max(range(len(sentences)), key=lambda at: columns_of(sentences[at]))
    others = [sentence for at, sentence in enumerate(sentences) if at != longest]
    return [sentences[longest], *others[: count - 1]]
