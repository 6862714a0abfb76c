"""Named entities with spaCy.

``batch_size`` is that of ``Language.pipe``: so many documents go through each component together. The
tagger then takes a quarter of them at a time (at least 2), by length, the shortest first
(``spacy/pipeline/transition_parser.pyx``, ``Parser.pipe``, read in 3.8). spaCy's own networks do not pad to
the longest: they lay the tokens of the documents one after the other (``with_array`` in
``spacy/ml/models/tok2vec.py``), so the load is the tokens of the ``batch_size`` documents. A transformer in
a spaCy pipeline pads inside; of such a model the load is only near.

Only the component ``ner`` runs, and what it listens to: a shared ``tok2vec`` or ``transformer``. The threads
of the setting are torch's; spaCy's own networks use one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, CUDA, Knob, Value, numbers
from jobkit.core.records import ModelRef
from jobkit.worker.workloads.base import Entity, Heavy, Result
from jobkit.worker.workloads.model import model_folder, parts_of, torch_versions

DEFAULT_BATCH_SIZE = 1000
"""Documents per call if the sweep does not set it: the default of ``Language.pipe``."""


class SpacyNer:
    """Tag named entities with a spaCy pipeline; the module's docstring explains the knob."""

    KNOBS: ClassVar[tuple[Knob | str, ...]] = (BATCH_SIZE,)
    NEEDS_MODEL: ClassVar[bool] = True
    LOAD_UNIT: ClassVar[str] = "tokens"
    PADS: ClassVar[bool] = False

    def __init__(self) -> None:
        self._batch_size = DEFAULT_BATCH_SIZE
        self._nlp: Any = None
        self._largest: int | None = None
        self._attempted: tuple[str, ...] = ()
        self._heaviest: tuple[int, tuple[tuple[str, int], ...]] = (0, ())  # load; texts with their tokens

    @staticmethod
    def preload() -> None:
        """Import what loading and tagging import; on a GPU also torch, which lends spaCy its memory."""
        import spacy  # noqa: F401 - imported for its side effect
        import torch  # noqa: F401 - the same

    def load(self, model: Path | None, device: str, params: Mapping[str, Value], threads: int) -> None:
        """Load the pipeline from a folder, without network, on exactly this device.

        On a GPU spaCy takes its memory from torch's allocator, where jobkit measures it.
        """
        folder = model_folder(model)
        import spacy
        import torch
        from thinc.api import set_gpu_allocator

        torch.set_num_threads(threads)
        self.change(params)
        if device == CUDA:
            spacy.require_gpu()
            set_gpu_allocator("pytorch")
        else:
            spacy.require_cpu()
        self._nlp = spacy.load(folder)
        if "ner" not in self._nlp.pipe_names:
            has = ", ".join(self._nlp.pipe_names) or "no component"
            hint = "name a model with a named-entity recognizer, such as en_core_web_sm"
            raise JobkitError(f"model {folder}: has {has}, not ner", hint=hint)
        listens = any("listener" in node.name for node in self._nlp.get_pipe("ner").model.walk())
        others = {"tok2vec", "transformer"} if listens else set()
        self._nlp.select_pipes(enable=[name for name in self._nlp.pipe_names if name in {*others, "ner"}])

    def change(self, params: Mapping[str, Value]) -> None:
        """Take another batch size, with what is loaded."""
        self._batch_size = numbers(params).get(BATCH_SIZE, DEFAULT_BATCH_SIZE)
        self._largest, self._heaviest = None, (0, ())

    def items_per_call(self) -> int:
        """Return the batch size, in paragraphs."""
        return self._batch_size

    def process(self, paragraphs: Sequence[str]) -> Result:
        """Tag these paragraphs, each as a document; the load is their tokens."""
        self._attempted = tuple(paragraphs)
        documents = list(self._nlp.pipe(paragraphs, batch_size=self._batch_size))
        self._largest = max(self._largest or 0, min(len(documents), self._batch_size))
        counts = [len(document) for document in documents]
        if sum(counts) > self._heaviest[0]:
            self._heaviest = sum(counts), tuple(zip(paragraphs, counts, strict=True))
        entities = (
            Entity(number, found.text, found.label_, found.start_char, found.end_char)
            for number, (_, document) in enumerate(zip(paragraphs, documents, strict=True))
            for found in document.ents
        )
        return Result(entities=tuple(entities), load=sum(counts), tokens=sum(counts))

    @staticmethod
    def lengths(paragraphs: Sequence[str], model: ModelRef | None) -> list[list[int]]:
        """Return each paragraph as one item with its tokens, by the tokenizer alone."""
        import spacy

        folder = model_folder(model)
        components = spacy.util.load_config(folder / "config.cfg")["nlp"]["pipeline"]
        tokenizer = spacy.load(folder, exclude=components).tokenizer
        return [[len(document)] for document in tokenizer.pipe(paragraphs)]

    def heaviest(self) -> Sequence[Heavy]:
        """Return the heaviest call so far, whole and in part."""
        texts = sorted(self._heaviest[1], key=lambda text: -text[1])
        parts = [texts[:count] for count in parts_of(len(texts))]
        return [Heavy(sum(count for _, count in part), partial(self._again, part)) for part in parts]

    def attempted_load(self) -> int:
        """Return the load of the call that began last; after an error, of the call that failed."""
        return sum(map(len, self._nlp.tokenizer.pipe(self._attempted))) if self._nlp else 0

    def effective(self) -> Mapping[str, Value | None]:
        """Return the most documents that went through the pipeline together; ``None`` before the first."""
        return {BATCH_SIZE: self._largest}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of spaCy, thinc, numpy, torch, CUDA and cuDNN, and of cupy if a GPU is used."""
        import spacy
        import thinc
        from thinc.api import get_current_ops

        used = [sys.modules["cupy"]] if get_current_ops().name == "cupy" else []
        return torch_versions(spacy, thinc, *used)

    def _again(self, part: Sequence[tuple[str, int]]) -> None:
        for _ in self._nlp.pipe((text for text, _ in part), batch_size=self._batch_size):
            pass
