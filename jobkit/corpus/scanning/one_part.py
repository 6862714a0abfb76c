"""Read one part of the corpus: the work of a process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import BinaryIO

from jobkit.core.files import open_regular
from jobkit.corpus.decompress import BrokenError, Stream, open_stream
from jobkit.corpus.scanning.jsonl import scan_jsonl
from jobkit.corpus.scanning.parts import BadPartError, Part, PartResult, refuse_long
from jobkit.corpus.scanning.text import first_gap, scan_text

_BLOCK_BYTES = 2**20
_WINDOW_BYTES = 2**16


def scan_parts(parts: Sequence[Part]) -> list[PartResult]:
    """Read parts; what is bad is in the results."""
    return [scan_part(part) for part in parts]


def scan_part(part: Part) -> PartResult:
    """Read a part; what is bad is in the result."""
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


def _digest(part: Part, result: PartResult) -> None:
    digest = hashlib.sha256()
    size = 0
    with open_stream(part.path, "") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    _same_size(part, size)
    result.sha256 = digest.hexdigest()


def _whole(part: Part, result: PartResult) -> None:
    digest = hashlib.sha256()
    size = 0

    def seen(block: bytes) -> None:
        nonlocal size
        digest.update(block)
        size += len(block)

    with open_stream(part.path, part.compression, seen) as stream:
        _read(stream, part, result)
    _same_size(part, size)
    result.sha256 = digest.hexdigest()


def _same_size(part: Part, size: int) -> None:
    if size != part.size_bytes:
        raise BadPartError(0, f"it changed while it was read: {part.size_bytes} bytes, then {size}")


def _read(stream: Stream, part: Part, result: PartResult) -> None:
    if part.kind == "jsonl":
        scan_jsonl(stream, part, result)
    else:
        scan_text(stream, result, first=result.start == 0, target=part.target)


def _range(part: Part, result: PartResult) -> None:
    with os.fdopen(open_regular(part.path), "rb", buffering=0) as file:
        start, end = (_next(file, place, part) for place in (part.start, part.stop or 0))
        result.start = result.end = start
        file.seek(start)
        _read(_Limited(file, end - start), part, result)


def _next(file: BinaryIO, place: int, part: Part) -> int:
    """Return where the first paragraph, or line of JSONL, after a place begins."""
    if place in {0, part.size_bytes}:
        return place
    window = _WINDOW_BYTES
    while True:
        # Of JSONL from the byte before: a line may begin at the place itself.
        begin = place - (part.kind == "jsonl")
        file.seek(begin)
        data = file.read(window)
        found = data.find(b"\n") + 1 if part.kind == "jsonl" else first_gap(data)
        if found:
            return begin + found
        if len(data) < window:
            return part.size_bytes
        refuse_long(window, "line" if part.kind == "jsonl" else "paragraph")
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
