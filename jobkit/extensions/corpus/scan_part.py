"""Read one part of the corpus, text or JSONL: the work of a process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from jobkit.core.files import open_regular
from jobkit.core.paragraphs import BOM, BadLineError, Fields, parse_line, spans
from jobkit.extensions.corpus.scan_text import (
    BadPartError,
    PartResult,
    PieceRow,
    ScanPart,
    first_gap,
    refuse_long,
    scan_text,
)
from jobkit.extensions.corpus.sources import JSONL, BrokenError, Stream, kind_of, open_stream

LINE_BLOCK_BYTES = 2**20


def id_hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def source_of(name: str) -> str:
    """Return the JSONL file whose generated id this could be; empty if there is none."""
    source, _, line = name.rpartition(":")
    return source if line.isdecimal() and kind_of(source)[0] == JSONL else ""


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


def scan_jsonl(stream: Stream, part: ScanPart, result: PartResult) -> None:
    """Add the documents of a JSONL file, or of a range of one, to a result."""
    fields = part.fields
    open_piece = _Open(result, part.target)
    place = result.start
    for line in lines_of(stream):
        result.lines += 1
        open_piece.begin(place, line)
        bare = line.removeprefix(BOM) if place == 0 else line
        if bare.strip() and result.lines not in part.left_out:
            try:
                _add(bare, fields, result, open_piece)
            except BadLineError as error:
                result.bad.append((result.lines, str(error)))
        place += len(line)
        open_piece.end(place)
    open_piece.close()
    result.end = place


def _add(line: bytes, fields: Fields, result: PartResult, piece: _Open) -> None:
    document = parse_line(line, fields)
    result.documents += 1
    if document.id is None:
        result.unnamed += 1
    else:
        result.ids += id_hash(document.id)
        if ":" in document.id and (source := source_of(document.id)):
            result.likened.add(source)
    text = document.text
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    piece.add([end - start for start, end in spans(text)])


@dataclass(slots=True)
class _Open:
    """The piece to which lines are added.

    A piece has whole lines; a line with more than a piece should have is cut between its paragraphs into
    several pieces, each with the bytes of the whole line.
    """

    result: PartResult
    target: int
    _start: int = 0
    _line: int = 0
    _paragraphs: int = 0
    _characters: int = 0
    _longest: int = 0
    _place: int = 0
    _data: bytes = b""
    _parts: list[bytes] | None = None

    def begin(self, place: int, line: bytes) -> None:
        if self._parts is None:
            self._parts, self._start, self._line = [], place, self.result.lines
        self._place = place
        self._data = line
        self._parts.append(line)

    def add(self, lengths: list[int]) -> None:
        self.result.paragraphs += len(lengths)
        self.result.characters += sum(lengths)
        if len(self._data) > self.target and len(lengths) > 1:
            self._cut(lengths)
            return
        self._paragraphs += len(lengths)
        self._characters += sum(lengths)
        self._longest = max(self._longest, *lengths, 0)

    def _cut(self, lengths: list[int]) -> None:
        """Close the piece before the line, and give the line pieces of its own."""
        self._parts = (self._parts or [])[:-1]
        self._close(self._place)
        digest = hashlib.sha256(self._data).digest()
        end = self._place + len(self._data)
        share = self.target * sum(lengths) / len(self._data)
        first = 0
        while first < len(lengths):
            last, size = first, 0
            while last < len(lengths) and (last == first or size + lengths[last] <= share):
                size += lengths[last]
                last += 1
            count, longest = last - first, max(lengths[first:last])
            self.result.pieces.append(
                PieceRow(self._place, end, first, self.result.lines, first, 0, count, size, longest, digest)
            )
            first = last

    def end(self, place: int) -> None:
        if self._parts is not None and (not self._paragraphs or place - self._start >= self.target):
            self._close(place)

    def close(self) -> None:
        if self._parts is not None:
            self._close(self._place + len(self._data))

    def _close(self, end: int) -> None:
        if self._paragraphs and self._parts:
            digest = hashlib.sha256(b"".join(self._parts)).digest()
            numbers = (self._paragraphs, self._characters, self._longest)
            self.result.pieces.append(PieceRow(self._start, end, 0, self._line, 0, 0, *numbers, digest))
        self._parts = None
        self._paragraphs = self._characters = self._longest = 0


_BLOCK_BYTES = 2**20
_WINDOW_BYTES = 2**16


def scan_parts(parts: Sequence[ScanPart]) -> list[PartResult]:
    return [scan_part(part) for part in parts]


def scan_part(part: ScanPart) -> PartResult:
    result = PartResult()
    try:
        if part.digest:
            _digest(part, result)
        elif part.stop is None:
            _whole(part, result)
        else:
            _range(part, result)
    except BadPartError as error:
        result.bad.append((error.line, error.reason))
    except BrokenError as error:
        result.bad.append((0, str(error)))
    except OSError as error:
        result.bad.append((0, f"cannot be read: {error.strerror}"))
    return result


def _digest(part: ScanPart, result: PartResult) -> None:
    digest = hashlib.sha256()
    size = 0
    with open_stream(part.file.path, "") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    _same_size(part, size)
    result.sha256 = digest.hexdigest()


def _whole(part: ScanPart, result: PartResult) -> None:
    digest = hashlib.sha256()
    size = 0

    def seen(block: bytes) -> None:
        nonlocal size
        digest.update(block)
        size += len(block)

    with open_stream(part.file.path, part.file.compression, seen) as stream:
        _read(stream, part, result)
    _same_size(part, size)
    result.sha256 = digest.hexdigest()


def _same_size(part: ScanPart, size: int) -> None:
    if size != part.file.size_bytes:
        raise BadPartError(
            0, f"the file changed while jobkit read it: {part.file.size_bytes} bytes, then {size}"
        )


def _read(stream: Stream, part: ScanPart, result: PartResult) -> None:
    if part.file.kind == JSONL:
        scan_jsonl(stream, part, result)
    else:
        scan_text(stream, result, first=result.start == 0, target=part.target)


def _range(part: ScanPart, result: PartResult) -> None:
    with os.fdopen(open_regular(part.file.path), "rb", buffering=0) as file:
        start, end = (_next(file, place, part) for place in (part.start, part.stop or 0))
        result.start = result.end = start
        file.seek(start)
        _read(_Limited(file, end - start), part, result)


def _next(file: BinaryIO, place: int, part: ScanPart) -> int:
    """Return where the first paragraph, or line of JSONL, after a place begins."""
    if place in {0, part.file.size_bytes}:
        return place
    window = _WINDOW_BYTES
    while True:
        # For JSONL from the byte before: a line may begin at the place itself.
        begin = place - (part.file.kind == JSONL)
        file.seek(begin)
        data = file.read(window)
        found = data.find(b"\n") + 1 if part.file.kind == JSONL else first_gap(data)
        if found:
            return begin + found
        if len(data) < window:
            return part.file.size_bytes
        refuse_long(window, "line" if part.file.kind == JSONL else "paragraph")
        window *= 4


class _Limited:
    """A stream that ends after so many bytes."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data
