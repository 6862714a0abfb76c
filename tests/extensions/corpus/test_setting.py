"""The setting that works through a corpus, how many shards it gets, and what each requests."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.answers.memory import RAM, Memory, Wanted
from jobkit.answers.memory_line import Observation, fit_memory
from jobkit.core.errors import JobkitError
from jobkit.core.units import GIB, MIB
from jobkit.extensions.corpus import apply
from jobkit.extensions.corpus.plan import Piece, cut_loads
from jobkit.extensions.corpus.replan import grow
from jobkit.extensions.corpus.setting import MOST_WINDOW, AppliedSetting, find_setting
from jobkit.extensions.corpus.shards import (
    MEASURED,
    UNKNOWN,
    ShardOptions,
    find_heavy,
    longest_item,
    memory_of,
    plan_shards,
    refuse_too_large,
)
from jobkit.planning.prepare import Options
from jobkit.runs.journal import read_journal
from jobkit.runs.results import read_run
from tests.support.applied import CHARACTERS, OUT, SPEC, measured_run, request, write_corpus
from tests.support.builders import ITEMS, with_shortcuts, write_record


def found(word: Path, *overrides: str, **options: str) -> AppliedSetting:
    return find_setting(word, Options(overrides=overrides, **options), build=False)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return measured_run(tmp_path / "run")


def test_a_run_gives_what_recommend_names_and_what_was_measured(run: Path) -> None:
    setting = found(run)
    assert (setting.words, setting.point.params) == ("batch_size 50", {"batch_size": 50})
    assert setting.speed
    assert setting.speed.repeats == 3
    assert setting.peak_bytes
    assert setting.point.shard
    assert not setting.point.kind.swept
    assert setting.point.sort_window == setting.spec.sort_window == min(MOST_WINDOW, ITEMS)
    assert (setting.spec.repeats, setting.spec.find_max, setting.spec.pack) == (1, None, 1)


def test_a_request_may_change_and_the_setting_only_by_a_file_of_tune(run: Path) -> None:
    setting = found(run, "resources.cpus=4", "resources.memory=2GiB")
    assert (setting.spec.resources.cpus, setting.point.threads) == (4, 1)
    assert setting.given == ("resources.cpus", "resources.memory")
    for word in ("order=text", "text=a.txt"):
        with pytest.raises(JobkitError, match="belongs to the setting"):
            found(run, word)
    (run / "setting.yaml").write_text("workers: 2\nsweep:\n  batch_size: [10]\n", encoding="utf-8")
    setting = found(run)
    assert (setting.point.params, setting.point.workers) == ({"batch_size": 10}, 2)


def test_a_setting_whose_shortcuts_were_refused_has_none(run: Path) -> None:
    """With them its shards would end at once."""
    for result in read_run(run).points:
        assert result.record
        write_record(run, with_shortcuts(result.record, "another version"))
    setting = found(run)
    assert (setting.point.shortcuts, setting.spec.shortcuts) == ("off", "off")
    assert setting.speed
    assert setting.speed.repeats == 3
    assert setting.peak_bytes
    assert "refused" not in setting.words


def test_a_spec_with_several_settings_lists_them(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="neither a run folder nor a spec"):
        found(tmp_path)
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    with pytest.raises(JobkitError, match="2 settings") as refused:
        found(path)
    assert "\n  batch_size 10\n  batch_size 50" in refused.value.message
    path.write_text(SPEC.replace("[10, 50]", "[10]"), encoding="utf-8")
    setting = found(path)
    assert (setting.point.params, setting.speed) == ({"batch_size": 10}, None)


NUMBER = 400


@pytest.fixture
def setting(run: Path) -> AppliedSetting:
    return found(run)


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


def test_shards_are_as_short_as_their_queue_demands(setting: AppliedSetting) -> None:
    long = plan_shards(pieces(), setting, ShardOptions(minutes=30))
    limit_s = long.resources.walltime - 60
    short = plan_shards(pieces(), setting, ShardOptions(minutes=30, limit_s=limit_s))
    assert short.resources.walltime <= limit_s
    assert (len(short.shards) > len(long.shards), short.limit_s, long.limit_s) == (True, limit_s, None)
    named = plan_shards(pieces(), setting, ShardOptions(number=1, limit_s=limit_s))
    assert len(named.shards) == 1, "that number is a person's"


def test_shards_of_one_file_are_even_and_the_whole_is_their_sum(setting: AppliedSetting) -> None:
    plan = plan_shards(pieces(1000, 500), setting, ShardOptions(number=8))
    assert [shard.index for shard in plan.shards] == list(range(1, 9))
    assert plan.spread <= 0.05
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


def test_earlier_corpora_widen_the_interval_by_how_far_they_were_off(setting: AppliedSetting) -> None:
    """Three that were off by 10 %: t of three degrees of freedom is 3.18."""
    found = plan_shards(pieces(), replace(setting, past=(0.1, -0.1, 0.1)), ShardOptions(number=3)).whole
    assert found
    assert (found.high_s or 0) / found.expected_s == pytest.approx(1.318, abs=0.001)
    two = plan_shards(pieces(), replace(setting, past=(0.1, -0.1)), ShardOptions(number=3)).whole
    assert two
    assert (two.high_s or 0) / two.expected_s < 1.1


def test_memory_has_the_text_beyond_128_mib_and_both_are_as_given(setting: AppliedSetting) -> None:
    long = plan_shards(pieces(4, 100 * MIB // 4), setting, ShardOptions(number=1))
    assert long.resources.memory == 2 * GIB
    given = replace(setting, given=("resources.memory", "resources.walltime"))
    resources = plan_shards(pieces(), given, ShardOptions(number=1)).resources
    assert (resources.memory, resources.walltime) == (2**30, 120)


@pytest.mark.parametrize(("limit", "shortest", "longest"), [(0, 20, 30), (40, 15, 20), (16, 7, 10)])
def test_a_shard_takes_half_an_hour_or_half_of_what_its_queue_allows(
    setting: AppliedSetting, limit: int, shortest: int, longest: int
) -> None:
    """Or ten minutes, if half would be less."""
    plan = plan_shards(pieces(4000), setting, ShardOptions(limit_s=60 * limit or None))
    assert plan.each
    assert 60 * shortest < plan.each.expected_s <= 60 * longest
    assert plan.each.expected_s < plan.each.high_s < plan.shards[0].slow_s  # type: ignore[operator]
    assert plan.resources.walltime >= plan.each.high_s + 60  # type: ignore[operator]


def test_without_a_speed_a_small_shard_measures_it(setting: AppliedSetting) -> None:
    unknown = replace(setting, speed=None, peak_bytes=None)
    plan = plan_shards(pieces(), unknown, ShardOptions())
    first, rest = plan.shards
    assert MEASURED <= first.characters < 2 * MEASURED
    assert (first.paragraphs + rest.paragraphs, plan.measures) == (NUMBER, True)
    assert (plan.each, plan.whole, first.expected_s) == (None, None, None)
    assert plan.resources == setting.spec.resources
    assert len(plan_shards(pieces(), unknown, ShardOptions(number=5)).shards) == 5, "a person's number"
    assert len(plan_shards(pieces(10), unknown, ShardOptions()).shards) == 1, "as small as that shard"
    later = plan_shards(pieces(), unknown, ShardOptions(), first=3)
    assert len(later.shards) == -(-NUMBER * (CHARACTERS // 10) // UNKNOWN)


def test_the_text_of_pieces_of_one_row_is_not_that_of_the_row_each_time() -> None:
    whole = replace(pieces(1, 1000)[0], start=0, end=100_000)
    assert whole.size_bytes == 4000


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60), st.integers(1, 30))
def test_every_piece_is_in_one_shard(loads: list[int], number: int) -> None:
    bounds = cut_loads(loads, number)
    assert (bounds[0], bounds[-1]) == (0, len(loads))
    assert all(start < end for start, end in pairwise(bounds))


def test_a_giant_is_a_shard_of_its_own_and_the_others_are_equal() -> None:
    loads = [1.0] * 500 + [1000.0] + [1.0] * 300 + [400.0]
    found = [sum(loads[start:end]) for start, end in pairwise(cut_loads(loads, 10))]
    assert {400, 1000} <= {*found}
    others = [load for load in found if load < 400]
    assert sum(others) == 800
    assert max(others) <= 1.25 * min(others)
    assert cut_loads([5, 5, 5], 9) == [0, 1, 2, 3]
    assert cut_loads([0, 0], 2) == [0, 2]


LONG = "x" * 900


def memory_with(limit: int) -> Memory:
    """Return memory of 4 MiB a character, with room for so many characters."""
    loads = (500, 1_000, 5_000, 20_000, 50_000)
    line = fit_memory([Observation(load, load * 2**22, str(load)) for load in loads])
    return Memory(kind=RAM, line=line, load_by_batch={1: 100}, wanted=Wanted(limit_bytes=limit * 2**22))


@pytest.fixture
def home(here: Path) -> Path:
    write_corpus(here / "letters.txt", 20)
    with (here / "letters.txt").open("a", encoding="utf-8") as stream:
        stream.write(f"\n{LONG}\n\nThe end.\n")
    measured_run(here / "run")
    return here


@pytest.fixture
def bounded(home: Path) -> AppliedSetting:
    """Return the setting of 50 paragraphs a batch, with a bound of 5,000 padded characters."""
    return replace(found(home / "run"), memory=memory_with(5_020))


def test_a_long_paragraph_gets_its_memory_or_is_refused(home: Path, bounded: AppliedSetting) -> None:
    corpus, pieces, _ = apply.read(request(home / "run", ["letters.txt"]), bounded)
    assert longest_item(bounded) == 100
    (heavy,) = find_heavy(corpus, pieces, bounded)
    assert (heavy.where, heavy.longest) == ("letters.txt, paragraph 21", 901)
    refuse_too_large([heavy], bounded)
    plan = plan_shards(pieces, bounded, ShardOptions(number=2), heavy=[heavy])
    assert plan.even == len(plan.shards) - 1
    memory = -(-heavy.load * 2**22 * 6 // 5 // GIB)
    assert plan.needs == {len(plan.shards): (f"resources.memory={memory}GiB",)}
    small = replace(bounded, point=replace(bounded.point, device="cuda"), memory=memory_with(520))
    with pytest.raises(JobkitError, match=r"901 characters, 901 in a sentence: the bound of the GPU"):
        refuse_too_large(find_heavy(corpus, pieces, small), small)


def test_a_paragraph_that_no_measured_batch_covers(home: Path, bounded: AppliedSetting) -> None:
    """By its item without a memory line; by its characters, of which the margin of memory holds 512."""
    corpus, pieces, _ = apply.read(request(home / "run", ["letters.txt"]), bounded)
    measured = replace(bounded, memory=None, call_load=901, call_characters=901, peak_bytes=5 * 2**19)
    assert find_heavy(corpus, pieces, measured) == []
    longer, more = replace(measured, call_load=900), replace(measured, call_characters=900)
    own = replace(more, point=replace(more.point, workload="mine:Tagger"))
    assert find_heavy(corpus, pieces, replace(own, peak_bytes=None)) == []
    for setting in (longer, own):
        heavy = find_heavy(corpus, pieces, setting)
        refuse_too_large(heavy, replace(setting, given=("resources.memory",)))
        with pytest.raises(JobkitError, match=r"letters\.txt, paragraph 21: 901 characters, .* not known"):
            refuse_too_large(heavy, setting)
    (known,) = find_heavy(corpus, pieces, more)
    refuse_too_large([known], more)
    assert memory_of(known, replace(more, peak_bytes=GIB - 2**19), 0) == 2 * GIB
    with pytest.raises(JobkitError, match="on this machine"):
        refuse_too_large([replace(known, characters=2**40)], more)


@pytest.mark.slow
def test_what_needs_more_is_a_round_of_its_own(bounded: AppliedSetting) -> None:
    asked = request(Path("run"), ["letters.txt"], shards=2)
    slurm = replace(found(Path("run"), scheduler="slurm"), memory=bounded.memory)
    prepared, prospect = apply.prepare(OUT.absolute(), asked, slurm, *apply.read(asked, slurm))
    number = len(prepared.points)
    (group,) = prepared.groups
    assert group.points == tuple(range(1, number))
    apply.write_planned(prepared, prospect)
    assert read_journal(OUT).needs == prospect.plan.needs
    Path("more.txt").write_text(f"{LONG}\n\nThe end.\n", encoding="utf-8")
    both = request(Path("run"), ["letters.txt", "more.txt"])
    corpus, new, _ = apply.read(both, slurm, prospect.corpus)
    grow(OUT.absolute(), corpus, new, slurm, ShardOptions(number=1), (), dry=False)
    assert [*read_journal(OUT).needs] == [number, number + 2], "also in a file that is new"
