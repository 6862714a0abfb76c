"""Token classification with transformers: named entities by a fine-tuned encoder such as BERT.

With ``shortcuts: off`` the work is done by the library's own pipeline
(``transformers/pipelines/token_classification.py``, read in 5.23.0). It takes texts in their order,
``batch_size`` at a time, and pads each batch to its longest text. With ``exact`` an `Encoder` does it, and
`Aggregation` finds the entities that the pipeline finds; ``aggregation`` is the pipeline's strategy.

Without ``stride`` the pipeline drops, without a message, all tokens of a text after the model's maximum; so
both ways have it: a longer text becomes several pieces that overlap, and each piece is an item of a batch.

``precision`` is the type of the model's weights; for ``tf32`` they stay fp32.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import Knob
from jobkit.core.records import ModelRef
from jobkit.worker.workloads.base import Entity, Result
from jobkit.worker.workloads.extras.aggregation import KNOB, SIMPLE, Aggregation, Found, without_overlaps
from jobkit.worker.workloads.extras.encoder import Encoder
from jobkit.worker.workloads.extras.watched import (
    ENCODER_KNOBS,
    SILENT_TOKENIZERS,
    Difference,
    WatchedWorkload,
    model_folder,
    torch_versions,
)

STRIDE = 64
"""Tokens that the pieces of a long text have in common, so that an entity at an edge is whole in one."""
NEAR = 0.05
"""Of the entities, the share that may differ from fp32 in another precision."""
NO_LIMIT = 10**6
"""A tokenizer that names no maximum has one above this (``VERY_LARGE_INTEGER`` in transformers)."""
FIRST_POSITIONS = 2
"""Positions that no token has: RoBERTa counts them from 2."""


class TokenClassification(WatchedWorkload):
    """Tag entities with a model of transformers; the module's docstring explains the knobs."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (*ENCODER_KNOBS, KNOB)
    NEEDS_MODEL: ClassVar[bool] = True
    LOAD_UNIT: ClassVar[str] = "padded tokens"

    @staticmethod
    def preload() -> None:
        """Import what loading and tagging import."""
        os.environ.setdefault(*SILENT_TOKENIZERS)
        import torch  # noqa: F401 - imported for its side effect

    def open(self, folder: Path, dtype: str) -> Any:  # noqa: ANN401 - transformers is untyped
        """Load tokenizer and model into a pipeline, and return the model."""
        import torch
        from transformers import AutoModelForTokenClassification, TokenClassificationPipeline

        network = AutoModelForTokenClassification.from_pretrained(
            folder,
            local_files_only=True,
            dtype=getattr(torch, dtype),
        ).to(self._device)
        self._pipeline = TokenClassificationPipeline(
            model=network,
            tokenizer=tokenizer_of(folder),
            device=torch.device(self._device),
            aggregation_strategy=self._strategy,
            stride=STRIDE,
        )
        return network

    @property
    def _strategy(self) -> str:
        return str(self._params.get(KNOB.name, SIMPLE))

    def encoder(self, **limits: Any) -> Encoder | str:  # noqa: ANN401 - as there
        """Return an encoder with the model, or why it cannot do what the pipeline does."""
        tokenizer, network = self._pipeline.tokenizer, self._pipeline.model
        if refused := unknown_input(tokenizer):
            return refused
        self._aggregation = Aggregation(self._strategy, tokenizer, network.config.id2label)

        def run(ids: Any, mask: Any, places: Any) -> Sequence[Any]:  # noqa: ANN401 - torch is untyped
            logits = network(input_ids=ids, attention_mask=mask).logits
            return self._aggregation.outputs(logits.flatten(0, 1)[places])

        return Encoder(tokenizer, run, most_tokens=tokenizer.model_max_length, stride=STRIDE, **limits)

    def encoded(self, paragraphs: Sequence[str], encoder: Encoder) -> tuple[list[Entity], int]:
        """Return the entities that the encoder finds, and the tokens."""
        found: list[Entity] = []
        cut: dict[int, list[Found]] = {}
        tokens = 0
        for batch in encoder.batches(paragraphs):
            self._aggregation.add(batch, paragraphs, found, cut)
            tokens += len(batch.ids)
        for number, several in cut.items():
            for start, end, label, _ in without_overlaps(several):
                found.append(Entity(number, paragraphs[number][start:end], label, start, end))
        return found, tokens

    def stock(self, paragraphs: Sequence[str], batch_size: int) -> list[Entity]:
        """Return the entities that the pipeline finds."""
        found = self._pipeline(list(paragraphs), batch_size=batch_size) if paragraphs else []
        rows = enumerate(zip(paragraphs, found, strict=True))
        return [_entity(number, text, one) for number, (text, some) in rows for one in some]

    def difference(self, one: Sequence[Entity], other: Sequence[Entity]) -> Difference:
        """Return the entities that differ, and the F1 score of the first ones."""
        same = len({*one} & {*other})
        differ = len({*one} ^ {*other})
        score = 2 * same / (len(one) + len(other)) if one or other else 1.0
        return Difference(
            f"{differ} of {len(other)} entities differ, F1 {score:.4f}", differ, 0, NEAR * len(other)
        )

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Tag these paragraphs; the load is the largest ``items x tokens of the longest`` of a batch."""
        entities, tokens = self.find(paragraphs)
        return Result(entities=tuple(entities), load=self._watched.load, tokens=tokens)

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return the padded length, in tokens, of every piece of every paragraph, by the tokenizer alone."""
        tokenizer = tokenizer_of(model_folder(Path(model.path) if model else None))
        cut = tokenizer(
            list(paragraphs), truncation=True, return_overflowing_tokens=True, stride=STRIDE, padding=False
        )
        pieces = Counter(cut["overflow_to_sample_mapping"])
        longest = [0] * len(paragraphs)
        for at, tokens in zip(cut["overflow_to_sample_mapping"], cut["input_ids"], strict=True):
            longest[at] = max(longest[at], len(tokens))
        return [[longest[at]] * pieces[at] for at in range(len(paragraphs))]

    def versions(self) -> Mapping[str, str]:
        """Return the versions of torch, transformers, tokenizers, numpy, CUDA and cuDNN."""
        import transformers

        return torch_versions(transformers)


def unknown_input(tokenizer: Any) -> str:  # noqa: ANN401 - transformers is untyped
    """Return why an encoder cannot make the input of a model; empty if it can."""
    if tokenizer.padding_side != "right" or tokenizer.truncation_side != "right":
        return f"{type(tokenizer).__name__} pads or cuts on the left"
    if any(tokenizer.backend_tokenizer.encode("a").type_ids):
        return f"{type(tokenizer).__name__} has types of tokens"
    return ""


@lru_cache(maxsize=2)
def tokenizer_of(folder: Path) -> Any:  # noqa: ANN401 - transformers is untyped
    """Return the tokenizer of a folder, with the maximum of the model if it names none itself."""
    os.environ.setdefault(*SILENT_TOKENIZERS)
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not tokenizer.is_fast:
        hint = "save it again as a fast one: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        raise JobkitError(f"model {folder}: its tokenizer is not a fast one (no tokenizer.json)", hint=hint)
    if tokenizer.model_max_length > NO_LIMIT:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        tokenizer.model_max_length = config.max_position_embeddings - FIRST_POSITIONS
    return tokenizer


def _entity(number: int, paragraph: str, found: Mapping[str, Any]) -> Entity:
    start, end = int(found["start"]), int(found["end"])
    return Entity(number, paragraph[start:end], str(found["entity_group"]), start, end)
