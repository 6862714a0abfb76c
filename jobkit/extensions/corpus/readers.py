"""Read a corpus by the kind of its files: decompressed streams, paragraphs on a node, pieces for the plan.

Standard library only; planning finds the paragraphs of text with numpy.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, islice, pairwise
from typing import Any, NamedTuple, Protocol

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.files import open_regular
from jobkit.core.paragraphs import (
    BOM,
    JSONL_ENDINGS,
    LFS_POINTER,
    LFS_REASON,
    BadLineError,
    Document,
    Fields,
    parse_line,
    spans,
)
from jobkit.extensions.corpus import tables
from jobkit.extensions.corpus.plan import Columns, Corpus, Piece, Source
from jobkit.extensions.corpus.scan_text import Found, count_lines, find_paragraphs, first_gap, last_gap
from jobkit.extensions.corpus.streams import (
    AUTO,
    BrokenError,
    Stream,
    encoding_of,
    open_stream,
    read_exactly,
    skip,
)
from jobkit.extensions.corpus.tables import USUAL, Row, Wanted
from jobkit.worker.paragraphs import SENTENCE_END

# -- paragraphs, as a node reads them

_HINT = "restore the input, or plan the changed corpus in a new folder: jobkit apply"


class Paragraph(NamedTuple):
    r"""A paragraph, and where it is in its document."""

    document: str  # the id of its document
    number: int  # in the document, from 0
    text: str  # with ``\n`` line ends, also where the document has ``\r\n`` or ``\r``
    offset: int  # how many characters of the document, as it was given, are before it
    returns: tuple[int, ...] = ()  # the positions in ``text`` of the line ends that were ``\r\n`` as given
    piece: int = 0  # the piece of the shard that holds it, from 0

    @property
    def place(self) -> str:
        return f"document {self.document}, paragraph {self.number + 1:,}"


def given_offset(paragraph: Paragraph, at: int) -> int:
    """Return where an offset into a paragraph's text is in its document as it was given, in characters."""
    return paragraph.offset + at + bisect_left(paragraph.returns, at)


def place_of(corpus: Corpus, piece: Piece, paragraph: Paragraph) -> str:
    name = corpus.sources[piece.source].name
    return f"{name}, {paragraph.place.removeprefix(f'document {name}, ')}"


def read_pieces(corpus: Corpus, pieces: tuple[Piece, ...]) -> Iterator[Paragraph]:
    """Yield the paragraphs of pieces in corpus order; in memory is one piece at a time."""
    left_out = left_out_lines(corpus)
    for number, group in groupby(enumerate(pieces), key=lambda one: one[1].source):
        source = corpus.sources[number]
        reader, lines = READERS[source.kind], left_out.get(source.name, set())
        ranges = ([*same] for _, same in groupby(group, key=lambda one: (one[1].start, one[1].end)))
        try:
            for some, data, found in reader.content(source, ranges):
                if {piece.sha256 for _, piece in some} != {hashlib.sha256(data).hexdigest()}:
                    what, piece = "rows" if source.kind in tables.BY_ROWS else "bytes", some[0][1]
                    where = f"{source.path}: {what} {piece.start} to {piece.end}"
                    raise JobkitError(f"{where}: changed since the corpus was planned", hint=_HINT)
                paragraphs, taken = reader.paragraphs(corpus, some[0][1], found, lines), 0
                for at, piece in some:
                    skipped, taken = piece.skip - taken, piece.skip + piece.paragraphs
                    for paragraph in islice(paragraphs, skipped, skipped + piece.paragraphs):
                        yield paragraph._replace(piece=at)
        except OSError as error:
            raise file_error(error, source.path, hint=_HINT) from error
        except BrokenError as error:
            raise JobkitError(f"{source.path}: {error}", hint=_HINT) from error


def left_out_lines(corpus: Corpus) -> dict[str, set[int]]:
    """Return the lines of each source that are skipped."""
    lines: dict[str, set[int]] = {}
    for bad in corpus.skipped:
        lines.setdefault(bad.source, set()).add(bad.line)
    return lines


Numbered = list[tuple[int, Piece]]
"""Pieces of one range of a source, with their numbers in the shard."""
Content = Iterator[tuple[Numbered, bytes, Any]]
"""Of each range the bytes that the SHA-256 covers, and what the reader makes paragraphs of."""


def numbered(document: str, given: str, number: int, offset: int, split: int = 0) -> Iterator[Paragraph]:
    r"""Yield the paragraphs of a part of a document, which begins and ends between paragraphs.

    ``given`` has the line ends of the document; ``number`` and ``offset`` count its paragraphs and characters
    before it. Paragraphs of more than ``split`` characters are cut, unless it is 0.
    """
    if "\r" not in given:
        for count, (start, end) in enumerate(_cut_spans(given, split), number):
            yield Paragraph(document, count, given[start:end], offset + start)
        return
    places = [match.start() - before for before, match in enumerate(re.finditer("\r\n", given))]
    text = given.replace("\r\n", "\n").replace("\r", "\n")
    for count, (start, end) in enumerate(_cut_spans(text, split), number):
        low, high = bisect_left(places, start), bisect_left(places, end)
        returns = tuple(place - start for place in places[low:high])
        yield Paragraph(document, count, text[start:end], offset + start + low, returns)


def _cut_spans(text: str, split: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each paragraph; one that is too long is cut at the last sentence that fits.

    What begins at a cut is cut as if it were a paragraph of its own: so a piece may begin at any cut.
    """
    for start, end in spans(text):
        if split and end - start > split:
            ends = [start]
            for match in SENTENCE_END.finditer(text[start:end]):
                newline = text.rfind("\n", start + match.start(), start + match.end())
                ends.append(newline + 1 or start + match.end())  # a line keeps its indentation
            ends += [end] if ends[-1] < end else []
            at = 0
            while at < len(ends) - 1:
                fits = max(at + 1, bisect_right(ends, ends[at] + split) - 1)
                yield ends[at], ends[fits]
                at = fits
        else:
            yield start, end


# -- parts, as a process that plans reads them

LONGEST_BYTES = 2**26  # the longest paragraph of a text file, and the longest line of a JSONL file
TEXT_BLOCK_BYTES = 2**21
"""Bytes that are read at once: fewer cost calls of numpy, more cost memory and cache misses."""
LINE_BLOCK_BYTES = 2**20
WINDOW_BYTES = 2**16


def refuse_long(size: int, what: str) -> None:
    if size > LONGEST_BYTES:
        raise BrokenError(f"a {what} of more than {LONGEST_BYTES // 2**20} MiB")


@dataclass(slots=True, kw_only=True)
class ScanPart:
    """A file, or a range of one, that a process reads, and what it has found there."""

    source: int  # its number among the files that were found
    file: Source  # as it was found
    target: int  # how many bytes a piece should have
    fields: Fields  # those of JSONL that `Corpus` has
    wanted: Wanted = USUAL
    split: int = 0  # as in `Corpus`
    # The range begins with the first paragraph (line of JSONL) after ``start`` and ends with the one that
    # contains ``stop``, which is ``None`` for a whole file.
    start: int = 0
    stop: int | None = None
    digest: bool = False  # whether to compute only the SHA-256 of the file
    left_out: frozenset[int] = frozenset()  # lines or rows, counted from the part's first, that are not read

    begin: int = field(init=False, default=0)  # bytes of the range as it was read, up to ``end``
    end: int = field(init=False, default=0)
    sha256: str = field(init=False, default="")  # of the file, if the part is all of it
    pieces: list[Piece] = field(init=False, default_factory=list)  # their places count from the part
    documents: int = field(init=False, default=0)
    empty: int = field(init=False, default=0)  # rows without a paragraph
    paragraphs: int = field(init=False, default=0)  # of text, as are the characters as given
    given: int = field(init=False, default=0)
    lines: int = field(init=False, default=0)
    before: int = field(init=False, default=0)  # lines of the file before the part
    bad: list[tuple[int, str]] = field(init=False, default_factory=list)  # lines, and why
    ids: bytearray = field(init=False, default_factory=bytearray)  # 8 bytes for each document with an id
    unnamed: int = field(init=False, default=0)  # the number of documents without an id
    # files that ids look like, ``FILE:LINE``: documents without an id get such ids
    likened: set[str] = field(init=False, default_factory=set)


def id_hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def generated_id(source: str, line: int) -> str:
    return f"{source}:{line}"


def source_of(name: str) -> str:
    """Return the file of several documents whose generated id this could be; empty if there is none."""
    source, _, line = name.rpartition(":")
    kind, compression = kind_of(source) if line.isdecimal() else (TEXT, "")
    return source if kind not in {"", TEXT} or (not kind and may_be_json(source, compression)) else ""


def scan_parts(parts: list[ScanPart]) -> list[ScanPart]:
    for part in parts:
        try:
            _scan_part(part)
        except BrokenError as error:
            part.bad.append((error.line, str(error)))
        except OSError as error:
            part.bad.append((0, f"cannot be read: {error.strerror}"))
    return parts


def _scan_part(part: ScanPart) -> None:
    if is_lfs_pointer(part.file):
        raise BrokenError(LFS_REASON)
    if part.file.encoding == AUTO:
        part.file = replace(part.file, encoding=encoding_of(part.file))
    reader = READERS[part.file.kind]
    digest, size = hashlib.sha256(), 0

    def seen(block: bytes) -> None:
        nonlocal size
        digest.update(block)
        size += len(block)

    if part.stop is not None:
        part.begin, part.end = (reader.border(part, place) for place in (part.start, part.stop))
        reader.scan(part, _unseen)
        return
    if part.digest:
        read_through(part.file, seen)
    else:
        reader.scan(part, seen)
    if size != part.file.size_bytes:
        reason = f"the file changed while jobkit read it: {part.file.size_bytes} bytes, then {size}"
        raise BrokenError(reason)
    part.sha256 = digest.hexdigest()


def is_lfs_pointer(source: Source) -> bool:
    raw = replace(source, compression="", encoding="")
    # a pointer has fewer
    return source.size_bytes < 1024 and _first_bytes(raw).startswith(LFS_POINTER)


def _first_bytes(source: Source) -> bytes:
    """Return the first bytes of a file, also of a broken one."""
    data = b""
    with suppress(BrokenError), open_stream(source) as stream:
        while block := stream.read(WINDOW_BYTES - len(data)):
            data += block
    return data


def _unseen(block: bytes) -> None:
    del block


def read_through(source: Source, seen: Callable[[bytes], object]) -> None:
    """Read a file as it is on disk, at most one byte more than it had."""
    with open_stream(replace(source, compression="", encoding=""), seen) as stream:
        skip(stream, source.size_bytes + 1)


def _opened(part: ScanPart, seen: Callable[[bytes], object]) -> AbstractContextManager[Stream]:
    size = sys.maxsize if part.stop is None else part.end - part.begin
    return open_stream(part.file, seen, start=part.begin, size=size)


# -- the kinds of file

TEXT, JSONL = "text", "jsonl"


class Reader(Protocol):
    endings: tuple[str, ...]  # of the names of its files, in small letters
    ranges: bool = True  # whether several processes may read a large file, each a range
    item: str = "line"
    back: int = 1  # a line may begin at the place itself

    def next_item(self, data: bytes) -> int:
        """Return where the next item begins; 0 if it does not begin in these bytes."""
        return data.find(b"\n") + 1

    def border(self, part: ScanPart, place: int) -> int:
        """Return where the first item after a byte of a file begins."""
        if place in {0, part.file.size_bytes}:
            return place
        window, begin = WINDOW_BYTES, place - self.back
        with os.fdopen(open_regular(part.file.path), "rb", buffering=0) as file:
            while True:
                file.seek(begin)
                data = file.read(window)
                if found := self.next_item(data):
                    return begin + found
                if len(data) < window:
                    return part.file.size_bytes
                refuse_long(window, self.item)
                window *= 4

    def content(self, source: Source, ranges: Iterable[Numbered]) -> Content:
        place = 0
        with open_stream(source) as stream:
            for some in ranges:
                start, end = some[0][1].start, some[0][1].end
                skip(stream, start - place)
                data, place = read_exactly(stream, end - start), end
                yield some, data, data

    def scan(self, part: ScanPart, seen: Callable[[bytes], object]) -> None:
        """Add what a file, or its range from ``part.begin``, has to a part, and what is wrong with it."""
        ...

    def names(self, part: ScanPart) -> Iterator[tuple[int, str]]:
        """Yield the line in the part, 0 for the file, and the id of each document that begins there."""
        ...

    def documents(self, corpus: Corpus, number: int, pieces: Iterable[Piece]) -> Iterator[tuple[str, int]]:
        """Yield the id and the number of paragraphs of each document of a source with these pieces."""
        ...

    def paragraphs(self, corpus: Corpus, piece: Piece, found: Any, left_out: set[int]) -> Iterator[Paragraph]:  # noqa: ANN401 - of `content`
        """Yield the paragraphs of the range of a piece, but for those of lines that are skipped."""
        ...


class _Text(Reader):
    endings, item, back = (".txt",), "paragraph", 0

    def next_item(self, data: bytes) -> int:
        return first_gap(data)

    def scan(self, part: ScanPart, seen: Callable[[bytes], object]) -> None:
        if part.begin == 0:
            part.documents = 1
            part.ids += id_hash(part.file.name)
        place = part.begin
        with _opened(part, seen) as stream:
            for data in blocks(stream):
                if not data.isascii():
                    try:
                        data.decode()
                    except UnicodeDecodeError as error:
                        line = part.lines + count_lines(data[: error.start]) + 1
                        raise BrokenError(f"not UTF-8 at byte {place + error.start}", line) from error
                skip = len(BOM) if place == 0 and data.startswith(BOM) else 0
                part.given += bool(skip)
                _add_pieces(data[skip:] if skip else data, part, place + skip)
                place += len(data)
        part.end = place

    def names(self, part: ScanPart) -> Iterator[tuple[int, str]]:
        yield 0, part.file.name

    def documents(self, corpus: Corpus, number: int, pieces: Iterable[Piece]) -> Iterator[tuple[str, int]]:
        yield corpus.sources[number].name, sum(piece.paragraphs for piece in pieces)

    def paragraphs(
        self, corpus: Corpus, piece: Piece, found: bytes, left_out: set[int]
    ) -> Iterator[Paragraph]:
        del left_out
        name = corpus.sources[piece.source].name
        return numbered(name, found.decode(), piece.first_paragraph, piece.first_character, corpus.split)


def blocks(stream: Stream) -> Iterator[bytes]:
    rest = b""
    while True:
        asked = max(TEXT_BLOCK_BYTES, len(rest))
        more = read_exactly(stream, asked)
        data = rest + more
        if len(more) < asked:  # the end
            if data:
                yield data
            return
        end = last_gap(data)
        if end:
            yield data[:end]
        rest = data[end:]
        refuse_long(len(rest), "paragraph")


def _add_pieces(data: bytes, part: ScanPart, place: int) -> None:
    """Add the pieces of a block, which begins at a place of the file, without the mark of UTF-8."""
    import numpy as np

    found = find_paragraphs(data)
    refuse_long(int((found.ends - found.starts).max(initial=0)), "paragraph")
    if part.split and found.counts.max(initial=0) > part.split:
        found = _cut_found(found, data, part.split)
    starts, ends, counts = found.starts.tolist(), found.ends.tolist(), found.counts
    part.lines += found.lines
    if starts:
        cuts = [0]
        while cuts[-1] < len(starts):
            cuts.append(max(cuts[-1] + 1, bisect_right(ends, starts[cuts[-1]] + part.target)))
        columns = (
            cuts,
            cuts[1:],
            found.before[cuts[:-1]].tolist(),
            np.add.reduceat(counts, cuts[:-1]).tolist(),
            np.maximum.reduceat(counts, cuts[:-1]).tolist(),
        )
        for first, last, before, characters, longest in zip(*columns, strict=False):
            start, end = starts[first], ends[last - 1]
            piece = Piece(
                source=0,
                start=place + start,
                end=place + end,
                first_paragraph=part.paragraphs + first,
                first_character=part.given + before,
                paragraphs=last - first,
                characters=characters,
                longest=longest,
                sha256=hashlib.sha256(memoryview(data)[start:end]).hexdigest(),
            )
            part.pieces.append(piece)
    part.paragraphs += len(starts)
    part.given += found.total


def _cut_found(found: Found, data: bytes, split: int) -> Found:
    """Return the paragraphs of a block after the long ones were cut."""
    import numpy as np

    rows: list[tuple[int, int, int, int]] = []
    for start, end, count, before in np.stack(
        (found.starts, found.ends, found.counts, found.before), 1
    ).tolist():
        if count <= split:
            rows.append((start, end, count, before))
            continue
        given, at = data[start:end].decode(), start
        cuts = [(one.offset, len(one.text)) for one in numbered("", given, 0, 0, split)]
        for (offset, length), (after, _) in pairwise([*cuts, (len(given), 0)]):
            size = len(given[offset:after].encode())
            rows.append((at, at + size, length, before + offset))
            at += size
    starts, ends, counts, befores = np.array(rows).T
    return found._replace(starts=starts, ends=ends, counts=counts, before=befores)


class _Rows(Reader):
    """Reads files of several documents, each in a row."""

    def rows(self, stream: Stream, file: Source, fields: Fields, place: int) -> Iterator[Row]:
        raise NotImplementedError

    def part_rows(self, part: ScanPart, seen: Callable[[bytes], object]) -> Iterator[Row]:
        """Yield the rows of a part; all bytes of its file are also given to ``seen``."""
        with _opened(part, seen) as stream:
            yield from self.rows(stream, part.file, part.fields, part.begin)

    def scan(self, part: ScanPart, seen: Callable[[bytes], object]) -> None:
        """Add pieces of at least ``part.target`` bytes; a row that is longer has pieces of its own."""
        place = start = part.begin
        first, size, kept, lengths = 0, 0, list[bytes](), list[int]()
        for row in self.part_rows(part, seen):
            line = part.lines + 1
            part.lines += row.lines
            found = _note(row, line, part)
            if len(row.data) > part.target and len(found) > 1:
                part.pieces += [
                    *_joined(start, place, first, kept, lengths),
                    *_cut_row(place, row, line, found, part.target),
                ]
                kept, lengths = [], []
            else:
                if not kept:
                    start, first, size = place, line, 0
                kept.append(row.data)
                lengths += found
                size += len(row.data)
                if not lengths or size >= part.target:
                    part.pieces += _joined(start, place + row.size, first, kept, lengths)
                    kept, lengths = [], []
            place += row.size
        part.pieces += _joined(start, place, first, kept, lengths)
        part.end = place

    def names(self, part: ScanPart) -> Iterator[tuple[int, str]]:
        line = 1
        for row in self.part_rows(part, _unseen):
            if row.document and not isinstance(row.document, BadLineError):  # a bad line is reported
                name = row.document.id
                yield line, generated_id(part.file.name, part.before + line) if name is None else name
            line += row.lines

    def documents(self, corpus: Corpus, number: int, pieces: Iterable[Piece]) -> Iterator[tuple[str, int]]:
        del pieces
        source, digest = corpus.sources[number], hashlib.sha256()
        part = ScanPart(source=number, file=source, target=0, fields=_fields(corpus))
        left_out = left_out_lines(corpus).get(source.name, set())
        try:
            for name, text in _good(source, self.part_rows(part, digest.update), 1, left_out):
                yield name, len(lengths_of(text, corpus.split))
        except BrokenError as error:
            raise JobkitError(f"{source.path}: {error}", hint=_HINT) from error
        if digest.hexdigest() != source.sha256:
            raise JobkitError(f"{source.path}: changed while it was merged")

    def paragraphs(self, corpus: Corpus, piece: Piece, found: Any, left_out: set[int]) -> Iterator[Paragraph]:  # noqa: ANN401 - as in Reader
        source = corpus.sources[piece.source]
        if isinstance(found, bytes):
            found = self.rows(Stream(iter([found])), source, _fields(corpus), piece.start)
        return (
            paragraph
            for document, text in _good(source, found, piece.line, left_out)
            for paragraph in numbered(document, text, 0, 0, corpus.split)
        )


class _Jsonl(_Rows):
    endings = JSONL_ENDINGS

    def scan(self, part: ScanPart, seen: Callable[[bytes], object]) -> None:
        columns = jsonl_columns(part.file, part.wanted)
        name = "" if tables.FILE_ROW in part.wanted.id else columns.id or part.fields.id
        columns = replace(columns, id=name)
        usual = (columns.text, columns.id) == part.fields
        part.file = replace(part.file, columns=None if usual else columns)
        super().scan(part, seen)

    def rows(self, stream: Stream, file: Source, fields: Fields, place: int) -> Iterator[Row]:
        fields = Fields(file.columns.text, file.columns.id) if file.columns else fields
        for line in lines_of(stream):
            bare = line.removeprefix(BOM) if place == 0 else line
            document: Document | BadLineError | None = None
            if bare.strip():
                try:
                    document = parse_line(bare, fields)
                except BadLineError as error:
                    document = error
            yield Row(len(line), 1, line, document)
            place += len(line)


def jsonl_columns(source: Source, wanted: Wanted) -> Columns:
    """Return the fields of JSONL by its first lines; those without an id have an empty one."""
    with open_stream(source) as stream:
        return tables.json_columns(tables.head_of(lines_of(stream)), wanted)


class _Csv(_Rows):
    endings, ranges = (".csv", ".tsv"), False  # a quoted field may hold any line end

    def scan(self, part: ScanPart, seen: Callable[[bytes], object]) -> None:
        with open_stream(part.file) as stream:
            tabs = ".tsv" in part.file.name.lower()
            columns = tables.csv_columns(lines_of(stream), part.wanted, tabs=tabs)
        part.file = replace(part.file, columns=columns)
        super().scan(part, seen)

    def rows(self, stream: Stream, file: Source, fields: Fields, place: int) -> Iterator[Row]:
        del fields
        lines = lines_of(stream, "row")
        if file.columns:
            yield from tables.csv_rows(lines, file.columns, header=place == 0, most=LONGEST_BYTES)
        skip(stream, sys.maxsize)  # of a file without a header, all that an archive has


class _Table(_Rows):
    """Reads rows by their numbers; ``start`` and ``end`` of a part are bytes, all else counts rows."""

    def __init__(self, *endings: str, ranges: bool = False) -> None:
        self.endings, self.ranges = endings, ranges

    def border(self, part: ScanPart, place: int) -> int:
        return tables.first_row(part.file, place)

    def scan(self, part: ScanPart, seen: Callable[[bytes], object]) -> None:
        part.file = replace(part.file, columns=tables.table_columns(part.file, part.wanted))
        super().scan(part, seen)

    def part_rows(self, part: ScanPart, seen: Callable[[bytes], object]) -> Iterator[Row]:
        if part.stop is None and seen is not _unseen:
            read_through(part.file, seen)
        return tables.table_rows(part.file, part.begin, sys.maxsize if part.stop is None else part.end)

    def content(self, source: Source, ranges: Iterable[Numbered]) -> Content:
        place, rows = -1, iter(tuple[Row]())
        for some in ranges:
            start, end = some[0][1].start, some[0][1].end
            rows = rows if start == place else tables.table_rows(source, start, sys.maxsize)
            taken, place = [*islice(rows, end - start)], end
            yield some, b"".join(row.data for row in taken), taken


def _fields(corpus: Corpus) -> Fields:
    return Fields(corpus.text_field, corpus.id_field)


def _note(row: Row, line: int, part: ScanPart) -> list[int]:
    """Return the characters of each paragraph of a row, and note its id, or what is wrong with it."""
    refuse_long(len(row.data), "row")
    document = row.document
    if line in part.left_out or document is None:
        return []
    if isinstance(document, BadLineError):
        part.bad.append((line, str(document)))
        return []
    part.documents += 1
    if document.id is None:
        part.unnamed += 1
    else:
        part.ids += id_hash(document.id)
        if ":" in document.id and (source := source_of(document.id)):
            part.likened.add(source)
    lengths = lengths_of(document.text, part.split)
    part.empty += not lengths
    return lengths


def lengths_of(given: str, split: int = 0) -> list[int]:
    """Return the characters of each paragraph of a document."""
    if "\r" in given:
        given = given.replace("\r\n", "\n").replace("\r", "\n")
    elif "\n" not in given and not (split and len(given) > split):  # as most are; three times as fast
        return [len(given)] if given.strip() else []
    return [end - start for start, end in _cut_spans(given, split)]


def lines_of(stream: Stream, what: str = "line") -> Iterator[bytes]:
    rest: list[bytes] = []
    size = 0
    while block := stream.read(LINE_BLOCK_BYTES):
        first, newline, more = block.partition(b"\n")
        rest.append(first + newline)
        size += len(rest[-1])
        refuse_long(size, what)
        if newline:
            yield b"".join(rest)
            *whole, last = more.split(b"\n")
            for line in whole:
                yield line + b"\n"
            rest, size = [last], len(last)
    if size:
        yield b"".join(rest)


def _joined(start: int, end: int, line: int, rows: list[bytes], lengths: list[int]) -> Iterator[Piece]:
    """Yield the piece of some rows, unless they have no paragraph."""
    if lengths:
        yield _piece(start, end, lengths, hashlib.sha256(b"".join(rows)).hexdigest(), line=line)


def _cut_row(place: int, row: Row, line: int, lengths: list[int], target: int) -> Iterator[Piece]:
    """Yield pieces of a row that has more than a piece should have: each has the bytes of the whole row."""
    digest = hashlib.sha256(row.data).hexdigest()
    share = target * sum(lengths) / len(row.data)
    first = 0
    while first < len(lengths):
        last, size = first, 0
        while last < len(lengths) and (last == first or size + lengths[last] <= share):
            size += lengths[last]
            last += 1
        at = {"line": line, "skip": first, "first_paragraph": first}
        yield _piece(place, place + row.size, lengths[first:last], digest, **at)
        first = last


def _piece(start: int, end: int, lengths: list[int], sha256: str, **place: int) -> Piece:
    return Piece(
        source=0,
        start=start,
        end=end,
        paragraphs=len(lengths),
        characters=sum(lengths),
        longest=max(lengths),
        sha256=sha256,
        **place,
    )


def _good(source: Source, rows: Iterable[Row], line: int, left_out: set[int]) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of each document that is not left out; ``line`` is that of the first row."""
    for row in rows:
        if isinstance(row.document, BadLineError) and line not in left_out:
            # the digest is right: another version of jobkit made the plan
            raise JobkitError(f"{source.path}:{line}: {row.document}", hint=_HINT)
        if row.document and not isinstance(row.document, BadLineError) and line not in left_out:
            yield row.document.id or generated_id(source.name, line), row.document.text
        line += row.lines


READERS: Mapping[str, Reader] = {
    TEXT: _Text(),
    JSONL: _Jsonl(),
    tables.CSV: _Csv(),
    tables.PARQUET: _Table(".parquet", ranges=True),
    tables.ARROW: _Table(".arrow", ".feather"),
}
"""By the kind that ``corpus.json`` has of a source."""
COMPRESSIONS = {".gz": "gz", ".zst": "zst", ".bz2": "bz2", ".xz": "xz"}
READ = (
    ".txt, .jsonl, .ndjson, .csv and .tsv, also with .gz, .zst, .bz2 or .xz; "
    ".parquet, .arrow and .feather, and what `datasets` has saved"
)
PACKED = {TEXT, JSONL, tables.CSV}  # the kinds of which an archive is read
_KINDS = {ending: kind for kind, reader in READERS.items() for ending in reader.endings}


def kind_of(name: str) -> tuple[str, str]:
    """Return the kind and the compression of a file by its name; an empty kind if it is not read."""
    base, ending = os.path.splitext(name.lower())  # noqa: PTH122 - a name, not a path
    if ending in COMPRESSIONS:
        kind = _KINDS.get(os.path.splitext(base)[1], "")  # noqa: PTH122 - as above
        return kind if kind in PACKED else "", COMPRESSIONS[ending]
    return _KINDS.get(ending, ""), ""


def may_be_json(name: str, compression: str) -> bool:
    """Return whether a file that is not read by its name may be JSON lines, as ``.json.gz``, ``RC.zst``."""
    base = name.lower().removesuffix(f".{compression}")
    return base.endswith(".json") or (bool(compression) and not re.search(r"\.[a-z]\w*$", base))


def is_json_lines(source: Source) -> bool:
    """Return whether the first bytes of a file are a line that is a JSON object, or a git-lfs pointer."""
    try:
        if is_lfs_pointer(source):
            return True
        data = _first_bytes(source)
        line, newline, _ = data.removeprefix(BOM).lstrip().partition(b"\n")
        if not newline and len(data) == WINDOW_BYTES:
            return bool(re.match(rb'\{\s*"', line))  # it goes on
        return isinstance(json.loads(line), dict)
    except (OSError, ValueError, RecursionError):
        return False
