"""Words for messages. Standard library only."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

SAME = {
    "partition": "queue",
    "time": "walltime",
    "timelimit": "walltime",
    "time_limit": "walltime",
    "mem": "memory",
    "ncpus": "cpus",
    "slots": "cpus",
    "ngpus": "gpus",
    "gres": "gpus",
    "project": "account",
}
"""What schedulers and other tools call what has another name here."""


def advice(word: str, words: Sequence[str]) -> str:
    """Return ``did you mean 'x'?`` for the word of the same meaning, else the closest; empty for none."""
    same = SAME.get(word.casefold(), "")
    close = [same] if same in words else difflib.get_close_matches(word, words, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def nearest(word: str, words: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest word, else the list to choose from."""
    return f"; {advice(word, words) or 'one of: ' + ', '.join(words)}"
