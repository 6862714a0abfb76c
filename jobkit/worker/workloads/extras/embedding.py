"""Sentence embeddings with sentence-transformers: one vector a paragraph.

Standard library only at import; torch and sentence-transformers are imported by
`SentenceEmbedding.preload` and ``load``.

The work is done by ``SentenceTransformer.encode`` (``sentence_transformer/model.py``, read in 6.2.0). It
sorts the texts that it gets by their characters, the longest first, takes ``batch_size`` at a time and pads
each batch to its longest text, in tokens. It drops, without a message, all tokens of a text after the model's
``max_seq_length``. A call has ``batch_size`` paragraphs, so it is one batch, and the order inside it makes no
difference; ``order: sorted`` in the spec sorts the whole text, which then has the batches of one ``encode``
of the whole text.

``precision`` is the type of the model's weights; for ``tf32`` they stay fp32. (``encode`` has a ``precision``
of its own: how its results are rounded. It saves no memory of the GPU, and is not this knob.)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from jobkit.core.knobs import BATCH_SIZE, CPU, Knob, Value
from jobkit.core.records import ModelRef
from jobkit.worker.workloads import stanza_batches
from jobkit.worker.workloads.base import Result
from jobkit.worker.workloads.extras.hf_tokens import SILENT_TOKENIZERS, model_folder
from jobkit.worker.workloads.extras.watched import WatchedModel, WatchedWorkload, torch_versions

DIGITS = 6
"""Decimal places of the numbers in the rows: about what a 32-bit float of a vector of length 1 holds."""


class SentenceEmbedding(WatchedWorkload):
    """Embed each paragraph; the module's docstring explains the knobs."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (BATCH_SIZE, stanza_batches.KNOB)
    NEEDS_MODEL: ClassVar[bool] = True
    LOAD_UNIT: ClassVar[str] = "padded tokens"
    COLUMNS: ClassVar[tuple[str, ...]] = ("embedding",)

    def __init__(self) -> None:
        super().__init__()
        self._model: Any = None

    @staticmethod
    def preload() -> None:
        """Import what loading and encoding import."""
        os.environ.setdefault(*SILENT_TOKENIZERS)
        import sentence_transformers  # noqa: F401 - imported for its side effect
        from transformers import (
            AutoTokenizer,  # noqa: F401 - the same
        )

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Load the model from a folder, without network, on exactly this device.

        ``model``: A folder that ``SentenceTransformer`` loads.
        ``device``: ``cpu`` or ``cuda``.
        ``params``: values of `KNOBS`.
        ``threads``: for torch on the CPU.
        """
        folder = model_folder(model)
        dtype = self.choose(params, device, threads)
        self._model = open_model(folder, device, dtype)
        self._watched = WatchedModel(self._model)

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Embed these paragraphs; the load is ``paragraphs x tokens of the longest``."""
        self._watched.clear()
        vectors = self._model.encode(
            list(paragraphs), batch_size=self._batch_size, show_progress_bar=False, convert_to_tensor=True
        )
        rows = vectors.float().cpu().tolist()
        return Result(
            rows=tuple((number, [round(value, DIGITS) for value in row]) for number, row in enumerate(rows)),
            load=self._watched.load,
        )

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return each paragraph as one item with its tokens, by the tokenizer of the model."""
        loaded = open_model(model_folder(Path(model.path) if model else None), CPU, "float32")
        tokens = loaded.tokenizer(list(paragraphs), truncation=True, max_length=loaded.max_seq_length)
        return [[len(ids)] for ids in tokens["input_ids"]]

    def versions(self) -> Mapping[str, str]:
        """Return the versions of torch, sentence-transformers, transformers, tokenizers, numpy and CUDA."""
        import sentence_transformers
        import transformers

        return torch_versions(sentence_transformers, transformers)


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
