"""How many columns each sentence takes where Stanza's tagger pads, found by its tokenizer alone.

Standard library only at import. Read in ``stanza/models/ner/data.py`` (1.15.0),
``DataLoader.process_chars``: a sentence is a start symbol, then the characters of every token and
one symbol after each. So ``batch[3]``, what the tagger pads, has as many columns as the longest
``1 + sum(len(token) + 1)`` of its sentences.

The tokenizer pads too, over the paragraphs that it gets together, and may very rarely cut a
sentence elsewhere in other company.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from jobkit.core.records import ModelRef

SLEEP_WHILE_WAITING = ("OMP_WAIT_POLICY", "PASSIVE")
"""OpenMP's threads spin while they wait for one another, and the tagger's LSTMs have them wait at
every character. Where another process wants a core, spinning made 11 s of tagging into 417 s;
sleeping costs nothing to speak of. Read once, when torch is first imported; the user's own
value is kept. https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fWAIT_005fPOLICY.html"""
PARAGRAPHS_PER_CALL = 200
"""So many at a time: memory stays small."""
THREADS = 2
"""For torch: a login node is shared."""


def columns(tokens: Iterable[str]) -> int:
    """Return the columns that a sentence of these tokens takes in the tagger's padded characters."""
    return 1 + sum(len(token) + 1 for token in tokens)


def sentence_lengths(paragraphs: Sequence[str], model: ModelRef) -> list[list[int]]:
    """Return the columns of every sentence of every paragraph; runs Stanza's tokenizer on the CPU.

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
        firsts = range(0, len(paragraphs), PARAGRAPHS_PER_CALL)
        calls = (list(paragraphs[first : first + PARAGRAPHS_PER_CALL]) for first in firsts)
        return [_lengths(document) for call in calls for document in pipeline.bulk_process(call)]
    finally:
        torch.set_num_threads(threads)


def _lengths(document: Any) -> list[int]:  # noqa: ANN401 - Stanza is untyped
    return [columns(token.text for token in sentence.tokens) for sentence in document.sentences]
