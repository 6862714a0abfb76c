"""What was saved by leaving points out: an estimate, from the tries that made them needless. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.records import Outcome
from jobkit.outcome.outcomes import TryFiles
from jobkit.status.look import Look
from jobkit.status.progress import mean
from jobkit.status.timing import elapsed_s

_PRUNED = re.compile(r"(?P<cause>\S+) ran out of memory ")
_STOPPED = re.compile(r"[\d,]+ points? failed the same way: (?P<outcome>[a-z_]+): ")
"""As `jobkit.run.gate` says it into the exit file."""


@dataclass(frozen=True, slots=True)
class Saved:
    """Job time that was not spent.

    Attributes
    ----------
    points
        How many points were left out and are counted here.
    seconds
        Of all of them, if each had taken as long as the try for whose sake it was left out.
    """

    points: int
    seconds: float


def saved(points: Sequence[Look]) -> Saved | None:
    """Return what the points saved that ended as ``pruned`` or ``stopped``; ``None`` where none can tell."""
    took = _took(points)
    each = [took.get(cause) for one in points if (cause := _cause(one.counts.files, one.outcome))]
    known = [seconds for seconds in each if seconds is not None]
    return Saved(len(known), sum(known)) if known else None


def _took(points: Sequence[Look]) -> Mapping[str, float]:
    """Return by point id how long its failed tries took, and the same by outcome; the mean of several."""
    spans: dict[str, list[float]] = {}
    for one in points:
        for tried in one.tries:
            outcome, seconds = tried.verdict.outcome, elapsed_s(tried)
            if seconds is not None and outcome is not None and outcome is not Outcome.OK:
                spans.setdefault(one.point.point_id, []).append(seconds)
                spans.setdefault(f"outcome {outcome}", []).append(seconds)
    return {name: mean(some) for name, some in spans.items()}


def _cause(files: TryFiles, outcome: Outcome | None) -> str:
    """Return for whose sake a point was left out, as a key of `_took`; empty where nobody says."""
    message = files.exit.message if files.exit else ""
    if outcome is Outcome.PRUNED and (found := _PRUNED.match(message)):
        return found["cause"]
    if outcome is Outcome.STOPPED and (found := _STOPPED.match(message)):
        return f"outcome {found['outcome']}"
    return ""
