"""Cut a text into paragraphs, sentences and calls."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from jobkit.core.errors import JobkitError

if TYPE_CHECKING:
    from pathlib import Path

_TITLES = "".join(rf"(?<!\b{title}\.)" for title in ("Mr", "Mrs", "Ms", "Dr", "St", "Prof", "[A-Z]"))
_SENTENCE_END = re.compile(rf"(?<=[.!?]){_TITLES}[\"')\u201d\u2019]*\s+(?![a-z])")
"""White space after a full stop, ! or ?; not after a title or an initial, nor before a small letter."""


@dataclass(frozen=True, slots=True)
class Call:
    """Consecutive paragraphs that the workload gets at once; ``first`` counts from 0."""

    first: int
    paragraphs: tuple[str, ...]


def calls(paragraphs: Sequence[str], items_per_call: int, *, order: str, cap: int | None) -> list[Call]:
    """Return the calls in the order of work.

    Parameters
    ----------
    paragraphs
        The text.
    items_per_call
        Paragraphs a call; the last call of the text may hold fewer.
    order
        ``text``, or ``load``: the largest load first, so that a lack of memory shows in
        seconds and the allocator does not grow step by step.
    cap
        The largest number of sentences that the framework pads together; ``None`` for a whole call.
    """
    made = [
        Call(first, tuple(paragraphs[first : first + items_per_call]))
        for first in range(0, len(paragraphs), items_per_call)
    ]
    if order == "load":
        made.sort(key=lambda call: (-estimated_load(call.paragraphs, cap), call.first))
    return made


def split_sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph, in order, judged by punctuation."""
    return [sentence for sentence in _SENTENCE_END.split(paragraph) if sentence]


def estimated_load(paragraphs: Sequence[str], cap: int | None) -> int:
    """Return sentences x longest sentence in characters, judged by punctuation.

    It decides only the order of work; the record holds the load that the framework saw.
    """
    lengths = [len(sentence) for text in paragraphs for sentence in split_sentences(text)]
    size = min(cap, len(lengths)) if cap else len(lengths)
    step = size or 1
    chunks = (lengths[start : start + step] for start in range(0, len(lengths), step))
    return max((len(chunk) * max(chunk) for chunk in chunks), default=0)


def read_paragraphs(path: Path) -> list[str]:
    r"""Return the paragraphs of a UTF-8 text, unchanged.

    A line with more than white space belongs to the paragraph and keeps its newline and its
    indentation; a line of only white space ends the paragraph. A byte order mark is dropped,
    ``\r\n`` and ``\r`` become ``\n``.

    Raises
    ------
    JobkitError
        If the file is missing, is not UTF-8, or holds no paragraph.
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
