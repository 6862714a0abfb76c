"""A part of the corpus that one process reads at once, and what it found. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

LONGEST_BYTES = 2**26
"""The longest paragraph of a text file, and the longest line of a JSONL file."""


class PieceRow(NamedTuple):
    """A `jobkit.corpus.plan.Piece` of a part; places count from the part, the digest is bytes."""

    start: int
    end: int
    skip: int
    line: int
    first_paragraph: int
    first_character: int
    paragraphs: int
    characters: int
    longest: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file of the corpus, or a range of bytes of a large one.

    Attributes
    ----------
    source
        Its number among the files that were found.
    path, name, kind, compression, size_bytes
        Of the file.
    start, stop
        The range; it begins with the first paragraph (line of JSONL) after ``start`` and ends with the one
        in which ``stop`` is. ``stop`` is ``None`` for a whole file.
    digest
        Whether to compute only the SHA-256 of the file.
    target
        How many bytes a piece should have.
    text_field, id_field
        Of JSONL.
    left_out
        Lines of JSONL, counted from the part's first, that are not read.
    """

    source: int
    path: str
    name: str
    kind: str
    compression: str
    size_bytes: int
    start: int = 0
    stop: int | None = None
    digest: bool = False
    target: int
    text_field: str
    id_field: str
    left_out: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class PartResult:
    """What was found in a part.

    Attributes
    ----------
    start, end
        The bytes that it has.
    sha256
        Of the file, if the part is all of it.
    pieces
        In order.
    documents, paragraphs, characters
        Their numbers; characters of paragraphs.
    given
        The characters of a text file as given.
    lines
        How many.
    bad
        Lines, from 1, and reasons; line 0 is the whole file.
    ids
        A hash of 8 bytes for each document with an id.
    unnamed
        The number of documents without an id.
    likened
        The names of files that ids look like, ``FILE:LINE``: documents without an id have such ids.
    """

    start: int = 0
    end: int = 0
    sha256: str = ""
    pieces: list[PieceRow] = field(default_factory=list)
    documents: int = 0
    paragraphs: int = 0
    characters: int = 0
    given: int = 0
    lines: int = 0
    bad: list[tuple[int, str]] = field(default_factory=list)
    ids: bytearray = field(default_factory=bytearray)
    unnamed: int = 0
    likened: set[str] = field(default_factory=set)


class BadPartError(Exception):
    """A part that cannot be read.

    Parameters
    ----------
    line
        In the part, from 1; 0 for the whole file.
    reason
        In words.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def refuse_long(size: int, what: str) -> None:
    """Refuse a paragraph or a line that is too long to be one.

    Raises
    ------
    BadPartError
        If it is.
    """
    if size > LONGEST_BYTES:
        raise BadPartError(0, f"a {what} of more than {LONGEST_BYTES // 2**20} MiB")
