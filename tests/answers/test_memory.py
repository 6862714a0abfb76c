"""Memory of points: the largest batch that is predicted, and its doubts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobkit.answers.loads import Lengths, Loads
from jobkit.answers.memory import NEED, Memory, Prediction, Wanted
from jobkit.answers.memory_line import Fit, Observation, fit_memory
from jobkit.core.records import Outcome
from jobkit.runs.trials import Trial

FIXED, SLOPE = 2e8, 10_000.0


def memory(*loads: float, text: Loads | None = None) -> Memory:
    """Return memory that lies a little off a line, load 100 for each paragraph of the batch."""
    off = (2e6, -3e6, 1e6, 2e6, -2e6)
    told = [
        Observation(load, FIXED + SLOPE * load + off[number % 5], str(load))
        for number, load in enumerate(loads or (2_000, 4_000, 6_000, 8_000, 10_000))
    ]
    return Memory(
        kind=NEED,
        line=fit_memory(told),
        load_by_batch={int(one.load / 100): int(one.load) for one in told},
        loads=text,
    )


def text(paragraphs: int = 1_000, source: str = "tokenizer") -> Loads:
    """Return the loads of a text of which every paragraph is one sentence of 100."""
    return Loads(Lengths(paragraphs=((100,),) * paragraphs, source=source))


def line_of(told: Memory) -> Fit:
    assert isinstance(told.line, Fit)
    return told.line


def test_the_largest_batch_is_that_of_the_largest_load() -> None:
    told = memory()
    found = replace(told, loads=text()).predict(FIXED + SLOPE * 50_000)
    assert found.largest_load == pytest.approx(50_000, rel=0.02)
    assert 0.8 * 50_000 < found.safe_load < found.largest_load
    assert found.safe_batch == int(found.safe_load / 100) < found.largest_batch + 1
    assert found.expected_bytes == line_of(told).at(100 * found.safe_batch)
    assert found.bound_bytes == line_of(told).upper(100 * found.safe_batch) <= found.capacity_bytes
    assert (found.saturated, found.doubts, found.reason) == (False, (), "")


def test_a_load_far_beyond_the_evidence_is_no_doubt_once_it_has_run() -> None:
    told = replace(memory(), loads=text())
    (doubt,) = told.predict(FIXED + SLOPE * 60_000).doubts
    assert doubt.endswith("times the largest load measured: far beyond the evidence")
    ran = Trial(
        index=9, batch_size=600, load=60_000, outcome=Outcome.OK, measured_bytes=1, capacity_bytes=1e9
    )
    assert replace(told, wanted=Wanted(tried=[ran])).predict(FIXED + SLOPE * 60_000).doubts == ()


def test_memory_in_which_the_shortcuts_cannot_be_checked_holds_no_batch() -> None:
    checked = replace(memory(), check_bytes=450_000_000)
    for capacity in (449_999_999, 0, -1):
        found = replace(checked, loads=text()).predict(capacity)
        assert found == Prediction(
            capacity_bytes=capacity, reason="the check of shortcuts alone takes 0.42 GiB"
        )
    assert replace(checked, loads=text()).predict(450_000_000) == replace(memory(), loads=text()).predict(
        450_000_000
    )
    assert replace(memory(), loads=text()).predict(-1).reason == ""


def test_a_margin_lowers_what_is_safe_and_what_the_line_says() -> None:
    whole, less = (
        replace(memory(), loads=text(), wanted=Wanted(margin=margin)).predict(5e8) for margin in (0.0, 0.1)
    )
    assert less.safe_batch < less.largest_batch < whole.largest_batch
    assert less.bound_bytes <= 0.9 * 5e8 < whole.bound_bytes <= 5e8


@pytest.mark.fault
def test_a_curve_is_reported_with_the_batch_size_that_decides() -> None:
    """FAULT: memory grows faster than a line.

    HOW: five exact points with a term in the square of the load.
    REPORTED: the bound follows a curve; jobkit reports this, and which further batch size to measure.
    LOST: nothing; a curve that adds less than about fifty times the scatter is not detected.
    """
    loads = (2_000, 4_000, 6_000, 8_000, 10_000)
    bent = fit_memory([Observation(load, FIXED + SLOPE * load + 0.1 * load**2, str(load)) for load in loads])
    told = replace(memory(), line=bent)
    found = replace(told, loads=text()).predict(1e9)
    assert found.safe_batch < found.largest_batch
    said = "memory grows faster than a straight line over what was measured, so the bound follows a curve"
    assert found.doubts[0] == f"{said}: a sweep with batch_size 200 as well shows how much faster"
    assert replace(told, loads=text()).predict(2.5e8).doubts[0] == said


def test_a_workload_without_lengths_falls_back_to_the_batch_size_and_says_what_that_costs() -> None:
    loads, sizes = Loads(Lengths.unknown(1_000)), (2_000, 4_000, 6_000, 8_000, 10_000)
    told = replace(memory(), load_by_batch={size: size for size in sizes})
    found = replace(told, loads=loads).predict(FIXED + SLOPE * 500)
    assert (found.largest_batch, found.safe_batch) == (int(found.largest_load), int(found.safe_load))
    (doubt,) = found.doubts
    assert doubt.startswith("the load is the batch size")
