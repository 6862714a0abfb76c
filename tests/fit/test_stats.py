from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.fit.stats import distribution, quantile

DEGREES = st.integers(1, 60)

TABLE = {
    0.95: {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 10: 1.812, 30: 1.697, 120: 1.658},
    0.975: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980},
    0.99: {1: 31.821, 2: 6.965, 3: 4.541, 4: 3.747, 5: 3.365, 10: 2.764, 30: 2.457, 120: 2.358},
}
"""Upper percentage points as printed in every textbook (Abramowitz and Stegun, table 26.10)."""


@pytest.mark.parametrize(
    ("probability", "degrees", "printed"), [(p, n, t) for p, row in TABLE.items() for n, t in row.items()]
)
def test_the_quantiles_are_those_of_the_tables(probability: float, degrees: int, printed: float) -> None:
    assert quantile(probability, degrees) == pytest.approx(printed, abs=0.00051)


@given(st.floats(-50, 50), DEGREES)
def test_it_is_symmetric(t: float, degrees: int) -> None:
    assert distribution(t, degrees) + distribution(-t, degrees) == pytest.approx(1, abs=1e-12)


@given(st.floats(-50, 50), st.floats(0.001, 5), DEGREES)
def test_it_grows(t: float, further: float, degrees: int) -> None:
    lower, upper = distribution(t, degrees), distribution(t + further, degrees)
    assert -1e-12 <= lower <= upper + 1e-12 <= 1 + 2e-12


@given(st.floats(0.5, 0.9999), DEGREES)
def test_a_quantile_has_its_probability(probability: float, degrees: int) -> None:
    assert distribution(quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-12)


@given(st.floats(0.51, 0.999), st.integers(1, 60))
def test_more_degrees_have_thinner_tails(probability: float, degrees: int) -> None:
    assert quantile(probability, degrees + 1) < quantile(probability, degrees)


@given(st.floats(-30, 30))
def test_with_one_and_two_degrees_there_is_a_closed_form(t: float) -> None:
    assert distribution(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
    assert distribution(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-12)


def test_with_many_degrees_it_is_the_normal_distribution() -> None:
    assert quantile(0.95, 100_000) == pytest.approx(1.64485, abs=1e-4)
    assert quantile(0.5, 3) == pytest.approx(0, abs=1e-12)
