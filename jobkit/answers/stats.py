"""A straight line, and least squares with a prediction bound."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression

from jobkit.core.student import quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLine:
    """The line ``bytes = intercept_bytes + slope_bytes * size``; a size is a load or a batch size."""

    slope_bytes: float
    intercept_bytes: float

    @classmethod
    def through(cls, sizes: Sequence[float], sizes_bytes: Sequence[float]) -> FittedLine:
        """Return the line of least squares through measurements of at least two distinct sizes."""
        slope, intercept = linear_regression(sizes, sizes_bytes)
        return cls(slope_bytes=slope, intercept_bytes=intercept)

    def at(self, size: float) -> float:
        return self.intercept_bytes + self.slope_bytes * size

    def largest(self, capacity_bytes: float) -> float:
        """Return the largest size whose bytes on the line stay within the capacity, at least 0."""
        return max(0.0, (capacity_bytes - self.intercept_bytes) / self.slope_bytes)


LINE, CURVE = 2, 3  # number of powers of the load: 1 and the load; the square of the load too
NOTHING = 1e-9  # a column adds nothing if less than this share is left without the others
LEAST_SHARE = 0.1  # of the largest measurement: smaller ones count as if they had this share

Column = Sequence[float]


@dataclass(frozen=True, slots=True)
class Observation:
    load: float
    size_bytes: float
    point: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Bytes as a polynomial of the load."""

    coefficients: tuple[float, ...]  # of the powers of load / scale, the constant first
    scale: float  # the largest load
    basis: tuple[tuple[float, ...], ...]  # of each orthonormal column, how much of each power it takes
    # product of the sums of each two orthonormal columns over a point, summed over the points
    shared: tuple[tuple[float, ...], ...]
    between: float  # variance of what the measurements of a point share
    within: float  # variance of each measurement by itself
    proportional: bool  # whether these are variances of shares of the value, and not of bytes
    free: int  # degrees of freedom: points less powers

    @property
    def scatter(self) -> float:
        """The standard deviation of a new point's batch; a share of the value where ``proportional``."""
        return math.sqrt(self.between + self.within)

    @property
    def slope(self) -> float:
        return self.coefficients[1] / self.scale

    def at(self, load: float) -> float:
        return _dot(self.coefficients, self._powers(load))

    def upper(self, load: float, confidence: float) -> float:
        """Return the bytes that a new batch of this load stays below, with a confidence."""
        value = self.at(load)
        own = self.scatter * (value if self.proportional else 1.0)
        error = math.sqrt(self._variance(self._powers(load)) + own * own)
        return value + quantile(confidence, self.free) * error

    def bends(self, confidence: float) -> bool:
        """Return whether the coefficient of the highest power is above 0 with a confidence."""
        highest = [0.0] * (len(self.coefficients) - 1) + [1.0]
        error = math.sqrt(self._variance(highest)) + NOTHING * max(map(abs, self.coefficients))
        return self.coefficients[-1] > quantile(confidence, self.free) * error

    def _powers(self, load: float) -> list[float]:
        return [(load / self.scale) ** power for power in range(len(self.coefficients))]

    def _variance(self, powers: Column) -> float:
        parts = [_dot(column, powers) for column in self.basis]
        alike = [_dot(row, parts) for row in self.shared]
        return self.within * _dot(parts, parts) + self.between * _dot(parts, alike)


def regress(
    used: Sequence[Observation],
    powers: int = LINE,
    *,
    values: Column | None = None,
    least_bytes: float = 0.0,
) -> Regression:
    """Return the polynomial of least squares; there must be more points than powers.

    The expected sum of squares is ``within (n - powers) + between (n - taken)``. ``values`` make the scatter
    a share of them (`values_of`); ``None`` for constant scatter, never below ``least_bytes`` as a standard
    deviation.
    """
    scale = max(batch.load for batch in used)
    weights = [1 / value for value in values] if values else [1.0] * len(used)
    columns = [
        [weight * (batch.load / scale) ** power for batch, weight in zip(used, weights, strict=True)]
        for power in range(powers)
    ]
    sizes = [weight * batch.size_bytes for batch, weight in zip(used, weights, strict=True)]
    members = _members(used)
    straight, basis = _orthonormal(columns)
    parts = [_dot(column, sizes) for column in straight]
    shared = _shared(straight, members)
    taken = sum(shared[number][number] for number in range(len(straight)))
    within = _within(columns, sizes, members)
    squares = _squares(sizes, straight)
    between = max(0.0, (squares - within * (len(used) - powers)) / (len(used) - taken))
    return Regression(
        coefficients=tuple(_dot(parts, [column[power] for column in basis]) for power in range(powers)),
        scale=scale,
        basis=tuple(map(tuple, basis)),
        shared=tuple(map(tuple, shared)),
        between=between if values else max(between, least_bytes**2 - within),
        within=within,
        proportional=bool(values),
        free=max(1, len(members) - powers),
    )


def values_of(used: Sequence[Observation], line: Regression) -> list[float]:
    """Return what a line of constant scatter gives each measurement; never far below the largest."""
    least = LEAST_SHARE * max(batch.size_bytes for batch in used) or 1.0
    return [max(line.at(batch.load), least) for batch in used]


def speaks_for_constant(
    used: Sequence[Observation], constant: Regression, growing: Regression, values: Column
) -> float:
    """Return the logarithm of the likelihood ratio of constant scatter to one that grows with the value."""
    squares = math.fsum((batch.size_bytes - constant.at(batch.load)) ** 2 for batch in used)
    shares = math.fsum(
        ((batch.size_bytes - growing.at(batch.load)) / value) ** 2
        for batch, value in zip(used, values, strict=True)
    )
    if not (squares and shares):
        return 0.0
    return len(used) / 2 * math.log(shares / squares) + math.fsum(map(math.log, values))


def _members(used: Sequence[Observation]) -> list[list[int]]:
    points: dict[str, list[int]] = {}
    for number, batch in enumerate(used):
        points.setdefault(batch.point, []).append(number)
    return list(points.values())


def _orthonormal(columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
    """Return columns at right angles to each other, and how much of each given column they take.

    By Gram and Schmidt, twice, because the powers of similar loads are nearly alike. A column that the
    earlier ones make up is left out.
    """
    straight: list[Column] = []
    basis: list[Column] = []
    for number, column in enumerate(columns):
        left, takes = list(column), [float(number == other) for other in range(len(columns))]
        for earlier, earlier_takes in [*zip(straight, basis, strict=True)] * 2:
            part = _dot(earlier, left)
            left, takes = _less(left, part, earlier), _less(takes, part, earlier_takes)
        length = math.sqrt(_dot(left, left))
        if length > NOTHING * math.sqrt(_dot(column, column)):
            straight.append([value / length for value in left])
            basis.append([value / length for value in takes])
    return straight, basis


def _shared(straight: Sequence[Column], members: Sequence[Sequence[int]]) -> list[list[float]]:
    sums = [[math.fsum(column[row] for row in rows) for rows in members] for column in straight]
    return [[_dot(row, other) for other in sums] for row in sums]


def _within(columns: Sequence[Column], sizes: Column, members: Sequence[Sequence[int]]) -> float:
    """Return the variance about parallel lines, one through each point; 0 if that leaves no freedom."""
    straight, _ = _orthonormal([_centred(column, members) for column in columns])
    free = len(sizes) - len(members) - len(straight)
    return _squares(_centred(sizes, members), straight) / free if free > 0 else 0.0


def _centred(values: Column, members: Sequence[Sequence[int]]) -> list[float]:
    """Return the values less the mean of their point; nothing where only rounding is left."""
    centred = list(values)
    for rows in members:
        mean = math.fsum(values[row] for row in rows) / len(rows)
        for row in rows:
            away = values[row] - mean
            centred[row] = away if abs(away) > NOTHING * abs(mean) else 0.0
    return centred


def _squares(values: Column, straight: Sequence[Column]) -> float:
    left = list(values)
    for column in straight:
        left = _less(left, _dot(column, left), column)
    return _dot(left, left)


def _less(values: Column, part: float, other: Column) -> list[float]:
    return [value - part * taken for value, taken in zip(values, other, strict=True)]


def _dot(column: Column, other: Column) -> float:
    return math.fsum(map(operator.mul, column, other))
