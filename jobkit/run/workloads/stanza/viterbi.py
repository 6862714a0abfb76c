"""The best sequence of tags of every sentence of a batch at once, as Stanza finds it for one.

It imports torch and numpy. ``viterbi_decode`` of ``stanza/models/common/crf.py`` takes one sentence, in
numpy. Here each step takes all sentences that are long enough. The sums are the same ones in the same
order, of 32-bit floats, so the scores are equal to the last bit. Of equal scores both take the tag with
the lowest number: ``numpy.argmax`` and ``torch.max`` return the first index of a maximum
(https://docs.pytorch.org/docs/stable/generated/torch.max.html).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def decode(scores: Any, transitions: Any, lengths: Sequence[int]) -> list[list[int]]:  # noqa: ANN401 - torch is untyped
    """Return the best tags of each sentence.

    Parameters
    ----------
    scores
        Of shape sentences x words x tags, 32-bit floats; what is beyond the end of a sentence is not read.
    transitions
        From a tag (row) to the next one (column).
    lengths
        Words of each sentence, the most first.
    """
    walk = _on_gpu if scores.is_cuda else _on_cpu
    active = (np.arange(max(lengths)) < np.array(lengths)[:, None]).sum(axis=0).tolist()
    tags, origins = walk(scores.detach(), transitions.detach(), active)
    paths = np.zeros((len(lengths), len(active)), dtype=np.int64)
    for word in range(len(active) - 1, -1, -1):
        rows = active[word]
        paths[:rows, word] = tags[:rows]
        if word:
            tags[:rows] = origins[word - 1][np.arange(rows), tags[:rows]]
    return [path[:length].tolist() for path, length in zip(paths, lengths, strict=True)]


def _on_gpu(scores: Any, transitions: Any, active: Sequence[int]) -> tuple[Any, list[Any]]:  # noqa: ANN401 - as above
    """Return the best last tag of each sentence, and at each word but the first where each tag came from."""
    best, origins = scores[:, 0].clone(), []
    for word, rows in enumerate(active[1:], 1):
        reached, origin = (best[:rows].unsqueeze(2) + transitions).max(dim=1)
        best[:rows] = scores[:rows, word] + reached
        origins.append(origin.to(torch.int16))
    last = best.argmax(dim=1).cpu().numpy()
    return last, _parts(torch.cat(origins).cpu().numpy(), active[1:]) if origins else []


def _parts(origins: Any, sizes: Sequence[int]) -> list[Any]:  # noqa: ANN401 - numpy is untyped here
    """Return the rows of each word of those that were copied from the GPU in one."""
    return np.split(origins, np.cumsum(sizes)[:-1])


def _on_cpu(scores: Any, transitions: Any, active: Sequence[int]) -> tuple[Any, list[Any]]:  # noqa: ANN401 - as above
    """Return the same in numpy, with the tags to choose from next to each other in memory."""
    scores, into = scores.numpy(), np.ascontiguousarray(transitions.numpy().T)
    best, origins = scores[:, 0].copy(), []
    for word, rows in enumerate(active[1:], 1):
        sums = best[:rows, None, :] + into
        origin = sums.argmax(axis=2)
        reached = np.take_along_axis(sums, origin[:, :, None], axis=2)[:, :, 0]
        best[:rows] = scores[:rows, word] + reached
        origins.append(origin)
    return best.argmax(axis=1), origins
