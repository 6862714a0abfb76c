"""Plain members of the Protocol, taken by assignment: ``limit_argv = defaults.no_command``."""

from __future__ import annotations

import re
import shlex

from jobkit.schedulers.types import LogOutcomes

NEVER = re.compile(r"(?!)")
"""Matches no text."""
NO_OUTCOMES: LogOutcomes = ()


def no_command(*_: object, **__: object) -> tuple[()]:
    """Return no command, and no question to ask."""
    return ()


def nothing(*_: object, **__: object) -> None:
    """Return ``None``: no limit, no error, no remedy, no directive."""


def no_reason(*_: object, **__: object) -> str:
    """Return no reason."""
    return ""


def one_slot(*_: object, **__: object) -> int:
    """Return 1: the scheduler counts CPUs, not slots."""
    return 1


quoted_path = shlex.quote
"""A header line reads a path as the shell does."""
