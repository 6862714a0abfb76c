"""How a call becomes batches of Stanza's tagger: their lengths, their cut, the format of numbers.

Tags are attached to the sentences themselves, so their order inside a call changes nothing of what is
returned.

With fp16 and bf16 the tagger's whole network is converted: word vectors, character models, LSTMs and
classifiers. Its scores are converted back to fp32, so that the CRF in torch and the Viterbi search in numpy
compute as always: numpy has no bfloat16, and under ``torch.autocast`` the CRF of Stanza 1.15.0 fails, because
``masked_scatter_`` (``stanza/models/common/crf.py``) takes no two types. The tokenizer stays fp32.

The length of a sentence is the number of columns it takes, as read in ``stanza/models/ner/data.py`` (1.15.0),
``DataLoader.process_chars``: a sentence is a start symbol, then the characters of every token and
one symbol after each. So ``batch[3]``, what the tagger pads, has as many columns as the longest
``1 + sum(len(token) + 1)`` of its sentences.

The tokenizer pads too, over the paragraphs that it gets together, and may very rarely cut a
sentence elsewhere if it is next to other text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jobkit.core.knobs import BF16, CUDA, FP16, FP32, PRECISION, TF32, Knob
from jobkit.core.records import ModelRef
from jobkit.worker.paragraphs import cut_by_budget

KNOB = Knob(name=PRECISION, words=(FP32, TF32, FP16, BF16), cuda_words=(TF32,))
DTYPES = {FP16: "float16", BF16: "bfloat16"}
"""The names of torch's types."""
TF32_SINCE = 8
"""The first major compute capability with TF32, Ampere's (CUDA C++ Programming Guide, appendix)."""
OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""With 0 in this variable NVIDIA's libraries never use TF32, whatever a program sets (cuBLAS and cuDNN)."""


def set_tf32(precision: str, device: str) -> str:
    """Switch TF32 on for ``tf32`` and off for all others; return the precision that takes effect.

    Both switches are set, because torch's defaults differ: ``torch.backends.cuda.matmul.allow_tf32``
    is false and ``torch.backends.cudnn.allow_tf32``, which decides for the LSTMs, is true.

    ``precision``: A word of `KNOB`.
    ``device``: ``cpu`` or ``cuda``.
    """
    import torch

    wanted = precision == TF32
    torch.backends.cuda.matmul.allow_tf32 = wanted
    torch.backends.cudnn.allow_tf32 = wanted
    return FP32 if wanted and not _has_tf32(torch, device) else precision


def _has_tf32(torch: Any, device: str) -> bool:  # noqa: ANN401 - torch is untyped
    if device != CUDA or os.environ.get(OVERRIDE) == "0":
        return False
    major, _ = torch.cuda.get_device_capability()
    return bool(major >= TF32_SINCE)


def convert(processor: Any, precision: str) -> None:  # noqa: ANN401 - Stanza is untyped
    """Convert the tagger's network to fp16 or bf16, and its scores back; fp32 and TF32 need no conversion."""
    if precision not in DTYPES:
        return
    import torch

    for trainer in processor.trainers:
        network = trainer.model
        network.to(getattr(torch, DTYPES[precision]))
        network.crits.float()
        for classifier in network.tag_clfs:
            classifier.register_forward_pre_hook(_as_weights)
            classifier.register_forward_hook(_as_fp32)
    torch.cuda.empty_cache()  # the memory of the fp32 weights; does nothing if no GPU is in use


def _as_weights(classifier: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ANN401 - torch is untyped
    """Convert what enters a classifier: with several, the scores of one enter the next."""
    return tuple(value.to(classifier.weight.dtype) for value in inputs)


def _as_fp32(classifier: Any, inputs: tuple[Any, ...], scores: Any) -> Any:  # noqa: ANN401 - torch is untyped
    del classifier, inputs
    return scores.float()


SLEEP_WHILE_WAITING = ("OMP_WAIT_POLICY", "PASSIVE")
"""OpenMP's threads spin while they wait for each other, and the tagger's LSTMs make them wait at
every character. If another process needs a core, spinning turned 11 s of tagging into 417 s; sleeping
costs almost nothing. torch reads it once, when it is first imported; a value set by the user stays. https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fWAIT_005fPOLICY.html"""
PARAGRAPHS_PER_CALL = 200
"""Small calls keep memory small."""
THREADS = 2
"""Threads of torch, because users share a login node."""


def columns(tokens: Iterable[str]) -> int:
    """Return the columns that a sentence of these tokens takes in the tagger's padded characters."""
    return 1 + sum(len(token) + 1 for token in tokens)


def columns_of(sentence: Any) -> int:  # noqa: ANN401 - Stanza is untyped
    """Return the columns that a tokenised sentence takes in a batch."""
    return columns(token.text for token in sentence.tokens)


def sentence_lengths(paragraphs: Sequence[str], model: ModelRef) -> list[list[int]]:
    """Return the columns of every sentence of every paragraph, by Stanza's tokenizer on the CPU.

    A paragraph that occurs again is cut once.

    ``paragraphs``: the text.
    ``model``: its folder, in Stanza's layout, and its language.
    """
    os.environ.setdefault(*SLEEP_WHILE_WAITING)
    import stanza
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(min(threads, THREADS))
    try:
        pipeline = stanza.Pipeline(
            lang=model.name,
            dir=model.path,
            processors="tokenize",
            download_method=None,
            device="cpu",
            verbose=False,
        )
        once = list(dict.fromkeys(paragraphs))
        firsts = range(0, len(once), PARAGRAPHS_PER_CALL)
        calls = (once[first : first + PARAGRAPHS_PER_CALL] for first in firsts)
        documents = (document for call in calls for document in pipeline.bulk_process(call))
        rows = ([columns_of(sentence) for sentence in document.sentences] for document in documents)
        lengths = dict(zip(once, rows, strict=True))
        return [lengths[paragraph] for paragraph in paragraphs]
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceCut:
    """How sentences are arranged and cut."""

    size: int = 1  # sentences of a batch
    # the limit of sentences x characters of the longest, in place of ``size``; ``None`` for no limit
    padded: int | None = None
    by_length: bool = False  # whether the longest sentences of a call come first

    @property
    def is_stock(self) -> bool:
        """Whether Stanza cuts so by itself: a fixed number of sentences in text order."""
        return not (self.padded or self.by_length)

    def arranged(self, sentences: Iterable[Any]) -> list[Any]:
        """Return the sentences of a call in the order in which they are cut."""
        return sorted(sentences, key=columns_of, reverse=True) if self.by_length else list(sentences)

    def sizes(self, sentences: Sequence[Any]) -> list[int]:
        """Return how many sentences each batch holds, of sentences in order."""
        if self.padded:
            return cut_by_budget(map(columns_of, sentences), self.padded)
        return [min(self.size, len(sentences) - at) for at in range(0, len(sentences), self.size)]

    def batches(self, sentences: Iterable[Any]) -> list[list[Any]]:
        """Return the batches of a call."""
        ordered = self.arranged(sentences)
        return slices(ordered, self.sizes(ordered))


def slices(items: Sequence[Any], sizes: Iterable[int]) -> list[list[Any]]:
    """Return consecutive parts of these sizes."""
    left = iter(items)
    return [[next(left) for _ in range(size)] for size in sizes]
