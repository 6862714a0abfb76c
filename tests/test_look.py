"""Where points stand; the real schedulers are asked in tests/cluster."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.look import RunLook, Standing, followers, look
from jobkit.records import JOURNAL_FILE, Outcome, append_line
from jobkit.schedulers.base import State
from jobkit.submissions import Role
from tests.builders import grid, point, record, try_folder, write_points, write_record, write_submitted

RUN_ID = point().run_id


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file: what squeue says of the jobs it is asked about; sacct knows nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    told = tmp_path / "squeue.out"
    told.touch()
    for name, body in (("squeue", f"echo $* >>{tmp_path}/asked; cat {told}"), ("sacct", "true")):
        (folder / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return told


def seen(run: Path) -> RunLook:
    (found,) = look([run])
    return found


def follow(run: Path, job: str, role: Role) -> None:
    line = {"at": "2026-01-02T10:15:01+00:00", "event": "submitted", "scheduler": "slurm", "job_id": job}
    append_line(run / JOURNAL_FILE, json.dumps({**line, "first": 1, "last": 1, "offset": 1, "role": role}))


def test_a_further_trial_of_the_largest_batch_is_of_the_job_that_made_it(tmp_path: Path, queue: Path) -> None:
    points = grid([50, 900, 800])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "slurm", "77", first=1, last=1)
    follow(run, "78", Role.FIND)
    write_record(run, record(points[0]))
    write_record(run, replace(record(points[1]), outcome=Outcome.GPU_OOM))
    begin = "scheduler=slurm\njob=78\ntask=1\nrestart=0\nround=1\nhost=n1\npid=1\nat=2026-01-02T10:20:00Z\n"
    (try_folder(run, points[2]) / "begin").write_text(begin, encoding="utf-8")
    queue.write_text(f"78_1|RUNNING|None|n1|1:00|2026-01-02T10:19:00|{RUN_ID}\n", encoding="utf-8")
    last = seen(run).points[2]
    assert (last.standing, last.task and last.task.job_id) == (Standing.RUNNING, "78")
    assert (tmp_path / "asked").read_text().split()[-1] == "78"


def test_a_job_that_follows_and_was_taken_back_has_ended_without_an_account(
    tmp_path: Path, queue: Path
) -> None:
    (one,) = points = grid([50])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "slurm", "77", first=1, last=1)
    follow(run, "79", Role.FOLLOW)
    write_record(run, record(one))
    queue.write_text(f"79_1|PENDING|Dependency|||N/A|{RUN_ID}\n", encoding="utf-8")
    ((_, waits),) = followers(seen(run), Role.FOLLOW)
    assert waits is not None
    assert waits.state is State.PENDING
    gone = {"at": "2026-01-02T10:30:00+00:00", "event": "cancelled", "job_id": "79", "refused": ""}
    append_line(run / JOURNAL_FILE, json.dumps(gone))
    (tmp_path / "asked").unlink()
    after = seen(run)
    assert [task.job_id for task in after.ended] == ["79"]
    assert not (tmp_path / "asked").exists(), "there is nothing more to ask"


def test_what_is_refused_was_not_taken_back(tmp_path: Path, queue: Path) -> None:
    run = write_points(tmp_path / "run", grid([50]))
    write_submitted(run, "slurm", "77", first=1, last=1)
    queue.write_text(f"77_1|PENDING|Resources|||N/A|{RUN_ID}\n", encoding="utf-8")
    for event in ({"status": 1, "refused": "denied"}, {"status": 1}):
        line = {"at": "2026-01-02T10:30:00+00:00", "event": "cancelled", "job_id": "77", **event}
        append_line(run / JOURNAL_FILE, json.dumps(line))
    assert seen(run).points[0].standing is Standing.WAITING
    queue.write_text("", encoding="utf-8")
    assert seen(run).points[0].standing is Standing.UNSETTLED
    line = {
        "at": "2026-01-02T10:31:00+00:00",
        "event": "cancelled",
        "job_id": "77",
        "tasks": [1],
        "status": 1,
    }
    append_line(run / JOURNAL_FILE, json.dumps({**line, "refused": ""}))
    assert (seen(run).points[0].standing, seen(run).points[0].outcome) == (
        Standing.FAILED,
        Outcome.CANCELLED,
    )


def test_a_trial_that_ran_out_of_memory_has_its_answer(tmp_path: Path, queue: Path) -> None:
    points = grid([50])
    trial = replace(points[0], index=2, point_id="batch_size-900-verify")
    run = write_points(tmp_path / "run", [*points, trial])
    for one in (points[0], trial):
        write_record(run, replace(record(one), outcome=Outcome.RAM_OOM))
    assert queue.read_text() == ""
    assert [one.standing for one in seen(run).points] == [Standing.FAILED, Standing.DONE]


def test_what_the_journal_leaves_to_a_person_is_told(tmp_path: Path, queue: Path) -> None:
    run = write_points(tmp_path / "run", grid([50]))
    write_submitted(run, "slurm", "77", first=1, last=1)
    append_line(run / JOURNAL_FILE, json.dumps({"event": "left", "points": [1], "why": "no submit host"}))
    append_line(run / JOURNAL_FILE, json.dumps({"event": "submitting", "scheduler": "slurm"}))
    queue.write_text("", encoding="utf-8")
    told = seen(run)
    assert told.left is not None
    assert (told.left["points"], told.left["why"]) == ([1], "no submit host")
    assert told.unanswered is not None
    follow(run, "79", Role.FOLLOW)
    assert (seen(run).unanswered, seen(run).left is None) == (None, False)
    write_submitted(run, "slurm", "80", first=1, last=1)
    assert seen(run).left is None, "what was left has been submitted"
