"""Read a corpus by the kind of its files: decompressed streams, paragraphs on a node, pieces for the plan.

Standard library only; planning finds the paragraphs of text with numpy.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, BinaryIO, NamedTuple, Protocol

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.extras import missing_extra
from jobkit.core.files import open_regular
from jobkit.core.paragraphs import BOM, JSONL_ENDINGS, BadLineError, Fields, parse_line, spans
from jobkit.extensions.corpus.plan import Corpus, Piece, Source
from jobkit.extensions.corpus.scan_text import count_lines, find_paragraphs, first_gap, last_gap

_READ_BYTES = 2**18
_STEP_BYTES = {"gz": 2**15, "zst": 2**12}
"""Bytes that are decompressed at once: gzip grows them by 1,000 at most, zstandard by 32,000."""
_WINDOW_BYTES = 2**31
"""Largest window of zstandard, as ``zstd --long=31`` writes; the library's own limit is 128 MiB."""


class BrokenError(Exception):
    """An archive that cannot be decompressed; its text is the reason."""


class Stream(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes; none at the end."""
        ...


@contextmanager
def open_stream(
    path: str,
    compression: str,
    seen: Callable[[bytes], object] = lambda _: None,
    *,
    start: int = 0,
    size: int = sys.maxsize,
) -> Iterator[Stream]:
    """Open a source, or some bytes of one; each block, as it is on disk, is also given to ``seen``."""
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        file.seek(start)
        raw = _Raw(file, seen, size)
        yield _Archive(raw, compression) if compression else raw


class _Raw:
    def __init__(self, file: BinaryIO, seen: Callable[[bytes], object], size: int) -> None:
        self._file, self._seen, self._left = file, seen, size

    def read(self, size: int, /) -> bytes:
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        self._seen(data)
        return data


class _Archive:
    """The members of an archive, one after the other; zeros may follow, as tapes have them.

    zstandard's own ``stream_reader`` takes an archive that was cut short for a whole one.
    """

    def __init__(self, raw: Stream, compression: str) -> None:
        self._raw = raw
        self._step_bytes = _STEP_BYTES[compression]
        self._begin: Callable[[], Any] = lambda: zlib.decompressobj(wbits=31)
        self._error: type[Exception] = zlib.error
        if compression == "zst":
            if lack := missing_extra("a .zst file", "zst"):
                raise lack
            import zstandard

            library = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
            self._begin, self._error = library.decompressobj, zstandard.ZstdError
        self._member = self._begin()
        self._waiting = self._ready = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        while not self._ready:
            if self._member.eof and not self._next_member():
                return b""
            self._ready = memoryview(self._more())
        out, self._ready = bytes(self._ready[:size]), self._ready[size:]
        return out

    def _more(self) -> bytes:
        if not self._fill():
            raise BrokenError("the archive ends early")
        step, self._waiting = self._waiting[: self._step_bytes], self._waiting[self._step_bytes :]
        try:
            out: bytes = self._member.decompress(step)
        except self._error as error:
            raise BrokenError(f"the archive is broken: {error}") from error
        if self._member.eof and (rest := self._member.unused_data):
            self._waiting = memoryview(rest + bytes(self._waiting))
        return out

    def _fill(self) -> bool:
        if not self._waiting:
            self._waiting = memoryview(self._raw.read(_READ_BYTES))
        return bool(self._waiting)

    def _next_member(self) -> bool:
        while self._fill():
            self._waiting = memoryview(bytes(self._waiting).lstrip(b"\0"))
            if self._waiting:
                self._member = self._begin()
                return True
        return False


def skip(stream: Stream, number: int) -> None:
    """Read so many bytes and forget them; fewer if the stream ends."""
    while number > 0 and (data := stream.read(min(number, _READ_BYTES))):
        number -= len(data)


def read_exactly(stream: Stream, number: int) -> bytes:
    """Return so many bytes; fewer if the stream ends."""
    parts = []
    while number > 0 and (data := stream.read(number)):
        parts.append(data)
        number -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


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


def given_offset(paragraph: Paragraph, at: int) -> int:
    """Return where an offset into a paragraph's text is in its document as it was given, in characters."""
    return paragraph.offset + at + bisect_left(paragraph.returns, at)


def place_of(corpus: Corpus, piece: Piece, paragraph: Paragraph) -> str:
    name = corpus.sources[piece.source].name
    document = "" if paragraph.document == name else f", document {paragraph.document}"
    return f"{name}{document}, paragraph {paragraph.number + 1:,}"


def read_pieces(corpus: Corpus, pieces: tuple[Piece, ...]) -> Iterator[Paragraph]:
    """Yield the paragraphs of pieces in corpus order; in memory is one piece at a time."""
    left_out = left_out_lines(corpus)
    for number, group in groupby(enumerate(pieces), key=lambda one: one[1].source):
        source = corpus.sources[number]
        reader, lines = READERS[source.kind], left_out.get(source.name, set())
        for at, piece, data in _blocks(source, group):
            for paragraph in reader.paragraphs(corpus, piece, data, lines):
                yield paragraph._replace(piece=at)


def left_out_lines(corpus: Corpus) -> dict[str, set[int]]:
    """Return the lines of each source that are skipped."""
    lines: dict[str, set[int]] = {}
    for bad in corpus.skipped:
        lines.setdefault(bad.source, set()).add(bad.line)
    return lines


def _blocks(source: Source, pieces: Iterator[tuple[int, Piece]]) -> Iterator[tuple[int, Piece, bytes]]:
    """Yield each piece of a source with its number and its bytes, verified."""
    start = place = 0
    data = b""
    with ExitStack() as stack:
        stream: Stream | None = None
        for number, piece in pieces:
            if (piece.start, piece.end) != (start, place):
                try:
                    stream = stream or stack.enter_context(open_stream(source.path, source.compression))
                    skip(stream, piece.start - place)
                    data = read_exactly(stream, piece.end - piece.start)
                except OSError as error:
                    raise file_error(error, source.path, hint=_HINT) from error
                except BrokenError as error:
                    raise JobkitError(f"{source.path}: {error}", hint=_HINT) from error
                start, place = piece.start, piece.end
            if hashlib.sha256(data).hexdigest() != piece.sha256:
                where = f"{source.path}: bytes {piece.start} to {piece.end}"
                raise JobkitError(f"{where}: changed since the corpus was planned", hint=_HINT)
            yield number, piece, data


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


# -- parts, as a process that plans reads them

LONGEST_BYTES = 2**26  # the longest paragraph of a text file, and the longest line of a JSONL file
TEXT_BLOCK_BYTES = 2**21
"""Bytes that are read at once: fewer cost calls of numpy, more cost memory and cache misses."""
LINE_BLOCK_BYTES = 2**20
WINDOW_BYTES = 2**16


class BadPartError(Exception):
    """A part that cannot be read; ``line`` is in the part, from 1, or 0 for the whole file."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def refuse_long(size: int, what: str) -> None:
    if size > LONGEST_BYTES:
        raise BadPartError(0, f"a {what} of more than {LONGEST_BYTES // 2**20} MiB")


@dataclass(slots=True, kw_only=True)
class ScanPart:
    """A file, or a range of one, that a process reads, and what it has found there."""

    source: int  # its number among the files that were found
    file: Source  # as it was found
    target: int  # how many bytes a piece should have
    fields: Fields  # of JSONL
    # The range begins with the first paragraph (line of JSONL) after ``start`` and ends with the one that
    # contains ``stop``, which is ``None`` for a whole file.
    start: int = 0
    stop: int | None = None
    digest: bool = False  # whether to compute only the SHA-256 of the file
    left_out: frozenset[int] = frozenset()  # lines of JSONL, counted from the part's first, that are not read

    begin: int = field(init=False, default=0)  # bytes of the range as it was read, up to ``end``
    end: int = field(init=False, default=0)
    sha256: str = field(init=False, default="")  # of the file, if the part is all of it
    pieces: list[Piece] = field(init=False, default_factory=list)  # their places count from the part
    documents: int = field(init=False, default=0)
    paragraphs: int = field(init=False, default=0)  # of text, as are the characters as given
    given: int = field(init=False, default=0)
    lines: int = field(init=False, default=0)
    before: int = field(init=False, default=0)  # lines of the file before the part
    bad: list[tuple[int, str]] = field(init=False, default_factory=list)  # lines and reasons: `BadPartError`
    ids: bytearray = field(init=False, default_factory=bytearray)  # 8 bytes for each document with an id
    unnamed: int = field(init=False, default=0)  # the number of documents without an id
    # files that ids look like, ``FILE:LINE``: documents without an id get such ids
    likened: set[str] = field(init=False, default_factory=set)


def id_hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def generated_id(source: str, line: int) -> str:
    return f"{source}:{line}"


def source_of(name: str) -> str:
    """Return the JSONL file whose generated id this could be; empty if there is none."""
    source, _, line = name.rpartition(":")
    return source if line.isdecimal() and kind_of(source)[0] == JSONL else ""


def scan_parts(parts: list[ScanPart]) -> list[ScanPart]:
    for part in parts:
        try:
            _scan_part(part)
        except BadPartError as error:
            part.bad.append((error.line, error.reason))
        except BrokenError as error:
            part.bad.append((0, str(error)))
        except OSError as error:
            part.bad.append((0, f"cannot be read: {error.strerror}"))
    return parts


def _scan_part(part: ScanPart) -> None:
    reader, path = READERS[part.file.kind], part.file.path
    digest, size = hashlib.sha256(), 0

    def seen(block: bytes) -> None:
        nonlocal size
        digest.update(block)
        size += len(block)

    if part.stop is not None:
        with os.fdopen(open_regular(path), "rb", buffering=0) as file:
            part.begin, part.end = (_border(file, at, part, reader) for at in (part.start, part.stop))
        with open_stream(path, "", start=part.begin, size=part.end - part.begin) as stream:
            reader.scan(stream, part)
        return
    with open_stream(path, "" if part.digest else part.file.compression, seen) as stream:
        if part.digest:
            skip(stream, part.file.size_bytes + 1)
        else:
            reader.scan(stream, part)
    if size != part.file.size_bytes:
        reason = f"the file changed while jobkit read it: {part.file.size_bytes} bytes, then {size}"
        raise BadPartError(0, reason)
    part.sha256 = digest.hexdigest()


def _border(file: BinaryIO, place: int, part: ScanPart, reader: Reader) -> int:
    """Return where the first item after a place begins."""
    if place in {0, part.file.size_bytes}:
        return place
    window, begin = WINDOW_BYTES, place - reader.back
    while True:
        file.seek(begin)
        data = file.read(window)
        if found := reader.next_item(data):
            return begin + found
        if len(data) < window:
            return part.file.size_bytes
        refuse_long(window, reader.item)
        window *= 4


# -- the kinds of file

TEXT, JSONL = "text", "jsonl"


class Reader(Protocol):
    endings: tuple[str, ...]  # of the names of its files, in small letters
    item: str  # what a range begins with
    back: int  # how many bytes before a place the search for the next item begins

    def next_item(self, data: bytes) -> int:
        """Return where the next item begins; 0 if it does not begin in these bytes."""
        ...

    def scan(self, stream: Stream, part: ScanPart) -> None:
        """Add what a stream has to a part, which begins at ``part.begin``, and what is wrong with it."""
        ...

    def names(self, part: ScanPart) -> Iterator[tuple[int, str]]:
        """Yield the line in the part, 0 for the file, and the id of each document that begins there."""
        ...

    def paragraphs(
        self, corpus: Corpus, piece: Piece, data: bytes, left_out: set[int]
    ) -> Iterator[Paragraph]:
        """Yield the paragraphs of a piece, given its bytes and the lines of its source that are skipped."""
        ...


class _Text(Reader):
    endings, item, back = (".txt",), "paragraph", 0

    def next_item(self, data: bytes) -> int:
        return first_gap(data)

    def scan(self, stream: Stream, part: ScanPart) -> None:
        if part.begin == 0:
            part.documents = 1
            part.ids += id_hash(part.file.name)
        place = part.begin
        for data in blocks(stream):
            if not data.isascii():
                try:
                    data.decode()
                except UnicodeDecodeError as error:
                    line = part.lines + count_lines(data[: error.start]) + 1
                    raise BadPartError(line, f"not UTF-8 at byte {place + error.start}") from error
            skip = len(BOM) if place == 0 and data.startswith(BOM) else 0
            part.given += bool(skip)
            _add_pieces(data[skip:] if skip else data, part, place + skip)
            place += len(data)
        part.end = place

    def names(self, part: ScanPart) -> Iterator[tuple[int, str]]:
        yield 0, part.file.name

    def paragraphs(
        self, corpus: Corpus, piece: Piece, data: bytes, left_out: set[int]
    ) -> Iterator[Paragraph]:
        del left_out
        name = corpus.sources[piece.source].name
        return numbered(name, data.decode(), piece.first_paragraph, piece.first_character)


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
    starts, ends, counts = found.starts.tolist(), found.ends.tolist(), found.counts
    part.lines += found.lines
    if starts:
        refuse_long(int((found.ends - found.starts).max()), "paragraph")
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


class _Jsonl(Reader):
    endings, item, back = JSONL_ENDINGS, "line", 1  # a line may begin at the place itself

    def next_item(self, data: bytes) -> int:
        return data.find(b"\n") + 1

    def scan(self, stream: Stream, part: ScanPart) -> None:
        """Add pieces of at least ``part.target`` bytes; a line that is longer has pieces of its own."""
        place = start = part.begin
        first, lines, lengths = 0, list[bytes](), list[int]()
        for line in lines_of(stream):
            part.lines += 1
            found = self._lengths(line, part, first=place == 0)
            if len(line) > part.target and len(found) > 1:
                part.pieces += [*_joined(start, first, lines, lengths), *_cut_line(place, line, found, part)]
                lines, lengths = [], []
            else:
                if not lines:
                    start, first = place, part.lines
                lines.append(line)
                lengths += found
                if not lengths or place + len(line) - start >= part.target:
                    part.pieces += _joined(start, first, lines, lengths)
                    lines, lengths = [], []
            place += len(line)
        part.pieces += _joined(start, first, lines, lengths)
        part.end = place

    def _lengths(self, line: bytes, part: ScanPart, *, first: bool) -> list[int]:
        """Return the characters of each paragraph of a line, and note its id, or what is wrong with it."""
        bare = line.removeprefix(BOM) if first else line
        if part.lines in part.left_out or not bare.strip():
            return []
        try:
            document = parse_line(bare, part.fields)
        except BadLineError as error:
            part.bad.append((part.lines, str(error)))
            return []
        part.documents += 1
        if document.id is None:
            part.unnamed += 1
        else:
            part.ids += id_hash(document.id)
            if ":" in document.id and (source := source_of(document.id)):
                part.likened.add(source)
        return lengths_of(document.text)

    def names(self, part: ScanPart) -> Iterator[tuple[int, str]]:
        with open_stream(part.file.path, part.file.compression) as stream:
            skip(stream, part.begin)
            place = part.begin
            for number, line in enumerate(lines_of(stream), 1):
                if place >= part.end:
                    return
                with suppress(BadLineError):  # it is reported, or blank
                    name = parse_line(line.removeprefix(BOM) if place == 0 else line, part.fields).id
                    yield number, generated_id(part.file.name, part.before + number) if name is None else name
                place += len(line)

    def paragraphs(
        self, corpus: Corpus, piece: Piece, data: bytes, left_out: set[int]
    ) -> Iterator[Paragraph]:
        found = (
            paragraph
            for document, text in documents(corpus, piece.source, data.split(b"\n"), piece.line, left_out)
            for paragraph in numbered(document, text, 0, 0)
        )
        return islice(found, piece.skip, piece.skip + piece.paragraphs)


def lengths_of(given: str) -> list[int]:
    """Return the characters of each paragraph of a document."""
    if "\r" in given:
        given = given.replace("\r\n", "\n").replace("\r", "\n")
    elif "\n" not in given:  # as most documents are; three times as fast
        return [len(given)] if given.strip() else []
    return [end - start for start, end in spans(given)]


def lines_of(stream: Stream) -> Iterator[bytes]:
    rest: list[bytes] = []
    size = 0
    while block := stream.read(LINE_BLOCK_BYTES):
        first, newline, more = block.partition(b"\n")
        rest.append(first + newline)
        size += len(rest[-1])
        refuse_long(size, "line")
        if newline:
            yield b"".join(rest)
            *whole, last = more.split(b"\n")
            for line in whole:
                yield line + b"\n"
            rest, size = [last], len(last)
    if size:
        yield b"".join(rest)


def _joined(start: int, line: int, lines: list[bytes], lengths: list[int]) -> Iterator[Piece]:
    """Yield the piece of some lines, unless they have no paragraph."""
    if lengths:
        data = b"".join(lines)
        yield Piece(
            source=0,
            start=start,
            end=start + len(data),
            line=line,
            paragraphs=len(lengths),
            characters=sum(lengths),
            longest=max(lengths),
            sha256=hashlib.sha256(data).hexdigest(),
        )


def _cut_line(place: int, line: bytes, lengths: list[int], part: ScanPart) -> Iterator[Piece]:
    """Yield pieces of a line that has more than a piece should have: each has the bytes of the whole line."""
    digest = hashlib.sha256(line).hexdigest()
    share = part.target * sum(lengths) / len(line)
    first = 0
    while first < len(lengths):
        last, size = first, 0
        while last < len(lengths) and (last == first or size + lengths[last] <= share):
            size += lengths[last]
            last += 1
        yield Piece(
            source=0,
            start=place,
            end=place + len(line),
            skip=first,
            line=part.lines,
            first_paragraph=first,
            paragraphs=last - first,
            characters=size,
            longest=max(lengths[first:last]),
            sha256=digest,
        )
        first = last


def documents(
    corpus: Corpus, number: int, lines: Iterator[bytes] | list[bytes], first: int, left_out: set[int]
) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of each line of JSONL that is not left out; ``first`` numbers the first."""
    source, fields = corpus.sources[number], Fields(corpus.text_field, corpus.id_field)
    for line, data in enumerate(lines, first):
        bare = data.removeprefix(BOM) if line == 1 else data
        if line in left_out or not bare.strip():
            continue
        try:
            document = parse_line(bare, fields)
        except BadLineError as error:  # the digest is right: another version of jobkit made the plan
            raise JobkitError(f"{source.path}:{line}: {error}", hint=_HINT) from error
        yield document.id or generated_id(source.name, line), document.text


READERS: Mapping[str, Reader] = {TEXT: _Text(), JSONL: _Jsonl()}
"""By the kind that ``corpus.json`` has of a source."""
READ = ".txt, .jsonl and .ndjson, also with .gz or .zst"
COMPRESSIONS = {".gz": "gz", ".zst": "zst"}
_KINDS = {ending: kind for kind, reader in READERS.items() for ending in reader.endings}


def kind_of(name: str) -> tuple[str, str]:
    """Return the kind and the compression of a file by its name; an empty kind if it is not read."""
    base, ending = os.path.splitext(name.lower())  # noqa: PTH122 - a name, not a path
    if ending in COMPRESSIONS:
        return _KINDS.get(os.path.splitext(base)[1], ""), COMPRESSIONS[ending]  # noqa: PTH122 - as above
    return _KINDS.get(ending, ""), ""
