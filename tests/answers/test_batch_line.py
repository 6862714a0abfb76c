"""The straight line of a log without records."""

from __future__ import annotations

import math

import pytest
from hypothesis import strategies as st

from jobkit.answers.memory_line import estimate
from jobkit.core.units import GIB

SIZES = st.lists(st.integers(1, 5000), min_size=2, max_size=12, unique=True)


@pytest.mark.parametrize(("capacity_gib", "largest"), [(30, 1425), (31.7485, 1511)])
def test_the_published_pair(capacity_gib: float, largest: int) -> None:
    peaks = [1.9911 * GIB, 7.0809 * GIB]
    found = estimate([50, 300], peaks, capacity_gib * GIB, model_bytes=1.3270 * GIB)
    assert found.largest == largest
    assert found.line is not None
    assert found.line.slope_bytes / GIB == pytest.approx(0.020359, abs=1e-6)
    assert found.line.intercept_bytes / GIB - 1.3270 == pytest.approx(-0.354, abs=1e-3)
    assert found.line.residual_bytes is None
    assert found.warnings[0] == "2 points, no error bar"
    assert "below the model's own memory" in found.warnings[1]


@pytest.mark.parametrize(
    ("sizes", "peaks", "capacity", "reason"),
    [
        ([50, 50], [1.0, 2.0], 10, "1 size measured: a line needs two"),
        ([], [], 10, "nothing measured"),
        ([50, 100], [5.0, 6.0], None, "how much memory there is was not recorded"),
        ([50, 100], [5.0, 5.0], 10, "does not grow"),
    ],
)
def test_what_cannot_be_known_has_the_reason(
    sizes: list[int], peaks: list[float], capacity: float | None, reason: str
) -> None:
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
