"""Paths as a person types them: relative to here, and as one word of a command that a shell takes."""

from __future__ import annotations

import shlex
from pathlib import Path


def short(path: Path) -> str:
    """Return a path relative to here, where it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def word(path: Path | str) -> str:
    """Return a path as a word of a command: quoted where a shell would take it apart, never an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def typed(path: Path) -> str:
    """Return a path as a word of a command that is typed here."""
    return word(short(path))
