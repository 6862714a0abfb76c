"""Tag sentences once more that Stanza has tokenised already: the tagger alone, in one batch.

Standard library only at import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jobkit.run.workloads.base import Heavy

SHARES = (1.0, 0.85, 0.7)
"""How much of the heaviest NER batch is tagged again to measure what memory it needs: the need
scatters about its line by the allocator's grain, which one measurement a point would not show."""


def parts(processor: Any, sentences: Sequence[Any], columns: int) -> list[Heavy]:  # noqa: ANN401 - Stanza is untyped
    """Return a batch to be tagged again, whole and in part; the longest takes so many columns."""
    counts = {max(1, round(share * len(sentences))): None for share in SHARES}
    return [Heavy(count * columns, again(processor, with_longest(sentences, count))) for count in counts]


def again(processor: Any, sentences: Sequence[Any]) -> Callable[[], object]:  # noqa: ANN401 - Stanza is untyped
    """Return a function that tags these sentences with a pipeline's processor, as one batch."""
    from stanza.models.common.doc import Document

    return partial(_tag, processor, Document([sentence.to_dict() for sentence in sentences]))


def _tag(processor: Any, document: Any) -> None:  # noqa: ANN401 - Stanza is untyped
    """Tag a document in one batch as Stanza's processor does, but build no entities."""
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


def columns_of(sentence: Any) -> int:  # noqa: ANN401 - Stanza is untyped
    """Return the columns that a tokenised sentence takes in a batch; see `stanza_lengths`."""
    return 1 + sum(len(token.text) + 1 for token in sentence.tokens)


def with_longest(sentences: Sequence[Any], count: int) -> list[Any]:
    """Return so many sentences, the one that pads the most first and the others as they stand."""
    longest = max(range(len(sentences)), key=lambda at: columns_of(sentences[at]))
    others = [sentence for at, sentence in enumerate(sentences) if at != longest]
    return [sentences[longest], *others[: count - 1]]
