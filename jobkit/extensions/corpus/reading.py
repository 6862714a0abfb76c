"""How a node reads the paragraphs of a shard. Standard library only."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby, islice
from typing import NamedTuple

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.paragraphs import BOM, BadLineError, Fields, parse_line, spans
from jobkit.extensions.corpus.plan import Corpus, Piece, Source
from jobkit.extensions.corpus.sources import BrokenError, Stream, open_stream, read_exactly, skip


def generated_id(source: str, line: int) -> str:
    return f"{source}:{line}"


_HINT = "restore the input, or plan the changed corpus in a new folder: jobkit apply"


def place_of(corpus: Corpus, piece: Piece, paragraph: Paragraph) -> str:
    name = corpus.sources[piece.source].name
    document = "" if paragraph.document == name else f", document {paragraph.document}"
    return f"{name}{document}, paragraph {paragraph.number + 1:,}"


class Paragraph(NamedTuple):
    r"""A paragraph, and where it is in its document."""

    document: str  # the id of its document
    number: int  # in the document, from 0
    text: str  # with ``\n`` line ends, also where the document has ``\r\n`` or ``\r``
    offset: int  # how many characters of the document, as it was given, are before it
    returns: tuple[int, ...] = ()  # the positions in ``text`` of the line ends that were ``\r\n`` as given
    piece: int = 0  # the piece of the shard that holds it, from 0


def given_offset(paragraph: Paragraph, at: int) -> int:
    """Return where an offset into a paragraph's text is in its document as it was given, in characters."""
    return paragraph.offset + at + bisect_left(paragraph.returns, at)


def read_pieces(corpus: Corpus, pieces: tuple[Piece, ...]) -> Iterator[Paragraph]:
    """Yield the paragraphs of pieces in corpus order; in memory is one piece at a time."""
    fields = Fields(corpus.text_field, corpus.id_field)
    left_out = left_out_lines(corpus)
    for number, group in groupby(enumerate(pieces), key=lambda one: one[1].source):
        source = corpus.sources[number]
        for at, piece, data in _blocks(source, group):
            if source.kind == "jsonl":
                found = _of_lines(source, piece, data, fields, left_out.get(source.name, frozenset()))
            else:
                found = numbered(source.name, data.decode(), piece.first_paragraph, piece.first_character)
            for paragraph in found:
                yield paragraph._replace(piece=at)


def left_out_lines(corpus: Corpus) -> dict[str, set[int]]:
    """Return the lines of each source that are skipped."""
    lines: dict[str, set[int]] = {}
    for bad in corpus.skipped:
        lines.setdefault(bad.source, set()).add(bad.line)
    return lines


def _blocks(source: Source, pieces: Iterator[tuple[int, Piece]]) -> Iterator[tuple[int, Piece, bytes]]:
    """Yield each piece of a source with its number and its bytes, verified."""
    stream: Stream | None = None
    place = 0
    before: tuple[int, int, bytes] = (0, 0, b"")
    with ExitStack() as stack:
        for number, piece in pieces:
            if (piece.start, piece.end) != before[:2]:
                try:
                    if stream is None:
                        stream = stack.enter_context(open_stream(source.path, source.compression))
                    skip(stream, piece.start - place)
                    data = read_exactly(stream, piece.end - piece.start)
                except OSError as error:
                    raise file_error(error, source.path, hint=_HINT) from error
                except BrokenError as error:
                    raise JobkitError(f"{source.path}: {error}", hint=_HINT) from error
                place = piece.end
                before = (piece.start, piece.end, data)
            _verify(source, piece, before[2])
            yield number, piece, before[2]


def _verify(source: Source, piece: Piece, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != piece.sha256:
        where = f"{source.path}: bytes {piece.start} to {piece.end}"
        raise JobkitError(f"{where}: changed since the corpus was planned", hint=_HINT)


def _of_lines(
    source: Source, piece: Piece, data: bytes, fields: Fields, left_out: set[int] | frozenset[int]
) -> Iterator[Paragraph]:
    found = (
        paragraph
        for number, line in enumerate(data.split(b"\n"), piece.line)
        if number not in left_out and (bare := line.removeprefix(BOM) if number == 1 else line).strip()
        for paragraph in numbered(*document_of(source, number, bare, fields), 0, 0)
    )
    return islice(found, piece.skip, piece.skip + piece.paragraphs)


def document_of(source: Source, number: int, line: bytes, fields: Fields) -> tuple[str, str]:
    try:
        document = parse_line(line, fields)
    except BadLineError as error:  # the digest is right: another version of jobkit made the plan
        raise JobkitError(f"{source.path}:{number}: {error}", hint=_HINT) from error
    return document.id or generated_id(source.name, number), document.text


def numbered(document: str, given: str, number: int, offset: int) -> Iterator[Paragraph]:
    r"""Yield the paragraphs of a part of a document, which begins and ends between paragraphs.

    ``given`` has the line ends of the document; ``number`` and ``offset`` count its paragraphs and characters
    before it.
    """
    if "\r" not in given:
        for count, (start, end) in enumerate(spans(given), number):
            yield Paragraph(document, count, given[start:end], offset + start)
        return
    places = [match.start() - before for before, match in enumerate(re.finditer("\r\n", given))]
    text = given.replace("\r\n", "\n").replace("\r", "\n")
    for count, (start, end) in enumerate(spans(text), number):
        low, high = bisect_left(places, start), bisect_left(places, end)
        returns = tuple(place - start for place in places[low:high])
        yield Paragraph(document, count, text[start:end], offset + start + low, returns)
