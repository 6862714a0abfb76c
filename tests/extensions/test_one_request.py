"""Equal memory for an equal setting, and equal walltime for an equal amount of work, whoever advises."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.answers.speed import CorpusVolume, duration, speeds
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Record
from jobkit.core.units import GIB
from jobkit.extensions.corpus.setting import AppliedSetting, find_setting
from jobkit.extensions.past_jobs.advice import MEMORY, WALLTIME, AlikeJobs
from jobkit.planning.resolve import Options
from jobkit.report.recommend.request import PointUse, RunUse, request
from jobkit.report.rows import row_of_point
from jobkit.runs.request import held_by, memory_request, walltime_request
from jobkit.runs.results import PointResult
from jobkit.runs.tries import Try, TryOutcome
from jobkit.schedulers.past import PastJob
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import Resources
from tests.support.applied import measured_run
from tests.support.builders import ITEMS, grid
from tests.support.recommendations import material, measured
from tests.support.requests import by_apply, by_waste

RUN = RunUse(
    run="run",
    scheduler="slurm",
    points=(),
    to_come=0,
    threads=None,
    sites=[load_site("slurm-default", "slurm")],
    own=True,
    notes=(),
)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> AppliedSetting:
    options = Options(scheduler="slurm", site="slurm-default")
    run = measured_run(tmp_path_factory.mktemp("measured") / "run")
    return find_setting(run, options, build=False, say=lambda _: None)


def use_of(told: Record, asked: Resources, seconds: float) -> PointUse:
    one = Try(number=1, record=told, verdict=TryOutcome(told.outcome, ""))
    row = row_of_point("run", PointResult(point=told.point, all_tries=(one,)))
    held = told.memory.maxrss_bytes
    return PointUse(row=row, asked=asked, pack=1, seconds=seconds, ram_bytes=held, task=None)


def job_of(asked: Resources, held: int, seconds: float) -> AlikeJobs:
    job = PastJob(
        scheduler="slurm",
        job_id="1",
        name="demo",
        user="me",
        queue="gpu",
        state="COMPLETED",
        ended=True,
        well=True,
        elapsed_s=seconds,
        walltime_s=asked.walltime,
        memory_bytes=asked.memory,
        held_bytes=held,
    )
    return AlikeJobs((job,))


@settings(max_examples=1000, deadline=None)
@given(seed=st.integers(0, 2**32), repeats=st.integers(1, 3))
def test_recommend_apply_and_both_kinds_of_waste_request_alike(
    setting: AppliedSetting, seed: int, repeats: int
) -> None:
    drawn = random.Random(seed)  # noqa: S311 - no secret
    sizes, work = sorted(drawn.sample((20, 40, 85, 130, 175, 220), 2)), 10 ** drawn.uniform(-2, 3)
    told = [
        replace(
            measured(one, 100 / work * drawn.uniform(0.8, 1.2)),
            memory=MemoryReadings(maxrss_bytes=int(10 ** drawn.uniform(7, 11))),
            task_s=None,
        )
        for one in grid(sizes, repeats)
    ]
    had = {"memory": drawn.randrange(1, 129) * GIB, "walltime": drawn.randrange(60, 10**5)}
    asked = Resources().model_copy(update=had)
    chosen = drawn.choice(speeds(told))
    like = next(one for one in told if one.params == chosen.params)
    text = CorpusVolume(paragraphs=ITEMS, characters=drawn.randrange(1, 10**6))
    time = duration(chosen, items=text.paragraphs, characters=text.characters)
    advice = request(replace(material(told), resources=asked), like, time)
    assert advice
    applied = replace(setting, speed=chosen, peak_bytes=held_by(told, like))
    assert (advice.memory_bytes, advice.walltime_s) == by_apply(applied, text)

    held, seconds = max(one.memory.maxrss_bytes or 0 for one in told), drawn.uniform(1, 10**5)
    enough = memory_request(held), walltime_request(seconds)
    assert like.params["batch_size"] != sizes[-1] or advice.memory_bytes == enough[0]
    uses = [use_of(one, asked, seconds) for one in told]
    wasted = by_waste(replace(RUN, points=uses))
    needs = [job_of(asked, held, seconds).need(one) for one in (MEMORY, WALLTIME)]
    for need, least, less, now in zip(needs, enough, wasted, had.values(), strict=True):
        assert need.next == min(least, now)
        assert less == (least if least < now and need.used[-1] < now / 2 else None)
