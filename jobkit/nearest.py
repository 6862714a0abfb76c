"""Words for messages. Standard library only."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def advice(word: str, words: Sequence[str]) -> str:
    """Return ``did you mean 'x'?`` for the closest word, empty where none is close."""
    close = difflib.get_close_matches(word, words, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def nearest(word: str, words: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest word, else the list to choose from."""
    return f"; {advice(word, words) or 'one of: ' + ', '.join(words)}"
