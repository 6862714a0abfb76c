"""The repeats of a setting: their means, intervals and differences, and what is in no mean."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jobkit.answers.setting import Mean, key_of, other_knobs, settings_of
from jobkit.core.figures import BATCH_P95, SPEED, WORK
from jobkit.core.records import Outcome
from tests.support.builders import grid, point, record


def test_repeats_of_a_setting_share_all_knobs_and_only_those_that_succeeded_have_a_mean() -> None:
    points = grid([50, 100], repeats=3)
    tries = [record(point, work_s=float(point.repeat)) for point in points]
    last = replace(tries[-1], outcome=Outcome.GPU_OOM)
    settings = settings_of([*tries[:-1], last])
    small, large = settings.values()
    assert [one.params for one in (small, large)] == [{"batch_size": 50}, {"batch_size": 100}]
    assert settings[key_of({"batch_size": 100})] is large
    assert (small.n, small.outcomes, large.n, large.outcomes) == (3, "ok", 2, "2 ok, 1 gpu_oom")
    mean = large.mean(WORK)
    assert mean
    assert (mean.value, mean.n) == (1.5, 2)


def test_a_repeat_without_a_figure_is_missing_and_no_zero() -> None:
    one, other = (record(point) for point in grid([50], repeats=2))
    assert one.summary
    (setting,) = settings_of([replace(one, summary=None), other]).values()
    assert (setting.n, setting.values(SPEED)) == (2, (other.value(SPEED),))
    (none,) = settings_of([replace(one, summary=None)]).values()
    assert (none.n, none.mean(BATCH_P95)) == (1, None)


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
