from __future__ import annotations

import math

import pytest

from jobkit.answers import stats
from jobkit.answers.stats import Observation

LOADS = (1.0, 2.0, 3.0, 4.0, 5.0)


def measured(*sizes: float, parts: int = 1) -> list[Observation]:
    """Return a measurement of each size at the loads 1, 2, 3 ..., so many that follow in each point."""
    return [Observation(number + 1.0, size, str(number // parts)) for number, size in enumerate(sizes)]


def test_a_line_and_a_curve_are_found_again() -> None:
    line, curve = stats.regress(measured(3, 5, 7, 9)), stats.regress(measured(1, 4, 9, 16), stats.CURVE)
    assert (line.at(10), line.slope) == pytest.approx((21, 2))
    assert curve.at(10) == pytest.approx(100)
    assert curve.bends(0.99)
    assert not line.scatter
    assert not stats.regress(measured(3, 5, 7, 9), stats.CURVE).bends(0.6)


def test_the_bound_is_that_of_the_textbook() -> None:
    sizes = (10.0, 21.0, 29.0, 41.0, 49.0)
    found = stats.regress(measured(*sizes))
    off = [size - found.at(load) for load, size in zip(LOADS, sizes, strict=True)]
    scatter = math.sqrt(sum(one * one for one in off) / 3)
    assert found.scatter == pytest.approx(scatter)
    error = scatter * math.sqrt(1 + 1 / 5 + (8 - 3) ** 2 / 10)
    assert found.upper(8, 0.95) == pytest.approx(found.at(8) + 2.35336 * error, rel=1e-5)


def test_what_a_point_shares_is_distinguished_from_what_its_measurements_have_alone() -> None:
    apart = stats.regress(measured(11, 12, 23, 24, 15, 16, 27, 28, parts=2))
    assert apart.between > 10 * apart.within
    assert apart.free == 2
    alone = stats.regress(measured(9, 21, 31, 39, 49, 61, 71, 79, parts=2))
    assert alone.between == 0 < alone.within


def test_repeats_of_one_load_tell_what_scatters_within_a_point() -> None:
    twice = [
        Observation(one.load, one.size_bytes + off, one.point)
        for one in measured(1, 2, 3, 4)
        for off in (-1, 1)
    ]
    assert stats.regress(twice).within == pytest.approx(2)


def test_scatter_that_grows_is_a_share_of_the_value() -> None:
    sizes = measured(101, 198, 303, 396, 505)
    constant = stats.regress(sizes)
    growing = stats.regress(sizes, values=stats.values_of(sizes, constant))
    assert growing.scatter == pytest.approx(0.01, rel=0.3)
    assert growing.upper(20, 0.95) - growing.at(20) > 1.3 * (constant.upper(20, 0.95) - constant.at(20))
    assert stats.speaks_for_constant(sizes, constant, growing, stats.values_of(sizes, constant)) < 0
    steady = measured(103, 197, 303, 397, 503)
    constant = stats.regress(steady)
    values = stats.values_of(steady, constant)
    assert stats.speaks_for_constant(steady, constant, stats.regress(steady, values=values), values) > 0


def test_scatter_is_never_less_than_what_is_known() -> None:
    assert stats.regress(measured(2, 4, 6, 8), least_bytes=3).scatter == pytest.approx(3)
    assert stats.regress(measured(2, 4, 6, 8)).scatter == pytest.approx(0, abs=1e-9)


def test_no_value_counts_as_far_below_the_largest() -> None:
    steep = measured(-5, 0, 5, 10)
    assert min(stats.values_of(steep, stats.regress(steep))) == 1
    assert stats.values_of(measured(0, 0, 0, 0), stats.regress(measured(0, 0, 0, 0))) == [1.0] * 4


def test_loads_that_are_alike_leave_a_power_out() -> None:
    alike = [Observation(1 + number * 1e-12, size, str(number)) for number, size in enumerate((1, 2, 3, 4))]
    assert stats.regress(alike).at(1) == pytest.approx(2.5)
