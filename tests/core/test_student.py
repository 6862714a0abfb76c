from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core import student

DEGREES = st.integers(1, 60)

TABLE = {
    0.95: {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 10: 1.812, 30: 1.697, 120: 1.658},
    0.975: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980},
    0.99: {1: 31.821, 2: 6.965, 3: 4.541, 4: 3.747, 5: 3.365, 10: 2.764, 30: 2.457, 120: 2.358},
}
"""Upper percentage points as printed in every textbook (Abramowitz and Stegun, table 26.10)."""


@pytest.mark.parametrize("probability", TABLE)
def test_the_quantiles_are_those_of_the_tables(probability: float) -> None:
    printed = TABLE[probability]
    found = {degrees: student.quantile(probability, degrees) for degrees in printed}
    assert found == pytest.approx(printed, abs=0.00051)


def test_the_interval_of_a_mean_is_that_of_the_textbook_and_one_value_has_none() -> None:
    """Of 9, 10, 11: the deviation is 1, and t of two degrees 4.303."""
    assert student.deviation((9, 10, 11)) == pytest.approx(statistics.stdev((9, 10, 11)))
    assert student.half_width(1, 3) == pytest.approx(4.303 / math.sqrt(3), abs=1e-3)
    assert (student.deviation((9,)), student.half_width(None, 1), student.half_width(1.0, 1)) == (None,) * 3


@given(st.floats(0, 1e200), st.floats(0, 1e200), DEGREES, DEGREES)
def test_the_interval_of_a_difference_is_never_less_than_that_of_one_mean(
    one: float, other: float, free: int, freer: int
) -> None:
    half = student.welch_half_width((one, other), (free, freer))
    assert half is not None
    assert half >= student.quantile(student.TWO_SIDED, free + freer) * math.sqrt(max(one, other)) * (1 - 1e-9)
