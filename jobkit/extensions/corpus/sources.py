"""Find the files of a corpus, and read one as a decompressed stream of bytes."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from jobkit.core.errors import JobkitError, file_error
from jobkit.core.extras import missing_extra
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
    if lack := missing_extra("a .zst file", "zst"):
        raise lack


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


TEXT, JSONL = "text", "jsonl"
_COMPRESSED = {".gz": "gz", ".zst": "zst"}
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file of the corpus that is not read yet; its fields are those of `Source`."""

    path: str
    name: str
    kind: str
    compression: str
    size_bytes: int
    mtime_ns: int


def find_sources(paths: Sequence[str]) -> list[SourceFile]:
    """Return the files of a corpus, in the order of the paths, below a folder by name.

    Parameters
    ----------
    paths
        Files and folders as the user gave them. Of a folder, at any depth, the files that end in ``.txt``
        or ``.jsonl``, also with ``.gz`` or ``.zst`` after it; hidden ones are left out.

    Raises
    ------
    JobkitError
        If a path is standard input, is missing, is neither file nor folder, holds no text, or is given twice.
    """
    if not paths:
        raise JobkitError("no corpus", hint="--corpus PATH...: text files, JSONL files or folders of them")
    found: list[SourceFile] = []
    for path in paths:
        found += _below(path)
    _refuse_twice(found)
    return found


def _below(path: str) -> list[SourceFile]:
    if path in _STDIN:
        raise JobkitError(
            f"--corpus {path}: standard input cannot be read a second time after a failure",
            hint="write it to a file first: cat > corpus.txt",
        )
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - the path as it was given, also with a slash at its end
        if stat.S_ISDIR(mode):
            return _in_folder(path)
        if stat.S_ISREG(mode):
            return [_found(path, path)]
    except OSError as error:
        raise file_error(error, path, hint="see --corpus") from error
    raise JobkitError(
        f"--corpus {path}: neither a file nor a folder: jobkit reads a corpus more than once",
        hint="write it to a file first",
    )


def _in_folder(folder: str) -> list[SourceFile]:
    name = Path(folder).resolve().name
    found = [
        _found(f"{folder.rstrip('/')}/{inside}", f"{name}/{inside}") for inside in _names(Path(folder), "")
    ]
    if not found:
        raise JobkitError(
            f"--corpus {folder}: a folder without a .txt or .jsonl file, also as .gz or .zst",
            hint="files with other names are read if you name them: --corpus FOLDER/*",
        )
    return found


def _names(folder: Path, before: str) -> Iterator[str]:
    """Yield the names of the texts below a folder, each folder's in order."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    for entry in inside:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _names(folder / entry.name, f"{before}{entry.name}/")
        elif _stem(entry.name).endswith((".txt", ".jsonl")) and entry.is_file():
            yield before + entry.name


def is_jsonl(name: str) -> bool:
    """Return whether a file is of JSON lines, by its name."""
    return _stem(name).endswith(".jsonl")


def _stem(name: str) -> str:
    """Return a name without the ending of a compressed file."""
    base, ending = os.path.splitext(name)  # noqa: PTH122 - a name, not a path
    return base if ending in _COMPRESSED else name


def _found(path: str, name: str) -> SourceFile:
    status = os.stat(path)  # noqa: PTH116 - 100,000 Path objects cost time
    return SourceFile(
        path=os.path.abspath(path),  # noqa: PTH100 - the same
        name=os.fsencode(name).decode("utf-8", "backslashreplace"),
        kind=JSONL if is_jsonl(name) else TEXT,
        compression=_COMPRESSED.get(os.path.splitext(name)[1], ""),  # noqa: PTH122 - the same
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )


def _refuse_twice(found: list[SourceFile]) -> None:
    seen: dict[str, str] = {}
    for one in found:
        if one.path in seen:
            raise JobkitError(f"--corpus: {one.path} is given twice, as {seen[one.path]} and {one.name}")
        seen[one.path] = one.name
