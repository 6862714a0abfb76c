"""How many shards a corpus has, how long each takes, and what it requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.extensions.corpus.oversized import OversizedPiece
from jobkit.extensions.corpus.plan import Piece
from jobkit.extensions.corpus.setting import AppliedSetting, find_setting
from jobkit.extensions.corpus.shards import UNKNOWN_BYTES, ShardOptions, plan_shards
from jobkit.planning.resolve import Options
from tests.support.applied import CHARACTERS, measured_run

NUMBER = 400


@pytest.fixture
def setting(tmp_path: Path) -> AppliedSetting:
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


def test_the_measured_speed_says_how_many_shards_there_are(setting: AppliedSetting) -> None:
    """The corpus is the measured text 40 times: 8.1 s of work each time."""
    plan = plan_shards(pieces(), setting, ShardOptions(minutes=2))
    assert len(plan.shards) == 3
    assert plan.each
    assert plan.each.expected_s == pytest.approx(40 * 8.1 / 3 + 0.1, rel=0.02)
    assert plan.each.low_s < plan.each.expected_s < plan.each.high_s  # type: ignore[operator]
    assert plan.shards[0].slow_s > plan.shards[0].high_s  # type: ignore[operator]
    assert plan.whole
    together = sum(shard.expected_s or 0 for shard in plan.shards)
    assert plan.whole.expected_s == pytest.approx(together, rel=1e-6)
    assert plan.resources.walltime >= plan.each.high_s + 60  # type: ignore[operator]


def test_loads_of_eight_shards_of_one_file_are_within_five_percent(setting: AppliedSetting) -> None:
    plan = plan_shards(pieces(1000, 500), setting, ShardOptions(number=8))
    assert len(plan.shards) == 8
    assert plan.spread <= 0.05
    assert [shard.index for shard in plan.shards] == list(range(1, 9))


def test_the_whole_is_the_sum_of_its_shards_with_its_interval(setting: AppliedSetting) -> None:
    plan = plan_shards(pieces(), setting, ShardOptions(number=10))
    assert plan.whole
    for name in ("expected_s", "low_s", "high_s"):
        together = sum(getattr(shard, name) for shard in plan.shards)
        assert getattr(plan.whole, name) == pytest.approx(together)


def test_only_the_first_shard_here_imports_and_on_a_cluster_each(setting: AppliedSetting) -> None:
    """The others are forked from the process that has imported the framework."""
    assert setting.speed
    speed = replace(setting.speed, import_s=7.0, start_s=setting.speed.start_s + 7)
    here = replace(setting, speed=speed, point=replace(setting.point, fork=True))
    cluster = replace(here, spec=setting.spec.model_copy(update={"scheduler": "slurm"}))
    for one, imports in ((here, [7.0, 0, 0]), (cluster, [7.0, 7.0, 7.0])):
        parts = plan_shards(pieces(), one, ShardOptions(number=3)).shards
        works = [8 * part.characters / CHARACTERS for part in parts]
        starts = [(part.expected_s or 0) - work for part, work in zip(parts, works, strict=True)]
        assert starts == pytest.approx(imports, abs=1.5)


def test_what_the_interval_does_not_include_is_named_for_a_cluster(setting: AppliedSetting) -> None:
    assert setting.doubts == ()
    there = replace(setting, spec=setting.spec.model_copy(update={"scheduler": "slurm"}))
    node, neighbours = there.doubts
    assert node == "the 3 repeats ran on one node: another node is not in the interval"
    assert "other jobs" in neighbours
    resources = there.spec.resources.model_copy(update={"exclusive": True})
    assert replace(there, spec=there.spec.model_copy(update={"resources": resources})).doubts == (node,)
    assert replace(there, past=(0.1, -0.05, 0.02)).doubts == ()
    assert replace(there, speed=None).doubts == ()


def test_earlier_corpora_widen_the_interval_by_how_far_they_were_off(setting: AppliedSetting) -> None:
    """Three that were off by 10 %: t of three degrees of freedom is 3.18."""
    found = plan_shards(pieces(), replace(setting, past=(0.1, -0.1, 0.1)), ShardOptions(number=3)).whole
    assert found
    assert (found.high_s or 0) / found.expected_s == pytest.approx(1.318, abs=0.001)
    two = plan_shards(pieces(), replace(setting, past=(0.1, -0.1)), ShardOptions(number=3)).whole
    assert two
    assert (two.high_s or 0) / two.expected_s < 1.1


def test_memory_has_the_window_and_walltime_the_interval_unless_a_person_gives_them(
    setting: AppliedSetting,
) -> None:
    wide = replace(setting, spec=setting.spec.model_copy(update={"sort_window": 400}))
    sizes = [plan_shards(pieces(), one, ShardOptions(number=1)).resources.memory for one in (setting, wide)]
    assert setting.peak_bytes
    assert sizes[0] > setting.peak_bytes
    assert sizes[1] >= sizes[0]
    given = replace(setting, given=("resources.memory", "resources.walltime"))
    resources = plan_shards(pieces(), given, ShardOptions(number=1)).resources
    assert (resources.memory, resources.walltime) == (2**30, 120)


def test_without_a_speed_shards_are_cut_by_bytes(setting: AppliedSetting) -> None:
    unknown = replace(setting, speed=None, peak_bytes=None)
    plan = plan_shards(pieces(), unknown, ShardOptions())
    assert len(plan.shards) == -(-NUMBER * (CHARACTERS // 10) // UNKNOWN_BYTES)
    assert (plan.each, plan.whole, plan.shards[0].expected_s) == (None, None, None)
    assert plan.resources == setting.spec.resources


def test_a_piece_that_needs_more_has_a_shard_of_its_own_behind_the_others(setting: AppliedSetting) -> None:
    parts = pieces(10)
    plan = plan_shards(parts, setting, ShardOptions(number=3), heavy=[OversizedPiece(parts[4], "here", 9, 9)])
    assert [len(shard.pieces) for shard in plan.shards] == [3, 3, 3, 1]
    assert plan.shards[-1].pieces == (parts[4],)
    assert (plan.even, plan.needs) == (3, {})
