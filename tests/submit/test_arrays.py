"""Tasks cut into array jobs; more of it, with a whole sweep, in test_submit.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.outcome.journal import Submission
from jobkit.schedulers import local, sge, slurm
from jobkit.schedulers.types import JobId
from jobkit.submit import controller
from jobkit.submit.rounds import arrays_within, ask_limits, chunks, find_job, lines

POINTS = st.lists(st.integers(1, 10**5), min_size=1, max_size=60, unique=True)


@given(POINTS, st.integers(1, 9))
def test_every_point_is_of_one_task_in_order(points: list[int], pack: int) -> None:
    cut = lines(points, pack)
    assert [index for line in cut for index in line] == points
    assert all(len(line) == pack for line in cut[:-1])
    assert 1 <= len(cut[-1]) <= pack


@given(POINTS, st.integers(1, 9), st.none() | st.integers(1, 20))
def test_what_the_journal_makes_of_the_arrays_is_every_point_once(
    points: list[int], pack: int, limit: int | None
) -> None:
    cut = lines(points, pack)
    arrays = chunks(len(cut), limit, 4, "tasks-2.txt")
    taken = [
        Submission(
            at="",
            scheduler="slurm",
            job=JobId("7"),
            first=a.first,
            last=a.last,
            offset=a.offset,
            lines=tuple(cut),
        )
        for a in arrays
    ]
    assert [index for one in taken for _, points_ in one.tasks() for index in points_] == points
    assert {array.listed for array in arrays} == {"tasks-2.txt"}
    assert [array.words for array in arrays] == [("--list", "tasks-2.txt", str(a.offset)) for a in arrays]


def test_the_job_that_follows_adds_the_next_point() -> None:
    one = find_job(6).array
    assert (one.first, one.last, one.offset, one.words) == (1, 1, 6, ("--offset", "6"))


LIMITS = "MaxArraySize = 11\nMaxJobCount = 100\n"


def test_within_the_limits_that_the_controller_told() -> None:
    assert [(a.last, a.offset) for a in arrays_within(slurm, LIMITS, 25, None)] == [
        (10, 0),
        (10, 10),
        (5, 20),
    ]
    assert [a.last for a in arrays_within(slurm, "", 25, None)] == [25]
    with pytest.raises(JobkitError, match=r"101 points.*at most 100 jobs.*nothing was submitted") as caught:
        arrays_within(slurm, LIMITS, 101, None)
    assert (caught.value.exit_code, "`pack`" in caught.value.hint) == (3, True)
    with pytest.raises(JobkitError, match="accepts no array jobs here") as caught:
        arrays_within(slurm, "MaxArraySize = 1\n", 5, None)
    assert caught.value.exit_code == 3


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def test_the_limits_are_asked_for_or_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SBATCH_ACCOUNT", "of the shell")
    program(tmp_path, "scontrol", 'echo "$* ${SBATCH_ACCOUNT:-}"')
    program(tmp_path, "qconf", "exit 1")
    assert ask_limits(slurm) == "show config \n"
    assert ask_limits(local) == ""
    with pytest.raises(JobkitError, match="the scheduler does not answer") as caught:
        ask_limits(sge)
    assert (caught.value.exit_code, caught.value.hint) == (3, "is this a submit host?")


def test_a_controller_that_is_busy_is_asked_again_but_not_for_a_preview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(controller, "PAUSES_S", (0.0,))
    program(tmp_path, "scontrol", f"echo >>{tmp_path}/calls; echo Rate limit exceeded >&2; exit 1")
    for once, calls in (True, 1), (False, 3):
        with pytest.raises(JobkitError, match="the scheduler does not answer"):
            ask_limits(slurm, once=once)
        assert len((tmp_path / "calls").read_text(encoding="utf-8")) == calls
