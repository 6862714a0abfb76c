"""What is cancelled, and by how many commands; the real schedulers do it in tests/cluster."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.files import exclusive_lock
from jobkit.core.layout import RUN_LOCK
from jobkit.core.records import Outcome
from jobkit.launch.cancel import cancel
from jobkit.runs.journal import Role, read_journal
from jobkit.runs.reader import read_status
from tests.support.builders import grid, record, write_points, write_record, write_submitted
from tests.support.commands import jobkit, jobkit_process, ran
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here
from tests.whole.test_job_script import wait_until

WORKLOADS = Path(__file__).parents[1] / "workloads"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run of six points: the first is done, the fifth and sixth are a second array."""
    monkeypatch.setattr("jobkit.launch.cancel.SEEN_WITHIN_S", 0.0)
    points = grid([1, 2, 3, 4, 5, 6])
    folder = write_points(tmp_path / "run", points)
    write_submitted(folder, "slurm", "77", first=1, last=4)
    write_submitted(folder, "slurm", "78", first=1, last=2, offset=4)
    write_record(folder, record(points[0]))
    return folder


def outcomes(run: Path) -> list[Outcome | None]:
    (seen,) = read_status([run], ask=False)
    return [one.outcome for one in seen.points]


ALL = ["77_2 RUNNING", "77_3 PENDING", "77_4 PENDING", "78_1 PENDING", "78_2 PENDING"]


@pytest.mark.slow
def test_all_of_a_run_is_one_command_a_job_and_the_jobs_that_wait_go_first(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    write_submitted(run, "slurm", "79", first=1, last=1, offset=6, role=Role.FOLLOW)
    queue.squeue(*ALL[:-1])  # it does not show two tasks just now
    assert cancel(run, [], []) == 0
    assert queue.called("scancel") == ["scancel 79", "scancel 77", "scancel 78"]
    told = {(task.job_id, task.task) for task in read_journal(run).cancelled}
    assert told == {("77", 2), ("77", 3), ("77", 4), ("78", 1), ("78", 2), ("79", 1)}, "not what had ended"
    said = capsys.readouterr().err
    assert ": 6 points: 1 done, 1 running, 3 waiting, 1 unsettled" in said
    assert "cancelled: 5 points\nrunning points copy their results to the run folder" in said
    queue.squeue()
    assert cancel(run, [], []) == 0
    assert "nothing to cancel" in capsys.readouterr().err
    assert len(queue.called("scancel")) == 3
    assert cancel(run, [], ["2", "3", "4", "5", "6"]) == 0
    assert "nothing to cancel: none of the other points is in the queue" in capsys.readouterr().err


@pytest.mark.slow
def test_points_by_number_and_id_and_what_waits_for_the_others_stays(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    write_submitted(run, "slurm", "79", first=1, last=1, offset=6, role=Role.FOLLOW)
    queue.squeue(*ALL, "79_1 PENDING")
    queue.scancel("77_3", "77_4", "78_2")
    assert cancel(run, ["p006", "3", "4", "1", "p004"], []) == 0
    assert queue.called("scancel") == ["scancel 77_[3-4]", "scancel 78_2"]
    said = capsys.readouterr().err
    assert "p001 has ended (ok): left alone" in said
    assert "cancelled: 3 points\n" in said
    cancelled = Outcome.CANCELLED
    assert outcomes(run) == [Outcome.OK, None, cancelled, cancelled, None, cancelled]


@pytest.mark.slow
def test_what_is_being_cancelled_is_not_cancelled_twice(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.squeue(*ALL)
    cancel(run, ["2", "3"], [])
    said = capsys.readouterr().err
    assert "the scheduler accepted it, but within 0 s jobkit has not seen the end of p002, p003:" in said
    queue.squeue("77_2 COMPLETING", *ALL[1:])  # task 3 waits yet: the controller took no notice
    assert cancel(run, ["2"], []) == 0
    said = capsys.readouterr().err
    assert "p002 is being cancelled already\n" in said
    assert "cancelled: " not in said
    queue.scancel("77_3", "77_4")
    cancel(run, ["2", "3", "4"], [])
    assert "p002, p003 are being cancelled already\ncancelled: 1 point\n" in capsys.readouterr().err
    assert queue.called("scancel") == ["scancel 77_[2-3]", "scancel 77_[3-4]"]


@pytest.mark.slow
def test_points_that_share_a_job_end_together(run: Path, queue: Programs) -> None:
    (run / "tasks-2.txt").write_text("2 3 4\n5 6\n", encoding="utf-8")
    write_submitted(run, "slurm", "80", first=1, last=2, list="tasks-2.txt", round=2)
    queue.squeue("80_1 RUNNING", "80_2 PENDING")
    failed = replace(record(grid([1, 2])[1]), outcome=Outcome.BUG)
    write_record(run, replace(failed, job=replace(failed.job, job_id="80", task_id="1")))
    with pytest.raises(JobkitError, match="p003 cannot be cancelled alone: it shares a job with p004"):
        cancel(run, ["3", "5"], [])
    with pytest.raises(JobkitError, match=r"p005 cannot .* with p006"):
        cancel(run, [], ["6"])
    assert not queue.called("scancel")
    assert cancel(run, ["3", "4"], []) == 0
    assert queue.called("scancel") == ["scancel 80_1"]
    assert outcomes(run)[1] is Outcome.BUG, "what had ended keeps its outcome"


@pytest.mark.slow
def test_who_submits_just_now_is_waited_for_and_cancelled_too(
    run: Path, queue: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.squeue(*ALL)
    said: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr("jobkit.launch.resume.note", said.put)
    waiting = threading.Thread(target=cancel, args=(run, [], []), daemon=True)
    with exclusive_lock(run / RUN_LOCK, lambda: None):
        waiting.start()
        assert said.get(timeout=120) == "another jobkit command is changing this run: waiting for it"
        assert not queue.called(), "nothing is asked or cancelled meanwhile"
        write_submitted(run, "slurm", "80", first=1, last=1)
        queue.squeue(*ALL[:-1], "80_1 PENDING")
    waiting.join(30)
    assert {call.split()[1] for call in queue.called("scancel")} == {"77", "78", "80"}


@pytest.mark.slow
def test_a_refusal_is_reported_after_the_others_were_cancelled_and_silence_at_once(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.squeue(*ALL)
    queue.add("scancel", '[[ $* != *77* ]] || { echo "Access/permission denied" >&2; exit 210; }')
    with pytest.raises(JobkitError, match="slurm did not cancel job 77: Access/permission denied") as caught:
        cancel(run, [], [])
    assert caught.value.exit_code == 3
    assert caught.value.hint == f"jobkit status {run} shows what still runs"
    said = capsys.readouterr().err
    assert ("cancelled: 2 points" in said, "next: jobkit resume" in said) == (True, True)
    assert {task.job_id for task in read_journal(run).cancelled} == {"78"}
    queue.squeue(*ALL[:3])
    with pytest.raises(JobkitError, match="slurm did not cancel job 77"):
        cancel(run, [], [])
    assert "resume" not in capsys.readouterr().err, "nothing was cancelled"
    queue.add("squeue", "exit 1")
    with pytest.raises(JobkitError, match="slurm does not answer, so nothing was cancelled") as caught:
        cancel(run, [], [])
    assert caught.value.exit_code == 3
    assert len(queue.called("scancel")) == 3


@pytest.mark.slow
def test_the_trials_of_the_largest_batch_end_with_the_run(
    run: Path, queue: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cancel(write_points(run.with_name("refused"), grid([1, 2])), ["2"], []) == 0
    assert not queue.called(), "of a run whose submission was refused nobody need be asked"
    write_submitted(run, "slurm", "79", first=1, last=1, offset=6, role=Role.FIND)
    said = capsys.readouterr().err
    assert ("p002 was never submitted" in said, "nothing to cancel" in said) == (True, True)
    (run / "find_max.json").write_text('{"memory_bytes": null, "ram_bytes": 1, "ledger": "x", "after": 0}')
    queue.squeue("79_1 PENDING")
    for of in grid([1, 2, 3, 4, 5, 6]):
        write_record(run, record(of))
    assert cancel(run, [], []) == 0
    assert queue.called("scancel") == ["scancel 79"]
    queue.squeue()
    cancel(run, [], [])
    assert queue.called("scancel") == ["scancel 79"]


SLOW = """\
name: slow
workload: odd:Slow
text: text.txt
sweep: {batch_size: [1, 2]}
repeats: 1
scheduler: local
environment: {variables: {ODD_TOLD: '%s', PYTHONPATH: '%s'}}
"""


@pytest.mark.slow
def test_a_run_here_is_cancelled_as_a_whole_and_brings_its_results_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n\nThree.\n", encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SLOW % (tmp_path / "told", WORKLOADS), encoding="utf-8")

    monkeypatch.chdir(tmp_path)
    assert jobkit_process("sweep", "spec.yaml", "--detach").returncode == 0
    (run,) = (tmp_path / "runs").iterdir()
    name = f"runs/{run.name}"
    wait_until((tmp_path / "told").exists)
    alone = jobkit("cancel", name, "2")
    assert alone.returncode == 2
    assert "cannot be cancelled alone: one process runs all points here" in alone.stderr
    done = ran("cancel", name)
    assert "cancelled: 2 points\nrunning points copy their results to the run folder" in done.stderr
    assert done.stderr.endswith(f"next: jobkit resume {name}\n"), "relative to here"
    wait_until(lambda: any(run.glob("results/*/try-1/exit")) and not read_status([run])[0].queued)
    assert outcomes(run) == [Outcome.CANCELLED, Outcome.CANCELLED]
    kept = json.loads((run / "results" / "batch_size-1-r1" / "try-1" / "record.json").read_text())
    assert kept["summary"]["batches"] == 1
    assert "nothing to cancel" in jobkit("cancel", name).stderr
    assert "again: 1 point" in jobkit("resume", name, "2", "--set", "resources.walltime=2s").stderr
