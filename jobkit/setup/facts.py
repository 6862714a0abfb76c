"""What ``doctor.sh`` found on a machine, read back from its two files. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ANSWER_FILE = "answer"
EXAMINED_FILE = "examined.json"
PROGRAMS = ("rsync", "df", "stat", "sed", "mktemp", "timeout", "truncate")
"""What a job script calls, beside the shell's own."""
_KILLED_BY_TIMEOUT = 124
"""See timeout(1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found.

    Attributes
    ----------
    said
        The words of the script: ``host``, ``program.rsync``, ``scratch.free``.
    python
        What `jobkit.run.examine` found; empty where it did not come so far.
    """

    said: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> int | None:
        """Return a whole number that the script said, ``None`` where it said none."""
        text = self.said.get(name, "").strip()
        return int(text) if text.isdecimal() else None

    def status(self, step: str) -> int | None:
        """Return the exit status of a step, ``None`` where the script did not come so far."""
        return self.number(step)

    def hung(self, step: str) -> bool:
        """Tell whether a step was ended because it took too long."""
        return self.number(step) == _KILLED_BY_TIMEOUT


def read_facts(answer: str, examined: str | None) -> Facts:
    """Return what the two files of a look say; a file that is cut short says less.

    Parameters
    ----------
    answer
        Lines of ``key=value``.
    examined
        A JSON object, ``None`` where there is no such file.
    """
    pairs = (line.partition("=") for line in answer.splitlines())
    said = {key: value for key, sign, value in pairs if sign}
    try:
        python = json.loads(examined or "{}")
    except ValueError:
        python = {}
    return Facts(said=said, python=python if isinstance(python, dict) else {})
