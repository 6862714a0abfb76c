"""Student's t distribution for whole degrees of freedom. Pure, standard library only.

The distribution function is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4); its inverse is
found by bisection. The node that predicts has no scipy, and needs one quantile.
"""

from __future__ import annotations

import math
from functools import cache


def distribution(t: float, degrees: int) -> float:
    """Return the probability of a value up to ``t`` with so many degrees of freedom, from 1."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine_squared = math.cos(angle) ** 2
    if degrees % 2:
        term, total = math.cos(angle), 0.0
        for k in range(3, degrees + 1, 2):
            total += term
            term *= cosine_squared * (k - 1) / k
        central = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        term, total = 1.0, 0.0
        for k in range(2, degrees + 1, 2):
            total += term
            term *= cosine_squared * (k - 1) / k
        central = math.sin(angle) * total
    return 0.5 + central / 2


@cache
def quantile(probability: float, degrees: int) -> float:
    """Return the value that is exceeded with ``1 - probability``, for a probability of at least one half."""
    low, high = 0.0, 1.0
    while distribution(high, degrees) < probability:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if distribution(middle, degrees) < probability else (low, middle)
    return high
