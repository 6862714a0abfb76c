"""The bytes of a file of a corpus, decompressed, and as UTF-8 whatever its encoding.

Standard library only, but for ``.zst`` and to guess an encoding.
"""

from __future__ import annotations

import bz2
import codecs
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

from jobkit.core.extras import missing_extra
from jobkit.core.files import open_regular
from jobkit.extensions.corpus.plan import Source

_READ_BYTES = 2**18


class BrokenError(Exception):
    """A file, or a part of it, that cannot be read: the reason, and the line in the part if it is known."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line  # from 1; 0 for the whole file


@contextmanager
def open_stream(
    source: Source,
    seen: Callable[[bytes], object] = lambda _: None,
    *,
    start: int = 0,
    size: int = sys.maxsize,
) -> Iterator[Stream]:
    """Open a source, or some bytes of a plain one; ``seen`` gets each block as it is on disk."""
    with os.fdopen(open_regular(source.path), "rb", buffering=0) as file:
        file.seek(start)
        blocks = _raw(file, seen, size)
        blocks = _decompressed(blocks, source.compression) if source.compression else blocks
        yield Stream(_decoded(blocks, source.encoding) if source.encoding else blocks)


def _raw(file: BinaryIO, seen: Callable[[bytes], object], left: int) -> Iterator[bytes]:
    while data := file.read(min(_READ_BYTES, left)):
        left -= len(data)
        seen(data)
        yield data


class Stream:
    """The bytes of blocks, as a file has them."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._ready = blocks, memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        while not self._ready:
            block = next(self._blocks, None)
            if block is None:
                return b""
            if 0 < len(block) <= size:
                return block
            self._ready = memoryview(block)
        out, self._ready = bytes(self._ready[:size]), self._ready[size:]
        return out


def _decompressed(raw: Iterator[bytes], compression: str) -> Iterator[bytes]:
    """Yield the members of an archive, one after the other; zeros may follow, as tapes have them.

    zstandard's own ``stream_reader`` takes an archive that was cut short for a whole one.
    """
    begin, broken, most = _library(compression)
    # Bytes that are decompressed at once: gzip grows them by 1,000 at most, zstandard by 32,000. bzip2 and xz
    # are given a limit for what they return.
    step_bytes = {"gz": 2**15, "zst": 2**12, "bz2": 2**15, "xz": 2**15}
    size, member, waiting = step_bytes[compression], begin(), memoryview(b"")
    while True:
        while member.eof:
            waiting = waiting or memoryview(next(raw, b""))
            if not waiting:
                return
            waiting = memoryview(bytes(waiting).lstrip(b"\0"))
            member = begin() if waiting else member
        step = memoryview(b"")
        if getattr(member, "needs_input", True):
            waiting = waiting or memoryview(next(raw, b""))
            if not waiting:
                raise BrokenError("the archive ends early")
            step, waiting = waiting[:size], waiting[size:]
        try:
            out: bytes = member.decompress(step, *most)
        except broken as error:
            raise BrokenError(f"the archive is broken: {error}") from error
        if member.eof and (rest := member.unused_data):
            waiting = memoryview(rest + bytes(waiting))
        if out:
            yield out


def _library(compression: str) -> tuple[Callable[[], Any], type[Exception], tuple[int, ...]]:
    """Return what decompresses a member, its error, and the limit of what it returns at once, if any."""
    if compression == "bz2":
        return bz2.BZ2Decompressor, OSError, (_READ_BYTES,)
    if compression == "xz":
        # RAM for a dictionary: ``xz -9`` needs 65 MiB
        return partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, 2**30), lzma.LZMAError, (_READ_BYTES,)
    if compression == "zst":
        if lack := missing_extra("a .zst file", "zst"):
            raise lack
        import zstandard

        # largest window of zstandard, as ``zstd --long=31`` writes; the library's own limit is 128 MiB
        library = zstandard.ZstdDecompressor(max_window_size=2**31)
        return library.decompressobj, zstandard.ZstdError, ()
    return partial(zlib.decompressobj, wbits=31), zlib.error, ()


def _decoded(raw: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Yield what is in another encoding as UTF-8."""
    decoder, place, data = codecs.getincrementaldecoder(encoding)(), 0, b" "
    stream = Stream(raw)  # a block of an archive may be far larger than what is decoded at once
    while data:
        data = stream.read(_READ_BYTES)
        held = len(decoder.getstate()[0])
        try:
            yield decoder.decode(data, not data).encode()
        except UnicodeError as error:
            at = place - held + getattr(error, "start", 0)
            raise BrokenError(f"not {encoding} at byte {at}") from error
        place += len(data)


AUTO = "auto"


def encoding_of(source: Source) -> str:
    """Return the encoding that a file seems to have; empty for UTF-8, and if none is likely."""
    from charset_normalizer import from_bytes  # 40 ms that only such a file costs

    decoder, sample, block = codecs.getincrementaldecoder("utf-8")(), b"", b" "
    sample_bytes = 2**16
    with open_stream(replace(source, encoding="")) as stream:
        while block:
            block = stream.read(_READ_BYTES)
            sample = sample[-sample_bytes:] + block
            try:
                decoder.decode(block, not block)
            except UnicodeDecodeError:
                break
        else:
            return ""
        sample += read_exactly(stream, sample_bytes)
    if sample.count(0) * 10 < len(sample):
        sample = b"".join(line for line in sample.splitlines(keepends=True) if not line.isascii())
        sample = sample[-sample_bytes:]
        text = sample.decode(errors="replace")
        if sum(char > "\x7f" for char in text) > 2 * text.count("\ufffd"):
            return ""  # UTF-8 with some damage
    # Encodings that files have: of all that Python knows, charset-normalizer takes French for Mac Latin 2.
    usual = [
        *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1257", "koi8_r", "iso8859_2"),
        *("utf_16", "utf_16_le", "utf_16_be", "utf_32", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
    ]
    found = [*from_bytes(sample, cp_isolation=usual)]
    # what two encodings of one text may differ by; then it is that of most of western Europe
    tie = 0.03
    equal = [one for one in found if one.chaos <= found[0].chaos + tie]
    likely = [name for one in equal for name in one.could_be_from_charset]
    return "cp1252" if "cp1252" in likely else next(iter(likely), "")


def foreign_word(source: Source) -> str:
    """Return the first word of a file that is not ASCII, by which a person can judge its encoding."""
    with open_stream(source) as stream:
        while block := stream.read(_READ_BYTES):
            if found := re.search(r"\w*[^\W\x00-\x7f]\w*", block.decode(errors="ignore")):
                return found[0]
    return ""


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
