"""Words for messages. Standard library only."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence


def advice(word: str, words: Sequence[str]) -> str:
    """Return ``did you mean 'x'?`` for the closest word, empty where none is close."""
    close = difflib.get_close_matches(word, words, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def nearest(word: str, words: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest word, else the list to choose from."""
    return f"; {advice(word, words) or 'one of: ' + ', '.join(words)}"


def meant(names: Sequence[int | str], words: Mapping[str, str]) -> str:
    """Return ``; did you mean 'resources.queue'?`` for another program's word, empty where it is none.

    Parameters
    ----------
    names
        The key as it was written, with the keys that it stands under: ``resources``, ``--partition``.
    words
        Word to the key that is meant, dotted, or to a sentence. A key under the same keys is named
        by its last part.
    """
    word = str(names[-1]).lstrip("-").replace("-", "_")
    found = words.get(word) or words.get(word.lower(), "")
    if not found or " " in found:
        return f"; {found}" if found else ""
    under, _, key = found.rpartition(".")
    same = under == ".".join(map(str, names[:-1]))
    return f"; did you mean {key if same else found!r}{'' if same or under else ', at the top'}?"
