"""Compute the columns that each sentence takes in Stanza's padded batches, with the tokenizer alone.

Standard library only at import. Read in ``stanza/models/ner/data.py`` (1.15.0),
``DataLoader.process_chars``: a sentence is a start symbol, then the characters of every token and
one symbol after each. So ``batch[3]``, what the tagger pads, has as many columns as the longest
``1 + sum(len(token) + 1)`` of its sentences.

The tokenizer pads too, over the paragraphs that it gets together, and may very rarely cut a
sentence elsewhere if it is next to other text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from jobkit.core.records import ModelRef

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

    Parameters
    ----------
    paragraphs
        The text.
    model
        Its folder, in Stanza's layout, and its language.
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
