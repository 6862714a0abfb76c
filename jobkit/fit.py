"""Memory as a straight line in the load, with a bound that a new measurement keeps. Pure.

Least squares through what was measured; the bound is a one-sided 95 % *prediction* bound: it is
about the next batch, not about the mean of many. What one point says is not independent of what
else it says: an error has a part that the point's observations share and a part of their own (a
random effect by point). Both variances are estimated by their moments, the line's follows, and
the quantile is Student's with two degrees fewer than there are points. A variance clustered by
point is too small with four or five of them (simulated: the bound then holds in 90 of 100 cases).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from jobkit.students_t import quantile
from jobkit.units import format_count

CONFIDENCE = 0.95
ENOUGH = 4
"""Distinct loads below which nothing is fitted: two give a line, three hardly an error."""
UPPER_PART = 0.1
"""Loads below this share of the largest are left out: fixed costs bend the line there (with Stanza
below about 4,000 padded characters; the line of small tensors, LSTM weights laid out anew)."""
STRAIGHT = 0.98
"""R² below which a straight line is doubted."""
FAR = 8.0
"""Loads beyond so many times the largest measured are doubted."""
UNSEEN = 0.005
"""What the bound adds, as a share of the bytes beyond the largest load measured. The scatter of small
batches does not tell how the allocator cuts up large ones: on an H200 a batch of 16 GiB, predicted
from 4, needed 0.54 % more than the line, where the scatter alone allowed for 0.33 %."""
AGREE = 0.05
"""Two estimates of the slope that differ by more than this share disagree."""
MOST_PAIRS = 20_000
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Observation:
    """What one batch took: its load, bytes, and the point that measured it."""

    load: float
    size_bytes: float
    point: str


@dataclass(frozen=True, slots=True)
class Censored:
    """A batch that ran out of memory: it needs more than ``above_bytes``."""

    load: float
    above_bytes: float


@dataclass(frozen=True, slots=True)
class _Sums:
    """What least squares needs of the observations."""

    n: int
    mean_load: float
    spread: float
    slope: float
    intercept: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The line ``bytes = intercept_bytes + slope_bytes * load`` and how far to trust it.

    Attributes
    ----------
    slope_bytes, intercept_bytes
        Of the line.
    theil_sen_slope_bytes
        The median slope between two observations: what one wild value cannot move.
    r_squared
        The share of the variance that the line explains.
    residual_bytes
        Standard deviation of a new point's batch about the line.
    observations, points, load_min, load_max
        What was measured; bounds from batches that ran out of memory are not counted.
    leave_largest_out
        (predicted - measured) / measured at the largest load, by the line without that point;
        ``None`` where too few loads remain.
    mean_load, variance
        For `upper`: the centre, and the line's variance as coefficients of 1, (load - centre) and
        (load - centre)².
    failed
        The batches that ran out of memory: no load is called safe where one of that load, or a
        smaller one, had as much memory and failed.
    """

    slope_bytes: float
    intercept_bytes: float
    theil_sen_slope_bytes: float
    r_squared: float
    residual_bytes: float
    observations: int
    points: int
    load_min: float
    load_max: float
    leave_largest_out: float | None
    mean_load: float
    variance: tuple[float, float, float]
    failed: tuple[Censored, ...] = ()

    def at(self, load: float) -> float:
        """Return the bytes that the line gives for a load."""
        return self.intercept_bytes + self.slope_bytes * load

    def upper(self, load: float) -> float:
        """Return the bytes that a batch of this load stays below, with 95 % confidence; see `UNSEEN`."""
        return self._bound(load, self._t())

    def largest_load(self, capacity_bytes: float) -> float:
        """Return the load that takes just the capacity by the line, at least 0."""
        return max(0.0, (capacity_bytes - self.intercept_bytes) / self.slope_bytes)

    def safe_load(self, capacity_bytes: float, margin: float = 0.0) -> float:
        """Return the largest load whose bound leaves a margin, a share of the capacity, free; at least 0."""
        room, t = capacity_bytes * (1 - margin), self._t()
        low, high = 0.0, self.largest_load(room)
        if self.upper(low) > room:
            return 0.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._bound(middle, t) <= room else (low, middle)
        too_much = [one.load for one in self.failed if one.above_bytes >= room]
        return min([low, *(math.nextafter(load, 0.0) for load in too_much)])

    def _bound(self, load: float, t: float) -> float:
        beyond = max(0.0, self.slope_bytes * (load - self.load_max))
        return self.at(load) + t * self._error(load) + UNSEEN * beyond

    def _error(self, load: float) -> float:
        """Return the standard error of a batch of this load: that of the line, and its own."""
        (level, tilt, square), away = self.variance, load - self.mean_load
        of_line = level + tilt * away + square * away**2
        return math.sqrt(of_line + self.residual_bytes**2)

    def _t(self) -> float:
        return quantile(CONFIDENCE, max(1, self.points - 2))


def fit_memory(observations: Iterable[Observation], censored: Sequence[Censored] = ()) -> Fit | str:
    """Return the line through the observations, or why there is none.

    Parameters
    ----------
    observations
        Several of one point are taken as one another's neighbours, not as independent.
    censored
        Batches that ran out of memory. Where the line passes below what they need at least, that
        bound is taken as an observation and the line is fitted again.
    """
    used = upper_part(list(observations))
    few = f"measured, and a line with an error needs {ENOUGH}"
    loads, points = {one.load for one in used}, {one.point for one in used}
    if len(loads) < ENOUGH:
        return f"{format_count(len(loads), 'distinct load')} {few}"
    if len(points) < ENOUGH:
        return f"{format_count(len(points), 'point')} {few}"
    measured, found = tuple(used), _fit(used)
    for number, bound in enumerate(sorted(censored, key=lambda one: (one.load, one.above_bytes))):
        if found.slope_bytes > 0 and found.at(bound.load) < bound.above_bytes:
            used.append(Observation(bound.load, bound.above_bytes, f"out of memory {number}"))
            found = _fit(used)
    if found.slope_bytes <= 0:
        return "memory does not grow with the load over what was measured"
    return replace(
        found,
        observations=len(measured),
        points=len(points),
        load_min=min(loads),
        load_max=max(loads),
        leave_largest_out=_leave_largest_out(measured),
        failed=tuple(censored),
    )


def upper_part(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations above the floor where fixed costs bend the line; all where that leaves few."""
    largest = max((one.load for one in observations), default=0.0)
    above = [one for one in observations if one.load >= UPPER_PART * largest]
    return above if len({one.load for one in above}) >= ENOUGH else list(observations)


def _fit(used: Sequence[Observation]) -> Fit:
    sums = _sums(used)
    residuals = [one.size_bytes - sums.intercept - sums.slope * one.load for one in used]
    squares = math.fsum(error * error for error in residuals)
    between, within, of_line = _variances(used, squares, sums)
    mean_bytes = math.fsum(one.size_bytes for one in used) / sums.n
    total = math.fsum((one.size_bytes - mean_bytes) ** 2 for one in used)
    return Fit(
        slope_bytes=sums.slope,
        intercept_bytes=sums.intercept,
        theil_sen_slope_bytes=_theil_sen(used),
        r_squared=1 - squares / total if total else 0.0,
        residual_bytes=math.sqrt(between + within),
        observations=sums.n,
        points=len({one.point for one in used}),
        load_min=min(one.load for one in used),
        load_max=max(one.load for one in used),
        leave_largest_out=None,
        mean_load=sums.mean_load,
        variance=of_line,
    )


def _sums(used: Sequence[Observation]) -> _Sums:
    n = len(used)
    mean_load = math.fsum(one.load for one in used) / n
    mean_bytes = math.fsum(one.size_bytes for one in used) / n
    spread = math.fsum((one.load - mean_load) ** 2 for one in used)
    slope = math.fsum((one.load - mean_load) * (one.size_bytes - mean_bytes) for one in used) / spread
    return _Sums(n, mean_load, spread, slope, mean_bytes - slope * mean_load)


def _variances(
    used: Sequence[Observation], squares: float, sums: _Sums
) -> tuple[float, float, tuple[float, float, float]]:
    """Return the variance between points, that within them, and the line's as `Fit` has it.

    ``squares``, about the line, are expected to be ``within (n - 2) + between (n - level - tilt)``.
    """
    points: dict[str, list[Observation]] = {}
    for one in used:
        points.setdefault(one.point, []).append(one)
    away = [(len(ones), math.fsum(one.load - sums.mean_load for one in ones)) for ones in points.values()]
    n, spread = sums.n, sums.spread
    level = math.fsum(count * count for count, _ in away) / n
    both = math.fsum(count * distance for count, distance in away) / n
    tilt = math.fsum(distance * distance for _, distance in away) / spread
    within = _within(points.values())
    between = max(0.0, (squares - within * (n - 2)) / (n - level - tilt))
    line = (between * level + within) / n, 2 * between * both / spread, (between * tilt + within) / spread
    return between, within, line


def _within(points: Collection[Sequence[Observation]]) -> float:
    """Return the variance about parallel lines, one through each point; 0 where that leaves no freedom."""
    loads, sizes = [], []
    for ones in points:
        loads += _centred([one.load for one in ones])
        sizes += _centred([one.size_bytes for one in ones])
    spread = math.fsum(load * load for load in loads)
    slope = math.fsum(map(operator.mul, loads, sizes)) / spread if spread else 0.0
    free = len(loads) - len(points) - (1 if spread else 0)
    squares = math.fsum((size - slope * load) ** 2 for load, size in zip(loads, sizes, strict=True))
    return squares / free if free > 0 else 0.0


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _theil_sen(used: Sequence[Observation]) -> float:
    """Return the median slope between two observations, of at most `MOST_PAIRS` pairs."""
    ordered = sorted((one.load, one.size_bytes) for one in used)
    every = max(1, math.ceil(math.sqrt(len(ordered) ** 2 / 2 / MOST_PAIRS)))
    looked_at = [ordered[0], *ordered[:0:-every]]  # both ends are, so there are two distinct loads
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(looked_at, 2) if a[0] != b[0])


def _leave_largest_out(used: Sequence[Observation]) -> float | None:
    """Return how far off the line without the largest point would have been there."""
    largest = max(used, key=lambda one: (one.load, one.size_bytes, one.point))
    rest = [one for one in used if one.point != largest.point]
    if len({one.load for one in rest}) < ENOUGH - 1:
        return None
    sums = _sums(rest)
    return (sums.intercept + sums.slope * largest.load - largest.size_bytes) / largest.size_bytes


def doubts(fit: Fit, load: float | None = None) -> tuple[str, ...]:
    """Return what a reader must know before trusting the line, in sentences without a full stop.

    Parameters
    ----------
    load
        The largest load that the line was asked about.
    """
    found: list[str] = []
    other = fit.theil_sen_slope_bytes / fit.slope_bytes - 1
    if load is not None and load > FAR * fit.load_max:
        found.append(f"{load / fit.load_max:.0f} times the largest load measured: far beyond the evidence")
    if fit.intercept_bytes < 0:
        found.append("the line meets load 0 below zero, so memory grows faster than a line")
    if fit.r_squared < STRAIGHT:
        found.append(f"memory does not follow the load in a straight line (R² {fit.r_squared:.3f})")
    if abs(other) > AGREE:
        found.append(f"the median slope is {other:+.0%} off the fitted one: single values pull the line")
    return tuple(found)
