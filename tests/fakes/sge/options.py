"""The options of qsub, and of the ``#$`` lines of a script: qsub(1), 8.1.9."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tests.fakes.common.entry import Refused

FLAGS = frozenset({"cwd", "notify", "terse", "V", "soft", "hard", "clear"})
TAKE_ONE = frozenset(
    {"M", "N", "P", "S", "b", "e", "hold_jid", "j", "l", "m", "now", "o", "p", "q", "r", "t", "tc", "v", "w"}
    | {"wd"}
)
ADDED = frozenset({"l", "v", "hold_jid", "q"})
"""What is said again is added with a comma; all else is replaced."""


def parse(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options by their names and what stands behind them.

    Raises
    ------
    Refused
        As the real command does of an option that it does not have.
    """
    found: dict[str, str] = {}
    left = list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name = word[1:]
        if name in FLAGS:
            found[name] = "y"
        elif name == "pe":
            found[name] = f"{left.pop(0)} {left.pop(0)}"
        elif name in TAKE_ONE:
            value = left.pop(0)
            found[name] = f"{found[name]},{value}" if name in ADDED and name in found else value
        else:
            raise Refused(f'qsub: invalid option argument "{word}"\n', 2)
    return found, left


def merged(first: dict[str, str], then: dict[str, str]) -> dict[str, str]:
    """Return what two places ask for together; the later one counts."""
    added = {name: f"{first[name]},{then[name]}" for name in ADDED & set(first) & set(then)}
    return first | then | added


def header(script: str) -> dict[str, str]:
    """Return the options of the ``#$`` lines: of the whole script, for qsub reads on behind commands."""
    found: dict[str, str] = {}
    for line in script.splitlines():
        if line.startswith("#$"):
            found = merged(found, parse(shlex.split(line[2:]))[0])
    return found
