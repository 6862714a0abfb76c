"""Sentence embeddings with sentence-transformers: one vector a paragraph.

With ``shortcuts: off`` the work is done by ``encode`` (``sentence_transformer/model.py``, read in 6.2.0). It
sorts the texts that it gets by their characters, the longest first, takes ``batch_size`` at a time and pads
each batch to its longest text, in tokens. It drops, without a message, all tokens of a text after the model's
``max_seq_length``. With ``exact`` an `Encoder` makes the batches, and the model's own modules pool them, as
its configuration says; a module that is not one of `KNOWN` is refused.

``precision`` is the type of the model's weights; for ``tf32`` they stay fp32. (``encode`` has a ``precision``
of its own: how its results are rounded. It saves no memory of the GPU, and is not this knob.) ``vectors`` is
the type of the numbers that are written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from jobkit.core.knobs import CPU, FP16, FP32, Knob
from jobkit.core.records import ModelRef
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.extras.encoder import Encoder
from jobkit.worker.workloads.extras.hf_tokens import NO_LIMIT, unknown_input
from jobkit.worker.workloads.extras.watched import (
    ENCODER_KNOBS,
    SILENT_TOKENIZERS,
    Difference,
    WatchedWorkload,
    model_folder,
    torch_versions,
)

STORED = Knob(name="vectors", words=(FP32, FP16))
"""The type of the numbers that are written."""
KNOWN = ("Transformer", "Pooling", "Dense", "Normalize")
"""The modules of sentence-transformers that take what the one before gave, and nothing of the text."""
ROUNDING, NEAR = 1e-5, 1e-2
"""The largest difference of two numbers that is rounding in fp32, and in another precision."""


class SentenceEmbedding(WatchedWorkload):
    """Embed each paragraph; the module's docstring explains the knobs."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (*ENCODER_KNOBS, STORED)
    NEEDS_MODEL: ClassVar[bool] = True
    LOAD_UNIT: ClassVar[str] = "padded tokens"
    COLUMNS: ClassVar[tuple[str, ...]] = ("embedding",)

    @staticmethod
    def preload() -> None:
        """Import what loading and encoding import."""
        os.environ.setdefault(*SILENT_TOKENIZERS)
        import sentence_transformers  # noqa: F401 - imported for its side effect
        from transformers import (
            AutoTokenizer,  # noqa: F401 - the same
        )

    def open(self, folder: Path, dtype: str) -> Any:  # noqa: ANN401 - the framework is untyped
        """Load the model, and return it."""
        if stored := self._params.get(STORED.name):
            self._effective[STORED.name] = stored
        self._model = open_model(folder, self._device, dtype)
        return self._model

    def encoder(self, **limits: Any) -> Encoder | str:  # noqa: ANN401 - as there
        """Return an encoder with the model, or why it cannot do what ``encode`` does."""
        model = self._model
        for module in model:
            if type(module).__name__ not in KNOWN:
                return f"the model has a module {type(module).__name__}"
        if model.default_prompt_name is not None or model.truncate_dim is not None:
            return "the model has a prompt, or shortens its vectors"
        if not 0 < (model.max_seq_length or 0) < NO_LIMIT:
            return "the model names no largest number of tokens"
        if refused := unknown_input(model.tokenizer):
            return refused

        def run(ids: Any, mask: Any, places: Any) -> Sequence[Any]:  # noqa: ANN401 - torch is untyped
            del places
            return [model({"input_ids": ids, "attention_mask": mask})["sentence_embedding"].float()]

        return Encoder(model.tokenizer, run, most_tokens=model.max_seq_length, **limits)

    def encoded(self, paragraphs: Sequence[str], encoder: Encoder) -> tuple[Any, int]:
        """Return the vectors that the encoder finds, and the tokens."""
        import numpy as np

        vectors, tokens = np.zeros((len(paragraphs), 0), np.float32), 0
        for batch in encoder.batches(paragraphs):
            [found] = batch.outputs
            if not vectors.size:
                vectors = np.empty((len(paragraphs), found.shape[1]), np.float32)
            vectors[batch.texts] = found
            tokens += len(batch.ids)
        return vectors, tokens

    def stock(self, paragraphs: Sequence[str], batch_size: int) -> Any:  # noqa: ANN401 - numpy is untyped here
        """Return the vectors that ``encode`` finds."""
        texts = list(paragraphs)
        found = self._model.encode(
            texts, batch_size=batch_size, show_progress_bar=False, convert_to_tensor=True
        )
        return found.float().cpu().numpy()

    def difference(self, one: Any, other: Any) -> Difference:  # noqa: ANN401 - as above
        """Return the distances of vectors, by their numbers."""
        distances = abs(one - other)
        mean, largest = float(distances.mean()), float(distances.max())
        words = f"vectors differ by {mean:.1e} on average, by {largest:.1e} at most"
        return Difference(words, largest, ROUNDING, NEAR)

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Embed these paragraphs; the load is ``paragraphs x tokens of the longest``."""
        vectors, tokens = self.find(paragraphs)
        if self._params.get(STORED.name) == FP16:
            vectors = vectors.astype("float16")
        return Result(vectors=vectors, load=self._watched.load, tokens=tokens)

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return each paragraph as one item with its tokens, by the tokenizer of the model."""
        loaded = _kept_model(model_folder(Path(model.path) if model else None))
        tokens = loaded.tokenizer(list(paragraphs), truncation=True, max_length=loaded.max_seq_length)
        return [[len(ids)] for ids in tokens["input_ids"]]

    def versions(self) -> Mapping[str, str]:
        """Return the versions of torch, sentence-transformers, transformers, tokenizers, numpy and CUDA."""
        import sentence_transformers
        import transformers

        return torch_versions(sentence_transformers, transformers)


@lru_cache(maxsize=1)
def _kept_model(folder: Path) -> Any:  # noqa: ANN401 - as above
    return open_model(folder, CPU, "float32")


def open_model(folder: Path, device: str, dtype: str) -> Any:  # noqa: ANN401 - the framework is untyped
    """Return a model of a folder, without network, with weights of one of torch's types."""
    os.environ.setdefault(*SILENT_TOKENIZERS)
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer

    transformers.utils.logging.disable_progress_bar()
    return SentenceTransformer(
        str(folder), device=device, local_files_only=True, model_kwargs={"dtype": getattr(torch, dtype)}
    )
