"""Find the files of a corpus, and read one as a decompressed stream of bytes."""

from __future__ import annotations

import os
import re
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
from jobkit.core.paragraphs import JSONL_ENDINGS
from jobkit.core.terminal import shell_path, shell_quote
from jobkit.core.units import format_list
from jobkit.extensions.corpus.plan import Source

GZIP, ZSTD = "gz", "zst"
MOST_NAMED = 5
_READ_BYTES = 2**18
_STEP_BYTES = {GZIP: 2**15, ZSTD: 2**12}
"""Bytes that are decompressed at once: gzip grows them by 1,000 at most, zstandard by 32,000."""
_WINDOW_BYTES = 2**31
"""Largest window of zstandard, as ``zstd --long=31`` writes; the library's own limit is 128 MiB."""


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
    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes; none at the end."""
        ...


@contextmanager
def open_stream(
    path: str, compression: str, seen: Callable[[bytes], object] | None = None
) -> Iterator[Stream]:
    """Open a source; each block of the file itself, as it is on disk, is also given to ``seen``."""
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
        if not self._waiting:
            self._waiting = memoryview(self._raw.read(_READ_BYTES))
        return bool(self._waiting)

    def _next_member(self) -> bool:
        while self._fill():
            if rest := bytes(self._waiting).lstrip(b"\0"):
                self._waiting = memoryview(rest)
                self._member = self._begin()
                return True
            self._waiting = memoryview(b"")
        return False


def need_zstandard() -> None:
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
_KINDS = {".txt": TEXT, **dict.fromkeys(JSONL_ENDINGS, JSONL)}
_COMPRESSED = {".gz": "gz", ".zst": "zst"}
READ = ".txt, .jsonl and .ndjson, also with .gz or .zst"
_TAR = re.compile(r"\.(tar(\.\w+)?|t[bgx]z2?)$")
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """The files of a corpus, and the names of those in its folders that are not read."""

    files: list[Source]
    unread: tuple[str, ...]


def find_sources(paths: Sequence[str]) -> CorpusFiles:
    """Return the files of a corpus, in the order of the paths, below a folder by name.

    Below a folder, at any depth, these are the files that end as `READ` says, in small or capital letters,
    without hidden files and links to folders.
    """
    if not paths:
        raise JobkitError("no corpus", hint="--corpus PATH...: text files, JSONL files or folders of them")
    found: list[Source] = []
    unread: list[str] = []
    for path in paths:
        found += _below(path, unread)
    _refuse_twice(found)
    return CorpusFiles(found, tuple(sorted(map(_printable, unread), key=lambda name: "/." in name)))


def _below(path: str, unread: list[str]) -> list[Source]:
    if path in _STDIN:
        raise JobkitError(
            f"--corpus {path}: jobkit cannot read standard input a second time after a failure",
            hint="write the corpus to a file first: cat > corpus.txt",
        )
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - the path as it was given, also with a slash at its end
        if stat.S_ISDIR(mode):
            return _in_folder(path, unread)
        if stat.S_ISREG(mode) and kind_of(path)[0]:
            return [_found(path, path)]
        if stat.S_ISREG(mode):
            raise JobkitError(f"--corpus {path}: not read: jobkit reads {READ}", hint=_way(Path(path)))
    except OSError as error:
        raise file_error(error, path, hint="see --corpus") from error
    raise JobkitError(
        f"--corpus {path}: neither a file nor a folder: jobkit reads a corpus more than once",
        hint="write the corpus to a file first",
    )


def _way(path: Path) -> str:
    """Return how a file that is not read can become one that is."""
    if _TAR.search(path.name.lower()):
        return f"unpack it and name the folder: mkdir unpacked && tar -xf {shell_path(path)} -C unpacked"
    stem, ending = (path.stem, path.suffix) if path.suffix.lower() in _COMPRESSED else (path.name, "")
    link = f"ln -s {shell_quote(path.name)} {shell_path(path.with_name(f'{stem}.txt{ending}'))}"
    return f"for plain text: {link}; else write JSONL, a document a line, with its text in the field `text`"


def _in_folder(folder: str, unread: list[str]) -> list[Source]:
    name = Path(folder).resolve().name
    found, left = [], []
    for inside, is_read in _names(Path(folder), ""):
        if is_read:
            found.append(_found(f"{folder.rstrip('/')}/{inside}", f"{name}/{inside}"))
        else:
            left.append(f"{name}/{inside}")
    if not found:
        message = f"--corpus {folder}: a folder without a file that is read: {format_list(left, MOST_NAMED)}"
        raise JobkitError(message.removesuffix(": "), hint=f"jobkit reads {READ}")
    unread += left
    return found


def _names(folder: Path, before: str) -> Iterator[tuple[str, bool]]:
    """Yield the names below a folder, each folder's in order, and whether jobkit reads the file."""
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    for entry in inside:
        hidden, is_folder = entry.name.startswith("."), entry.is_dir(follow_symlinks=False)
        if is_folder and not hidden:
            yield from _names(folder / entry.name, f"{before}{entry.name}/")
        else:
            is_read = not hidden and bool(kind_of(entry.name)[0]) and os.path.isfile(entry.path)  # noqa: PTH113 - quick
            yield f"{before}{entry.name}{'/' * is_folder}", is_read


def kind_of(name: str) -> tuple[str, str]:
    """Return the kind and the compression of a file by its name; an empty kind if it is not read."""
    base, ending = os.path.splitext(name.lower())  # noqa: PTH122 - a name, not a path
    if ending in _COMPRESSED:
        return _KINDS.get(os.path.splitext(base)[1], ""), _COMPRESSED[ending]  # noqa: PTH122 - as above
    return _KINDS.get(ending, ""), ""


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _found(path: str, name: str) -> Source:
    status = os.stat(path)  # noqa: PTH116 - 100,000 Path objects cost time
    kind, compression = kind_of(name)
    return Source(
        path=os.path.abspath(path),  # noqa: PTH100 - the same
        name=_printable(name),
        kind=kind,
        compression=compression,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )


def _refuse_twice(found: list[Source]) -> None:
    seen: dict[str, str] = {}
    for one in found:
        if one.path in seen:
            raise JobkitError(f"--corpus: {one.path} is given twice, as {seen[one.path]} and {one.name}")
        seen[one.path] = one.name
