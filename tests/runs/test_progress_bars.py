from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.layout import Exit
from jobkit.core.records import JobFacts, Outcome, Point
from jobkit.runs import watch
from jobkit.runs.driver_lock import driving, last_driver
from jobkit.runs.journal import Role
from jobkit.runs.reader import read_standings
from jobkit.runs.standing import PointState
from jobkit.schedulers.types import State
from jobkit.spec.policy import Policy
from tests.support.builders import (
    batch,
    grid,
    record,
    try_folder,
    write_batches,
    write_begin,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.statuses import a_point, a_run, with_job

WAITING, RUNNING, UNSETTLED = PointState.WAITING, PointState.RUNNING, PointState.UNSETTLED


@pytest.fixture
def points() -> list[Point]:
    return grid([1], 2)


def job_of(run: Path) -> str:
    driver = last_driver(run)
    assert driver
    return driver.job_id


def begin(run: Path, point: Point, number: int = 1) -> Path:
    write_begin(run, point, number, scheduler="local", job=job_of(run))
    return try_folder(run, point, number)


def end(run: Path, point: Point, outcome: Outcome = Outcome.OK, number: int = 1, took_s: float = 7.0) -> None:
    """Let a try end whose worker took no time: staging and environment took it all."""
    folder = begin(run, point, number)
    ended = replace(record(point), outcome=outcome, ended_at=record(point).started_at, try_number=number)
    write_record(
        run, replace(ended, job=JobFacts(scheduler="local", job_id=job_of(run), task_id=str(point.index)))
    )
    write_exit(run, point, Exit(status=0, stage="done"), number)
    for name, at in (("begin", 1000.0), ("exit", 1000.0 + took_s)):
        os.utime(folder / name, (at, at))


@pytest.fixture
def driven(tmp_path: Path, points: list[Point]) -> Iterator[Path]:
    """Return the folder of a run whose points this process runs."""
    run = write_points(tmp_path / "run", points)
    with driving(run) as job_id:
        write_submitted(run, "local", job_id, first=1, last=len(points))
        yield run


def test_a_finished_point_has_a_line_with_the_time_to_go_and_a_failure_its_reason(
    driven: Path, points: list[Point], capsys: pytest.CaptureFixture[str]
) -> None:
    with watch.ProgressBars(driven, points) as progress:
        progress.tick(points[0])
        begin(driven, points[0])
        write_batches(driven, points[0], [batch(0)])
        progress.refresh(*read_standings([driven]))
        end(driven, points[0])
        assert progress.refresh(*read_standings([driven])) == {2}
        end(driven, points[1], Outcome.BUG)
        assert progress.refresh(*read_standings([driven])) == set()
    assert [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()] == [
        "p001 1/2 points, about 7 s to go",
        "p002 2/2 points",
        "p002 bug: by its record",
    ]


def test_a_run_folder_is_read_no_more_often_than_is_cheap(
    driven: Path, points: list[Point], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[float] = []
    clock = iter((100.0, 100.0, 103.0, 103.0, 129.0, 131.0, 131.0, 131.5, 131.5))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    progress = watch.ProgressBars(driven, points)
    monkeypatch.setattr(progress, "_read", lambda **_: readings.append(0))
    for _ in range(3):  # a reading takes 3 s, so the next is due 27 s after it
        progress.tick(points[0])
    assert len(readings) == 2


def test_a_try_from_before_a_point_was_submitted_again_is_old(driven: Path, points: list[Point]) -> None:
    end(driven, points[0], Outcome.BUG)
    (before,) = read_standings([driven])
    with watch.ProgressBars(driven, points[:1], before) as progress:
        assert progress.refresh(before) == {1}
        end(driven, points[0], number=2)
        assert progress.refresh(*read_standings([driven])) == set()


def test_it_waits_as_long_as_a_point_is_to_come_and_more_and_more_seldom(
    tmp_path: Path, points: list[Point], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    seen = [a_run([a_point(1, standing)]) for standing in (WAITING, RUNNING, UNSETTLED)]
    done = a_run([a_point(1, PointState.DONE, Outcome.OK)])
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(watch, "record_accounting", lambda _: None)
    looks = iter([*seen, done, done])
    monkeypatch.setattr(watch, "read_standings", lambda _, **__: [next(looks)])
    watch.until_done(tmp_path, points[:1], Policy())
    assert len(slept) == 3
    assert slept == sorted(slept)


def test_the_reason_of_the_job_that_follows_is_not_that_of_the_points(
    tmp_path: Path, points: list[Point], capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = with_job(a_run([a_point(1, WAITING)]), Role.FOLLOW, State.PENDING, "Dependency")
    with watch.ProgressBars(write_points(tmp_path / "run", points), points[:1], waiting) as progress:
        progress.refresh(waiting)
        assert capsys.readouterr().err == ""
        progress.refresh(with_job(waiting, Role.TUNE, State.PENDING, "Resources", job="80"))
        assert capsys.readouterr().err.strip() == "1 point, waiting: Resources"
