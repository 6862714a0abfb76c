"""How runs stand; the schedulers' answers are said here, and real in tests/cluster/test_status.py."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.files import append_line, write_atomically
from jobkit.core.job_files import Exit
from jobkit.core.json_codec import to_json
from jobkit.core.layout import JOURNAL_FILE, POINTS_FILE, SEARCH_GOAL_FILE, TRIALS_FILE
from jobkit.core.records import Outcome, Point
from jobkit.status.progress import Progress
from jobkit.status.summary import PointStatus, RequestedGpus, RunStatus, read_asked, status
from tests.support.builders import (
    batch,
    grid,
    record,
    try_folder,
    write_answer,
    write_batches,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.queues import RUN_ID, Queue, write_begin, write_follower
from tests.support.queues import queue as queue  # noqa: PLC0414 - a fixture is found by its name here


def run_of(folder: Path, points: list[Point], scheduler: str = "slurm") -> Path:
    run = write_points(folder, points)
    write_submitted(run, scheduler, "77", first=1, last=len(points))
    (run / "sweep.yaml").write_text("name: demo\nresources: {gpus: 2, gpu_type: h200}\n", encoding="utf-8")
    return run


def one(run: Path) -> RunStatus:
    (found,) = status([run])
    return found


def point_of(run: Path, index: int = 1) -> PointStatus:
    return one(run).points[index - 1]


def test_a_point_that_runs_tells_how_far_it_is_and_for_how_long(tmp_path: Path, queue: Queue) -> None:
    points = grid([50])
    run = run_of(tmp_path / "run", points)
    write_begin(run, points[0])
    write_batches(
        run,
        points[0],
        [replace(batch(n), batches_total=10, characters_total=50_000) for n in range(4)],
        half="{",
    )
    queue.holds("77_1|RUNNING|None|n2|1:07|2026-01-02T10:19:00")
    found = point_of(run)
    assert (found.state, found.elapsed_s, found.gpu, found.why) == ("running", 67, "h200", "")
    assert found.progress == Progress(
        batches=4, batches_total=10, characters=20_000, characters_total=50_000, work_s=2.0
    )
    assert one(run).to_go_s == pytest.approx(3.0)
    assert one(run).exit_code == 5


def test_a_point_that_has_ended_tells_its_card_and_how_long_it_took(tmp_path: Path, queue: Queue) -> None:
    points = grid([50, 100])
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    write_exit(run, points[1], Exit(status=1, stage="stage_in", message="no text"))
    found = one(run)
    first, second = found.points
    assert (first.state, first.elapsed_s, first.gpu) == ("ok", 60, "NVIDIA H200")
    assert (second.state, second.elapsed_s, second.gpu) == ("stage_in", None, "h200")
    assert second.why == "exit file: no text"
    assert (found.exit_code, found.to_go_s, found.saved) == (4, None, None)
    assert queue.asked == {}, "where nothing is open nobody is asked"


def test_a_sweep_tells_how_long_it_has_to_go_unless_somebody_must_act(tmp_path: Path, queue: Queue) -> None:
    points = grid([50], 4)
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    rows = ["77_2|RUNNING|None|n2|0:20|2026-01-02T10:19:00", "77_3|PENDING|Priority|||N/A"]
    queue.holds(*rows, "77_4|PENDING|Priority|||N/A")
    assert one(run).to_go_s == pytest.approx(40 + 60 + 60)
    queue.holds(*rows, "77_4|PENDING|JobHeldUser|||N/A")
    assert (one(run).to_go_s, point_of(run, 4).state) == (None, "held")
    queue.holds(*rows, "77_4|PENDING|BadConstraints|||N/A")
    assert (one(run).to_go_s, point_of(run, 4).state) == (None, "stuck")


def test_the_time_to_go_counts_staging_and_environment(tmp_path: Path, queue: Queue) -> None:
    """A task of a worker that took a minute took 100 s in all: so will its like."""
    points = grid([50], 3)
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    folder = try_folder(run, points[0])
    for name, at in (("begin", 1000), ("exit", 1100)):
        (folder / name).touch()
        os.utime(folder / name, (at, at))
    queue.holds("77_2|RUNNING|None|n2|0:20|2026-01-02T10:19:00", "77_3|PENDING|Priority|||N/A")
    assert one(run).to_go_s == pytest.approx(80 + 100)
    assert point_of(run).elapsed_s == 60


def test_a_card_that_was_too_small_says_nothing_of_how_long_others_take(tmp_path: Path, queue: Queue) -> None:
    points = grid([50], 3)
    run = run_of(tmp_path / "run", points)
    write_record(run, replace(record(points[0]), outcome=Outcome.GPU_OOM))
    queue.holds("77_2|RUNNING|None|n2|0:20|2026-01-02T10:19:00", "77_3|PENDING|Priority|||N/A")
    assert one(run).to_go_s is None


def test_points_that_share_a_job_are_timed_one_by_one(tmp_path: Path, queue: Queue) -> None:
    points = grid([50], 2)
    run = write_points(tmp_path / "run", points)
    (run / "tasks-1.txt").write_text("1 2\n", encoding="utf-8")
    line = {"at": "2026-01-02T10:15:00+00:00", "event": "submitted", "scheduler": "slurm", "job_id": "77"}
    append_line(
        run / JOURNAL_FILE, json.dumps(line | {"first": 1, "last": 1, "offset": 0, "list": "tasks-1.txt"})
    )
    write_begin(run, points[0])
    queue.holds("77_1|RUNNING|None|n2|1:00:00|2026-01-02T10:19:00")
    first, second = one(run).points
    assert first.elapsed_s is not None
    assert first.elapsed_s > 3600, "since its own try began, long ago"
    assert (second.state, second.elapsed_s) == ("waiting", None)
    assert second.why == "the job that it shares has begun, and its turn is to come"


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ("78_1|PENDING|Dependency|||N/A", "waiting"),
        ("78_1|RUNNING|None|n1|0:01|N/A", "running"),
        ("78_1|PENDING|DependencyNeverSatisfied|||N/A", "stuck"),
        ("78_1|STRANGE|None|||N/A", "unsettled"),
        ("77_1|PENDING|Priority|||N/A", "unsettled"),
    ],
)
def test_how_the_job_that_follows_stands(tmp_path: Path, queue: Queue, row: str, state: str) -> None:
    run = run_of(tmp_path / "run", grid([50]))
    write_follower(run, "78")
    queue.holds(row)
    assert [job.state for job in one(run).jobs] == [state]


def test_a_job_that_follows_and_has_ended_is_known_to_have(tmp_path: Path, queue: Queue) -> None:
    points = grid([50])
    run = run_of(tmp_path / "run", points)
    write_record(run, record(points[0]))
    write_follower(run, "78")
    queue.says("sacct", "78_1|COMPLETED|0:0|3|||1|n1|None|demo-20260102-101530-3f9a")
    assert [job.state for job in one(run).jobs] == ["ended"]
    queue.asked.clear()
    assert [job.state for job in one(run).jobs] == ["ended"]
    assert queue.asked == {}, "what is known to have ended is not asked about again"


SACCT = f"78_2|TIMEOUT|0:0|3|||1|n1|None|{RUN_ID}"
QACCT = f"""\
==============================================================
jobname      {RUN_ID}
jobnumber    78
taskid       2
failed       100 : assumedly after job
exit_status  137"""
TRIAL = {"index": 2, "batch_size": 64, "load": 9, "capacity_bytes": 9, "expected_bytes": 8, "bound_bytes": 9}


def write_trial(run: Path, trial: Point, outcome: str | None) -> None:
    """Write a trial that has begun, or has ended, as its job does; a killed one leaves no outcome."""
    append_line(run / POINTS_FILE, to_json(trial))
    if outcome:
        write_record(run, record(trial))
    write_atomically(run / SEARCH_GOAL_FILE, '{"memory_bytes": null, "ram_bytes": 9, "ledger": "/l"}')
    append_line(run / TRIALS_FILE, json.dumps(TRIAL | {"outcome": outcome, "measured_bytes": 8}))


@pytest.mark.parametrize(
    ("outcome", "program", "answer", "end"),
    [
        pytest.param("ok", "sacct", "", "its last trial has ended", id="home"),
        pytest.param(None, "sacct", SACCT, "sacct: TIMEOUT, ExitCode 0:0", id="slurm"),
        pytest.param(None, "qacct", QACCT, "qacct: failed 100 : assumedly after job", id="sge"),
    ],
)
def test_how_the_job_that_tries_the_largest_batch_ended(
    tmp_path: Path, queue: Queue, outcome: str | None, program: str, answer: str, end: str
) -> None:
    points = grid([50])
    scheduler = "slurm" if program == "sacct" else "sge"
    run = run_of(tmp_path / "run", points, scheduler)
    write_record(run, record(points[0]))
    write_follower(run, "78", role="find", scheduler=scheduler, task=2)
    write_trial(run, replace(points[0], index=2, point_id="batch_size-64-verify"), outcome)
    queue.says("qstat", "<job_info/>")
    queue.says(program, answer)
    (job,) = one(run).jobs
    assert job.state == "ended"
    assert job.why.startswith(end)


def test_a_job_that_follows_and_left_no_trace_is_said_to_be_gone(tmp_path: Path, queue: Queue) -> None:
    run = run_of(tmp_path / "run", grid([50]))
    write_follower(run, "78")
    for at in ("2026-01-02T11:00:00+00:00", "2026-01-02T11:05:00+00:00"):
        write_answer(run, "slurm", "gone", "78.1", argv=[], at=at)
    (job,) = one(run).jobs
    assert job.why.startswith("neither the queue nor the accounting has listed it since 2026-01-02")
    assert queue.asked == {"squeue": 1, "sacct": 1}, "about the point alone"


def test_a_job_that_follows_and_was_cancelled_is_said_to_be(tmp_path: Path, queue: Queue) -> None:
    run = run_of(tmp_path / "run", grid([50]))
    write_follower(run, "78")
    line = {"at": "2026-01-02T11:00:00+00:00", "event": "cancelled", "job_id": "78", "status": 0}
    append_line(run / JOURNAL_FILE, json.dumps(line))
    (job,) = one(run).jobs
    assert (job.state, job.why[:12]) == ("ended", "cancelled at")
    assert queue.asked


def test_one_call_of_each_kind_however_many_runs_and_points(tmp_path: Path, queue: Queue) -> None:
    runs = []
    for number, name in enumerate(("demo-a", "demo-b", "demo-c")):
        points = [replace(point, run_id=name) for point in grid(range(1, 51), 2)]
        run = write_points(tmp_path / name, points)
        write_submitted(run, "slurm", str(77 + number), first=1, last=100)
        runs.append(run)
    queue.says("squeue", *(f"77_{n}|PENDING|Priority|||N/A|||demo-a" for n in range(1, 101)))
    found = status(runs)
    assert [len(run.points) for run in found] == [100] * 3
    assert queue.asked == {"squeue": 1, "sacct": 1}


def test_what_cannot_be_read_of_a_spec_is_not_known(tmp_path: Path) -> None:
    assert read_asked(tmp_path) == RequestedGpus()
    for text in ("", "[", "resources: 3", "resources: {gpus: many, gpu_type: null}", "resources: {gpus: 1}"):
        (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
        assert read_asked(tmp_path) == RequestedGpus()
    (tmp_path / "sweep.yaml").write_text("resources: {gpus: 1, gpu_type: null}", encoding="utf-8")
    assert read_asked(tmp_path) == RequestedGpus(1, "")


def test_the_exit_code_is_that_of_what_is_most_to_come(tmp_path: Path, queue: Queue) -> None:
    points = grid([50, 100])
    run = run_of(tmp_path / "run", points)
    queue.says("squeue", status=1)
    assert one(run).exit_code == 5
    write_record(run, record(points[0]))
    write_record(run, replace(record(points[1]), outcome=Outcome.BUG))
    assert one(run).exit_code == 4
    write_record(run, replace(record(points[1]), outcome=Outcome.GPU_OOM))
    assert one(run).exit_code == 0


def test_a_run_that_somebody_else_owns_is_known(
    tmp_path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "run", grid([50]))
    assert one(run).mine
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    assert not one(run).mine
    assert queue.asked
