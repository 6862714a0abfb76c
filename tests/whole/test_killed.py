"""Jobs that are killed or cancelled, at every moment of a try."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from tests.support.copiers import stand_in
from tests.support.halted import Halted, ended, outcome
from tests.support.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.processes import gone
from tests.whole.test_job_script import ScriptRun, wait_until

pytestmark = pytest.mark.fault

EIGHT = "".join(f"Paragraph {number}.\n\n" for number in range(8))


def test_kill_9_of_one_task_of_several_on_a_node(tmp_path: Path, halted: Halted) -> None:
    """FAULT: the worker of a task is killed with SIGKILL, the script of another, all processes of a third.

    HOW: real: kill -9, while a fourth task of the run works on the same node.
    REPORTED: a worker: `lost` with exit status 137, unless the accounting has the reason (memory, walltime).
    A script: `lost`, "the job script was killed": the process that copies results home ends the worker,
    because its GPU may belong to another job by now, and writes record and exit file. All processes: what the
    accounting reports; without accounting, `lost` after the task was missing in the queue for a minute.
    LOST: nothing: the batches that were done are home; of a task without processes at most one sync interval.
    The inputs stay until the last task has ended, which also removes the folder of a task without processes.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits", sweep={"batch_size": [1, 2, 3, 4]}, text=EIGHT)
    worker, script, all_, last = (halted.start(run, point) for point in (1, 2, 3, 4))
    script.kill()
    os.kill(halted.worker(1), signal.SIGKILL)
    said = ended(worker)
    assert (worker.returncode, run.exit(1).status) == (137, 137), said
    assert outcome(run, 1) == "lost"
    wait_until((run.home(3) / "batches.jsonl").exists)
    os.killpg(all_.pid, signal.SIGKILL)
    ended(all_)
    wait_until((run.home(2) / "exit").exists)
    assert gone(halted.worker(2))
    assert (run.exit(2).signal, run.exit(2).message) == ("KILL", "the job script was killed")
    assert run.record(2).outcome is Outcome.LOST
    assert not (run.home(3) / "exit").exists()
    for point in (1, 2, 3):
        assert len((run.home(point) / "batches.jsonl").read_bytes().splitlines()) == 1
    assert "t-1.inputs" in run.left_on_scratch()
    halted.go()
    ended(last)
    assert outcome(run, 4) == "ok"
    wait_until(lambda: run.left_on_scratch() == [])


def test_term_while_the_inputs_are_copied(tmp_path: Path, halted: Halted) -> None:
    """FAULT: a job is cancelled while it copies its inputs to the node.

    HOW: real: TERM to all its processes, as scancel does; the copy is slowed down.
    REPORTED: `cancelled`, in step `stage_in`.
    LOST: nothing; the node keeps no files, and the next task copies the inputs again.
    """
    once = f"[[ -e {tmp_path}/copying ]] || {{ touch {tmp_path}/copying; sleep 60 & wait; }}"
    slow = stand_in(tmp_path / "bin", once)
    run = ScriptRun(tmp_path, environment={"setup": [f"export PATH={slow.parent}:$PATH"]})
    process = halted.start(run, until="copying")
    os.killpg(process.pid, signal.SIGTERM)
    ended(process)
    assert (run.exit().signal, run.exit().stage) == ("TERM", "stage_in")
    assert outcome(run) == "cancelled"
    assert run.left_on_scratch() == []


@pytest.mark.parametrize(("at", "word"), [("load", Outcome.CANCELLED), ("record", Outcome.OK)])
def test_term_before_and_after_the_batches(tmp_path: Path, halted: Halted, at: str, word: Outcome) -> None:
    """FAULT: a job is cancelled while the worker loads its model, or while the record is being written.

    HOW: real: TERM to all its processes.
    REPORTED: `cancelled`, in a record without batches; `ok` once all batches are done: the worker has
    finished its work, and completes the record first.
    LOST: nothing: no batch had begun, or all are home.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    process = halted.start(run, at=at)
    os.killpg(process.pid, signal.SIGTERM)
    if at == "record":
        halted.go()
    said = ended(process)
    assert (run.record().outcome, run.exit().signal) == (word, "TERM"), said
    assert (process.returncode, run.record().provisional) == ((0, False) if at == "record" else (143, True))
    assert outcome(run) == word
    assert run.left_on_scratch() == []


def test_a_worker_that_takes_no_notice(tmp_path: Path, halted: Halted) -> None:
    """FAULT: the worker ignores a signal.

    HOW: real: it ignores TERM, as a long call into C does; the script gets the walltime's USR1.
    REPORTED: `timeout`, by the exit file; the script kills the worker before the scheduler does.
    LOST: nothing: at the signal the script copied home the batches done.
    """
    run = ScriptRun(
        tmp_path, workload="broken:Deaf", site={"sync_interval_s": 60, "kill_wait_s": 2, "warning_s": 2}
    )
    process = halted.start(run)
    process.send_signal(signal.SIGUSR1)
    said = ended(process)
    assert process.returncode == 137, said
    assert (run.exit().signal, outcome(run)) == ("USR1", "timeout")
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    assert gone(halted.worker())
    assert run.left_on_scratch() == []


REQUESTS = {name: f"--{name}={{{name}}}" for name in ("gpus", "cpus", "memory", "walltime")}
PACKED = {"scheduler": "slurm", "requests": REQUESTS}


def test_one_of_several_points_in_a_job_overruns_its_share(tmp_path: Path, halted: Halted) -> None:
    """FAULT: one of several points that share a job (`pack`) overruns its share of the walltime.

    HOW: real: a worker that never ends; bash runs the script with the variables of a job.
    REPORTED: `timeout` for that point, with the batches done; the points after it run normally.
    LOST: nothing.
    """
    resources = {"gpus": 0, "walltime": "00:00:06"}
    run = ScriptRun(tmp_path, workload="broken:Waits", pack=2, site=PACKED, resources=resources)
    (run.dir / "tasks-1.txt").write_text("1 2\n")
    waits = {"BROKEN_AT": "batch", "BROKEN_TOLD": str(tmp_path / "told"), "BROKEN_GO": str(tmp_path / "go")}
    job = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "1"}
    process = run.start("--list", "tasks-1.txt", "0", **job, **waits)
    halted.started.append(process)
    wait_until((run.home(2) / "begin").exists)
    halted.go()
    said = ended(process)
    assert process.returncode == 1, said
    assert [outcome(run, point) for point in (1, 2)] == ["timeout", "ok"]
    assert run.record(1).summary is not None
    assert run.record(1).signal == "USR1"


def test_the_scheduler_kills_sooner_than_the_worker_ends(tmp_path: Path, halted: Halted) -> None:
    """FAULT: a cancelled job is killed before its worker has ended.

    HOW: real: TERM, which the worker ignores, then kill -9 of the process group.
    REPORTED: `cancelled` or `timeout`, from the accounting.
    LOST: nothing that was done before the signal: the script copied it home at once.
    """
    run = ScriptRun(tmp_path, workload="broken:Deaf", site={"sync_interval_s": 60})
    process = halted.start(run)
    process.send_signal(signal.SIGTERM)
    wait_until((run.home() / "batches.jsonl").exists)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    ended(process)
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    assert not (run.home() / "exit").exists()
