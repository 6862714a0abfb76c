"""The findings of `jobkit doctor`, each with a fix; and the facts that ``doctor.sh`` collects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from jobkit.core.errors import ExitCode
from jobkit.core.files import read_text
from jobkit.core.frozen import frozen
from jobkit.core.terminal import next_line, printable, shell_quote, wrap

WIDTH = 100
STAND_IN = "stand-in"
"""The name of the finding of a model that is none to work with."""


class Status(StrEnum):
    """The status of a finding."""

    OK = "ok"
    WARNING = "warning"  # a sweep works, but look at it
    MISSING = "missing"  # a sweep would not work
    UNKNOWN = "unknown"  # it cannot be checked from here


@frozen
class Finding:
    """One thing that a sweep needs."""

    name: str  # of the thing, in a word or two
    status: Status = field(kw_only=True)
    said: str  # what was found, in plain words
    # the command to type or the key to change; empty if nothing is wrong. The lines after the first are
    # commands and are never wrapped.
    hint: str = ""
    where: str = ""  # its heading: the machine, or the node, that was checked


fine, warning, missing, unknown = (partial(Finding, status=status) for status in Status)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 4 if something is missing, else 0."""
    return ExitCode.FAILED if any(finding.status is Status.MISSING for finding in findings) else 0


def lines(finding: Finding, width: int = WIDTH) -> list[str]:
    """Return a finding as lines for a person: its status, what was found, the fix."""
    head, below = f"  {finding.status:<9}{finding.name:<14} ", " " * 26
    lines: list[str] = []
    for line in finding.said.splitlines() or [""]:
        lines += wrap(printable(line.expandtabs()), width, first=below if lines else head, below=below)
    words, *commands = map(printable, finding.hint.splitlines() or [""])
    hint = wrap(words, width, first=f"{below}-> ", below=f"{below}   ") if words else []
    hint += [f"{below}   {command}" for command in commands]
    return [line.rstrip() for line in (*lines, *hint)]


def summary(findings: Iterable[Finding], *, whole: bool = False) -> str:
    """Return a line with the number of findings of each status, and how to see those that are not listed."""
    counted = Counter(finding.status for finding in findings)
    words = dict.fromkeys(Status, "") | {Status.WARNING: "s" if counted[Status.WARNING] > 1 else ""}
    words[Status.OK] = "" if whole else " (--all lists them)"
    parts = [f"{counted[status]} {status}{words[status]}" for status in Status if counted[status]]
    return ", ".join(parts) or "nothing was checked"


def advice(findings: Sequence[Finding], again: str, then: str, *, nodes: bool) -> str:
    """Return in lines whether it will work, and what to type next.

    ``nodes``: whether there are nodes that were not checked.
    """
    if exit_code(findings):
        fix = "fix what is missing from the top down: one missing thing is often the reason for others below"
        return f"It will not work: {fix}.\n{next_line(again, 'once it is fixed')}"
    where = " on this machine" if nodes else ""
    works = f"It will work{where}."
    if any(finding.name == STAND_IN for finding in findings):
        works = f"A sweep will work{where}, with the stand-in; tune and apply need the real model."
    return f"{works}\n{next_line(f'{again} --submit', 'checks a node too') if nodes else next_line(then)}"


def as_json(findings: Sequence[Finding]) -> dict[str, object]:
    """Return the findings for programs, with the number of each status."""
    counted = Counter(finding.status for finding in findings)
    return {
        "schema": 1,
        "findings": [asdict(finding) for finding in findings],
        "counts": {status.value: counted[status] for status in Status},
    }


ANSWER_FILE = "answer"
EXAMINED_FILE = "examined.json"


@frozen
class Facts:
    """The facts about a machine."""

    said: Mapping[str, str]  # the values that the script recorded: ``host``, ``scratch.free``
    python: Mapping[str, Any]  # the output of `jobkit.worker.examine`; empty if it did not run

    def number(self, name: str) -> int | None:
        """Return a value as a whole number, ``None`` if it is none."""
        text = self.said.get(name, "").strip()
        return int(text) if text.isdecimal() else None

    @property
    def pip(self) -> str:
        """The command that installs a package for the Python of the job."""
        where = "when you build the image: " if self.said.get("container") else ""
        return f"{where}{shell_quote(self.said.get('python', 'python'))} -m pip install"

    def message(self, step: str) -> str:
        """Return the last output of a step."""
        return self.said.get(f"{step}.said", "").strip()

    def hung(self, step: str) -> bool:
        """Return whether a step was killed because it took too long."""
        # See timeout(1)
        return self.number(step) == 124


def read_facts(folder: Path) -> Facts:
    """Return the facts that the script left in a folder; a truncated file has fewer."""
    files = (folder / name for name in (ANSWER_FILE, EXAMINED_FILE))
    answer, examined = (read_text(file) if file.is_file() else "" for file in files)
    pairs = (line.partition("=") for line in answer.splitlines())
    values = {key: value for key, sign, value in pairs if sign}
    try:
        python = json.loads(examined)
    except ValueError:
        python = {}
    return Facts(values, python if isinstance(python, dict) else {})
