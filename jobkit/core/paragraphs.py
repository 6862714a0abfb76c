"""What a paragraph of a text is. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator

GIVEN = ("document", "paragraph")
"""The fields that say where a row is from, before the columns of the workload."""

_SPACE = re.compile(r"\s*")
_BREAK = re.compile(r"\n[^\S\n]*\n")
r"""The end of a line and a blank line after it. ``\s`` and ``str.strip`` know the same white space."""


def split_paragraphs(text: str) -> list[str]:
    r"""Return the paragraphs of a text with ``\n`` line ends.

    A line with more than white space belongs to the paragraph and keeps its newline and its
    indentation; a line of only white space ends the paragraph.
    """
    return [text[start:end] for start, end in spans(text)]


def spans(text: str) -> Iterator[tuple[int, int]]:
    r"""Yield the start and the end of each paragraph of a text with ``\n`` line ends."""
    start = _first_line(text, 0)
    while start < len(text):
        found = _BREAK.search(text, start)
        if found is None:
            yield start, _end(text)
            return
        yield start, found.start() + 1
        start = _first_line(text, found.start())


def _first_line(text: str, at: int) -> int:
    """Return where the first line with more than white space begins, from a line end or the beginning."""
    black = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches everywhere
    return len(text) if black == len(text) else text.rfind("\n", at, black) + 1


def _end(text: str) -> int:
    """Return the end of the last line with more than white space."""
    last = text.rfind("\n") + 1
    return last if text[last:].isspace() else len(text)
