"""The line of memory and its bound."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.coverage import DESIGNS, SCATTERS, Scatter, simulate
from jobkit.answers import memory_line
from jobkit.answers.memory_line import Censored, Fit, Observation, estimate, fit_memory
from jobkit.core.units import GIB

MIB = 2**20
EXACT = (2e8, 4e8, 6e8, 8e8, 1e9)


def fitted(observations: Sequence[Observation], censored: Sequence[Censored] = ()) -> Fit:
    found = fit_memory(observations, censored)
    assert isinstance(found, Fit), found
    return found


def on_line(*loads: float, slope: float = 10_000, fixed: float = 2e8) -> list[Observation]:
    """Return one observation a point, on a line."""
    return [Observation(load, fixed + slope * load, f"point {load}") for load in loads]


OFF = (3e6, -5e6, 4e6, -1e6, -2e6)


def scattered(*, slope: float = 10_000, fixed: float = 2e8) -> list[Observation]:
    """Return five points that lie a few megabytes off a line."""
    exact = on_line(20_000, 40_000, 60_000, 80_000, 100_000, slope=slope, fixed=fixed)
    return [replace(one, size_bytes=one.size_bytes + off) for one, off in zip(exact, OFF, strict=True)]


# -- the bound holds


@pytest.mark.fault
@pytest.mark.parametrize("scatter", SCATTERS, ids=lambda scatter: scatter.name)
def test_the_bound_holds_in_95_of_100_cases(scatter: Scatter) -> None:
    """FAULT: scatter grows with the memory, or four points on the allocator's steps happen to lie on a line.

    HOW: simulated with a fixed seed.
    REPORTED: a bound; 95 of 100 new batches stay below it.
    LOST: some GPU memory stays unused: the bound is higher than for constant scatter.
    """
    found = [simulate(scatter, design, 160) for design in (DESIGNS[0], DESIGNS[2])]
    held = [share for one in found for share in one.held]
    assert sum(held) / len(held) >= 0.95
    assert sum(one.seen for one in found) / len(found) <= 0.03


@pytest.mark.parametrize(("curve", "far"), [(0.05, 4.0), (0.1, 4.0), (0.1, 8.0), (0.02, 8.0)])
def test_a_curve_that_exact_points_show_is_seen_and_kept(curve: float, far: float) -> None:
    measured = [Observation(load, 2e8 + load + curve / 1e9 * load**2, str(load)) for load in EXACT]
    fit, truth = fitted(measured), 2e8 + far * 1e9 + curve * far**2 * 1e9
    assert fit.r_squared > 0.9995
    assert fit.curves
    assert fit.at(far * 1e9) < truth <= fit.upper(far * 1e9)
    assert fit.safe_load(truth) <= far * 1e9


def test_memory_that_grows_slower_than_a_line_bends_nothing() -> None:
    assert not fitted([Observation(load, 2e8 + load**0.9, str(load)) for load in EXACT]).curves


def test_the_largest_point_alone_may_show_that_the_line_ends() -> None:
    jump = [*on_line(20_000, 40_000, 60_000, 80_000), Observation(100_000, 1.3e9, "jump")]
    fit = fitted(jump)
    assert fit.curves
    assert fit.upper(200_000) > 2.2e9 + (1.3e9 - 1.2e9)


def test_a_curve_counts_beyond_what_was_measured_only() -> None:
    fit = fitted([Observation(load, 2e8 + load + 1e-10 * load**2, str(load)) for load in EXACT])
    straight = replace(fit, curves=())
    assert fit.upper(fit.load_max) == straight.upper(fit.load_max)
    assert fit.upper(4 * fit.load_max) > straight.upper(4 * fit.load_max)


def test_points_on_steps_are_never_exact() -> None:
    step = 20 * MIB
    on_steps = [Observation(load, load * step, str(load)) for load in (2, 4, 6, 8)]
    assert fitted(on_steps).residual_bytes == pytest.approx(step / math.sqrt(12))
    small = [replace(step, size_bytes=step.size_bytes + 2 * MIB * (step.load == 4)) for step in on_steps]
    assert fitted(small).residual_bytes >= 2 * MIB / math.sqrt(12)
    assert fitted(on_line(2, 4, 6, 8)).residual_bytes == pytest.approx(0, abs=1)


def test_scatter_of_a_known_kind_is_bounded_as_that_unless_it_does_not_look_like_it() -> None:
    steps = fit_memory(scattered(), in_steps=True)
    assert isinstance(steps, Fit)
    assert len(steps.lines) == 1
    assert len(fitted(scattered()).lines) == 2
    assert steps.upper(4e5) < fitted(scattered()).upper(4e5)
    exact = on_line(*range(20_000, 100_001, 10_000), fixed=1e6)
    for factor, more in ((1.02, 0), (1, 60 * MIB)):
        odd = [replace(one, size_bytes=one.size_bytes * factor + more) for one in exact[1::2]]
        fit = fit_memory([*exact[::2], *odd], in_steps=True)
        assert isinstance(fit, Fit)
        assert len(fit.lines) == 2


def test_what_a_point_says_twice_counts_once() -> None:
    once, twice = fitted(scattered()), fitted(scattered() * 2)
    assert twice.upper(300_000) == pytest.approx(once.upper(300_000))
    assert twice.points == 5


# -- what the numbers are


LOADS = st.lists(st.integers(10, 100), min_size=4, max_size=9, unique=True)
OFF_TENTHS_MIB = st.integers(-20, 20)


@st.composite
def measurements(draw: st.DrawFn) -> list[Observation]:
    """Return observations of 4 to 9 points, one to three each, about a rising line."""
    found = []
    for number, load in enumerate(draw(LOADS)):
        for share in (1.0, 0.85, 0.7)[: draw(st.integers(1, 3))]:
            size = 1e9 + 1e4 * load * share * 1000 + draw(OFF_TENTHS_MIB) * MIB / 10
            found.append(Observation(load * share * 1000, size, str(number)))
    return found


@given(measurements(), st.floats(1e8, 1e11), st.floats(1, 3), st.floats(0, 0.5), st.floats(0, 0.5))
def test_more_capacity_and_less_margin_never_allow_less(
    measured: list[Observation], capacity: float, more: float, margin: float, further: float
) -> None:
    fit = fitted(measured, [Censored(3e5, 5e9)])
    safe = fit.safe_load(capacity, margin)
    assert 0 <= safe <= fit.largest(capacity)
    assert fit.safe_load(capacity * more, margin) >= safe
    assert fit.safe_load(capacity, margin + further) <= safe
    assert safe == 0 or fit.upper(safe) <= capacity * (1 - margin)


@given(measurements())
def test_the_line_is_that_of_least_squares(measured: list[Observation]) -> None:
    fit, used = fitted(measured), memory_line.upper_part(measured)
    errors = [one.size_bytes - fit.at(one.load) for one in used]
    scale = 1e-6 * sum(one.size_bytes for one in used)
    assert abs(sum(errors)) < scale
    assert abs(sum(error * one.load for error, one in zip(errors, used, strict=True))) < scale * fit.load_max
    assert 0 <= fit.r_squared <= 1


def test_no_load_is_safe_where_nothing_fits() -> None:
    fit = fitted(scattered())
    assert fit.safe_load(1e8) == fit.largest(1e8) == 0
    assert fit.safe_load(1e10, 1.0) == 0
    assert fit.safe_load(2.02e8) == 0 < fit.largest(2.02e8)


# -- what is refused


def test_memory_that_does_not_grow_is_refused() -> None:
    why = "memory does not grow with the load over what was measured"
    for slope, fixed in ((-1000, 1e9), (0, 2**30), (0, 0)):
        flat = on_line(10, 20, 30, 44, slope=slope, fixed=fixed)
        assert fit_memory(flat) == fit_memory(flat, [Censored(1000, 1e12)]) == why
    sudden = [Observation(load, 1e9 * (load == 5), str(load)) for load in (1, 2, 3, 4, 5)]
    assert fitted(sudden).upper(10) > 2e9


def test_small_loads_are_left_out_where_enough_remain() -> None:
    bent = [Observation(load, 1e9, f"small {load}") for load in (1_000, 5_000)]
    assert fitted(bent + scattered()) == fitted(scattered())
    assert memory_line.UPPER_PART * 100_000 > 5_000
    few = on_line(5_000, 50_000, 80_000, 100_000)
    assert memory_line.upper_part(few) == few


# -- batches that ran out of memory


def test_a_failure_that_the_line_explains_changes_nothing() -> None:
    fit, bound = fitted(scattered()), Censored(300_000, 2e9)
    assert fit.at(300_000) > 2e9
    told = fitted(scattered(), [bound])
    assert replace(told, failed=()) == fit
    assert told.safe_load(8e9) == fit.safe_load(8e9)
    assert told.safe_load(1.9e9) == fit.safe_load(1.9e9)


@given(measurements(), st.floats(1e4, 1e6), st.floats(1e8, 1e11), st.floats(0, 0.3))
def test_a_load_that_failed_is_never_safe(
    measured: list[Observation], load: float, had: float, margin: float
) -> None:
    fit = fit_memory(measured, [Censored(load, had)])
    assert isinstance(fit, str) or fit.safe_load(had, margin) < load


def test_many_measurements_do_not_outvote_one_failure() -> None:
    exact = [Observation(load, 1e9 + 1e4 * load, str(load % 7)) for load in range(50_000, 100_000, 100)]
    failed = Censored(110_000, 2.4e9)
    fit = fitted(exact, [failed])
    assert fit.largest(2.4e9) > 110_000 > fit.safe_load(2.4e9)


# -- how far to trust it


def test_the_largest_point_is_predicted_by_the_others() -> None:
    fit = fitted([*on_line(20_000, 40_000, 60_000), Observation(80_000, 1.25e9, "bent")])
    assert fit.leave_largest_out == pytest.approx(1e9 / 1.25e9 - 1)
    pair = [Observation(80_000, 1e9, "last"), Observation(90_000, 1.1e9, "last"), *on_line(1e4, 2e4, 3e4)]
    assert fitted(pair).leave_largest_out == pytest.approx(0, abs=1e-9)


def test_too_few_loads_next_to_the_largest_predict_nothing() -> None:
    two = [replace(one, point=one.point + "'") for one in on_line(30_000, 40_000)]
    both = [Observation(load, 2e8 + 1e4 * load, "large") for load in (80_000, 90_000)]
    assert fitted([*on_line(30_000, 40_000), *two, *both]).leave_largest_out is None


def test_a_straight_line_is_not_doubted() -> None:
    assert memory_line.doubts(fitted(scattered())) == ()
    assert memory_line.doubts(fitted(scattered()), memory_line.MAX_EXTRAPOLATION * 100_000) == ()


def test_one_wild_value_is_doubted_by_the_median_slope() -> None:
    wild = [*on_line(*range(20_000, 90_000, 10_000), fixed=2e9), Observation(90_000, 3.6e9, "wild")]
    fit = fitted(wild)
    assert fit.theil_sen_slope_bytes == pytest.approx(10_000, rel=0.01)
    assert re.search("the line of the median slope is .* flatter", "; ".join(memory_line.doubts(fit)))


def test_the_median_slope_of_many_is_taken_of_some() -> None:
    many = [Observation(100_000, 1.2e9 + number, str(number % 4)) for number in range(3_000)]
    fit = fitted([*many, *on_line(20_000, 40_000, 60_000)])
    assert fit.theil_sen_slope_bytes == pytest.approx(10_000, rel=0.01)
    assert len(many) ** 2 / 2 > memory_line.MOST_PAIRS


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        ([*on_line(1, 2, 3), Observation(3, 5e9, "again")], "3 distinct loads measured"),
        ([], "0 distinct loads measured"),
        ([replace(one, point=str(one.load % 3)) for one in on_line(*range(10, 100, 7))], "3 points measured"),
        (on_line(100_000, 100_001, 100_002, 100_003), "almost equal"),
    ],
)
def test_too_little_is_refused_with_the_reason(measured: list[Observation], why: str) -> None:
    assert why in str(fit_memory(measured))


BENT = [replace(one, size_bytes=one.load**2.2) for one in on_line(1e4, 2e4, 4e4, 6e4, 9e4)]


def test_what_a_reader_must_know_is_a_doubt() -> None:
    for measured, load, phrase in (
        (scattered(), 910_000, "9 times the largest load measured"),
        (scattered(fixed=-1e8), None, "below zero"),
        (BENT, None, "(R² 0.9"),
    ):
        assert phrase in "; ".join(memory_line.doubts(fitted(measured), load))


def test_loads_that_are_alike_leave_a_power_out() -> None:
    alike = [Observation(1 + number * 1e-12, number + 1, f"{number}") for number in range(4)]
    assert memory_line.regress(alike).at(1) == pytest.approx(2.5)


def test_the_published_pair() -> None:
    peaks = [1.9911 * GIB, 7.0809 * GIB]
    found = estimate([50, 300], peaks, 31.7485 * GIB, model_bytes=1.3270 * GIB)
    assert found.largest == 1511
    assert found.line is not None
    assert found.line.slope_bytes / GIB == pytest.approx(0.020359, abs=1e-6)
    assert found.line.intercept_bytes / GIB - 1.3270 == pytest.approx(-0.354, abs=1e-3)
    assert found.line.residual_bytes is None
    assert found.warnings[0] == "2 points, no error bar"
    assert "below the model's own memory" in found.warnings[1]


def test_what_cannot_be_known_has_the_reason() -> None:
    for sizes, peaks, capacity, reason in (
        ([50, 50], [1.0, 2.0], 10, "1 size measured: a line needs two"),
        ([], [], 10, "nothing measured"),
        ([50, 100], [5.0, 6.0], None, "how much memory there is was not recorded"),
        ([50, 100], [5.0, 5.0], 10, "does not grow"),
    ):
        found = estimate(sizes, peaks, capacity)
        assert (found.largest, found.line is None) == (None, capacity is not None or len(set(sizes)) < 2)
        assert reason in found.reason


def test_the_residual_is_the_scatter_about_the_line() -> None:
    line = estimate([1, 2, 3, 4], [1.0, 2.0, 3.0, 6.0], None).line
    assert line is not None
    assert line.slope_bytes == pytest.approx(1.6)
    assert line.residual_bytes == pytest.approx(math.sqrt(1.2 / 2))
    assert line.at(3) == pytest.approx(3.0 + 0.8)


def test_far_beyond_what_was_measured_is_flagged_and_a_card_that_is_too_small_takes_nothing() -> None:
    warnings = estimate([1, 2, 3], [1.0, 2.0, 3.0], 30).warnings
    assert warnings == ("10 times the largest size measured: far beyond the evidence",)
    assert estimate([1, 2, 3], [1.0, 2.0, 3.0], 24).warnings == ()
    assert estimate([1, 2, 3], [11.0, 12.0, 13.0], 5).largest == 0
