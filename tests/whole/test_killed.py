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

SIZES = {"batch_size": [1, 2, 3]}


def test_kill_9_of_the_worker(tmp_path: Path, halted: Halted) -> None:
    """FAULT: the worker is killed with SIGKILL.

    HOW: real: kill -9.
    REPORTED: `lost` with exit status 137, unless the accounting has the reason (memory, walltime).
    LOST: nothing: the batches that were done are home.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    process = halted.start(run)
    os.kill(halted.worker(), signal.SIGKILL)
    said = ended(process)
    assert (process.returncode, run.exit().status) == (137, 137), said
    assert outcome(run) == "lost"
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    assert run.left_on_scratch() == []


def test_kill_9_of_the_job_script(tmp_path: Path, halted: Halted) -> None:
    """FAULT: the job script is killed with SIGKILL, but not its worker.

    HOW: real: kill -9 of one task of two on a node.
    REPORTED: `lost`, "the job script was killed": the process that copies results home ends the worker,
    because its GPU may belong to another job by now, and writes record and exit file.
    LOST: nothing; the inputs stay until the other task has ended.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    one, two = halted.start(run, 1), halted.start(run, 2)
    one.kill()
    one.wait()
    wait_until((run.home() / "exit").exists)
    assert gone(halted.worker(1))
    assert (run.exit().signal, run.exit().message) == ("KILL", "the job script was killed")
    assert run.record().outcome is Outcome.LOST
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    wait_until(lambda: not any(".inputs" not in name and ".1." in name for name in run.left_on_scratch()))
    assert "t-1.inputs" in run.left_on_scratch()
    halted.go()
    ended(two)
    assert outcome(run, 2) == "ok"
    wait_until(lambda: run.left_on_scratch() == [])


def test_kill_9_of_all(tmp_path: Path, halted: Halted) -> None:
    """FAULT: all processes of a task are killed while another task of the run works on the same node.

    HOW: real: kill -9 of its process group.
    REPORTED: what the accounting reports; without accounting, `lost` after the task was missing in the queue
    for a minute.
    LOST: at most one sync interval; the next task of the same user on the node removes its folder.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    one, two = halted.start(run, 1), halted.start(run, 2)
    wait_until((run.home() / "batches.jsonl").exists)
    os.killpg(one.pid, signal.SIGKILL)
    ended(one)
    halted.go()
    ended(two)
    assert outcome(run, 2) == "ok"
    assert not (run.home() / "exit").exists()
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    assert run.left_on_scratch() == []


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
    slow.unlink()
    assert run.run(1)[0] == 0


def test_term_while_the_model_is_loaded(tmp_path: Path, halted: Halted) -> None:
    """FAULT: a job is cancelled while the worker loads its model.

    HOW: real: TERM to the script, as Grid Engine and Slurm send it.
    REPORTED: `cancelled`, in a record without batches.
    LOST: nothing: no batch had begun.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    process = halted.start(run, at="load")
    process.send_signal(signal.SIGTERM)
    said = ended(process)
    assert process.returncode == 143, said
    assert (run.record().outcome, run.record().provisional) == (Outcome.CANCELLED, True)
    assert run.left_on_scratch() == []


def test_term_while_the_record_is_written(tmp_path: Path, halted: Halted) -> None:
    """FAULT: a job is cancelled when all batches are done and the record is being written.

    HOW: real: TERM to all its processes.
    REPORTED: `ok`: the worker has finished its work, and completes the record first.
    LOST: nothing.
    """
    run = ScriptRun(tmp_path, workload="broken:Waits")
    process = halted.start(run, at="record")
    os.killpg(process.pid, signal.SIGTERM)
    halted.go()
    ended(process)
    assert run.record().outcome is Outcome.OK
    assert run.exit().signal == "TERM"
    assert outcome(run) == "ok"


@pytest.mark.parametrize(("sent", "word"), [(signal.SIGTERM, "cancelled"), (signal.SIGUSR1, "timeout")])
def test_a_worker_that_takes_no_notice(
    tmp_path: Path, halted: Halted, sent: signal.Signals, word: str
) -> None:
    """FAULT: the worker ignores a signal.

    HOW: real: it ignores TERM, as a long call into C does; the script gets TERM, or the walltime's USR1.
    REPORTED: `cancelled` or `timeout`, by the exit file; the script kills the worker before the scheduler
    does.
    LOST: nothing: at the signal the script copied home the batches done.
    """
    run = ScriptRun(
        tmp_path, workload="broken:Deaf", site={"sync_interval_s": 60, "kill_wait_s": 2, "warning_s": 2}
    )
    process = halted.start(run)
    process.send_signal(sent)
    said = ended(process)
    assert process.returncode == 137, said
    assert run.exit().signal == sent.name.removeprefix("SIG")
    assert outcome(run) == word
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
    run = ScriptRun(
        tmp_path,
        workload="broken:Waits",
        sweep=SIZES,
        pack=3,
        site=PACKED,
        resources={"gpus": 0, "walltime": "00:00:08"},
    )
    (run.dir / "tasks-1.txt").write_text("1 2\n")
    told, go = tmp_path / "told", tmp_path / "go"
    process = run.start(
        *("--list", "tasks-1.txt", "0"),
        SLURM_ARRAY_JOB_ID="77",
        SLURM_ARRAY_TASK_ID="1",
        BROKEN_AT="batch",
        BROKEN_TOLD=str(told),
        BROKEN_GO=str(go),
    )
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
