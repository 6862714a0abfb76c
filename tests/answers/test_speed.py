from __future__ import annotations

import math
from dataclasses import replace
from math import exp, sqrt

import pytest

from jobkit.answers import speed as fit
from jobkit.answers.setting import Mean, other_knobs
from jobkit.answers.speed import Speed, speeds
from jobkit.core.records import Outcome, Record
from tests.support.builders import grid, point, record


def speed(*rates: float, size: int = 50, start_s: float = 0.0) -> Speed:
    """Return the speed of repeats at so many paragraphs a second."""
    points = [replace(point(params={"batch_size": size}), repeat=n) for n in range(len(rates))]
    told = [
        replace(record(p, work_s=881 / rate), load_s=start_s) for p, rate in zip(points, rates, strict=True)
    ]
    (found,) = speeds(told)
    return found


def test_repeats_are_one_setting_and_the_smallest_stands_first() -> None:
    told: list[Record] = [record(p, work_s=9 - p.repeat) for p in grid([100, 50], repeats=2)]
    small, large = speeds(told)
    assert (small.setting, large.setting) == ("batch_size 50", "batch_size 100")
    assert small.items_per_s == pytest.approx((881 / 8 + 881 / 7) / 2)
    assert small.items_per_s_sd == pytest.approx(abs(881 / 8 - 881 / 7) / sqrt(2))
    assert small.seconds_per_character == pytest.approx((8 / 170_000, 7 / 170_000))
    assert (small.repeats, small.load, small.start_s) == (2, 45_000, 4)


def test_a_start_has_the_import_that_forked_tries_did_without() -> None:
    seconds = {50: 3.0, 100: 0.1}
    told = [replace(record(p), import_s=seconds[p.numbers["batch_size"]]) for p in grid([50, 100])]
    assert [one.start_s for one in speeds(told)] == [7.0, 7.0]


def test_only_what_went_well_and_has_figures_counts() -> None:
    well = record(point())
    assert well.summary
    none = replace(well, summary=replace(well.summary, items=0))
    assert speeds([replace(well, outcome=Outcome.GPU_OOM), replace(well, summary=None), none]) == ()
    bare = replace(well.summary, characters=0, load_max=None)
    (alone,) = speeds([replace(well, load_s=None, summary=bare)])
    assert (alone.items_per_s_sd, alone.load, alone.start_s) == (None, None, 0)
    assert alone.seconds_per_character == ()


def test_the_smallest_within_five_percent_is_taken() -> None:
    found = (speed(90, size=20), speed(96, size=50), speed(100, size=100), speed(99, size=200))
    assert fit.fastest(found).params == {"batch_size": 100}
    assert fit.recommended(found).params == {"batch_size": 50}


def test_a_difference_within_the_scatter_is_none() -> None:
    for one, other, told in (
        ((100, 102), (101, 103), False),
        ((100, 102, 101), (201, 203, 202), True),
        ((100, 100), (200, 200), True),
        ((100, 100), (100, 100), False),
        ((100,), (200, 201), None),
        ((100, 101), (200,), None),
    ):
        assert fit.differ(speed(*one), speed(*other)) is told


def test_a_ratio_has_the_interval_of_welch_for_the_logarithms() -> None:
    """Relative variances of the means: 0.02^2 / 3 and 0.01^2 / 3, so 2.94 degrees, in whole numbers 2."""
    found = fit.ratio(speed(196, 200, 204), speed(99, 100, 101))
    assert found
    factor = exp(4.302653 * sqrt((0.02**2 + 0.01**2) / 3))
    assert found.mean == pytest.approx(2)
    assert [found.low, found.high] == pytest.approx([2 / factor, 2 * factor])
    inverse = fit.ratio(speed(99, 100, 101), speed(196, 200, 204))
    assert inverse
    assert [inverse.low, inverse.high] == pytest.approx([1 / (2 * factor), factor / 2])


def test_time_has_an_interval_for_one_run_to_come() -> None:
    # Seconds a paragraph 0.009 and 0.011: sd 0.00141; t of one degree of freedom 12.706.
    found = fit.duration(speed(1 / 0.009, 1 / 0.011, start_s=4), items=1_000)
    half = 1_000 * 0.002 / sqrt(2) * 12.7062 * sqrt(1.5)
    assert found.expected_s == pytest.approx(14)
    assert found.low_s == 4, "never less than it takes to start"
    assert found.high_s == pytest.approx(14 + half, rel=1e-4)
    assert (found.start_s, found.repeats) == (4, 2)


@pytest.mark.parametrize(("host", "said"), [("n1", True), ("", False)])
def test_only_repeats_of_known_nodes_are_said_to_be_of_one_node(host: str, *, said: bool) -> None:
    (found,) = speeds([replace(record(one), host=host) for one in grid([50], repeats=2)])
    doubts = fit.not_sampled(found, elsewhere=True, shared=False)
    assert any("ran on one node" in doubt for doubt in doubts) == said


def test_the_start_scatters_too() -> None:
    """Three repeats that work alike and start apart: each lies in the interval."""
    one = speed(100, 100, 100)
    one = replace(one, start_s=6.0, starts_s=(4.0, 6.0, 8.0), start_scatter=None)
    found = fit.duration(one, items=881)
    assert found.expected_s == pytest.approx(6 + 8.81)
    half = 2 * 4.30265 * sqrt(4 / 3)
    assert found.high_s == pytest.approx(found.expected_s + half, rel=1e-4)
    assert found.low_s == pytest.approx(found.expected_s - half, rel=1e-4)


def test_characters_tell_the_work_better_where_they_are_known() -> None:
    found = fit.duration(speed(100), items=1, characters=2 * 170_000)
    assert found.expected_s == pytest.approx(2 * 8.81)
    silent = replace(speed(100), seconds_per_character=())
    assert fit.duration(silent, items=100, characters=170_000).expected_s == pytest.approx(1)


def test_the_upper_end_of_a_part_of_all_runs() -> None:
    time = fit.duration(speed(90, 100, 110), items=1_000)
    assert time.high_s is not None
    assert fit.upper(time, 0.975) == pytest.approx(time.high_s, rel=1e-3)
    assert (fit.upper(time, 0.99) or 0) > time.high_s
    assert fit.upper(fit.duration(speed(100), items=1_000), 0.99) is None


def test_the_whole_is_the_sum_of_its_parts() -> None:
    """A node or a day may slow all parts in the same way, so their intervals add up."""
    one = replace(speed(90, 100, 110), start_s=5.0, starts_s=(5.0, 5.0, 5.0))
    part, last = fit.duration(one, items=250), fit.duration(one, items=100)
    whole = fit.total([part, part, last])
    for name in ("expected_s", "low_s", "high_s", "start_s"):
        assert getattr(whole, name) == pytest.approx(2 * getattr(part, name) + getattr(last, name))
    unknown = fit.total([fit.duration(speed(100), items=250)] * 4)
    assert (unknown.low_s, unknown.high_s) == (None, None)


def test_a_start_is_all_of_the_job_that_is_neither_work_nor_import() -> None:
    """In runs that were copied without their times only loading and warm-up are known."""
    alone = replace(record(point(), work_s=8.0), load_s=4.0, warm_up_s=1.0, memory_wait_s=0.5, import_s=2.0)
    assert fit.start_of(alone) == 5.5
    assert fit.start_of(replace(alone, task_s=20.0)) == 10.0
    assert fit.start_of(replace(alone, task_s=9.0)) == 5.5, "never below what loading takes"


def test_one_process_forked_from_another_does_without_the_import() -> None:
    one = replace(speed(100, 100, start_s=4), import_s=3.0, start_s=7.0, starts_s=(7.0, 7.0))
    fresh, forked = fit.duration(one, items=1_000), fit.duration(one, items=1_000, forked=True)
    assert (fresh.expected_s, forked.expected_s) == pytest.approx((17, 14))
    assert fresh.low_s == pytest.approx(14), "a node that has imported before has the files in its memory"


def test_starts_of_all_points_with_as_many_workers_and_works_of_their_settings_are_pooled() -> None:
    told = [
        replace(record(p, work_s=8.0 + p.repeat / 10), load_s=3.0 + p.index)
        for p in grid([50, 100], repeats=2)
    ]
    one, other = speeds(told)
    assert one.start_scatter
    assert one.start_scatter == other.start_scatter
    assert one.start_scatter[1] == 3
    assert one.work_scatter
    assert one.work_scatter[1] == 2
    assert one.work_scatter[0] == pytest.approx(0.1 / sqrt(2) / 8.15, rel=1e-3)
    apart = [replace(r, point=replace(r.point, workers=r.point.numbers["batch_size"])) for r in told]
    assert [found.start_scatter and found.start_scatter[1] for found in speeds(apart)] == [1, 1]


def test_other_knobs_keep_points_apart_unless_they_took_no_effect() -> None:
    one = record(point(params={"batch_size": 50, "workers": 2, "order": "text"}))
    assert other_knobs(one) == "order text, workers 2"
    assert other_knobs(one, "workers") == "batch_size 50, order text"
    assert other_knobs(replace(one, inert=("order",))) == "workers 2"
    assert other_knobs(record(point(params={"batch_size": 50}))) == ""
    for params, words in (({"workers": 2}, ""), ({"precision": "bf16"}, "precision bf16")):
        assert other_knobs(replace(one, point=replace(one.point, params=params))) == words


def test_a_difference_has_the_interval_of_welch() -> None:
    """Variances of the means 1/3 and 4/3: 2.94 degrees, in whole numbers 2, of which t is 4.303."""
    found = Mean.of((9, 10, 11)).minus(Mean.of((3, 5, 7)))
    half = 4.302653 * math.sqrt(5 / 3)
    assert [found.mean, found.low, found.high] == pytest.approx([5, 5 - half, 5 + half])
    assert not found.differs
    assert Mean.of((0.9, 0.9)).minus(Mean.of((0.8, 0.8))).differs
    assert not Mean.of((0.9, 0.9)).minus(Mean.of((0.9, 0.9))).differs
