"""The facts that ``doctor.sh`` collects on a machine, read from its two files. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobkit.core.terminal import shell_quote

ANSWER_FILE = "answer"
EXAMINED_FILE = "examined.json"
_KILLED_BY_TIMEOUT = 124
"""See timeout(1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about a machine.

    Attributes
    ----------
    said
        The values that the script recorded: ``host``, ``program.rsync``, ``scratch.free``.
    python
        The output of `jobkit.run.examine`; empty if it did not run.
    """

    said: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, Any] = field(default_factory=dict)

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
        return self.number(step) == _KILLED_BY_TIMEOUT


def read_facts(answer: str, examined: str) -> Facts:
    """Return the facts of the two files; a truncated file has fewer.

    Parameters
    ----------
    answer
        Lines of ``key=value``.
    examined
        A JSON object; empty if there is no such file.
    """
    pairs = (line.partition("=") for line in answer.splitlines())
    values = {key: value for key, sign, value in pairs if sign}
    try:
        python = json.loads(examined or "{}")
    except ValueError:
        python = {}
    return Facts(said=values, python=python if isinstance(python, dict) else {})
