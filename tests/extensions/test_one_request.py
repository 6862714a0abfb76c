"""Equal memory for an equal setting, and equal walltime for an equal amount of work, whoever advises."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.answers.speed import CorpusVolume, duration, speeds
from jobkit.core.measurements import MemoryReadings
from jobkit.core.units import GIB, format_size, format_walltime
from jobkit.extensions.corpus.plan import Piece
from jobkit.extensions.corpus.setting import AppliedSetting, find_setting
from jobkit.extensions.corpus.shards import ShardOptions, plan_shards
from jobkit.extensions.past_jobs import MEMORY, WALLTIME, AlikeJobs
from jobkit.planning.prepare import Options
from jobkit.report.recommend.material import RunUse, read_use, request
from jobkit.report.recommend.waste import unused_memory, unused_walltime
from jobkit.runs.request import held_by, memory_request, walltime_request
from jobkit.spec.sweep_spec import Resources
from tests.extensions.test_past_jobs import JOB
from tests.support.applied import measured_run
from tests.support.builders import ITEMS, grid, write_submitted
from tests.support.recommendations import material, measured


class Case(NamedTuple):
    """What stays as it is for all generated runs, with a short name for what hypothesis prints."""

    setting: AppliedSetting
    use: RunUse

    def __repr__(self) -> str:
        return "case"


def setting_of(run: Path) -> AppliedSetting:
    options = Options(scheduler="slurm", site="slurm-default")
    return find_setting(run, options, build=False, say=lambda _: None)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    run = measured_run(tmp_path_factory.mktemp("measured") / "run")
    write_submitted(run, "local", "77", first=1, last=6)
    return Case(setting_of(run), read_use(run))


def by_apply(setting: AppliedSetting, text: CorpusVolume) -> tuple[int, int]:
    """Return the memory and the walltime that a shard with all of a text requests."""
    size = {"paragraphs": text.paragraphs, "characters": text.characters or 0}
    piece = Piece(source=0, start=0, end=1, longest=1, sha256="", **size)
    found = plan_shards([piece], replace(setting, past=()), ShardOptions(number=1)).measured
    return found.memory, found.walltime


@settings(max_examples=250, deadline=None)
@given(seed=st.integers(0, 2**32), repeats=st.integers(1, 3))
def test_recommend_apply_and_both_kinds_of_waste_request_alike(case: Case, seed: int, repeats: int) -> None:
    drawn = random.Random(seed)  # noqa: S311 - no secret
    sizes, work_s = sorted(drawn.sample((20, 40, 85, 130, 175, 220), 2)), 10 ** drawn.uniform(-2, 5)
    told = [
        replace(
            measured(one, ITEMS / work_s * drawn.uniform(0.8, 1.2)),
            memory=MemoryReadings(maxrss_bytes=int(10 ** drawn.uniform(7, 11))),
        )
        for one in grid(sizes, repeats)
    ]
    had = {"memory": drawn.randrange(1, 129) * GIB, "walltime": drawn.randrange(60, 10**5)}
    asked, chosen = Resources().model_copy(update=had), drawn.choice(speeds(told))
    like = next(one for one in told if one.params == chosen.params)
    text = CorpusVolume(paragraphs=ITEMS, characters=drawn.randrange(1, 10**6))
    time = duration(chosen, items=text.paragraphs, characters=text.characters)
    advice = request(replace(material(told), resources=asked), like, time)
    assert advice
    applied = replace(case.setting, speed=chosen, peak_bytes=held_by(told, like))
    assert (advice.memory_bytes, advice.walltime_s) == by_apply(applied, text)

    used = (max(one.memory.maxrss_bytes or 0 for one in told), drawn.uniform(1, 10**5))
    enough = memory_request(used[0]), walltime_request(used[1])
    assert like.params["batch_size"] != sizes[-1] or advice.memory_bytes == enough[0]
    uses = [replace(case.use.points[0], asked=asked, ram_bytes=used[0], seconds=used[1])]
    waste = [judge(replace(case.use, points=uses)).fix for judge in (unused_memory, unused_walltime)]
    past = replace(JOB, memory_bytes=had["memory"], walltime_s=had["walltime"])
    jobs = AlikeJobs((replace(past, held_bytes=used[0], elapsed_s=used[1]),))
    for at, (need, words) in enumerate(((MEMORY, format_size), (WALLTIME, format_walltime))):
        now, least, fix = [*had.values()][at], enough[at], waste[at]
        assert jobs.need(need).next == (least if used[at] > now else min(least, now))
        less = [words(least)] if least < now and used[at] < now / 2 else []
        assert (list(fix.keys.values()) if fix else []) == less
