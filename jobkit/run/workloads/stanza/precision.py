"""The format of numbers in which Stanza's tagger computes: fp32, TF32, fp16 or bf16.

Standard library only at import.

With fp16 and bf16 the tagger's whole network is converted: word vectors, character models, LSTMs and
classifiers. Its scores are converted back to fp32, so that the CRF in torch and the Viterbi search in numpy
compute as always: numpy has no bfloat16, and under ``torch.autocast`` the CRF of Stanza 1.15.0 fails, because
``masked_scatter_`` (``stanza/models/common/crf.py``) takes no two types. The tokenizer stays fp32.
"""

from __future__ import annotations

import os
from typing import Any

from jobkit.core.knobs import BF16, CUDA, FP16, FP32, PRECISION, TF32, Knob

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

    Parameters
    ----------
    precision
        A word of `KNOB`.
    device
        ``cpu`` or ``cuda``.
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
