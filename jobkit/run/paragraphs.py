"""Split a text into paragraphs, exactly as the systems before jobkit did."""

from __future__ import annotations

import io
from itertools import chain
from typing import TYPE_CHECKING

from jobkit.core.errors import JobkitError

if TYPE_CHECKING:
    from pathlib import Path


def read_paragraphs(path: Path) -> list[str]:
    r"""Return the paragraphs of a UTF-8 text, as they stand.

    A line that holds more than white space belongs to the paragraph and keeps its newline and
    its indentation; a line of nothing but white space ends it. A byte order mark is dropped,
    ``\r\n`` and ``\r`` become ``\n``.

    Raises
    ------
    JobkitError
        Where the file is missing, is not UTF-8, or holds no paragraph.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise JobkitError(f"text {path}: {error.strerror}", hint="see `text` in the spec") from error
    except UnicodeDecodeError as error:
        hint = f"convert it first, for instance: iconv -f latin1 -t utf-8 {path} > {path}.utf8"
        raise JobkitError(f"text {path}: not UTF-8 at byte {error.start}", hint=hint) from error
    paragraphs = split_paragraphs(text)
    if not paragraphs:
        raise JobkitError(f"text {path}: holds no paragraph", hint="see `text` in the spec")
    return paragraphs


def split_paragraphs(text: str) -> list[str]:
    r"""Return the paragraphs of a text with ``\n`` line ends; see `read_paragraphs`."""
    paragraphs: list[str] = []
    paragraph = ""
    for line in chain(io.StringIO(text), [""]):
        if line.strip():
            paragraph += line
        elif paragraph:
            paragraphs.append(paragraph)
            paragraph = ""
    return paragraphs
