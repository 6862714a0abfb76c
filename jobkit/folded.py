"""Lines for a person: folded to the width of a terminal, control characters spelt out. Standard library."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable

LEAST = 40
"""Columns below which nothing more is folded."""


class Whole(str):
    """A line that is never folded: a row of a table, or what is to be copied."""

    __slots__ = ()


def terminal_width() -> int | None:
    """Return the columns of the terminal that standard output is; ``None`` where it is none."""
    return max(LEAST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def page(parts: Iterable[Iterable[str]], width: int | None = None) -> str:
    """Return parts of lines, an empty line between, as text that ends with a newline.

    Parameters
    ----------
    parts
        Those without a line are left out.
    width
        Lines that are longer go on below, indented, unless they are `Whole` or tell what to type.
    """
    told = ([line for one in part for line in _folded(one, width)] for part in parts)
    return "\n\n".join("\n".join(lines) for lines in told if lines) + "\n"


def printable(text: str) -> str:
    """Return a text with its control characters spelt out: a terminal would obey them."""
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char).startswith("C") else char
        for char in text
    )


def _folded(line: str, width: int | None) -> list[str]:
    told = printable(line)
    if width is None or len(told) <= width or isinstance(line, Whole) or ": jobkit " in told:
        return [told]
    indent = " " * (len(told) - len(told.lstrip()) + 2)
    return textwrap.wrap(
        told, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
