"""What a setting is chosen by: figures, differences and bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.measurements import DIRECTIONS, Attribution, Energy, Memory, Metric
from jobkit.core.records import Outcome, Record
from jobkit.core.units import GIB
from jobkit.fit.objective import (
    FIGURES,
    LARGEST,
    Bound,
    Finals,
    Objective,
    difference,
    figure,
    format_figure,
    mean_words,
    reported,
    units_of,
)
from tests.support.builders import point, record

VALUES = st.lists(st.floats(-LARGEST, LARGEST), min_size=1, max_size=6)


def reporting(unit: str = "1", **values: float) -> Record:
    return replace(record(point()), metrics={name: Metric(value=v, unit=unit) for name, v in values.items()})


def without_items() -> Record:
    one_try = record(point())
    assert one_try.summary
    return replace(one_try, summary=replace(one_try.summary, items=0, items_per_s=0.0))


def test_every_figure_of_a_spec_can_be_read() -> None:
    assert FIGURES.keys() == DIRECTIONS.keys()


def test_figures_have_the_names_of_the_spec() -> None:
    energy = Energy(span_s=8.0, counter_j=881.0, attribution=Attribution.OWN)
    one_try = replace(record(point()), energy=energy, memory=Memory(process_peak_bytes=3 * GIB))
    assert one_try.summary
    found = {name: figure(one_try, name) for name in FIGURES}
    assert found == {
        "items_per_s": one_try.summary.items_per_s,
        "work_s": 8.0,
        "batch_p95": one_try.summary.batch_p95_s,
        "joules_per_1000": pytest.approx(1000),
        "gpu_memory": 3 * GIB,
    }
    assert figure(one_try, "f1") is None
    assert figure(reporting(f1=0.9), "f1") == 0.9
    assert figure(replace(one_try, summary=None), "work_s") is None
    assert figure(without_items(), "items_per_s") is None
    assert figure(without_items(), "joules_per_1000") is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e101, -1e101, 10**400])
def test_a_value_with_which_nothing_can_be_computed_is_left_out(value: float) -> None:
    assert reported(reporting(f1=value, other=2)) == {"other": Metric(value=2.0, unit="1")}
    assert reported(None) == {}


@given(VALUES, VALUES)
def test_a_difference_is_the_same_from_both_sides_and_its_interval_holds_it(
    first: list[float], other: list[float]
) -> None:
    there, back = difference(first, other), difference(other, first)
    assert there.mean == -back.mean
    assert there.differs is back.differs
    if min(len(first), len(other)) == 1:
        assert (there.low, there.high, there.differs) == (None, None, None)
    else:
        assert there.low is not None
        assert there.high is not None
        assert back.high is not None
        assert there.low <= there.mean <= there.high
        assert there.low == -back.high


def test_a_difference_has_the_interval_of_welch() -> None:
    """Variances of the means 1/3 and 4/3: 2.94 degrees, in whole numbers 2, of which t is 4.303."""
    found = difference((9, 10, 11), (3, 5, 7))
    half = 4.302653 * math.sqrt(5 / 3)
    assert [found.mean, found.low, found.high] == pytest.approx([5, 5 - half, 5 + half])
    assert not found.differs
    assert difference((0.9, 0.9), (0.8, 0.8)).differs
    assert not difference((0.9, 0.9), (0.9, 0.9)).differs


@given(st.floats(-LARGEST, LARGEST), st.floats(-LARGEST, LARGEST))
def test_the_better_mean_has_the_higher_rank_unless_only_rounding_differs(one: float, other: float) -> None:
    for direction, better in (("max", one > other), ("min", one < other)):
        objective = Objective(metric="f1", direction=direction)
        if objective.rank(one) > objective.rank(other):
            assert better
        elif better:
            assert math.isclose(one, other, rel_tol=1e-11)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"f1": Bound(min=0.9)}, "f1 0.85 is under 0.9"),
        ({"f1": Bound(max=0.8)}, "f1 0.85 is over 0.8"),
        ({"f1": Bound(min=0.8, max=0.9)}, ""),
        ({"f2": Bound(min=0.8)}, "f2 is not known"),
        ({"work_s": Bound(max=5)}, "work_s 8 s is over 5 s"),
        ({"gpu_memory": Bound(max=GIB)}, "gpu_memory 1.50 GiB is over 1.00 GiB"),
        ({"joules_per_1000": Bound(max=1)}, ""),
        ({"f1": Bound(min=0.9), "work_s": Bound(max=5)}, "f1 0.85 is under 0.9; work_s 8 s is over 5 s"),
    ],
)
def test_a_setting_whose_mean_is_beyond_a_bound_breaks_it(bounds: dict[str, Bound], words: str) -> None:
    failed = replace(reporting(f1=5.0), outcome=Outcome.TIMEOUT)
    assert Objective(bounds=bounds).broken([reporting(f1=0.8), reporting(f1=0.9), failed]) == words


def test_a_speed_that_is_not_known_keeps_no_bound() -> None:
    assert (
        Objective(bounds={"items_per_s": Bound(min=1)}).broken([without_items()])
        == "items_per_s is not known"
    )


def test_figures_of_several_units_are_not_compared() -> None:
    both = [reporting("s", latency=1), reporting("ms", latency=900)]
    assert units_of(both, "latency") == ["ms", "s"]
    words = Objective(bounds={"latency": Bound(max=1)}).broken(both)
    assert words == "latency has several units: ms, s"


def test_figures_in_words() -> None:
    assert format_figure(1234567.0) == "1.235e+06"
    assert format_figure(0.91234, "1", 0.00512) == "0.9123 ± 0.0051"
    assert format_figure(12.5, "ms") == "12.5 ms"
    assert format_figure(3 * GIB, "bytes", GIB / 2) == "3.00 GiB ± 512.0 MiB"
    assert mean_words((1.0,), "s") == "1 s (n=1)"
    assert mean_words((1.0, 1.0), "") == "1 ± 0 (n=2)"


def finals(loop: list[float], other: list[float], objective: Objective, **changes: Any) -> Finals:
    """Return the finals of one setting and the plain loop, with their f1."""
    plain, better = {"batch_size": 300}, {"batch_size": 50}
    records = [
        replace(record(point(params=params), **changes), metrics={"f1": Metric(value=value)})
        for params, values in ((plain, loop), (better, other))
        for value in values
    ]
    return Finals(objective=objective, loop=plain, looks=3, records=records)


@pytest.mark.parametrize(
    ("loop", "other", "better", "loop_wins"),
    [
        ([0.8, 0.81, 0.79], [0.9, 0.91, 0.89], True, False),
        ([0.9, 0.91, 0.89], [0.8, 0.81, 0.79], False, True),
        ([0.9, 0.5, 0.7], [0.8, 0.81, 0.79], None, True),
        ([0.9], [0.95], None, True),
    ],
)
def test_a_finalist_wins_only_if_it_is_shown_to_be_better(
    loop: list[float],
    other: list[float],
    better: bool | None,  # noqa: FBT001 - a parameter of the test
    loop_wins: bool,  # noqa: FBT001
) -> None:
    found = finals(loop, other, Objective(metric="f1", direction="max"))
    assert found.comparison
    assert (found.comparison.better, found.winner == found.plain) == (better, loop_wins)
    assert found.decided == (better is not None)
    turned = finals(loop, other, Objective(metric="f1", direction="min"))
    assert turned.comparison
    assert turned.comparison.better == (None if better is None else not better)


def test_of_equal_values_the_faster_is_the_better() -> None:
    equal = finals([0.9] * 3, [0.9] * 3, Objective(metric="f1", direction="max"))
    assert equal.comparison
    assert (equal.comparison.better, equal.winner == equal.plain) == (None, True)
    faster = replace(equal, records=[*equal.records[:3], *map(_twice_as_fast, equal.records[3:])])
    assert faster.comparison
    assert faster.comparison.better


def _twice_as_fast(one: Record) -> Record:
    assert one.summary
    return replace(one, summary=replace(one.summary, work_s=one.summary.work_s / 2))


def test_settings_without_a_time_cannot_be_compared() -> None:
    equal = finals([0.9] * 3, [0.9] * 3, Objective(metric="f1", direction="max"))
    still = [
        replace(one, summary=replace(one.summary, work_s=0.0, items=0))
        for one in equal.records
        if one.summary
    ]
    nothing = replace(equal, records=still).comparison
    assert nothing
    assert nothing.better is None


def test_a_plain_loop_that_breaks_a_constraint_or_is_missing_needs_no_comparison() -> None:
    bounds = {"f1": Bound(min=0.85)}
    broken = finals([0.8] * 2, [0.9] * 2, Objective(bounds=bounds))
    assert (broken.winner, broken.decided) == (broken.kept[0], True)
    missing = replace(broken, records=broken.records[2:])
    assert (missing.winner, missing.decided, missing.comparison) == (missing.kept[0], True, None)
    assert finals([0.8], [0.8], Objective(bounds=bounds)).winner is None
