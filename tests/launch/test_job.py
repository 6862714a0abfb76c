"""What a person reads of the jobs that a scheduler accepted, or refused."""

from __future__ import annotations

from dataclasses import replace

from jobkit.launch.job import Job, announce, find_job, follow_job, ids
from jobkit.schedulers.types import ONE_TASK, JobId

ARRAYS = [Job(script="job.sh", array=ONE_TASK, id=JobId(number)) for number in ("7", "8")]


def said(*jobs: Job, then: str = "") -> list[str]:
    """Return the lines that are printed."""
    lines: list[str] = []
    announce("slurm", jobs, then, lines.append)
    return lines


def test_arrays_and_what_follows_them_are_one_line() -> None:
    find = replace(find_job(6), id=JobId("9", "lab"))
    (line,) = said(*ARRAYS, find)
    assert line.startswith("submitted: slurm job 7, 8; job 9")
    assert ids([*ARRAYS, find, follow_job(1)]) == (JobId("7"), JobId("8"), JobId("9", "lab"))


def test_the_job_that_runs_failed_points_again_is_named_only_if_it_was_refused() -> None:
    assert said(*ARRAYS, replace(follow_job(1), id=JobId("9"))) == said(*ARRAYS)
    first, why = said(*ARRAYS, replace(follow_job(1), refused="no dependencies here"))
    assert [first] == said(*ARRAYS)
    assert "no dependencies here" in why


def test_what_happens_next_follows_the_jobs() -> None:
    assert said(ARRAYS[0], then="; waiting for it") == ["submitted: slurm job 7; waiting for it"]
