"""How a job ended by its log, if nothing better is left: the schedulers' own words. Pure."""

from __future__ import annotations

import re

from jobkit.core.records import Outcome
from jobkit.schedulers.registry import SCHEDULERS

_ENDS: tuple[tuple[re.Pattern[str], Outcome], ...] = (
    # The job script's message, if it could not write its exit file.
    (re.compile(r"job(?:-\d+)?\.sh: (?P<outcome>[a-z_]+): "), Outcome.LOST),
    (re.compile(r"No space left on device|Disk quota exceeded"), Outcome.SCRATCH_FULL),
)
"""From the most specific to the least."""


def reported_outcome(text: str) -> tuple[Outcome, str] | None:
    """Return the outcome that a log reports, and the line that reports it; ``None`` if no line does.

    Parameters
    ----------
    text
        The end of the log. A task that ran twice writes into one log, so the last line counts.
    """
    lines = [line.strip() for line in text.splitlines()]
    of_schedulers = (pair for scheduler in SCHEDULERS.values() for pair in scheduler.LOG_OUTCOMES)
    for pattern, outcome in (*of_schedulers, *_ENDS):
        for line in reversed(lines):
            if match := pattern.search(line):
                word = match.groupdict().get("outcome")  # of the job script
                return Outcome(word) if word in set(Outcome) else outcome, line[-300:]
    return None


_FAULT = re.compile(
    r"Traceback \(most recent call last\)|^Fatal Python error"
    r"|(?:job(?:-\d+)?|find|follow|fetch)\.sh: |: line \d+: |\b[Ee]rror: "
    r"|^(?:Killed|Aborted|Bus error|Segmentation fault)|No space left on device|Disk quota exceeded"
)
"""Python, the job script, bash, programs, the system."""


def is_fault(line: str) -> bool:
    """Return whether a line of a log looks like an error."""
    patterns = (_FAULT, *(scheduler.LOG_FAULT for scheduler in SCHEDULERS.values()))
    return any(pattern.search(line) for pattern in patterns)


_CRASH = re.compile(
    r": line \d+: +\d+ (?P<signal>[A-Z][a-z]+(?: [a-z]+)*(?: +\(core dumped\))?)(?: {2,}| *\( )"
)
"""How bash reports a process that a signal ended: behind it, the command as written in the script."""


def last_words(text: str) -> str:
    """Return the last line of a log that is not empty: of a traceback the error, of a crash the signal."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if crash := _CRASH.search(last):
        return f"the worker crashed: {' '.join(crash['signal'].split())}"
    return last[-300:]
