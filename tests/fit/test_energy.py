from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.measurements import Attribution, Energy
from jobkit.fit.energy import disagreement, front, joules, uses
from jobkit.outcome.overlaps import attributed
from tests.support.builders import ITEMS, grid, point, record, with_shortcuts

ENERGY = Energy(span_s=100, counter_j=9_000, power_j=9_100, idle_w=70, attribution=Attribution.OWN)


@pytest.mark.parametrize(
    ("energy", "found"),
    [
        (ENERGY, (9_000, 2_000)),
        (attributed(ENERGY, None), (9_000, 2_000)),
        (attributed(ENERGY, 0), (9_000, 2_000)),
        (attributed(ENERGY, 1), (None, None)),
        (replace(ENERGY, attribution=Attribution.UNKNOWN), (9_000, 2_000)),
        (replace(ENERGY, attribution=Attribution.NOT_ATTRIBUTABLE), (None, None)),
        (replace(ENERGY, counter_j=None), (9_100, 2_100)),
        (replace(ENERGY, idle_w=None), (9_000, None)),
        (replace(ENERGY, idle_w=90), (9_000, None)),
        (replace(ENERGY, counter_j=None, power_j=None), (None, None)),
        (None, (None, None)),
    ],
)
def test_what_is_attributable_and_what_is_net_of_it(
    energy: Energy | None, found: tuple[float | None, float | None]
) -> None:
    assert joules(energy) == found


def test_points_at_the_same_time_are_the_reason_if_there_is_none_before() -> None:
    shared = attributed(ENERGY, 2)
    assert shared.attribution is Attribution.NOT_ATTRIBUTABLE
    assert shared.reason == "2 other points ran at the same time on the GPU"
    mig = replace(ENERGY, attribution=Attribution.NOT_ATTRIBUTABLE, reason="MIG")
    assert attributed(mig, 2) == mig


@pytest.mark.parametrize(
    ("energy", "share"),
    [
        (ENERGY, None),
        (replace(ENERGY, power_j=9_460), pytest.approx(460 / 9_000)),
        (replace(ENERGY, power_j=8_540), pytest.approx(460 / 9_000)),
        (replace(ENERGY, power_j=18_000, span_s=59.9), None),
        (replace(ENERGY, power_j=None), None),
        (replace(ENERGY, counter_j=None), None),
        (replace(ENERGY, counter_j=0), None),
    ],
)
def test_the_instruments_disagree_beyond_five_percent_over_a_minute(
    energy: Energy, share: float | None
) -> None:
    assert disagreement(energy) == share


def test_the_front_is_what_no_other_setting_beats_in_both() -> None:
    settings = [(1.0, 9.0), (2.0, 5.0), (2.0, 6.0), (3.0, 5.0), (4.0, 1.0), (None, 0.0), (0.5, None)]
    assert front(settings) == [True, True, False, False, True, None, None]


Value = st.none() | st.integers(0, 4).map(float)


@given(st.lists(st.tuples(Value, Value), max_size=8))
def test_whatever_is_not_on_the_front_is_beaten_by_something_on_it(
    settings: list[tuple[float | None, float | None]],
) -> None:
    known = [one for one in settings if None not in one]
    marks = dict(zip(settings, front(settings), strict=True))
    assert {one for one, mark in marks.items() if mark is None} == set(settings) - set(known)
    best = [(time, energy) for (time, energy), mark in marks.items() if mark and time is not None]
    assert bool(best) == bool(known)
    for time, energy in known:
        assert time is not None
        assert energy is not None
        at_least = [one for one in best if one[0] <= time and (one[1] or 0.0) <= energy]
        assert at_least, "of equal settings all are on the front"


def test_the_energy_of_a_setting_is_the_mean_of_its_repeats() -> None:
    energies = [ENERGY, replace(ENERGY, counter_j=11_000, idle_w=None), replace(ENERGY, counter_j=None)]
    records = [replace(record(of), energy=energy) for of, energy in zip(grid([50], 3), energies, strict=True)]
    [first] = uses(records[:1])
    assert (first.params, first.repeats, first.counted) == ({"batch_size": 50}, 1, True)
    assert first.per_1000_j == pytest.approx(9_000_000 / ITEMS)
    assert first.net_per_1000_j == pytest.approx(2_000_000 / ITEMS)
    assert first.per_1000_j_sd is None
    [both] = uses(records[:2])
    assert both.per_1000_j == pytest.approx(10_000_000 / ITEMS)
    assert both.per_1000_j_sd == pytest.approx(2**0.5 * 1_000_000 / ITEMS)
    assert both.net_per_1000_j is None
    [sampled] = uses(records[2:])
    assert sampled.counted is False


def test_the_energy_without_shortcuts_that_were_refused_is_apart() -> None:
    told = replace(record(point()), energy=ENERGY)
    settings = uses([with_shortcuts(told), with_shortcuts(told, "why"), with_shortcuts(told)])
    assert {one.params.get("shortcuts"): one.repeats for one in settings} == {None: 2, "refused": 1}


def test_repeats_without_energy_or_items_are_left_out() -> None:
    one = replace(record(point()), energy=ENERGY)
    assert one.summary
    shared = replace(one, energy=attributed(ENERGY, 1))
    assert uses([replace(one, energy=None), replace(one, summary=None), shared]) == ()
    assert uses([replace(one, summary=replace(one.summary, items=0))]) == ()


def test_the_energy_of_a_text_goes_by_its_characters_if_they_are_known() -> None:
    one = replace(record(point()), energy=ENERGY)
    assert one.summary
    [use] = uses([one])
    assert use.of(ITEMS, None) == pytest.approx(9_000)
    assert use.of(ITEMS, 2 * 170_000) == pytest.approx(18_000)
    [unknown] = uses([replace(one, summary=replace(one.summary, characters=0))])
    assert unknown.of(ITEMS, 2 * 170_000) == pytest.approx(9_000)
