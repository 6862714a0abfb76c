"""Lines of YAML that a person reads: a key, and beside it where the choice is from. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobkit.schedulers.queues import Queue

COMMENT_COLUMN, WIDTH = 44, 110
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
WORD = re.compile(r"[A-Za-z0-9_@*][A-Za-z0-9_@*?.,:;+=%!/-]*")
"""As `jobkit.spec.site.Site.name` and `jobkit.spec.values.Word` have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the texts tell beside what the scheduler said.

    Attributes
    ----------
    scheduler, why
        Its name in site files, and why it was chosen.
    site_file, site
        Where the site file goes, and what a spec calls it: ``auto``, or its path.
    date
        Of today.
    """

    scheduler: str
    why: str
    site_file: str
    site: str
    date: str


def line(text: str, comment: str = "") -> str:
    """Return a line of YAML with a comment beside it; above it where that would be too wide."""
    if not comment:
        return text
    beside = f"{text:<{COMMENT_COLUMN}}# {plain(comment)}"
    if len(beside) <= WIDTH:
        return beside
    indent = text[: len(text) - len(text.lstrip())]
    return f"{indent}# {plain(comment)}\n{text}"


def plain(text: str) -> str:
    """Return a text that can stand in a comment: no line end, nothing that YAML forbids."""
    return "".join(char if char.isprintable() else " " for char in text)


def scalar(text: str) -> str:
    """Return a text as YAML: bare where that is read as text, else in double quotes."""
    bare = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text)
    reserved = text.lower() in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
    return text if bare and not reserved else f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def word(queue: Queue | None) -> str:
    """Return the name of a queue as YAML, ``null`` where there is none, or no spec could name it."""
    return scalar(queue.name) if queue is not None and WORD.fullmatch(queue.name) else "null"
