"""Read a source as a stream of bytes, decompressed. Standard library, and zstandard for ``.zst``."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Protocol

from jobkit.core.errors import JobkitError
from jobkit.core.files import open_regular

GZIP, ZSTD = "gz", "zst"
_READ_BYTES = 2**18
_WINDOW_BYTES = 2**31
"""The largest window of zstandard, as ``zstd --long=31`` writes; the library's own limit is 128 MiB."""


class BrokenError(Exception):
    """An archive that cannot be decompressed; its text is the reason."""


class Stream(Protocol):
    """What is read of a source."""

    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes; none at the end."""
        ...


@contextmanager
def open_stream(
    path: str, compression: str, seen: Callable[[bytes], object] | None = None
) -> Iterator[Stream]:
    """Open a source; each block of the file itself, as it is on disk, is also given to ``seen``.

    Raises
    ------
    OSError
        If it cannot be read, with its name.
    BrokenError
        From ``read``, if the archive is broken.
    """
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        raw = _Seen(file, seen) if seen else file
        yield _unpacked(raw, compression)


def _unpacked(raw: Stream | BinaryIO, compression: str) -> Stream:
    if compression == GZIP:
        return _Gzip(raw)
    return _zstd(raw) if compression == ZSTD else raw


class _Seen:
    """A stream whose blocks another reader also sees, for instance a digest."""

    def __init__(self, raw: Stream | BinaryIO, seen: Callable[[bytes], object]) -> None:
        self._raw = raw
        self._seen = seen

    def read(self, size: int, /) -> bytes:
        data = self._raw.read(size)
        self._seen(data)
        return data


class _Gzip:
    """The members of a gzip file, one after the other; zeros may follow, as tapes have them."""

    def __init__(self, raw: Stream | BinaryIO) -> None:
        self._raw = raw
        self._member = zlib.decompressobj(wbits=31)
        self._begun = False
        self._waiting = b""

    def read(self, size: int, /) -> bytes:
        while True:
            if self._member.eof and not self._next_member():
                return b""
            data = self._waiting or self._raw.read(_READ_BYTES)
            if not data:
                raise BrokenError("the archive ends early")
            self._begun = True
            try:
                out = self._member.decompress(data, size)
            except zlib.error as error:
                raise BrokenError(f"the archive is broken: {error}") from error
            self._waiting = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if out:
                return out

    def _next_member(self) -> bool:
        """Begin the next member; return whether there is one."""
        while not (rest := self._waiting.lstrip(b"\0")):
            if not (data := self._raw.read(_READ_BYTES)):
                return False
            self._waiting = data
        self._waiting = rest
        self._member = zlib.decompressobj(wbits=31)
        return True


def need_zstandard() -> None:
    """Refuse a ``.zst`` file if zstandard is not installed.

    Raises
    ------
    JobkitError
        With the command that installs it.
    """
    if find_spec("zstandard") is None:
        raise JobkitError("a .zst file needs zstandard", hint="pip install 'jobkit[zst]'")


def _zstd(raw: Stream | BinaryIO) -> Stream:
    need_zstandard()
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(
        raw, read_across_frames=True, closefd=False
    )
    return _Zstd(reader, zstandard.ZstdError)


class _Zstd:
    """A zstandard stream, whose errors are `BrokenError`."""

    def __init__(self, reader: Stream, error: type[Exception]) -> None:
        self._reader = reader
        self._error = error

    def read(self, size: int, /) -> bytes:
        try:
            return self._reader.read(size)
        except self._error as error:
            raise BrokenError(f"the archive is broken: {error}") from error


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
    return b"".join(parts)


def size_of(path: str) -> int:
    """Return the size of a file in bytes."""
    return Path(path).stat().st_size
