"""Read a source as a stream of bytes, decompressed. Standard library, and zstandard for ``.zst``."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import BinaryIO, Protocol

from jobkit.core.errors import JobkitError
from jobkit.core.files import open_regular

GZIP, ZSTD = "gz", "zst"
_READ_BYTES = 2**18
_STEP_BYTES = {GZIP: 2**15, ZSTD: 2**12}
"""What is decompressed at once: a gzip file grows by 1,000 at most, one of zstandard by 32,000."""
_WINDOW_BYTES = 2**31
"""The largest window of zstandard, as ``zstd --long=31`` writes; the library's own limit is 128 MiB."""


class BrokenError(Exception):
    """An archive that cannot be decompressed; its text is the reason."""


class _Decoder(Protocol):
    """One member of a gzip file, or one frame of a zstandard file."""

    @property
    def eof(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows its end."""
        ...

    def decompress(self, data: bytes, /) -> bytes:
        """Return what more can be decompressed."""
        ...


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
        return _Archive(raw, lambda: zlib.decompressobj(wbits=31), zlib.error, _STEP_BYTES[GZIP])
    if compression == ZSTD:
        need_zstandard()
        import zstandard

        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        return _Archive(raw, decompressor.decompressobj, zstandard.ZstdError, _STEP_BYTES[ZSTD])
    return raw


class _Seen:
    """A stream whose blocks another reader also sees, for instance a digest."""

    def __init__(self, raw: Stream | BinaryIO, seen: Callable[[bytes], object]) -> None:
        self._raw = raw
        self._seen = seen

    def read(self, size: int, /) -> bytes:
        data = self._raw.read(size)
        self._seen(data)
        return data


class _Archive:
    """The members of an archive, one after the other; zeros may follow, as tapes have them.

    zstandard's own ``stream_reader`` takes an archive that was cut short for a whole one.
    """

    def __init__(
        self,
        raw: Stream | BinaryIO,
        begin: Callable[[], _Decoder],
        error: type[Exception],
        step_bytes: int,
    ) -> None:
        self._raw = raw
        self._begin = begin
        self._error = error
        self._step_bytes = step_bytes
        self._member = begin()
        self._waiting = memoryview(b"")
        self._ready = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        while not self._ready:
            if self._member.eof and not self._next_member():
                return b""
            self._ready = memoryview(self._more())
        out = bytes(self._ready[:size])
        self._ready = self._ready[size:]
        return out

    def _more(self) -> bytes:
        if not self._fill():
            raise BrokenError("the archive ends early")
        step, self._waiting = self._waiting[: self._step_bytes], self._waiting[self._step_bytes :]
        try:
            out = self._member.decompress(step)  # type: ignore[arg-type]  # it takes any buffer
        except self._error as error:
            raise BrokenError(f"the archive is broken: {error}") from error
        if self._member.eof and (rest := self._member.unused_data):
            self._waiting = memoryview(rest + bytes(self._waiting))
        return out

    def _fill(self) -> bool:
        """Return whether there is more of the file."""
        if not self._waiting:
            self._waiting = memoryview(self._raw.read(_READ_BYTES))
        return bool(self._waiting)

    def _next_member(self) -> bool:
        """Begin the next member; return whether there is one."""
        while self._fill():
            if rest := bytes(self._waiting).lstrip(b"\0"):
                self._waiting = memoryview(rest)
                self._member = self._begin()
                return True
            self._waiting = memoryview(b"")
        return False


def need_zstandard() -> None:
    """Refuse a ``.zst`` file if zstandard is not installed.

    Raises
    ------
    JobkitError
        With the command that installs it.
    """
    if find_spec("zstandard") is None:
        raise JobkitError("a .zst file needs zstandard", hint="pip install 'jobkit[zst]'")


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
