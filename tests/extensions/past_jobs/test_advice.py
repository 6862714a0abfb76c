from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from jobkit.core.records import Outcome
from jobkit.core.units import GIB, MIB
from jobkit.extensions.past_jobs.advice import (
    CPUS,
    MEMORY,
    WALLTIME,
    AlikeJobs,
    JudgedResource,
    alike,
    chance_of_next,
    covered_share,
)
from jobkit.schedulers.past import PastJob

JOB = PastJob(
    scheduler="slurm",
    job_id="1",
    name="train",
    user="me",
    queue="gpu",
    state="COMPLETED",
    ended=True,
    well=True,
    began="2026-01-02T03:04:05",
    elapsed_s=600.0,
    walltime_s=36_000.0,
    memory_bytes=16 * GIB,
    memory_key="--mem",
    held_bytes=3 * GIB,
    cpus=8,
    cpu_s=900.0,
)


def test_the_next_request_is_the_most_that_was_used_and_a_margin() -> None:
    jobs = AlikeJobs((JOB, replace(JOB, held_bytes=int(3.4 * GIB), elapsed_s=1000.0)))
    assert jobs.need(MEMORY).next == 5 * GIB  # a fifth more, in whole GiB
    assert jobs.need(WALLTIME).next == 1500  # a quarter more, in steps of 5 minutes
    assert jobs.need(CPUS).next == 2
    assert jobs.need(MEMORY).middle == pytest.approx(3.2 * GIB)


OVER = {"well": False, "state": "FAILED", "outcome": Outcome.RAM_OOM}
LATE = OVER | {"outcome": Outcome.TIMEOUT}


@pytest.mark.parametrize(
    ("changes", "resource", "wanted"),
    [
        ({"held_bytes": 15 * GIB}, MEMORY, 16 * GIB),  # not more than was requested while that was enough
        ({"held_bytes": 90 * MIB}, MEMORY, 200 * MIB),
        ({"elapsed_s": 0.0, "held_bytes": 0}, WALLTIME, 300),
        (OVER, MEMORY, 24 * GIB),
        (OVER | {"held_bytes": 20 * GIB}, MEMORY, 30 * GIB),
        (LATE, WALLTIME, 72_000),
        (OVER | {"outcome": Outcome.CANCELLED}, MEMORY, None),
        ({"held_bytes": None, "memory_bytes": None}, MEMORY, None),
        ({"cpu_s": None}, CPUS, None),
    ],
)
def test_a_job_alone_is_advised_by_how_it_ended(
    changes: dict[str, Any], resource: JudgedResource, wanted: int | None
) -> None:
    jobs = AlikeJobs((replace(JOB, **changes),))
    need = jobs.need(resource)
    assert (need.next, need.exceeded) == (wanted, int(wanted is not None and "outcome" in changes))
    assert need.changes == (wanted not in {None, need.requested})
    assert jobs.ended_well == ("outcome" not in changes)


def test_memory_that_is_not_reserved_any_more() -> None:
    reserved = AlikeJobs((JOB, replace(JOB, nodes=2))).reserved_memory()
    assert reserved == (600 * 3 * 16 * GIB, 600 * 3 * 4 * GIB)
    assert AlikeJobs((replace(JOB, memory_bytes=None),)).reserved_memory() is None


def test_gpus_are_idle_only_if_the_site_records_that_none_was_used() -> None:
    idle = replace(JOB, gpus=2, gpu_percent=0.0, gpu_bytes=0)
    assert AlikeJobs((idle, idle)).idle_gpu_s == 2400.0
    assert AlikeJobs((idle, replace(idle, gpu_percent=3.0))).idle_gpu_s == 0.0
    assert AlikeJobs((idle, replace(idle, gpu_percent=None))).idle_gpu_s is None


def test_jobs_of_another_name_or_request_are_judged_apart() -> None:
    other, larger = replace(JOB, name="merge"), replace(JOB, memory_bytes=32 * GIB, job_id="3")
    later = replace(JOB, job_id="4", began="2025-01-02T03:04:05")
    groups = list(alike([JOB, other, larger, later]))
    assert [[job.job_id for job in group.jobs] for group in groups] == [["4", "1"], ["1"], ["3"]]


@pytest.mark.parametrize("number", [1, 20])
def test_the_largest_of_so_many_holds_for_the_next_one_as_often_as_it_is_said(number: int) -> None:
    chance, rounds = random.Random(5), 4000  # noqa: S311 - a simulation
    for draw in (chance.random, lambda: chance.choice([1.0, 2.0, 3.0])):
        held = sum(max(draw() for _ in range(number)) >= draw() for _ in range(rounds))
        assert held / rounds > chance_of_next(number) - 0.02


@pytest.mark.parametrize("number", [5, 59])
def test_the_share_that_the_largest_covers_is_covered_with_95_percent_confidence(number: int) -> None:
    chance, rounds = random.Random(7), 4000  # noqa: S311 - a simulation
    share = covered_share(number)
    covered = sum(max(chance.random() for _ in range(number)) >= share for _ in range(rounds))
    assert covered / rounds == pytest.approx(0.95, abs=0.012)


def test_fifty_nine_jobs_are_needed_for_95_of_100() -> None:
    assert covered_share(58) < 0.95 <= covered_share(59)
    assert covered_share(0) == 0.0
