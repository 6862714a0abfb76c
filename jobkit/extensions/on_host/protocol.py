"""What the two sides of ``jobkit --on HOST`` send each other: a request, then answers, one line of JSON each.

A line of an answer begins with `MARK`, so that what a login shell prints is no answer. The request travels
on standard input, once the login shell is through: no shell reads a word of the user's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from jobkit.core.files import digest
from jobkit.core.frozen import keyed
from jobkit.core.host import PROTOCOL

MARK = "jobkit-on:"
ABSENT, NO_RSYNC, READY = f"{MARK}absent", f"{MARK}no-rsync", f"{MARK}ready"
"""Lines of the scripts that look for jobkit and for rsync; the last follows what a login shell prints."""
INTERRUPT, ACCEPTED = b"interrupt\n", b"accepted\n"
"""What follows the request: Ctrl-C, and that the whole answer has come."""

KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("out", "err", "error", "hint", "version"), str),
    **dict.fromkeys(("exit", "code", "protocol"), int),
    "kept": (int, float),
}
"""Of what the parts of an answer are, by name."""


class Place(NamedTuple):
    """A file or folder on the cluster that comes to the laptop."""

    base: str  # the folder on the cluster that is the project here
    path: Path  # below that folder, here as there
    is_folder: bool


@keyed
class Request:
    """What is asked of the jobkit on the cluster."""

    protocol: int = PROTOCOL  # that of the asking side
    version: str = ""  # of the jobkit that asks
    # ``run`` for a command, else a name in `jobkit.extensions.on_host.server.QUESTIONS`
    question: str = "run"
    # the command line after ``jobkit``; of a question, what it is about
    words: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)  # more of what a question is about
    folder: str = ""  # the folder that holds projects, below the home folder or absolute
    project: str = ""  # the name of the project
    origin: str = ""  # the folder on the laptop that the project is
    # the name under which the answer is kept until it has come; empty if it need not be. It differs by
    # laptop, command and files.
    kept: str = ""
    # what the files are that have travelled (see `mark`), by their path in the project
    sent: dict[str, str] = field(default_factory=dict)
    terminal: bool = False  # whether standard output is shown on a terminal
    columns: int = 0  # `columns`, `lines`: of that terminal
    lines: int = 0

    def as_line(self) -> bytes:
        """Return the request as one line."""
        return json.dumps(asdict(self)).encode() + b"\n"


def parse_request(line: bytes) -> Request:
    """Return the request of a line; fields that this version does not know are left out."""
    data = json.loads(line)
    known = {one.name for one in fields(Request)}
    return Request(**{key: value for key, value in data.items() if key in known})


def parse_answer(line: bytes) -> dict[str, Any] | None:
    """Return the answer of a line, which a login shell may have begun; ``None`` of any other line."""
    at = -1
    while (at := line.find(f"{MARK}{{".encode(), at + 1)) >= 0:
        with contextlib.suppress(ValueError, RecursionError):
            answer: dict[str, Any] = json.loads(line[at + len(MARK) :])
            if all(isinstance(answer[key], kind) for key, kind in KINDS.items() if key in answer):
                return answer
    return None


def mark(file: Path, *, by_time: bool) -> str:
    """Return what a file is: its SHA-256, or its size and time, as rsync compares large files."""
    if not by_time:
        return digest(file)[0]
    found = file.stat()
    return f"{found.st_size} {found.st_mtime_ns // 10**9}"
