"""What a setting is chosen by: figures, differences and bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.answers.objective import Bound, Finals, Objective, read_search
from jobkit.answers.setting import Setting
from jobkit.core.figures import LARGEST
from jobkit.core.layout import TUNE_GOAL_FILE
from jobkit.core.measurements import Metric
from jobkit.core.records import Outcome, Record
from jobkit.core.units import GIB
from tests.support.builders import point, record, summary
from tests.support.machines import Machine, search


def reporting(unit: str = "1", **values: float) -> Record:
    return replace(record(point()), metrics={name: Metric(value=v, unit=unit) for name, v in values.items()})


def setting(*records: Record) -> Setting[Record]:
    return Setting(points=records)


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
    assert Objective(bounds=bounds).broken(setting(reporting(f1=0.8), reporting(f1=0.9), failed)) == words
    both = setting(reporting("s", latency=1), reporting("ms", latency=900))
    several = Objective(bounds={"latency": Bound(max=1)}).broken(both)
    assert several == "latency has several units: ms, s"


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
    ("loop", "better"),
    [([0.7] * 3, True), ([0.9, 0.91, 0.89], False), ([0.9, 0.5, 0.7], None), ([0.7], None)],
)
def test_a_finalist_wins_only_if_it_is_shown_to_be_better(loop: list[float], *, better: bool | None) -> None:
    for direction, sign in (("max", better), ("min", None if better is None else not better)):
        found = finals(loop, [0.8, 0.81, 0.79], Objective(metric="f1", direction=direction))
        assert found.comparison
        assert (found.comparison.better, found.winner == found.plain) == (sign, not sign)
        assert found.decided == (better is not None)


def test_of_equal_values_the_faster_is_the_better() -> None:
    equal = finals([0.9] * 3, [0.9] * 3, Objective(metric="f1", direction="max"))
    assert equal.comparison
    assert (equal.comparison.better, equal.winner == equal.plain) == (None, True)
    faster = replace(equal, records=[*equal.records[:3], *map(_twice_as_fast, equal.records[3:])])
    assert faster.comparison
    assert faster.comparison.better
    still = [replace(one, summary=replace(SUMMARY, work_s=0.0, items=0)) for one in equal.records]
    nothing = replace(equal, records=still).comparison
    assert nothing
    assert nothing.better is None, "without a time"


SUMMARY = summary(50, 8.0, 45_000)


def _twice_as_fast(one: Record) -> Record:
    assert one.summary
    return replace(one, summary=replace(one.summary, work_s=one.summary.work_s / 2))


def test_a_plain_loop_that_breaks_a_constraint_or_is_missing_needs_no_comparison() -> None:
    bounds = {"f1": Bound(min=0.85)}
    broken = finals([0.8] * 2, [0.9] * 2, Objective(bounds=bounds))
    assert (broken.winner, broken.decided) == (broken.kept[0], True)
    missing = replace(broken, records=broken.records[2:])
    assert (missing.winner, missing.decided, missing.comparison) == (missing.kept[0], True, None)
    assert finals([0.8], [0.8], Objective(bounds=bounds)).winner is None


def test_the_answer_rests_on_the_last_phase_and_another_objective_may_choose_another(tmp_path: Path) -> None:
    run, slowest = search(tmp_path, Machine()), Objective(direction="min")
    found, other = read_search(run), read_search(run, slowest)
    assert found
    assert [found.rank(phase) for phase in (None, "", *found.phases)] == [0, 0, 1, 2, 3]
    assert [found.rests_on(phase) for phase in (None, *found.phases)] == [False, False, False, True]
    assert all(found.rests_on(record.point.phase) for record in found.finals.winner_records)
    assert other
    assert other.finals.objective == slowest
    assert other.setting != found.setting
    (run / TUNE_GOAL_FILE).unlink()
    assert read_search(run) is None, "a sweep is no search"
