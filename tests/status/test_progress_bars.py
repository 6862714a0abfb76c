from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core import json_codec
from jobkit.core.records import Batch, Outcome, Point, TextRef
from jobkit.outcome.journal import Role, Submission, Task
from jobkit.outcome.tries import TryResult
from jobkit.outcome.verdict import TryFiles, Verdict
from jobkit.planning.points import Inputs, plan
from jobkit.schedulers.types import JobId, Queued, State
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import SweepSpec
from jobkit.status import progress_bars
from jobkit.status.standing import PointStanding, RunStanding, Standing
from tests.support.builders import record

AT = "2026-01-02T03:04:05+00:00"

BATCH = Batch(index=0, first_item=0, items=3, characters=9, load=9, seconds=1.0)


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


def tried(run: Path, point: Point, *lines: str, number: int = 1) -> Path:
    folder = run / "results" / point.point_id / f"try-{number}"
    folder.mkdir(parents=True)
    (folder / "batches.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_a_point_is_finished_when_its_exit_file_is_home(tmp_path: Path, points: tuple[Point, ...]) -> None:
    with progress_bars.Progress(tmp_path, points) as progress:
        assert progress.refresh() == {1, 2}
        folder = tried(tmp_path, points[0], json_codec.to_json(BATCH), '{"index": 1, "first')
        assert progress.refresh() == {1, 2}
        (folder / "exit").write_text("status=0\n", encoding="utf-8")
        assert progress.refresh() == {2}


def ends(run: Path, point: Point, took_s: float, outcome: Outcome = Outcome.OK) -> None:
    """Let a try end whose worker took no time: staging and environment took it all."""
    folder = tried(run, point)
    ended = replace(record(point), outcome=outcome, ended_at=record(point).started_at)
    (folder / "record.json").write_text(json_codec.to_json(ended), encoding="utf-8")
    for name, at in (("begin", 1000.0), ("exit", 1000.0 + took_s)):
        (folder / name).write_text("status=0\n", encoding="utf-8")
        os.utime(folder / name, (at, at))


def test_a_finished_point_has_a_line_with_the_time_to_go_and_a_failure_its_reason(
    tmp_path: Path, points: tuple[Point, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bars.Progress(tmp_path, points) as progress:
        ends(tmp_path, points[0], 7.0)
        assert progress.refresh() == {2}
        ends(tmp_path, points[1], 7.0, Outcome.BUG)
        assert progress.refresh() == progress.refresh() == set()
    assert [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()] == [
        "batch_size-1-r1 1/2 points, about 7 s to go",
        "batch_size-1-r2 2/2 points",
        "batch_size-1-r2 bug: its record says so",
    ]


def test_a_text_that_cannot_be_read_leaves_the_total_open(tmp_path: Path, points: tuple[Point, ...]) -> None:
    Path(points[0].text.path).unlink()
    with progress_bars.Progress(tmp_path, points) as progress:
        assert progress.refresh() == {1, 2}


class Looks:
    """What is seen of a run in turn, and then the last for ever."""

    def __init__(self, *seen: RunStanding) -> None:
        self.seen = list(seen)

    def look(self, _: object) -> tuple[RunStanding]:
        return (self.seen.pop(0) if len(self.seen) > 1 else self.seen[0],)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no time pass, and return how long would have been slept."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(progress_bars, "ask_accounting", lambda _: None)
    return pauses


FIND = Submission(at=AT, scheduler="slurm", job=JobId("8"), first=1, last=1, offset=2, role=Role.FIND)
FOLLOW = Submission(at=AT, scheduler="slurm", job=JobId("9"), first=1, last=1, role=Role.FOLLOW)


def seen(
    run: Path,
    points: Sequence[Point],
    standing: Standing,
    outcome: Outcome | None = None,
    **more: object,
) -> RunStanding:
    """Return a look at a run whose points all stand alike."""
    tried = TryResult(TryFiles(number=1), Verdict(outcome=outcome, evidence=""), Task("slurm", "7", 1))
    looks = [PointStanding(point=point, standing=standing, counts=tried, tries=(tried,)) for point in points]
    return replace(RunStanding(folder=run, points=tuple(looks), submissions=()), **more)  # type: ignore[arg-type]  # as the test says


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


def test_a_try_from_before_a_point_was_submitted_again_is_old(
    tmp_path: Path, points: tuple[Point, ...]
) -> None:
    (tried(tmp_path, points[0]) / "exit").write_text("status=1\n", encoding="utf-8")
    with progress_bars.Progress(
        tmp_path, points[:1], seen(tmp_path, points[:1], Standing.FAILED)
    ) as progress:
        assert progress.refresh() == {1}
        tried(tmp_path, points[0], number=2).joinpath("exit").write_text("status=0\n", encoding="utf-8")
        assert progress.refresh() == set()


def test_a_failed_try_has_one_line_and_one_that_was_cancelled_none(
    tmp_path: Path, points: tuple[Point, ...]
) -> None:
    def lines(outcome: Outcome, *, try_: int = 1, failures: progress_bars.Failures) -> list[str]:
        evidence = Verdict(outcome=outcome, evidence="exit file: no\x1b[31m text")
        counts = TryResult(TryFiles(number=try_), evidence, Task("slurm", "7", 1))
        look = PointStanding(point=points[0], standing=Standing.FAILED, counts=counts, task=counts.task)
        return list(failures.lines(RunStanding(folder=tmp_path, points=(look,), submissions=())))

    failures = progress_bars.Failures()
    (line,) = lines(Outcome.STAGE_IN, failures=failures)
    assert " ".join(line.split()) == r"batch_size-1-r1 stage_in: no\x1b[31m text"
    assert lines(Outcome.STAGE_IN, failures=failures) == []
    assert len(lines(Outcome.STAGE_IN, try_=2, failures=failures)) == 1
    assert lines(Outcome.CANCELLED, try_=3, failures=failures) == []


def test_points_that_wait_for_a_person_are_not_waited_for(
    tmp_path: Path, points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    wait(tmp_path, points, Looks(seen(tmp_path, points, Standing.STUCK)), monkeypatch)
    assert slept == []


def test_the_trials_of_the_largest_batch_are_waited_for_until_their_job_ends(
    tmp_path: Path, points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    monkeypatch.setattr(progress_bars, "finished", lambda _: False)
    done = seen(tmp_path, points, Standing.DONE, Outcome.OK, submissions=(FIND,))
    ended = replace(done, ended=frozenset({Task("slurm", "8", 1)}))
    wait(tmp_path, points, Looks(done, done, ended), monkeypatch)
    assert len(slept) == 2


def test_the_trials_are_over_when_the_last_is_home(
    tmp_path: Path, points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    monkeypatch.setattr(progress_bars, "finished", lambda _: True)
    done = seen(tmp_path, points, Standing.DONE, Outcome.OK, submissions=(FIND,))
    wait(tmp_path, points, Looks(done), monkeypatch)
    assert slept == []


@pytest.mark.parametrize(("outcome", "times"), [(Outcome.RAM_OOM, 1), (Outcome.BUG, 0)])
def test_a_retry_that_the_policy_wants_is_waited_for(
    tmp_path: Path,
    points: tuple[Point, ...],
    monkeypatch: pytest.MonkeyPatch,
    slept: list[float],
    outcome: Outcome,
    times: int,
) -> None:
    failed = seen(tmp_path, points, Standing.FAILED, outcome, submissions=(FOLLOW,))
    ended = replace(failed, ended=frozenset({Task("slurm", "9", 1)}))
    wait(tmp_path, points, Looks(failed, ended), monkeypatch)
    assert len(slept) == times


def test_a_job_that_follows_and_is_in_error_is_not_waited_for(
    tmp_path: Path, points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    stuck = {Task("slurm", "9", 1): Queued(job_id="9", task=1, state=State.ERROR)}
    failed = seen(tmp_path, points, Standing.FAILED, Outcome.TIMEOUT, submissions=(FOLLOW,), queued=stuck)
    wait(tmp_path, points, Looks(failed), monkeypatch)
    assert slept == []
