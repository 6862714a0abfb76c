"""How far a run is, how long it still takes, and what pruning saved."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.records import Batch, Outcome
from jobkit.outcome.timing import elapsed_s
from jobkit.outcome.verdict import TryFiles
from jobkit.status.standing import PointStanding


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a try has done of all that it has to do.

    Attributes
    ----------
    batches, batches_total
        Calls of the workload; the total is ``None`` where the batches do not tell it.
    characters, characters_total
        As read.
    work_s
        What those batches took.
    """

    batches: int
    batches_total: int | None
    characters: int
    characters_total: int | None
    work_s: float

    @property
    def left_s(self) -> float | None:
        """How long the characters that are left take at the speed of those that are done.

        ``None`` where that is not known. Loading the model and what comes after the last batch are
        not in it.
        """
        if self.characters_total is None or self.characters <= 0 or not 0 < self.work_s < math.inf:
            return None
        left = max(0, self.characters_total - self.characters)
        return left * (self.work_s / self.characters)


def progress_of(batches: Iterable[Batch]) -> Progress | None:
    """Return how far a try is by the batches that are home; ``None`` where none is.

    The last batch that tells a total is believed: it is the same in all.
    """
    done = list(batches)
    if not done:
        return None
    return Progress(
        batches=len(done),
        batches_total=next((one.batches_total for one in reversed(done) if one.batches_total), None),
        characters=sum(one.characters for one in done),
        characters_total=next((one.characters_total for one in reversed(done) if one.characters_total), None),
        work_s=math.fsum(one.seconds for one in done),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A point as far as time goes.

    Attributes
    ----------
    setting
        What points share that take as long as each other.
    standing
        ``done``, ``running``, ``waiting``; any other counts for nothing.
    elapsed_s
        How long it took, staging and environment included, or has been running.
    left_s
        What it has to go by its own batches.
    """

    setting: str
    standing: str
    elapsed_s: float | None = None
    left_s: float | None = None

    @property
    def whole_s(self) -> float | None:
        """How long it took, or will have taken."""
        if self.elapsed_s is None or (self.standing != DONE and self.left_s is None):
            return None
        return self.elapsed_s + (0.0 if self.standing == DONE else self.left_s or 0.0)


DONE, RUNNING, WAITING = "done", "running", "waiting"


def setting_of(params: Mapping[str, object]) -> str:
    """Return what points share that take as long as each other."""
    return repr(sorted(params.items()))


def to_go(points: Sequence[Pace], *, at_a_time: int = 0) -> float | None:
    """Return how long a sweep has to go, if as many points go on running at a time as now.

    A point that waits is taken to need what its like needed, else what all did in the mean.

    Parameters
    ----------
    points
        All points of the sweep.
    at_a_time
        How many run at a time if that is known: 1 on this machine. Between two points none runs.

    Returns
    -------
    float or None
        ``None`` if that is not known of a point, or if points wait and none runs on a cluster: then it
        is not known how many will run at a time, and when.
    """
    expected = _expected(points)
    running = [_left_s(point, expected) for point in points if point.standing == RUNNING]
    waiting = [_long(point, expected) for point in points if point.standing == WAITING]
    slots = [one for one in running if one is not None]
    to_come = [one for one in waiting if one is not None]
    if waiting:
        slots += [0.0] * (at_a_time - len(running))
    if len(slots) + len(to_come) < len(running) + len(waiting) or not slots:
        return None
    heapq.heapify(slots)
    for seconds in to_come:
        heapq.heapreplace(slots, slots[0] + seconds)
    return max(slots)


def _left_s(one: Pace, expected: Mapping[str, float]) -> float | None:
    if one.left_s is not None:
        return one.left_s
    long = _long(one, expected)
    return None if long is None or one.elapsed_s is None else max(0.0, long - one.elapsed_s)


def _long(one: Pace, expected: Mapping[str, float]) -> float | None:
    return expected.get(one.setting, expected.get(ALL))


ALL = ""
"""Stands for every setting."""


def _expected(points: Sequence[Pace]) -> dict[str, float]:
    """Return how long points take, by setting and over all."""
    spans: dict[str, list[float]] = {}
    for point in points:
        if point.whole_s is not None:
            for name in (point.setting, ALL):
                spans.setdefault(name, []).append(point.whole_s)
    return {name: mean(some) for name, some in spans.items()}


def mean(seconds: Sequence[float]) -> float:
    """Return the mean of at least one."""
    return math.fsum(seconds) / len(seconds)


_PRUNED = re.compile(r"(?P<cause>\S+) ran out of memory ")
_STOPPED = re.compile(r"[\d,]+ points? failed the same way: (?P<outcome>[a-z_]+): ")
"""As `jobkit.run.gate` says it into the exit file."""


@dataclass(frozen=True, slots=True)
class SkippedTime:
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


def skipped_time(points: Sequence[PointStanding]) -> SkippedTime | None:
    """Return what the points saved that ended as ``pruned`` or ``stopped``; ``None`` where none can tell."""
    took = _took(points)
    each = [took.get(cause) for point in points if (cause := _cause(point.counts.files, point.outcome))]
    known = [seconds for seconds in each if seconds is not None]
    return SkippedTime(len(known), sum(known)) if known else None


def _took(points: Sequence[PointStanding]) -> Mapping[str, float]:
    """Return by point id how long its failed tries took, and the same by outcome; the mean of several."""
    spans: dict[str, list[float]] = {}
    for point in points:
        for tried in point.tries:
            outcome, seconds = tried.verdict.outcome, elapsed_s(tried)
            if seconds is not None and outcome is not None and outcome is not Outcome.OK:
                spans.setdefault(point.point.point_id, []).append(seconds)
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
