"""What the fake prints and reads: answers, times, lists of tasks, what real daemons answered."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

CAPTURED = Path(__file__).parents[2] / "data" / "slurm"
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Answer(NamedTuple):
    """What a command prints, and its exit status."""

    out: str = ""
    err: str = ""
    status: int = 0


class Refused(Exception):  # noqa: N818 - what the scheduler did, not an error of the fake
    """The command ends here, with these words on stderr."""

    def __init__(self, err: str, status: int = 1, out: str = "") -> None:
        super().__init__(err)
        self.answer = Answer(out, err, status)


def captured(name: str, stream: str = "stdout") -> str:
    """Return what a real daemon answered, one stream of a file in tests/data/slurm."""
    text = (CAPTURED / f"{name}.txt").read_text(encoding="utf-8")
    out, _, err = text.partition("--- stdout\n")[2].rpartition("--- stderr\n")
    return err if stream == "stderr" else out


def iso(at: float, missing: str = "Unknown") -> str:
    """Return a time as Slurm prints it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)) if at else missing


def numbers(text: str) -> list[int]:
    """Return the numbers of a list, ``1-9:4,3,7-8``, sorted, each once."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if not match:
            raise ValueError(text)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or not step:
            raise ValueError(text)
        found.update(range(first, last + 1, step))
    return sorted(found)


def duration_s(text: str) -> float:
    """Return a duration in seconds: ``90`` (minutes for Slurm are the caller's), ``1:30``, ``1-00:00:00``."""
    days, _, rest = text.rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + part
    return seconds + float(days or 0) * 86_400


def clock_words(seconds: float) -> str:
    """Return a duration as Slurm prints it: ``0:07``, ``1:00:00``, ``1-00:00:00``."""
    days, rest = divmod(int(seconds), 86_400)
    hours, minutes, second = rest // 3600, rest // 60 % 60, rest % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{second:02}"
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"


def size_bytes(text: str, unit: str = "M") -> int:
    """Return a size in bytes; a bare number is in ``unit``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)i?B?", text.upper())
    if not found:
        raise ValueError(text)
    return int(float(found[1]) * _UNITS[found[2] or unit])
