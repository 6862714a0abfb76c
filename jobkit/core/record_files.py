"""Files that a kill may cut short: a line appended whole, a file that is there whole or not at all.

Standard library only: this module is imported on the compute node.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from jobkit.core.errors import naming


def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """Open a file that must be a regular one: a FIFO in a run folder would block its reader for ever.

    Raises
    ------
    OSError
        Where it is something else, too.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(code, os.strerror(code) if code == errno.EISDIR else "not a regular file", os.fspath(path))


def append_line(path: Path, line: str) -> None:
    """Append one line to a file, and have it on disk before returning.

    A last line that a full disk or a crash cut short is ended first, so that it spoils itself alone.

    Raises
    ------
    OSError
        With the name of the file.
    """
    with naming(path):
        handle = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            data = b"\n" * torn + line.encode() + b"\n"
            while data:
                data = data[os.write(handle, data) :]
            os.fsync(handle)
        finally:
            os.close(handle)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number from 1, line)`` of a JSON-lines file, blank lines left out.

    A last line without a newline is half-written and is yielded too: the caller's parser
    tells whether it stands.
    """
    with open(open_regular(path), encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line


def last_line(path: Path) -> str:
    """Return the last whole line of a file, however long the file is; empty where there is none."""
    handle = open_regular(path)
    try:
        end, tail = os.fstat(handle).st_size, b""
        while end > 0 and tail.count(b"\n") < 2:  # noqa: PLR2004 - its own end, and that of the line before
            begin = max(0, end - _BLOCK_BYTES)
            tail = os.pread(handle, end - begin, begin) + tail
            end = begin
    finally:
        os.close(handle)
    lines = tail[: tail.rfind(b"\n") + 1].splitlines()
    return lines[-1].decode("utf-8", "replace") if lines else ""


_BLOCK_BYTES = 2**16


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees either nothing or all of it.

    Raises
    ------
    OSError
        With the name of the file.
    """
    part = path.with_name(path.name + ".part")
    with naming(path):
        with part.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)


def read_text(path: Path | str) -> str:
    """Return a small file's text, bytes that are no UTF-8 replaced."""
    with open(open_regular(path), "rb", buffering=0) as stream:
        return stream.read().decode("utf-8", "replace")
