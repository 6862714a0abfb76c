"""The profile of a try: which calls are recorded, the file for a viewer, and the largest costs as text.

Only calls are recorded: no loading, no warm-up, and of several workers only those of the first.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from jobkit.core.knobs import OFF
from jobkit.core.layout import PROFILE_FILES, PROFILE_TEXT
from jobkit.core.records import Outcome, Point
from jobkit.run.failure import NO_PROFILER, TryFailed
from jobkit.run.measure.profilers import PROFILERS, PYTHON, SCALENE, SCALENE_OPTIONS, SCALENE_VARIABLES
from jobkit.run.measure.torch_trace import Cost

MOST_LINES = 20
WIDEST = 60
"""Longer names of functions and lines of code are cut."""


class Recording:
    """The profile of the calls of this process.

    Parameters
    ----------
    point
        Its ``profile`` names the profiler.
    """

    def __init__(self, point: Point) -> None:
        self._point = point
        self._profiler = PROFILERS[point.profile](point)
        self._calls = self._recorded = 0
        self._seconds = 0.0

    @contextlib.contextmanager
    def of_call(self) -> Iterator[None]:
        """Record a call, unless those before it took longer than the profiler's limit."""
        self._calls += 1
        if self._seconds >= self._profiler.LIMIT_S:
            yield
            return
        self._profiler.resume()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - start
            self._recorded += 1
            self._profiler.pause(last=self._seconds >= self._profiler.LIMIT_S)

    def write(self, out: Path, try_number: int) -> None:
        """Write the profile, for a viewer and as text, into the folder of the try.

        Raises
        ------
        OSError
            If a file cannot be written.
        """
        costs, notes = self._profiler.write(out / PROFILE_FILES[self._point.profile], self._seconds)
        lines = [*self._heading(try_number), *notes, "", *table(costs)]
        (out / PROFILE_TEXT).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _heading(self, try_number: int) -> Iterator[str]:
        point, left = self._point, self._calls - self._recorded
        yield f"{point.point_id}, try {try_number}, profiled with {point.profile}"
        which = f"the first {self._recorded:,} of {self._calls:,}" if left else f"all {self._calls:,}"
        after = f"; the other {left:,} ran without the profiler" if left else ""
        yield f"calls: {which}, {self._seconds:.3f} s{after}"
        if (processes := point.workers * point.gpus) > 1:
            yield f"worker: the first of {processes:,}; the calls are its own"


def of_point(point: Point) -> Recording | None:
    """Return the recording of a point; ``None`` if it is not profiled."""
    return None if point.profile == OFF else Recording(point)


def refuse_missing(point: Point) -> None:
    """Refuse a point if this Python does not have its profiler.

    Raises
    ------
    TryFailed
        ``environment``.
    """
    if missing(point.profile):
        raise TryFailed(Outcome.ENVIRONMENT, f"{NO_PROFILER} {missing(point.profile)}")


def missing(profiler: str) -> str:
    """Return what this Python lacks for a profiler; empty if it lacks nothing."""
    if profiler in {OFF, PYTHON} or importlib.util.find_spec(profiler):
        return ""
    return f"{profiler}, but {sys.executable} has no package {profiler}"


def launcher(point: Point, out: Path) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of Python before ``-m MODULE`` that start a worker, and variables for it."""
    if point.profile != SCALENE:
        return [], {}
    file = str(out / PROFILE_FILES[SCALENE])
    return ["-m", "scalene", "run", *SCALENE_OPTIONS, "-o", file, "---"], SCALENE_VARIABLES


# -- text


def table(costs: Iterable[Cost]) -> Iterator[str]:
    """Yield a line for each of the largest costs, with its share in all."""
    ordered = sorted(_merged(costs), key=lambda cost: -cost.seconds)
    whole_s = sum(cost.seconds for cost in ordered)
    shown = [cost for cost in ordered[:MOST_LINES] if cost.seconds > 0]
    if not shown:
        yield "nothing was recorded"
        return
    width = max(len(cost.where) for cost in shown)
    yield f"{'share':>7}  {'seconds':>9}  {'calls':>9}  {'where':<{width}}  what"
    for cost in shown:
        calls = "" if cost.calls is None else f"{cost.calls:,}"
        share = f"{100 * cost.seconds / whole_s:.1f} %"
        what = cost.what if len(cost.what) <= WIDEST else f"{cost.what[: WIDEST - 3]}..."
        yield f"{share:>7}  {cost.seconds:9.3f}  {calls:>9}  {cost.where:<{width}}  {what}"


def _merged(costs: Iterable[Cost]) -> Iterator[Cost]:
    """Yield the costs, those of the same name and place added up."""
    same: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    for cost in costs:
        same[cost.what, cost.where].append(cost)
    for (what, where), parts in same.items():
        calls = [part.calls for part in parts if part.calls is not None]
        yield Cost(what, where, sum(part.seconds for part in parts), sum(calls) if calls else None)
