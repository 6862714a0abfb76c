"""What a job's log says of how it ended, where nothing better is left: the schedulers' own words. Pure."""

from __future__ import annotations

import re

from jobkit.core.records import Outcome
from jobkit.schedulers.registry import SCHEDULERS

_SAID: tuple[tuple[re.Pattern[str], Outcome], ...] = (
    # The job script's own words, where it could not write its exit file.
    (re.compile(r"job(?:-\d+)?\.sh: (?P<outcome>[a-z_]+): "), Outcome.LOST),
    (re.compile(r"No space left on device|Disk quota exceeded"), Outcome.SCRATCH_FULL),
)
"""From the most telling to the least."""


def told(text: str) -> tuple[Outcome, str] | None:
    """Return the outcome that a log tells, and the line that tells it; ``None`` where none does.

    Parameters
    ----------
    text
        The end of the log. A task that ran twice writes into one log, so the last line that
        tells counts.
    """
    lines = [line.strip() for line in text.splitlines()]
    of_schedulers = (pair for scheduler in SCHEDULERS.values() for pair in scheduler.LOG_OUTCOMES)
    for pattern, outcome in (*of_schedulers, *_SAID):
        for line in reversed(lines):
            if found := pattern.search(line):
                return _own(found) or outcome, line[-300:]
    return None


_FAULT = re.compile(
    r"Traceback \(most recent call last\)|^Fatal Python error"
    r"|(?:job(?:-\d+)?|find|follow|fetch)\.sh: |: line \d+: |\b[Ee]rror: "
    r"|^(?:Killed|Aborted|Bus error|Segmentation fault)|No space left on device|Disk quota exceeded"
)
"""Python, the job script, bash, programs, the system."""


def is_fault(line: str) -> bool:
    """Tell whether a line of a log looks like an error."""
    patterns = (_FAULT, *(scheduler.LOG_FAULT for scheduler in SCHEDULERS.values()))
    return any(pattern.search(line) for pattern in patterns)


def _own(found: re.Match[str]) -> Outcome | None:
    """Return the outcome that the job script named."""
    word = found.groupdict().get("outcome")
    return Outcome(word) if word in set(Outcome) else None


def last_words(text: str) -> str:
    """Return the last line of a log that says something: of a traceback, the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else ""
