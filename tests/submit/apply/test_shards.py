"""How many shards a corpus has, how long each takes, and what it requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.corpus.plan import Piece
from jobkit.planning.resolve import Options
from jobkit.submit.apply.heavy import Heavy
from jobkit.submit.apply.setting import Setting, find_setting
from jobkit.submit.apply.shards import UNKNOWN_BYTES, Wishes, plan_shards
from tests.support.applied import CHARACTERS, measured_run

NUMBER = 400


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return find_setting(measured_run(tmp_path / "run"), Options(), build=False, say=lambda _: None)


def pieces(number: int = NUMBER, characters: int = CHARACTERS // 10) -> list[Piece]:
    return [
        Piece(
            source=0,
            start=at * (characters + 2),
            end=at * (characters + 2) + characters,
            paragraphs=1,
            characters=characters,
            longest=characters,
            sha256="",
        )
        for at in range(number)
    ]


def test_the_measured_speed_says_how_many_shards_there_are(setting: Setting) -> None:
    """The corpus is the measured text 40 times: 8.1 s of work each time."""
    plan = plan_shards(pieces(), setting, Wishes(minutes=2))
    assert len(plan.shards) == 3
    assert plan.each
    assert plan.each.expected_s == pytest.approx(40 * 8.1 / 3 + 0.1, rel=0.02)
    assert plan.each.low_s < plan.each.expected_s < plan.each.high_s  # type: ignore[operator]
    assert plan.shards[0].slow_s > plan.each.high_s  # type: ignore[operator]
    assert plan.whole
    together = sum(shard.expected_s or 0 for shard in plan.shards)
    assert plan.whole.expected_s == pytest.approx(together, rel=1e-6)
    assert plan.resources.walltime >= plan.each.high_s + 60  # type: ignore[operator]


def test_loads_of_eight_shards_of_one_file_are_within_five_percent(setting: Setting) -> None:
    plan = plan_shards(pieces(1000, 500), setting, Wishes(number=8))
    assert len(plan.shards) == 8
    assert plan.spread <= 0.05
    assert [shard.index for shard in plan.shards] == list(range(1, 9))


def test_the_whole_is_less_certain_than_one_shard_and_more_than_all_at_their_worst(setting: Setting) -> None:
    plan = plan_shards(pieces(), setting, Wishes(number=10))
    assert plan.whole
    half = (plan.whole.high_s or 0) - plan.whole.expected_s
    each = (plan.each.high_s or 0) - plan.each.expected_s if plan.each else 0
    assert each < half < 10 * each


def test_memory_has_the_window_and_walltime_the_interval_unless_a_person_gives_them(setting: Setting) -> None:
    wide = replace(setting, spec=setting.spec.model_copy(update={"sort_window": 400}))
    sizes = [plan_shards(pieces(), one, Wishes(number=1)).resources.memory for one in (setting, wide)]
    assert setting.peak_bytes
    assert sizes[0] > setting.peak_bytes
    assert sizes[1] >= sizes[0]
    given = replace(setting, given=("resources.memory", "resources.walltime"))
    resources = plan_shards(pieces(), given, Wishes(number=1)).resources
    assert (resources.memory, resources.walltime) == (2**30, 120)


def test_without_a_speed_shards_are_cut_by_bytes(setting: Setting) -> None:
    unknown = replace(setting, speed=None, peak_bytes=None)
    plan = plan_shards(pieces(), unknown, Wishes())
    assert len(plan.shards) == -(-NUMBER * (CHARACTERS // 10) // UNKNOWN_BYTES)
    assert (plan.each, plan.whole, plan.shards[0].expected_s) == (None, None, None)
    assert plan.resources == setting.spec.resources


def test_a_piece_that_needs_more_has_a_shard_of_its_own_behind_the_others(setting: Setting) -> None:
    parts = pieces(10)
    plan = plan_shards(parts, setting, Wishes(number=3), heavy=[Heavy(parts[4], "here", 9, 9)])
    assert [len(shard.pieces) for shard in plan.shards] == [3, 3, 3, 1]
    assert plan.shards[-1].pieces == (parts[4],)
    assert (plan.even, plan.needs) == (3, {})
