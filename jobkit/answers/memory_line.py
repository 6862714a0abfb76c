"""Memory as a straight line in the load or in the batch, with a bound that a new measurement keeps. Pure.

Least squares; the bound is a one-sided 95 % *prediction* bound: for the next batch, not for the mean of many.
The measurements of one point are not independent (`regress`), so the quantile is Student's with
two degrees fewer than there are points. A variance clustered by point is too small with four or five of them
(simulated: the bound then holds in 90 of 100 cases).

Five points cannot show whether the scatter is constant or grows with the memory, and a wrong guess costs as
much (90 of 100 cases). So both bounds are computed and the larger counts. If memory grows faster than a line,
the bound of a curve counts too. ``python -m benchmarks coverage`` simulates what this covers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from statistics import linear_regression, median

from jobkit.core.frozen import frozen, keyed
from jobkit.core.student import quantile
from jobkit.core.units import format_count

MIN_DISTINCT_LOADS = 4  # fewer are not fitted: two give a line, three hardly an error
UPPER_PART = 0.1
"""Loads below this share of the largest are left out: fixed costs bend the line there (with Stanza
below about 4,000 padded characters; the line of small tensors, LSTM weights laid out again)."""
MAX_EXTRAPOLATION = 5.0  # times the largest load: beyond, a curve too slight to be seen may have grown large
BENDS, JUMPS = 0.975, 0.995
"""Confidence that memory grows faster than a line: by the square of the load; by the largest point, if it is
above the prediction of the others."""
AGAINST, COARSE_BYTES = -1.0, 32 * 2**20
"""Scatter from constant steps is taken as constant unless the logarithm of the likelihood ratio is below the
first, or the scatter above the second: on an H200 such steps make 4 to 27 MiB, at 10 GiB no more than at
1."""
ROUNDING = 1e-9  # what a computed value may be off by, as a share of it
MOST_PAIRS = 20_000


@keyed
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

Column = Sequence[float]


@frozen
class Observation:
    load: float
    size_bytes: float
    point: str


@keyed
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
    points: dict[str, list[int]] = {}
    for number, batch in enumerate(used):
        points.setdefault(batch.point, []).append(number)
    members = list(points.values())
    straight, basis = _orthonormal(columns)
    parts = [_dot(column, sizes) for column in straight]
    sums = [[math.fsum(column[row] for row in rows) for rows in members] for column in straight]
    shared = [[_dot(row, other) for other in sums] for row in sums]
    taken = sum(shared[number][number] for number in range(len(straight)))
    # the variance about parallel lines, one through each point; 0 if that leaves no freedom
    parallel, _ = _orthonormal([_centred(column, members) for column in columns])
    own_free = len(sizes) - len(members) - len(parallel)
    within = _squares(_centred(sizes, members), parallel) / own_free if own_free > 0 else 0.0
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
    # of the largest measurement: smaller ones count as if they had this share
    least = 0.1 * max(batch.size_bytes for batch in used) or 1.0
    return [max(line.at(batch.load), least) for batch in used]


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


@frozen
class Censored:
    load: float
    above_bytes: float


@keyed
class Fit(FittedLine):
    """The line of memory over load, and how far to trust it."""

    theil_sen_slope_bytes: float  # the median slope between two observations: what one wild value cannot move
    r_squared: float  # the share of the variance that the line explains
    residual_bytes: float  # standard deviation of a new point's batch about the line
    points: int
    load_max: float
    # (predicted - measured) / measured at the largest load, without that point; ``None`` for few loads
    leave_largest_out: float | None
    lines: tuple[Regression, ...]  # straight lines; the highest at a load is `upper`
    curves: tuple[Regression, ...] = ()  # count as ``lines`` do, beyond the largest load measured
    # batches that ran out of memory: from such a load on, none is safe with this much memory
    failed: tuple[Censored, ...] = ()

    def upper(self, load: float) -> float:
        """Return the bytes that a batch of this load stays below, with 95 % confidence."""
        beyond = load - self.load_max
        counting = (*self.lines, *(self.curves if beyond > 0 else ()))
        bound = max(line.upper(load, 0.95) for line in counting)
        # What the bound adds, as a share of the bytes beyond the largest load measured: small batches do
        # not show how the allocator cuts up large ones. On an H200 a batch of 16 GiB, predicted from 4,
        # needed 0.54 % more than the line, although the scatter alone allowed for 0.33 %.
        return bound + 0.005 * max(0.0, self.slope_bytes * beyond)

    def safe_load(self, capacity_bytes: float, margin: float = 0.0) -> float:
        """Return the largest load whose bound leaves a margin, a share of the capacity, free; at least 0."""
        room = capacity_bytes * (1 - margin)
        low, high = 0.0, self.largest(room)
        if self.upper(low) > room:
            return 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.upper(middle) <= room else (low, middle)
        too_much = [batch.load for batch in self.failed if batch.above_bytes >= room]
        return min([low, *(math.nextafter(load, 0.0) for load in too_much)])


def fit_memory(
    observations: Iterable[Observation], censored: Sequence[Censored] = (), *, in_steps: bool = False
) -> Fit | str:
    """Return the line through the observations, or why there is none.

    Observations of one point are not independent. Where the line passes below the least that a batch out of
    memory needed, that least is taken as an observation and the line is fitted again. ``in_steps``: whether
    the scatter is known to come from an allocator with constant steps (`AGAINST`).
    """
    used = upper_part(list(observations))
    few = f"measured, and a line with an error needs {MIN_DISTINCT_LOADS}"
    loads, points = {batch.load for batch in used}, {batch.point for batch in used}
    if len(loads) < MIN_DISTINCT_LOADS:
        return f"{format_count(len(loads), 'distinct load')} {few}"
    if len(points) < MIN_DISTINCT_LOADS:
        return f"{format_count(len(points), 'point')} {few}"
    # loads that differ by a smaller share of the largest are taken as one
    if max(loads) - min(loads) < 1e-3 * max(loads):
        return "the measured loads are almost equal, so no line can be fitted"
    measured, line = tuple(used), regress(used)
    for number, bound in enumerate(sorted(censored, key=lambda batch: (batch.load, batch.above_bytes))):
        if _grows(line) and line.at(bound.load) < bound.above_bytes:
            used.append(Observation(bound.load, bound.above_bytes, f"out of memory {number}"))
            line = regress(used)
    if not _grows(line):
        return "memory does not grow with the load over what was measured"
    lines = _lines(used, in_steps=in_steps)
    line = lines[0]
    mean_bytes = math.fsum(batch.size_bytes for batch in used) / len(used)
    squares = math.fsum((batch.size_bytes - line.at(batch.load)) ** 2 for batch in used)
    total = math.fsum((batch.size_bytes - mean_bytes) ** 2 for batch in used)
    return Fit(
        slope_bytes=line.slope,
        intercept_bytes=line.coefficients[0],
        theil_sen_slope_bytes=_theil_sen(used),
        r_squared=1 - squares / total,
        residual_bytes=line.scatter,
        points=len(points),
        load_max=max(loads),
        leave_largest_out=_leave_largest_out(measured),
        lines=lines,
        curves=_curves(used, alone=len(lines) == 1),
        failed=tuple(censored),
    )


def _grows(line: Regression) -> bool:
    constant, rise = line.coefficients
    return rise > ROUNDING * abs(constant)


def upper_part(observations: Sequence[Observation]) -> list[Observation]:
    """Return the observations above the floor where fixed costs bend the line; all where that leaves few."""
    largest = max((observation.load for observation in observations), default=0.0)
    above = [observation for observation in observations if observation.load >= UPPER_PART * largest]
    return above if len({batch.load for batch in above}) >= MIN_DISTINCT_LOADS else list(observations)


def _lines(used: Sequence[Observation], *, in_steps: bool) -> tuple[Regression, ...]:
    """Return the line of constant scatter and, unless it stands alone, that of growing scatter."""
    constant, growing = _both(used, LINE)
    if in_steps and constant.scatter <= COARSE_BYTES:
        values = values_of(used, constant)
        squares = math.fsum((batch.size_bytes - constant.at(batch.load)) ** 2 for batch in used)
        shares = math.fsum(
            ((batch.size_bytes - growing.at(batch.load)) / value) ** 2
            for batch, value in zip(used, values, strict=True)
        )
        ratio = 0.0  # the logarithm of the likelihood ratio of constant scatter to growing scatter
        if squares and shares:
            ratio = len(used) / 2 * math.log(shares / squares) + math.fsum(map(math.log, values))
        if ratio >= AGAINST:
            return (constant,)
    return constant, growing


def _both(used: Sequence[Observation], powers: int) -> tuple[Regression, Regression]:
    """Return the regressions of constant and of growing scatter.

    Constant scatter is never less than that of rounding to the step that divides all sizes.
    """
    sizes = sorted({batch.size_bytes for batch in used})
    # Steps of PyTorch's allocator (c10/cuda/CUDACachingAllocator.cpp). Four points on such steps may lie on
    # a line by chance, so their scatter is never taken to be less than that of the rounding.
    steps = (step for step in (20 * 2**20, 2 * 2**20) if not any((b - a) % step for a, b in pairwise(sizes)))
    least_bytes = next(steps, 0) / math.sqrt(12)
    line = regress(used, least_bytes=least_bytes)
    constant = line if powers == LINE else regress(used, powers, least_bytes=least_bytes)
    return constant, regress(used, powers, values=values_of(used, line))


def _curves(used: Sequence[Observation], *, alone: bool) -> tuple[Regression, ...]:
    """Return the curves on the load and its square, if their last coefficient or the largest point bends.

    The largest point bends them if it is above the bound that the other points give it.
    """
    curves = _both(used, CURVE)[: 1 if alone else 2]
    if all(curve.bends(BENDS) for curve in curves):
        return curves
    largest, rest = _apart(used)
    fewest = min(len({batch.load for batch in rest}), len({batch.point for batch in rest}))
    if fewest < MIN_DISTINCT_LOADS - 1:
        return ()
    bounds = (line.upper(largest.load, JUMPS) for line in _both(rest, LINE)[: 1 if alone else 2])
    return curves if all(largest.size_bytes > bound * (1 + ROUNDING) for bound in bounds) else ()


def _apart(used: Sequence[Observation]) -> tuple[Observation, list[Observation]]:
    largest = max(used, key=lambda batch: (batch.load, batch.size_bytes, batch.point))
    return largest, [batch for batch in used if batch.point != largest.point]


def _theil_sen(used: Sequence[Observation]) -> float:
    ordered = sorted((batch.load, batch.size_bytes) for batch in used)
    every = max(1, math.ceil(math.sqrt(len(ordered) ** 2 / 2 / MOST_PAIRS)))
    looked_at = [ordered[0], *ordered[:0:-every]]  # both ends are, so there are two distinct loads
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(looked_at, 2) if a[0] != b[0])


def _leave_largest_out(used: Sequence[Observation]) -> float | None:
    largest, rest = _apart(used)
    if len({batch.load for batch in rest}) < MIN_DISTINCT_LOADS - 1:
        return None
    return (regress(rest).at(largest.load) - largest.size_bytes) / largest.size_bytes


def doubts(fit: Fit, load: float | None = None) -> tuple[str, ...]:
    """Return what to know before trusting the line at the largest load asked for, without a full stop."""
    notes: list[str] = []
    other = fit.theil_sen_slope_bytes / fit.slope_bytes - 1
    if load is not None and load > MAX_EXTRAPOLATION * fit.load_max:
        notes.append(f"{load / fit.load_max:.0f} times the largest load measured: far beyond the evidence")
    if fit.intercept_bytes < 0:
        notes.append("the line meets load 0 below zero, so memory grows faster than a line")
    if fit.r_squared < 0.98:
        notes.append(f"memory does not follow the load in a straight line (R² {fit.r_squared:.3f})")
    # estimates of the slope that differ by a larger share disagree
    if abs(other) > 0.05:
        side = "steeper" if other > 0 else "flatter"
        notes.append(
            f"the line of the median slope is {abs(other):.0%} {side}: single points pull the fitted line"
        )
    return tuple(notes)


MIN_SIZES = 2  # distinct sizes for a line, without anything to judge it by


@keyed
class BatchLine(FittedLine):
    residual_bytes: float | None  # standard deviation about the line; ``None`` for two distinct sizes
    points: int  # number of measurements
    size_max: float  # the largest size measured

    @property
    def no_error_bar(self) -> str:
        """Why the line has no error bar: it goes through two sizes; empty if it has one."""
        if self.residual_bytes is not None:
            return ""
        return f"2 {'points' if self.points == MIN_SIZES else 'sizes'}, no error bar"


@keyed
class Estimate:
    """The answer to "how large may it be", or the reason why there is none."""

    line: BatchLine | None  # ``None`` if there is no estimate; ``reason`` then has the cause
    capacity_bytes: float | None  # what must not be exceeded; ``None`` if that is unknown
    largest: int | None = None  # not capped, so that the warnings can name the excess
    warnings: tuple[str, ...] = ()  # sentences without a full stop, the weightiest first
    reason: str = ""


def estimate(
    sizes: Sequence[float],
    peaks_bytes: Sequence[float],
    capacity_bytes: float | None,
    *,
    model_bytes: float = 0,
) -> Estimate:
    """Estimate the largest size whose peak memory fits a capacity; ``None`` for the line alone.

    Peaks are total: context, weights and activations. ``model_bytes`` is context and weights, if known: a
    line that meets size 0 below them bends.
    """
    distinct = len(set(sizes))
    if distinct < MIN_SIZES:
        reason = f"{distinct} size measured: a line needs two" if sizes else "nothing measured"
        return Estimate(line=None, capacity_bytes=capacity_bytes, reason=reason)
    fitted = FittedLine.through(sizes, peaks_bytes)
    squares = math.fsum((y - fitted.at(x)) ** 2 for x, y in zip(sizes, peaks_bytes, strict=True))
    line = BatchLine(
        slope_bytes=fitted.slope_bytes,
        intercept_bytes=fitted.intercept_bytes,
        residual_bytes=math.sqrt(squares / (len(sizes) - MIN_SIZES)) if distinct > MIN_SIZES else None,
        points=len(sizes),
        size_max=max(sizes),
    )
    if capacity_bytes is None:
        return Estimate(line=line, capacity_bytes=None, reason="how much memory there is was not recorded")
    if line.slope_bytes <= 0:
        reason = "the peak does not grow with the size over the sizes measured"
        return Estimate(line=None, capacity_bytes=capacity_bytes, reason=reason)
    largest = math.floor(line.largest(capacity_bytes))
    warnings = []
    if line.no_error_bar:
        warnings.append(line.no_error_bar)
    # share of the model's memory that a straight line may lie below it at size 0
    if line.intercept_bytes < 0.95 * model_bytes or line.intercept_bytes < 0:
        warnings.append(
            "the line meets size 0 below the model's own memory, so memory grows faster than a line"
        )
    # times the largest measured size: beyond, an estimate gets a warning
    if largest > 8.0 * line.size_max:
        warnings.append(
            f"{largest / line.size_max:.0f} times the largest size measured: far beyond the evidence"
        )
    return Estimate(line=line, capacity_bytes=capacity_bytes, largest=largest, warnings=tuple(warnings))
