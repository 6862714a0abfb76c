from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core import json_codec
from jobkit.core.job_files import Exit
from jobkit.core.records import Job, Outcome, Point, TextRef
from jobkit.outcome.driver_lock import driving, last_driver
from jobkit.outcome.journal import Task
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles, Verdict
from jobkit.planning.points import Inputs, plan
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.status import progress_bars
from jobkit.status.reader import read_standings
from jobkit.status.standing import PointStanding, RunStanding, Standing
from tests.support.builders import (
    batch,
    record,
    try_folder,
    write_batches,
    write_begin,
    write_exit,
    write_record,
    write_submitted,
)

AT = "2026-01-02T03:04:05+00:00"


@pytest.fixture
def points(tmp_path: Path) -> tuple[Point, ...]:
    path = tmp_path / "text"
    path.write_text("One.\n\nTwo.\n", encoding="utf-8")
    text = TextRef(path=str(path), sha256="0" * 64, size_bytes=11, name="text")
    spec = SweepSpec.model_validate(
        {"name": "t", "workload": "count", "repeats": 2, "sweep": {"batch_size": [1]}}
    )
    found = plan(spec, Inputs(run_id="t-1", text=text, model=None, device="cpu"))
    (tmp_path / "points.jsonl").write_text("".join(f"{json_codec.to_json(point)}\n" for point in found))
    return found


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
        run, replace(ended, job=Job(scheduler="local", job_id=job_of(run), task_id=str(point.index)))
    )
    write_exit(run, point, Exit(status=0, stage="done"), number)
    for name, at in (("begin", 1000.0), ("exit", 1000.0 + took_s)):
        os.utime(folder / name, (at, at))


@pytest.fixture
def driven(tmp_path: Path, points: tuple[Point, ...]) -> Iterator[Path]:
    """Return the folder of a run whose points this process runs."""
    with driving(tmp_path) as job_id:
        write_submitted(tmp_path, "local", job_id, first=1, last=len(points))
        yield tmp_path


def test_a_finished_point_has_a_line_with_the_time_to_go_and_a_failure_its_reason(
    driven: Path, points: tuple[Point, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bars.Progress(driven, points) as progress:
        progress.tick(points[0])
        begin(driven, points[0])
        write_batches(driven, points[0], [batch(0)])
        progress.refresh(*read_standings([driven]))
        end(driven, points[0])
        assert progress.refresh(*read_standings([driven])) == {2}
        end(driven, points[1], Outcome.BUG)
        assert progress.refresh(*read_standings([driven])) == set()
    assert [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()] == [
        "batch_size-1-r1 1/2 points, about 7 s to go",
        "batch_size-1-r2 2/2 points",
        "batch_size-1-r2 bug: by its record",
    ]


def test_a_run_folder_is_read_no_more_often_than_is_cheap(
    driven: Path, points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[float] = []
    clock = iter((100.0, 100.0, 103.0, 103.0, 129.0, 131.0, 131.0, 131.5, 131.5))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    progress = progress_bars.Progress(driven, points)
    monkeypatch.setattr(progress, "_read", lambda **_: readings.append(0))
    for _ in range(3):  # a reading takes 3 s, so the next is due 27 s after it
        progress.tick(points[0])
    assert len(readings) == 2


def test_a_try_from_before_a_point_was_submitted_again_is_old(
    driven: Path, points: tuple[Point, ...]
) -> None:
    end(driven, points[0], Outcome.BUG)
    (before,) = read_standings([driven])
    with progress_bars.Progress(driven, points[:1], before) as progress:
        assert progress.refresh(before) == {1}
        end(driven, points[0], number=2)
        assert progress.refresh(*read_standings([driven])) == set()


class Looks:
    """What is seen of a run in turn, and then the last for ever."""

    def __init__(self, *seen: RunStanding) -> None:
        self.seen = list(seen)

    def look(self, _: object, **__: object) -> tuple[RunStanding]:
        return (self.seen.pop(0) if len(self.seen) > 1 else self.seen[0],)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no time pass, and return how long would have been slept."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(progress_bars, "ask_accounting", lambda _: None)
    return pauses


def seen(
    run: Path,
    points: Sequence[Point],
    standing: Standing,
    outcome: Outcome | None = None,
) -> RunStanding:
    """Return a look at a run whose points all stand alike."""
    tries = (TryResult(TryFiles(number=1), Verdict(outcome=outcome, evidence=""), Task("slurm", "7", 1)),)
    looks = tuple(PointStanding(point=point, standing=standing, all_tries=tries) for point in points)
    return RunStanding(folder=run, points=looks, submissions=())


def wait(run: Path, points: tuple[Point, ...], looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bars, "read_standings", looks.look)
    progress_bars.until_done(run, points, Policy())


def test_it_waits_as_long_as_a_point_is_to_come_and_more_and_more_seldom(
    tmp_path: Path, points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    standings = (Standing.WAITING, Standing.RUNNING, Standing.UNSETTLED, Standing.DONE)
    wait(tmp_path, points, Looks(*(seen(tmp_path, points, standing) for standing in standings)), monkeypatch)
    assert len(slept) == 3
    assert slept == sorted(slept)
