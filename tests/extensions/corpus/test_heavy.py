"""A paragraph too large for a measured setting is found before anything is submitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.memory import Memory
from jobkit.answers.memory_line import fit_memory
from jobkit.answers.observations import RAM
from jobkit.answers.stats import Observation
from jobkit.core.errors import JobkitError
from jobkit.core.units import GIB
from jobkit.extensions.corpus import start
from jobkit.extensions.corpus.oversized import find_heavy, longest_item, refuse_too_large
from jobkit.extensions.corpus.setting import AppliedSetting, find_setting
from jobkit.extensions.corpus.shards import ShardOptions, plan_shards
from jobkit.planning.resolve import Options
from jobkit.runs.journal import read_journal
from tests.support.applied import measured_run, request, write_corpus

LONG = "x" * 900


def memory_with(limit: int) -> Memory:
    """Return memory of 4 MiB a character, with room for so many characters."""
    loads = (500, 1_000, 5_000, 20_000, 50_000)
    line = fit_memory([Observation(load, load * 2**22, str(load)) for load in loads])
    return Memory(kind=RAM, line=line, load_by_batch={1: 100}, limit_bytes=limit * 2**22)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "letters.txt", 20)
    with (tmp_path / "letters.txt").open("a", encoding="utf-8") as stream:
        stream.write(f"\n{LONG}\n\nThe end.\n")
    measured_run(tmp_path / "run")
    return tmp_path


@pytest.fixture
def setting(home: Path) -> AppliedSetting:
    """Return the setting of 50 paragraphs a batch, with a bound of 5,000 padded characters."""
    found = find_setting(home / "run", Options(), build=False, say=lambda _: None)
    return replace(found, memory=memory_with(5_020))


def test_only_what_is_longer_than_a_batch_may_hold_is_looked_at(home: Path, setting: AppliedSetting) -> None:
    corpus, pieces, _ = start.read(request(home / "run", ["letters.txt"], home / "tagged"))
    assert longest_item(setting) == 100
    (heavy,) = find_heavy(corpus, pieces, setting)
    assert (heavy.where, heavy.longest) == ("letters.txt, paragraph 21", 901)
    assert find_heavy(corpus, pieces, replace(setting, memory=None)) == []


def test_on_a_cpu_it_has_a_shard_with_the_memory_that_it_needs(home: Path, setting: AppliedSetting) -> None:
    corpus, pieces, _ = start.read(request(home / "run", ["letters.txt"], home / "tagged"))
    heavy = find_heavy(corpus, pieces, setting)
    refuse_too_large(heavy, setting)
    plan = plan_shards(pieces, setting, ShardOptions(number=2), heavy=heavy)
    assert plan.even == len(plan.shards) - 1
    ((index, words),) = plan.needs.items()
    assert index == len(plan.shards)
    assert words == (f"resources.memory={-(-heavy[0].load * 2**22 * 6 // 5 // GIB)}GiB",)


def test_on_a_gpu_that_is_too_small_it_is_refused_with_its_place(home: Path, setting: AppliedSetting) -> None:
    on_gpu = replace(setting, point=replace(setting.point, device="cuda"))
    corpus, pieces, _ = start.read(request(home / "run", ["letters.txt"], home / "tagged"))
    small = replace(on_gpu, memory=memory_with(520))
    with pytest.raises(JobkitError, match=r"letters\.txt, paragraph 21: a sentence of 901 characters"):
        refuse_too_large(find_heavy(corpus, pieces, small), small)


def test_what_needs_more_is_a_round_of_its_own(
    home: Path, setting: AppliedSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(home / "run", ["letters.txt"], home / "tagged", shards=2)
    slurm = find_setting(home / "run", Options(scheduler="slurm"), build=False, say=lambda _: None)
    slurm = replace(slurm, memory=setting.memory)
    monkeypatch.setattr(start, "find_setting", lambda *_, **__: slurm)
    planned = start.prepare(asked, slurm, *start.read(asked))
    number = len(planned.prepared.points)
    (group,) = planned.prepared.groups
    assert group.points == tuple(range(1, number))
    prospect = planned.prospect
    start.write_folder(
        planned.prepared, prospect.corpus, prospect.plan.shards, start.promise_of(prospect.setting)
    )
    assert read_journal(asked.out).needs == prospect.plan.needs
