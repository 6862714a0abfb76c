"""Points in words: the one that a word names, where one stands and why, how many stand where. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from jobkit.core.records import Outcome
from jobkit.core.units import format_count
from jobkit.outcome.log_files import named
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import Queued, State
from jobkit.status.look import Look, RunLook, Standing
from jobkit.status.timing import moment

HELD = "held"
"""A wait that somebody must end."""
CANCELLED = str(Outcome.CANCELLED)


def find_point(looks: Sequence[Look], word: str) -> Look:
    """Return the point that a word names, as `jobkit.outcome.log_files.named`.

    Raises
    ------
    JobkitError
        Where there is none, or there are several.
    """
    index = named([one.point for one in looks], word).index
    return next(one for one in looks if one.point.index == index)


def counted(seen: RunLook) -> str:
    """Return how many points stand where: ``40 points: 36 done, 3 failed (2 bug, 1 lost), 1 cancelled``."""
    numbers = Counter(CANCELLED if one.cancelled else str(one.standing) for one in seen.points)
    known = [word for one in Standing for word in ([one, CANCELLED] if one is Standing.FAILED else [one])]
    parts = [
        f"{numbers[word]:,} {word}" + (why_failed(seen) if word == Standing.FAILED else "")
        for word in known
        if numbers[word]
    ]
    return f"{format_count(len(seen.points), 'point')}: {', '.join(parts)}"


def why_failed(seen: RunLook) -> str:
    """Return the outcomes of those that failed, each with its number: `` (2 bug, 1 timeout)``."""
    failed = Counter(
        str(one.outcome) for one in seen.points if one.standing is Standing.FAILED and not one.cancelled
    )
    return f" ({', '.join(f'{number:,} {outcome}' for outcome, number in failed.most_common())})"


def state_of(one: Look) -> str:
    """Return a point's outcome, else where it stands, in a word."""
    if one.standing in {Standing.DONE, Standing.FAILED}:
        return str(one.outcome)
    held = one.queued is not None and one.queued.state is State.HELD
    return HELD if held and one.standing is Standing.WAITING else str(one.standing)


def why(one: Look, silent: tuple[str, ...], now: datetime) -> str:
    """Return what led to a point's outcome, or why it waits; empty where there is nothing to say.

    Parameters
    ----------
    silent
        Schedulers that did not answer.
    now
        With a time zone.
    """
    evidence = one.counts.verdict.evidence
    if one.standing in {Standing.DONE, Standing.FAILED}:
        return "" if one.outcome is Outcome.OK else evidence
    if one.task is None:
        return "never submitted"
    if one.queued is None:
        dumb = one.task.scheduler in silent
        return f"{one.task.scheduler} does not answer" if dumb else f"left the queue: {evidence}"
    if one.standing is Standing.WAITING and one.queued.state is State.RUNNING and one.queued.task:
        return "the job that it shares has begun, and its turn is to come"
    if one.standing is Standing.RUNNING and not one.queued.task:
        return ""  # the queue only says that a driver here lives
    return explained(one.task.scheduler, one.queued, now)


def explained(scheduler: str, queued: Queued, now: datetime) -> str:
    """Return why a task waits, and when it is to begin where the scheduler says so."""
    words = SCHEDULERS[scheduler].explain(queued)
    start = moment(queued.start_at)
    if queued.state is not State.PENDING or start is None or start <= now:
        return words
    today = start.date() == now.astimezone().date()
    begins = f"to begin about {start:%H:%M}" if today else f"to begin about {start:%Y-%m-%d %H:%M}"
    return f"{words}; {begins}" if words else begins
