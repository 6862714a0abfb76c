"""Student's t: its quantiles, and the 95 % interval of a mean. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean

TWO_SIDED = 0.975
LEAST = 7
"""The fewest repeats after which a short interval may end them. Ending early selects short intervals by
chance: from three repeats on 91 % of such intervals hold the true mean, from seven on 93 % (simulated:
docs/what-is-measured.md)."""


def deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation. `statistics.stdev` computes with fractions, which is slow."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def half_width(sd: float | None, number: int) -> float | None:
    """Return half the 95 % interval of the mean of ``number`` normal values; ``None`` for fewer than two."""
    if sd is None or number < 2:
        return None
    return quantile(TWO_SIDED, number - 1) * sd / math.sqrt(number)


def unknown_spread(mean: float | None, half: float | None) -> bool:
    """Return whether half an interval is larger than the mean: then the spread is not known."""
    return mean is not None and half is not None and half > abs(mean)


def welch_half_width(
    variances: Sequence[float], degrees: Sequence[int], probability: float = TWO_SIDED
) -> float | None:
    """Return half the interval of the difference of two means (Welch, Biometrika 34, 1947, 28-35).

    ``None`` if a mean has no degree of freedom.
    """
    if not all(degrees):
        return None
    if not (total := sum(variances)):
        return 0.0
    free = 1 / sum((share / total) ** 2 / each for share, each in zip(variances, degrees, strict=True))
    return quantile(probability, max(1, math.floor(free))) * math.sqrt(total)


def distribution(t: float, degrees: int) -> float:
    """Return the probability of a value up to ``t``, for 1 degree of freedom or more."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine_squared = math.cos(angle) ** 2
    odd, total = degrees % 2, 0.0
    term = math.cos(angle) if odd else 1.0
    for k in range(2 + odd, degrees + 1, 2):
        total += term
        term *= cosine_squared * (k - 1) / k
    central = math.sin(angle) * total
    return 0.5 + (2 / math.pi * (angle + central) if odd else central) / 2


@cache
def quantile(probability: float, degrees: int) -> float:
    """Return the value that is exceeded with ``1 - probability``, for a probability of at least one half."""
    low, high = 0.0, 1.0
    while distribution(high, degrees) < probability:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if distribution(middle, degrees) < probability else (low, middle)
    return high
