"""Files that a kill may cut short: a line appended whole, a file that is there whole or not at all.

Standard library only: this module is imported on the compute node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def append_line(path: Path, line: str) -> None:
    """Append one line to a file in a single write, and have it on disk before returning."""
    with path.open("ab") as stream:
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number from 1, line)`` of a JSON-lines file, blank lines left out.

    A last line without a newline is half-written and is yielded too: the caller's parser
    tells whether it stands.
    """
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees either nothing or all of it."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def read_text(path: Path | str) -> str:
    """Return a small file's text, bytes that are no UTF-8 replaced."""
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - opened by the ten thousand
        return stream.read().decode("utf-8", "replace")
