"""Memory as a straight line in the load, with a bound that a new measurement keeps. Pure.

Least squares through what was measured; the bound is a one-sided 95 % *prediction* bound: it is
about the next batch, not about the mean of many. What one point says is not independent of what
else it says, so the error of the line is clustered by point (Liang and Zeger 1986, with the usual
correction for few clusters), never taken smaller than the ordinary one, and its quantile is
Student's with two degrees fewer than there are points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from jobkit.students_t import quantile

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
AGREE = 0.05
"""Two estimates of the slope that differ by more than this share disagree."""
MOST_PAIRS = 20_000
_HALVINGS = 100


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
        Standard deviation about the line.
    observations, points, load_min, load_max
        What it rests on.
    leave_largest_out
        (predicted - measured) / measured at the largest load, by the line without that point;
        ``None`` where too few loads remain.
    mean_load, variances
        For `upper`: the centre, and the line's ordinary and clustered variance there as
        coefficients of 1, (load - centre) and (load - centre)².
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
    variances: tuple[tuple[float, float, float], ...]

    def at(self, load: float) -> float:
        """Return the bytes that the line gives for a load."""
        return self.intercept_bytes + self.slope_bytes * load

    def upper(self, load: float) -> float:
        """Return the bytes that a batch of this load stays below, with 95 % confidence."""
        away = load - self.mean_load
        of_line = max(one + slope * away + square * away**2 for one, slope, square in self.variances)
        return self.at(load) + self._t() * math.sqrt(of_line + self.residual_bytes**2)

    def largest_load(self, capacity_bytes: float) -> float:
        """Return the load that takes just the capacity by the line, at least 0."""
        return max(0.0, (capacity_bytes - self.intercept_bytes) / self.slope_bytes)

    def safe_load(self, capacity_bytes: float, margin: float = 0.0) -> float:
        """Return the largest load whose bound is within the capacity less a margin, at least 0.

        Parameters
        ----------
        capacity_bytes
            What must not be exceeded.
        margin
            Share of the capacity that is kept free.
        """
        room = capacity_bytes * (1 - margin)
        low, high = 0.0, self.largest_load(room)
        if self.upper(low) > room:
            return 0.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.upper(middle) <= room else (low, middle)
        return low

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
    loads = {one.load for one in used}
    if len(loads) < ENOUGH:
        return f"{len(loads)} distinct loads measured, and a line with an error needs {ENOUGH}"
    points = {one.point for one in used}
    if len(points) < ENOUGH:
        return f"{len(points)} points measured, and a line with an error needs {ENOUGH}"
    found = _fit(used)
    for number, bound in enumerate(sorted(censored, key=lambda one: one.load)):
        if found.slope_bytes > 0 and found.at(bound.load) < bound.above_bytes:
            used.append(Observation(bound.load, bound.above_bytes, f"out of memory {number}"))
            found = _fit(used)
    if found.slope_bytes <= 0:
        return "memory does not grow with the load over what was measured"
    return replace(found, leave_largest_out=_leave_largest_out(used))


def upper_part(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations above the floor where fixed costs bend the line.

    All of them where too few loads lie above it.
    """
    largest = max((one.load for one in observations), default=0.0)
    above = [one for one in observations if one.load >= UPPER_PART * largest]
    return above if len({one.load for one in above}) >= ENOUGH else list(observations)


def _fit(used: Sequence[Observation]) -> Fit:
    sums = _sums(used)
    residuals = [one.size_bytes - sums.intercept - sums.slope * one.load for one in used]
    squares = math.fsum(error * error for error in residuals)
    variance = squares / (sums.n - 2)
    mean_bytes = math.fsum(one.size_bytes for one in used) / sums.n
    total = math.fsum((one.size_bytes - mean_bytes) ** 2 for one in used)
    ordinary = (variance / sums.n, 0.0, variance / sums.spread)
    return Fit(
        slope_bytes=sums.slope,
        intercept_bytes=sums.intercept,
        theil_sen_slope_bytes=_theil_sen(used),
        r_squared=1 - squares / total if total else 0.0,
        residual_bytes=math.sqrt(variance),
        observations=sums.n,
        points=len({one.point for one in used}),
        load_min=min(one.load for one in used),
        load_max=max(one.load for one in used),
        leave_largest_out=None,
        mean_load=sums.mean_load,
        variances=(ordinary, _clustered(used, residuals, sums)),
    )


def _sums(used: Sequence[Observation]) -> _Sums:
    n = len(used)
    mean_load = math.fsum(one.load for one in used) / n
    mean_bytes = math.fsum(one.size_bytes for one in used) / n
    spread = math.fsum((one.load - mean_load) ** 2 for one in used)
    slope = math.fsum((one.load - mean_load) * (one.size_bytes - mean_bytes) for one in used) / spread
    return _Sums(n, mean_load, spread, slope, mean_bytes - slope * mean_load)


def _clustered(
    used: Sequence[Observation], residuals: Sequence[float], sums: _Sums
) -> tuple[float, float, float]:
    """Return the clustered variance of the line as a square in (load - mean)."""
    scores: dict[str, tuple[float, float]] = {}
    for one, error in zip(used, residuals, strict=True):
        level, tilt = scores.get(one.point, (0.0, 0.0))
        scores[one.point] = level + error, tilt + error * (one.load - sums.mean_load)
    clusters = len(scores)
    few = clusters / (clusters - 1) * (sums.n - 1) / (sums.n - 2)
    level = math.fsum(a * a for a, _ in scores.values()) / sums.n**2
    both = math.fsum(a * b for a, b in scores.values()) / (sums.n * sums.spread)
    tilt = math.fsum(b * b for _, b in scores.values()) / sums.spread**2
    return few * level, 2 * few * both, few * tilt


def _theil_sen(used: Sequence[Observation]) -> float:
    """Return the median slope between two observations, of at most `MOST_PAIRS` pairs."""
    ordered = sorted(used, key=lambda one: one.load)
    every = max(1, math.ceil(math.sqrt(len(ordered) ** 2 / 2 / MOST_PAIRS)))
    return median(
        (b.size_bytes - a.size_bytes) / (b.load - a.load)
        for a, b in combinations(ordered[::-every], 2)
        if a.load != b.load
    )


def _leave_largest_out(used: Sequence[Observation]) -> float | None:
    """Return how far off the line without the largest point would have been there."""
    largest = max(used, key=lambda one: one.load)
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
    found = []
    if load is not None and load > FAR * fit.load_max:
        found.append(f"{load / fit.load_max:.0f} times the largest load measured: far beyond the evidence")
    if fit.intercept_bytes < 0:
        found.append("the line meets load 0 below zero, so memory grows faster than a line")
    if fit.r_squared < STRAIGHT:
        found.append(f"memory does not follow the load in a straight line (R² {fit.r_squared:.3f})")
    if abs(fit.theil_sen_slope_bytes / fit.slope_bytes - 1) > AGREE:
        other = fit.theil_sen_slope_bytes / fit.slope_bytes - 1
        found.append(f"the median slope is {other:+.0%} off the fitted one: single values pull the line")
    return tuple(found)
