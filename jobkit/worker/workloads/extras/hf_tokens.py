"""Token classification with transformers: named entities by a fine-tuned encoder such as BERT.

Standard library only at import; torch and transformers are imported by `TokenClassification.preload` and
``load``.

The work is done by the library's own pipeline (``transformers/pipelines/token_classification.py``, read in
5.23.0). It takes texts in their order, ``batch_size`` at a time, and pads each batch to its longest text.
Without ``stride`` it drops, without a message, all tokens of a text after the model's maximum; so this
workload sets ``stride``: a longer text becomes several pieces that overlap, all padded to the longest of the
text, and each piece is an item of a batch. A call has ``batch_size`` paragraphs, so that it is one batch
unless it holds such a text.

``precision`` is the type of the model's weights; for ``tf32`` they stay fp32.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, Knob, Value
from jobkit.core.records import ModelRef
from jobkit.worker.workloads import stanza_batches
from jobkit.worker.workloads.base import Entity, Result
from jobkit.worker.workloads.extras.watched import WatchedModel, WatchedWorkload, torch_versions

STRIDE = 64
"""Tokens that the pieces of a long text have in common, so that an entity at an edge is whole in one."""
NO_LIMIT = 10**6
"""A tokenizer that names no maximum has one above this (``VERY_LARGE_INTEGER`` in transformers)."""
FIRST_POSITIONS = 2
"""Positions that no token has: RoBERTa counts them from 2."""
SILENT_TOKENIZERS = ("TOKENIZERS_PARALLELISM", "false")
"""The tokenizers' threads cannot be used after a fork; the pipeline sets this too."""


class TokenClassification(WatchedWorkload):
    """Tag entities with a pipeline of transformers; the module's docstring explains the knobs."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (BATCH_SIZE, stanza_batches.KNOB)
    NEEDS_MODEL: ClassVar[bool] = True
    LOAD_UNIT: ClassVar[str] = "padded tokens"

    def __init__(self) -> None:
        super().__init__()
        self._pipeline: Any = None

    @staticmethod
    def preload() -> None:
        """Import what loading and tagging import."""
        os.environ.setdefault(*SILENT_TOKENIZERS)
        import torch  # noqa: F401 - imported for its side effect

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Load tokenizer and model from a folder, without network, on exactly this device.

        ``model``: A folder that ``from_pretrained`` loads.
        ``device``: ``cpu`` or ``cuda``.
        ``params``: values of `KNOBS`.
        ``threads``: for torch on the CPU.
        """
        folder = model_folder(model)
        os.environ.setdefault(*SILENT_TOKENIZERS)
        import torch
        import transformers
        from transformers import AutoModelForTokenClassification, TokenClassificationPipeline

        transformers.utils.logging.disable_progress_bar()
        dtype = self.choose(params, device, threads)
        network = AutoModelForTokenClassification.from_pretrained(
            folder,
            local_files_only=True,
            dtype=getattr(torch, dtype),
        ).to(device)
        self._watched = WatchedModel(network)
        self._pipeline = TokenClassificationPipeline(
            model=network,
            tokenizer=tokenizer_of(folder),
            device=torch.device(device),
            aggregation_strategy="simple",
            stride=STRIDE,
        )

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Tag these paragraphs; the load is the largest ``items x tokens of the longest`` of a batch."""
        self._watched.clear()
        found = self._pipeline(list(paragraphs), batch_size=self._batch_size)
        entities = (
            _entity(number, paragraph, entity)
            for number, (paragraph, some) in enumerate(zip(paragraphs, found, strict=True))
            for entity in some
        )
        return Result(entities=tuple(entities), load=self._watched.load)

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


def model_folder(model: Path | None) -> Path:
    """Return the folder of a model."""
    if model is None:
        raise JobkitError("this workload needs a model", hint="see `model` in the spec")
    return model


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
