"""What `jobkit doctor` finds: one thing each, with what mends it; as text and as JSON. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from jobkit.core.errors import ExitCode
from jobkit.core.terminal import printable, shell_quote, wrap

SCHEMA = 1
WIDTH = 100
_STATUS_WIDTH, _NAME_WIDTH = 9, 14


class Status(StrEnum):
    """How it stands. What could not be seen is ``unknown``: neither well nor missing."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that must be so before a sweep works.

    Attributes
    ----------
    name
        Of the thing, in a word or two.
    said
        What was seen, in plain words.
    mend
        The command to type or the key to change; empty where nothing is wrong. What stands on lines
        after the first is a command, and is never folded.
    where
        The heading that it stands under: the machine, or the node, that it is true of.
    """

    name: str
    status: Status
    said: str
    mend: str = ""
    where: str = ""


def fine(name: str, said: str) -> Finding:
    """Return that a thing is as it must be."""
    return Finding(name=name, status=Status.OK, said=said)


def warning(name: str, said: str, mend: str = "") -> Finding:
    """Return that a thing may do harm, or will do without."""
    return Finding(name=name, status=Status.WARNING, said=said, mend=mend)


def missing(name: str, said: str, mend: str = "") -> Finding:
    """Return that a sweep would not work without this."""
    return Finding(name=name, status=Status.MISSING, said=said, mend=mend)


def unknown(name: str, said: str, mend: str = "") -> Finding:
    """Return that a thing cannot be seen from here."""
    return Finding(name=name, status=Status.UNKNOWN, said=said, mend=mend)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 4 where something is missing, else 0."""
    return ExitCode.FAILED if any(finding.status is Status.MISSING for finding in findings) else 0


def lines(one: Finding, width: int = WIDTH) -> list[str]:
    """Return a finding as lines for a person: how it stands, what was seen, what mends it."""
    head = f"  {one.status:<{_STATUS_WIDTH}}{one.name:<{_NAME_WIDTH}} "
    below = " " * len(f"  {'':<{_STATUS_WIDTH}}{'':<{_NAME_WIDTH}} ")
    first, *rest = [printable(line.expandtabs()) for line in one.said.splitlines()] or [""]
    lines = [
        *wrap(first, width, first=head, below=below),
        *(w for line in rest for w in wrap(line, width, first=below, below=below)),
    ]
    words, *commands = map(printable, one.mend.splitlines() or [""])
    mend = wrap(words, width, first=f"{below}-> ", below=f"{below}   ") if words else []
    mend += [f"{below}   {command}" for command in commands]
    return [line.rstrip() for line in (*lines, *mend)]


def summary(findings: Iterable[Finding]) -> str:
    """Return in a line how many things stand how."""
    counted = Counter(finding.status for finding in findings)
    plural = {Status.WARNING: "warnings" if counted[Status.WARNING] > 1 else "warning"}
    parts = [f"{counted[status]} {plural.get(status, status)}" for status in Status if counted[status]]
    return ", ".join(parts) or "nothing was looked at"


def advice(findings: Iterable[Finding], words: Sequence[str], *, nodes: bool) -> str:
    """Return what to do next.

    Parameters
    ----------
    words
        What was looked at, as `jobkit sweep` takes it: the spec, then the options that change it.
    nodes
        Whether there are nodes that were not looked at.
    """
    if exit_code(findings):
        return "mend what is missing from the top down: what stands further up is often the reason"
    sweep = f"jobkit sweep {shell_quote(words[0])} {shlex.join(words[1:])}".rstrip()
    return f"next: the same with --submit looks on a node; then {sweep}" if nodes else f"next: {sweep}"


def as_json(findings: Sequence[Finding]) -> dict[str, object]:
    """Return the findings for programs, with how many stand how."""
    counted = Counter(finding.status for finding in findings)
    return {
        "schema": SCHEMA,
        "findings": [asdict(finding) for finding in findings],
        "counts": {status.value: counted[status] for status in Status},
    }
