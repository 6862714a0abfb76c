from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobkit import records, states, watch
from jobkit.plan import Inputs, plan
from jobkit.records import Batch, Point, TextRef
from jobkit.schedulers.base import Array, JobId, Queued, State
from jobkit.schedulers.registry import by_name
from jobkit.spec import SweepSpec
from jobkit.submit import Submitted
from jobkit.trials import TRIALS_FILE, WANTED_FILE, Trial, Wanted

BATCH = Batch(index=0, first_item=0, items=3, characters=9, load=9, seconds=1.0)


@pytest.fixture
def points(tmp_path: Path) -> tuple[Point, ...]:
    path = tmp_path / "text"
    path.write_text("One.\n\nTwo.\n", encoding="utf-8")
    text = TextRef(path=str(path), sha256="0" * 64, size_bytes=11, name="text")
    spec = SweepSpec.model_validate(
        {"name": "t", "workload": "count", "repeats": 2, "sweep": {"batch_size": [1]}}
    )
    return plan(spec, Inputs(run_id="t-1", text=text, model=None, device="cpu"))


def tried(run: Path, point: Point, *lines: str) -> Path:
    folder = run / "results" / point.point_id / "try-1"
    folder.mkdir(parents=True)
    (folder / "batches.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_a_point_is_finished_when_its_exit_file_is_home(tmp_path: Path, points: tuple[Point, ...]) -> None:
    with watch.Progress(tmp_path, points) as progress:
        assert progress.refresh() == {1, 2}
        folder = tried(tmp_path, points[0], records.to_json(BATCH), '{"index": 1, "first')
        assert progress.refresh() == {1, 2}
        (folder / "exit").write_text("status=0\n", encoding="utf-8")
        assert progress.refresh() == {2}


def test_a_finished_point_is_told_in_a_line_where_there_is_no_terminal(
    tmp_path: Path, points: tuple[Point, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with watch.Progress(tmp_path, points) as progress:
        for point in points:
            (tried(tmp_path, point) / "exit").write_text("status=0\n", encoding="utf-8")
        waiting = Queued(job_id="1", task=1, state=State.PENDING, reason="Resources")
        assert progress.refresh((waiting,)) == set()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["batch_size-1-r1", "1/2", "points,"],
        ["batch_size-1-r2", "2/2", "points"],
    ]


def test_a_text_that_cannot_be_read_leaves_the_total_open(tmp_path: Path, points: tuple[Point, ...]) -> None:
    Path(points[0].text.path).unlink()
    with watch.Progress(tmp_path, points) as progress:
        assert progress.refresh() == {1, 2}


class Queue:
    """A scheduler whose queue answers in turn what the test says, and then the last for ever."""

    def __init__(self, *answers: tuple[Queued, ...] | None) -> None:
        self.answers = list(answers)

    def ask(self, *_: object) -> tuple[Queued, ...] | None:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def finished_run(
    tmp_path: Path, points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[float]]:
    """Return a run whose points are home while a job follows, and how long was slept."""
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watch, "ask_accounting", lambda *_: None)
    for point in points:
        (tried(tmp_path, point) / "exit").write_text("status=0\n", encoding="utf-8")
    wanted = Wanted(memory_bytes=None, ram_bytes=1, ledger=str(tmp_path / "ledger"))
    (tmp_path / WANTED_FILE).write_text(records.to_json(wanted), encoding="utf-8")
    return tmp_path, slept


SWEEP = Submitted(JobId("7"), Array(first=1, last=2, offset=0, throttle=None))
FOLLOWER = Submitted(JobId("8"), Array(first=1, last=1, offset=2, throttle=None), follows=True)
WAITS = (Queued(job_id="8", task=1, state=State.RUNNING),)


def wait(run: Path, points: tuple[Point, ...], queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "ask_queue", queue.ask)
    watch.until_done(run, points, (SWEEP, FOLLOWER), by_name("slurm"))


def test_the_job_that_follows_is_waited_for(
    finished_run: tuple[Path, list[float]], points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, slept = finished_run
    monkeypatch.setattr(watch, "finished", lambda _: len(slept) == 3)
    wait(run, points, Queue(WAITS, None, ()), monkeypatch)
    assert len(slept) == 3, "neither silence nor an empty listing is its end"


def test_one_that_left_nothing_is_not_waited_for_for_ever(
    finished_run: tuple[Path, list[float]], points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, slept = finished_run
    wait(run, points, Queue(WAITS, ()), monkeypatch)
    assert watch.GONE_GRACE_S < sum(slept) < 3 * watch.GONE_GRACE_S


def test_it_is_over_when_the_last_trial_is_home(
    finished_run: tuple[Path, list[float]], points: tuple[Point, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, slept = finished_run
    records.append_line(run / TRIALS_FILE, records.to_json(Trial(message="too few")))
    wait(run, points, Queue(WAITS), monkeypatch)
    assert slept == []
