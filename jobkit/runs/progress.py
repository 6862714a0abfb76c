"""How far a try is, how long a run has to go, and how much time pruning saved."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.layout import read_batches, repeat_id
from jobkit.core.records import Batch, Outcome
from jobkit.runs.results import PointResult, elapsed_s, task_s
from jobkit.runs.tries import Try


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    batches: int  # calls of the workload
    batches_total: int | None  # ``None`` if the batches do not report it
    characters: int  # as read
    characters_total: int | None
    work_s: float  # what those batches took

    @property
    def left_s(self) -> float | None:
        """Time for the rest at the speed so far, without loading and end; ``None`` if unknown."""
        if self.characters_total is None or self.characters <= 0 or not 0 < self.work_s < math.inf:
            return None
        left = max(0, self.characters_total - self.characters)
        return left * (self.work_s / self.characters)


def progress_of(batches: Sequence[Batch]) -> Progress | None:
    """Return how far a try is by the batches that are home; ``None`` if there is none."""
    if not batches:
        return None
    latest_first = batches[::-1]
    return Progress(
        batches=len(batches),
        batches_total=next((batch.batches_total for batch in latest_first if batch.batches_total), None),
        characters=sum(batch.characters for batch in batches),
        characters_total=next(
            (batch.characters_total for batch in latest_first if batch.characters_total), None
        ),
        work_s=math.fsum(batch.seconds for batch in batches),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    setting: str  # points of one setting take equally long
    standing: str  # ``done``, ``running``, ``waiting``; any other counts for nothing
    elapsed_s: float | None = None  # how long it took, staging and environment included, or has been running
    left_s: float | None = None  # what it has to go by its own batches

    @property
    def whole_s(self) -> float | None:
        if self.elapsed_s is None or (self.standing != DONE and self.left_s is None):
            return None
        return self.elapsed_s + (0.0 if self.standing == DONE else self.left_s or 0.0)


DONE, RUNNING, WAITING = "done", "running", "waiting"


def to_go(points: Sequence[Pace], *, at_a_time: int = 0) -> float | None:
    """Return the time that a sweep still needs if the number of running points stays as it is, else ``None``.

    A point that waits is expected to need the mean of its setting, else the mean of all points. ``at_a_time``
    is how many run at a time if that is known, as 1 on this machine, because between two points none runs.
    Points that wait while none runs on a cluster make it unknown.
    """
    expected = _expected(points)
    running = [_left_s(point, expected) for point in points if point.standing == RUNNING]
    waiting = [_whole_s(point, expected) for point in points if point.standing == WAITING]
    slots = [seconds for seconds in running if seconds is not None]
    to_come = [seconds for seconds in waiting if seconds is not None]
    if waiting:
        slots += [0.0] * (at_a_time - len(running))
    if len(slots) + len(to_come) < len(running) + len(waiting) or not slots:
        return None
    heapq.heapify(slots)
    for seconds in to_come:
        heapq.heapreplace(slots, slots[0] + seconds)
    return max(slots)


def _left_s(point: Pace, expected: Mapping[str, float]) -> float | None:
    if point.left_s is not None:
        return point.left_s
    whole_s = _whole_s(point, expected)
    if whole_s is None or point.elapsed_s is None or _is_late(point, expected):
        return None
    return max(0.0, whole_s - point.elapsed_s)


LATE = 1.5
"""Times the expected time of a point, until it is not known any more when it ends."""


def overdue(points: Sequence[Pace]) -> list[int]:
    """Return the places of the points that run for much longer than such points take, and report nothing."""
    expected = _expected(points)
    return [
        place for place, point in enumerate(points) if point.standing == RUNNING and _is_late(point, expected)
    ]


def _is_late(point: Pace, expected: Mapping[str, float]) -> bool:
    whole_s = _whole_s(point, expected)
    if point.left_s is not None or point.elapsed_s is None or whole_s is None:
        return False
    return point.elapsed_s > LATE * whole_s


def _whole_s(point: Pace, expected: Mapping[str, float]) -> float | None:
    return expected.get(point.setting, expected.get(ALL))


ALL = ""  # stands for every setting


def _expected(points: Sequence[Pace]) -> dict[str, float]:
    """Return how long points take, by setting and over all."""
    spans: dict[str, list[float]] = {}
    for point in points:
        if point.whole_s is not None:
            for name in (point.setting, ALL):
                spans.setdefault(name, []).append(point.whole_s)
    return {name: mean(seconds) for name, seconds in spans.items()}


def mean(seconds: Sequence[float]) -> float:
    return math.fsum(seconds) / len(seconds)


@dataclass(frozen=True, slots=True)
class SkippedTime:
    points: int  # how many pruned points are counted here
    seconds: float  # of all of them, if each had taken as long as the point that is the reason


def skipped_time(points: Sequence[PointResult]) -> SkippedTime | None:
    """Return the time that pruned points would have taken; a ``stopped`` point saves nothing."""
    by_id = {point.point.point_id: point for point in points}
    pruned = [point for point in points if point.outcome is Outcome.PRUNED]
    causes = [(point, by_id.get(exit_.because)) for point in pruned if (exit_ := point.counts.exit)]
    spans = [_would_take_s(point, cause) for point, cause in causes if cause]
    seconds = [span for span in spans if span is not None]
    return SkippedTime(len(seconds), sum(seconds)) if seconds else None


def _would_take_s(point: PointResult, cause: PointResult) -> float | None:
    """Return the mean time of the tries of the cause: for a repeat those that succeeded, else the others."""
    repeat = repeat_id(cause.point.point_id, point.point.repeat) == point.point.point_id
    tries = (tried for tried in cause.tries if tried.verdict.outcome)
    alike = (tried for tried in tries if (tried.verdict.outcome is Outcome.OK) is repeat)
    spans = [seconds for tried in alike if (seconds := elapsed_s(tried)) is not None]
    return mean(spans) if spans else None


def progress_of_try(tried: Try) -> Progress | None:
    """Return how far a try is, or how far it came; ``None`` if no batch is home."""
    return progress_of(read_batches(tried.folder)[0]) if tried.folder else None


def whole_s(tried: Try, *, shared: bool) -> float | None:
    """Return how long all the work of a try takes at its pace; ``None`` if that is not known."""
    progress, spent_s = progress_of_try(tried), task_s(tried, shared=shared)
    if progress is None or progress.left_s is None or not spent_s or not progress.work_s:
        return None
    at_once = max(1.0, progress.work_s / spent_s)  # of several workers
    return spent_s + progress.left_s / at_once
