"""Processes found by their environment or their command: none may be left of a try that has ended."""

from __future__ import annotations

import contextlib
from pathlib import Path


def with_variable(variable: str) -> list[int]:
    """Return the ids of the processes that began with this variable (``NAME=VALUE``) and have not ended."""
    wanted = variable.encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def with_words(program: str, word: str) -> list[int]:
    """Return the ids of the processes that run this program with an argument that ends so."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            words = path.read_bytes().decode(errors="replace").split("\0")
            if words[0] == program and any(other.endswith(word) for other in words):
                found.append(int(path.parent.name))
    return found


def parent_of(pid: int) -> int:
    """Return the id of a process's parent."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return int(stat.rpartition(") ")[2].split()[1])


def gone(pid: int) -> bool:
    """Tell whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2][:1]
    except OSError:
        return True
    return state == "Z"
