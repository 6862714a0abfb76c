"""Where points stand; the real schedulers are asked in tests/cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.files import append_line
from jobkit.core.json_codec import to_json
from jobkit.core.layout import ORDER_FILE, POINTS_FILE
from jobkit.core.records import JobFacts, Outcome
from jobkit.runs.journal import Role
from jobkit.runs.reader import read_requested, read_standings
from jobkit.runs.standing import PointState, Requested
from jobkit.schedulers.types import Queued, State
from tests.support.builders import (
    grid,
    record,
    write_begin,
    write_event,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.meanwhile import meanwhile
from tests.support.programs import FAILED, RUN_ID, Programs, seen, standings, sweep
from tests.support.programs import programs as programs  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.programs import queue as queue  # noqa: PLC0414 - the same


def test_a_further_trial_of_the_largest_batch_is_of_the_job_that_made_it(
    tmp_path: Path, queue: Programs
) -> None:
    points = grid([50, 900, 800])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "slurm", "77", first=1, last=1)
    write_submitted(run, "slurm", "78", first=1, last=1, offset=1, role=Role.FIND)
    write_record(run, record(points[0]))
    write_record(run, replace(record(points[1]), outcome=Outcome.GPU_OOM))
    write_begin(run, points[2], job=78, task=1)
    queue.squeue("78_1 RUNNING")
    last = seen(run).points[2]
    assert (last.standing, last.task and last.task.job_id) == (PointState.RUNNING, "78")
    assert queue.called("squeue")[0].split()[-1] == "78"


@pytest.mark.parametrize("before", range(4))
def test_a_corpus_that_is_planned_while_it_is_read_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    (tmp_path / POINTS_FILE).touch()
    (tmp_path / ORDER_FILE).write_text(f'{{"run_id": "{RUN_ID}"}}', encoding="utf-8")
    meanwhile(monkeypatch, before, lambda: write_points(tmp_path, grid([50])))
    (run,) = read_standings([tmp_path], ask=False)
    assert (len(run.points) <= 1, run.notes) == (True, ())


@pytest.mark.parametrize("before", range(4))
def test_a_point_that_a_search_adds_while_the_run_is_read_is_not_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    points = grid([50, 900])
    run = write_points(tmp_path / "run", points[:1])
    write_record(run, record(points[0]))

    def add() -> None:
        append_line(run / POINTS_FILE, to_json(points[1]))
        write_begin(run, points[1])

    meanwhile(monkeypatch, before, add)
    (found,) = read_standings([run], ask=False)
    assert (found.points[0].outcome, found.notes) == (Outcome.OK, ())


def test_what_is_refused_was_not_taken_back(tmp_path: Path, queue: Programs) -> None:
    run = write_points(tmp_path / "run", grid([50]))
    write_submitted(run, "slurm", "77", first=1, last=1)
    queue.squeue("77_1 PENDING Resources")
    for fields in ({"status": 1, "refused": "denied"}, {"status": 1}):
        write_event(run, "cancelled", job_id="77", **fields)
    assert standings(run) == [PointState.WAITING]
    queue.squeue()
    assert standings(run) == [PointState.UNSETTLED]
    write_event(run, "cancelled", job_id="77", tasks=[1], status=1, refused="")
    (point,) = seen(run).points
    assert (point.standing, point.outcome) == (PointState.FAILED, Outcome.CANCELLED)


def test_a_trial_that_ran_out_of_memory_has_its_answer(tmp_path: Path) -> None:
    points = grid([50])
    trial = replace(points[0], index=2, point_id="batch_size-900-verify")
    run = write_points(tmp_path / "run", [*points, trial])
    for one in (points[0], trial):
        write_record(run, replace(record(one), outcome=Outcome.RAM_OOM))
    assert standings(run) == [PointState.FAILED, PointState.DONE]


@pytest.mark.usefixtures("queue")
def test_what_the_journal_leaves_to_a_person_is_reported(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", grid([50]))
    write_submitted(run, "slurm", "77", first=1, last=1)
    write_event(run, "left", points=[1], why="no submit host")
    write_event(run, "submitting", scheduler="slurm")
    told = seen(run)
    assert told.left is not None
    assert (told.left["points"], told.left["why"]) == ([1], "no submit host")
    assert told.unanswered is not None
    write_submitted(run, "slurm", "79", first=1, last=1, offset=1, role=Role.FOLLOW)
    assert (seen(run).unanswered, seen(run).left is None) == (None, False)
    write_submitted(run, "slurm", "80", first=1, last=1)
    assert seen(run).left is None, "what was left has been submitted"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="not a run folder"):
        read_standings([tmp_path])


def test_a_run_of_which_all_is_known_asks_nobody(tmp_path: Path, programs: Programs) -> None:
    good, bad = sweep(tmp_path / "run", 2)
    write_record(tmp_path / "run", record(good))
    write_exit(tmp_path / "run", bad, FAILED)
    assert standings(tmp_path / "run") == [PointState.DONE, PointState.FAILED]
    assert programs.calls() == []


def test_where_points_stand(tmp_path: Path, programs: Programs) -> None:
    run = tmp_path / "run"
    points = sweep(run, 8)
    write_points(tmp_path / "more", grid(range(1, 10)))
    (run / "points.jsonl").write_bytes((tmp_path / "more" / "points.jsonl").read_bytes())
    write_record(run, record(points[0]))
    write_exit(run, points[1], FAILED)
    write_begin(run, points[3])
    write_exit(run, points[7], FAILED)
    waiting = ("77_3 PENDING Resources", "77_6 PENDING BadConstraints")
    programs.squeue(*waiting, "77_4 RUNNING", "77_5 RUNNING", "77_8 COMPLETING")
    assert standings(run) == [
        PointState.DONE,
        PointState.FAILED,
        PointState.WAITING,
        PointState.RUNNING,
        PointState.RUNNING,
        PointState.STUCK,
        PointState.UNSETTLED,
        PointState.FAILED,
        PointState.MISSING,
    ]
    assert seen(run).points[2].queued == Queued(
        job_id="77", task=3, state=State.PENDING, reason="Resources", name=RUN_ID, node="n1"
    )


def test_points_that_share_a_task(tmp_path: Path, programs: Programs) -> None:
    run = tmp_path / "run"
    points = grid([1, 2, 3])
    write_points(run, points)
    (run / "tasks-1.txt").write_text("1 2 3\n", encoding="utf-8")
    write_submitted(run, "slurm", "77", first=1, last=1, list="tasks-1.txt")
    job = JobFacts(scheduler="slurm", job_id="77", task_id="1")
    write_record(run, replace(record(points[0]), outcome=Outcome.BUG, job=job))
    write_begin(run, points[1], task=1)
    programs.squeue("77_1 RUNNING")
    assert standings(run) == [PointState.FAILED, PointState.RUNNING, PointState.WAITING]
    write_record(run, replace(record(points[1]), job=job))
    programs.squeue()
    programs.sacct("77_1 TIMEOUT 0:0")
    found = seen(run).points
    assert [one.standing for one in found] == [PointState.FAILED, PointState.DONE, PointState.FAILED]
    assert found[2].outcome is Outcome.TIMEOUT
    programs.sacct("77_1 FAILED 1:0")
    last = seen(run).points[2]
    assert last.outcome is Outcome.TIMEOUT, "what is known is not asked again"


@pytest.mark.parametrize(
    ("text", "requested"),
    [
        (None, Requested()),
        ("[", Requested()),
        ("resources: 3", Requested()),
        ("resources: {gpus: many, gpu_type: null}", Requested()),
        ("resources: {gpus: 1}", Requested()),
        ("resources: {gpus: 1, gpu_type: null}", Requested(1)),
    ],
)
def test_what_cannot_be_read_of_a_spec_is_not_known(
    tmp_path: Path, text: str | None, requested: Requested
) -> None:
    if text is not None:
        (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    assert read_requested(tmp_path) == requested


def test_a_run_of_another_user_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_points(tmp_path / "run", grid([50]))
    assert seen(run).mine
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    assert not seen(run).mine
