"""Faults on the node: signals at every moment, what is killed, what is missing, clocks that differ."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobkit.begin import read_begin
from jobkit.collect import collect
from jobkit.look import Standing, look
from jobkit.recommendation import Held
from jobkit.records import Outcome
from tests.builders import MODEL
from tests.test_job_script import DEADLINE_S, WORKLOADS, Run, wait_until

pytestmark = pytest.mark.fault

SIZES = {"batch_size": [1, 2, 3]}


class Broken:
    """Points of a workload that waits at a moment of its try."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, run: Run, point: int = 1, *, at: str = "batch", until: str = "") -> subprocess.Popen[str]:
        """Start a point, and return when it waits; ``until`` names what tells where not the worker does."""
        told = self.told(point)
        process = run.start(
            point, BROKEN_AT=at, BROKEN_TOLD=str(told), BROKEN_GO=str(self.folder / "go"), ODD_TOLD=str(told)
        )
        self.started.append(process)
        wait_until((self.folder / until if until else told).exists)
        return process

    def told(self, point: int = 1) -> Path:
        return self.folder / f"told-{point}"

    def worker(self, point: int = 1) -> int:
        return int(self.told(point).read_text(encoding="ascii"))

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Broken]:
    """Return a starter of points that wait; at the end none is left."""
    starter = Broken(tmp_path)
    yield starter
    starter.go()
    for process in starter.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    """Return what a script said, once it has ended."""
    return process.communicate(timeout=DEADLINE_S)[0]


def outcome(run: Run, point: int = 1) -> str:
    """Return the outcome of a point, as `jobkit collect` tells it."""
    return str(collect([run.dir]).points.iloc[point - 1]["outcome"])


def gone(pid: int) -> bool:
    """Tell whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2][:1]
    except OSError:
        return True
    return state == "Z"


def test_two_sweeps_on_one_node(tmp_path: Path, broken: Broken) -> None:
    """FAULT: two sweeps run on one node at a time.

    HOW: real: two runs with one scratch, the first ends while the second works.
    REPORTED: nothing: each has inputs of its own, and removes no others.
    LOST: nothing.
    """
    scratch = {"scratch": str(tmp_path / "scratch")}
    (tmp_path / "b").mkdir()
    first = Run(tmp_path, workload="broken:Waits", site=scratch)
    second = Run(tmp_path / "b", workload="broken:Waits", site=scratch, run_id="t-2")
    one, two = broken.start(first), broken.start(second, 2)
    assert {"t-1.inputs", "t-2.inputs"} < set(first.left_on_scratch())
    one.send_signal(signal.SIGTERM)
    ended(one)
    left = first.left_on_scratch()
    assert "t-2.inputs" in left
    assert not [name for name in left if name.startswith("t-1")]
    broken.go()
    said = ended(two)
    assert two.returncode == 0, said
    assert second.record(2).outcome is Outcome.OK
    assert first.left_on_scratch() == []


def test_kill_9_of_the_worker(tmp_path: Path, broken: Broken) -> None:
    """FAULT: the worker is killed outright.

    HOW: real: kill -9.
    REPORTED: `lost` with exit status 137, unless the accounting knows better (memory, walltime).
    LOST: nothing: the batches that were done are home.
    """
    run = Run(tmp_path, workload="broken:Waits")
    process = broken.start(run)
    os.kill(broken.worker(), signal.SIGKILL)
    said = ended(process)
    assert (process.returncode, run.exit().status) == (137, 137), said
    assert outcome(run) == "lost"
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    assert run.left_on_scratch() == []


def test_kill_9_of_the_job_script(tmp_path: Path, broken: Broken) -> None:
    """FAULT: the job script is killed outright, and its worker is not.

    HOW: real: kill -9 of one task of two on a node.
    REPORTED: `lost`, "the job script was killed": the process that copies results home ends the worker, \
    whose card may be somebody else's by now, and leaves record and exit file.
    LOST: nothing; the inputs that the other task uses stay until that one has ended.
    """
    run = Run(tmp_path, workload="broken:Waits")
    one, two = broken.start(run, 1), broken.start(run, 2)
    one.kill()
    one.wait()
    wait_until((run.home() / "exit").exists)
    assert gone(broken.worker(1))
    assert (run.exit().signal, run.exit().message) == ("KILL", "the job script was killed")
    assert run.record().outcome is Outcome.LOST
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    wait_until(lambda: not any(".inputs" not in name and ".1." in name for name in run.left_on_scratch()))
    assert "t-1.inputs" in run.left_on_scratch()
    broken.go()
    ended(two)
    assert outcome(run, 2) == "ok"
    wait_until(lambda: run.left_on_scratch() == [])


def test_kill_9_of_all(tmp_path: Path, broken: Broken) -> None:
    """FAULT: a whole task is killed outright while another of its run works on the same node.

    HOW: real: kill -9 of its process group.
    REPORTED: what the accounting says; without one, `lost` once the queue has not held it for a minute.
    LOST: at most one sync interval; its folder stays on the node, the shared inputs go with the last task.
    """
    run = Run(tmp_path, workload="broken:Waits")
    one, two = broken.start(run, 1), broken.start(run, 2)
    wait_until((run.home() / "batches.jsonl").exists)
    os.killpg(one.pid, signal.SIGKILL)
    ended(one)
    broken.go()
    ended(two)
    assert outcome(run, 2) == "ok"
    assert not (run.home() / "exit").exists()
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    (left,) = run.left_on_scratch()
    assert left.startswith(f"t-1.{one.pid}.1.")


def test_term_while_the_inputs_are_copied(tmp_path: Path, broken: Broken) -> None:
    """FAULT: a job is cancelled while it copies its inputs to the node.

    HOW: real: TERM to all its processes, as scancel does; the copy is slowed down.
    REPORTED: `cancelled`, in step `stage_in`.
    LOST: nothing; nothing is left on the node, and the next task copies anew.
    """
    slow = tmp_path / "bin" / "rsync"
    slow.parent.mkdir()
    slow.write_text(
        f"#!/bin/bash\n[[ -e {tmp_path}/copying ]] || {{ touch {tmp_path}/copying; sleep 60 & wait; }}\n"
    )
    slow.chmod(0o755)
    run = Run(tmp_path, environment={"setup": [f"export PATH={slow.parent}:$PATH"]})
    process = broken.start(run, until="copying")
    os.killpg(process.pid, signal.SIGTERM)
    ended(process)
    assert (run.exit().signal, run.exit().stage) == ("TERM", "stage_in")
    assert outcome(run) == "cancelled"
    assert run.left_on_scratch() == []
    slow.unlink()
    assert run.run(1)[0] == 0


def test_term_while_the_model_is_loaded(tmp_path: Path, broken: Broken) -> None:
    """FAULT: a job is cancelled while the worker loads its model.

    HOW: real: TERM to the script, as Grid Engine's and Slurm's signals come.
    REPORTED: `cancelled`, in a record of no batches.
    LOST: nothing, nothing was measured.
    """
    run = Run(tmp_path, workload="broken:Waits")
    process = broken.start(run, at="load")
    process.send_signal(signal.SIGTERM)
    said = ended(process)
    assert process.returncode == 143, said
    assert (run.record().outcome, run.record().provisional) == (Outcome.CANCELLED, True)
    assert run.left_on_scratch() == []


def test_term_while_the_record_is_written(tmp_path: Path, broken: Broken) -> None:
    """FAULT: a job is cancelled when all batches are done and the record is being written.

    HOW: real: TERM to all its processes.
    REPORTED: `ok`: the worker has done its work, and finishes its record first.
    LOST: nothing.
    """
    run = Run(tmp_path, workload="broken:Waits")
    process = broken.start(run, at="record")
    os.killpg(process.pid, signal.SIGTERM)
    broken.go()
    ended(process)
    assert run.record().outcome is Outcome.OK
    assert run.exit().signal == "TERM"
    assert outcome(run) == "ok"


@pytest.mark.parametrize(("sent", "word"), [(signal.SIGTERM, "cancelled"), (signal.SIGUSR1, "timeout")])
def test_a_worker_that_takes_no_notice(
    tmp_path: Path, broken: Broken, sent: signal.Signals, word: str
) -> None:
    """FAULT: the worker takes no notice of a signal.

    HOW: real: it ignores TERM, as a long call into C does; the script gets TERM, or the walltime's USR1.
    REPORTED: `cancelled` or `timeout`, by the exit file; the worker is killed before the scheduler does it.
    LOST: nothing: the batches that were done came home at the signal.
    """
    run = Run(
        tmp_path, workload="broken:Deaf", site={"sync_interval_s": 60, "kill_wait_s": 2, "warning_s": 2}
    )
    process = broken.start(run)
    process.send_signal(sent)
    said = ended(process)
    assert process.returncode == 137, said
    assert run.exit().signal == sent.name.removeprefix("SIG")
    assert outcome(run) == word
    assert len((run.home() / "batches.jsonl").read_bytes().splitlines()) == 1
    assert gone(broken.worker())
    assert run.left_on_scratch() == []


def test_an_environment_that_breaks_between_two_tasks(tmp_path: Path) -> None:
    """FAULT: the environment breaks between two tasks of a run.

    HOW: real: a file that its set-up reads is removed.
    REPORTED: `environment`, with the shell's words in the log; two such points stop the sweep.
    LOST: nothing.
    """
    needed = tmp_path / "env.sh"
    needed.write_text("export READY=1\n")
    run = Run(tmp_path, environment={"setup": [f"source {needed}"]}, sweep=SIZES)
    task = {"JOBKIT_JOB": "77"}
    assert run.run("--offset", 0, JOBKIT_TASK="1", **task)[0] == 0
    needed.unlink()
    for point in ("2", "3"):
        status, said = run.run("--offset", 0, JOBKIT_TASK=point, **task)
        assert status == 1
        assert "env.sh: No such file" in said
    assert [outcome(run, point) for point in (1, 2, 3)] == ["ok", "environment", "environment"]
    status, said = run.run("--offset", 0, JOBKIT_TASK="1", **task)
    assert run.exit(1, 2).outcome is Outcome.ENVIRONMENT, "it breaks before anybody can ask"


def test_a_model_that_goes_between_submission_and_start(tmp_path: Path) -> None:
    """FAULT: the model's folder is removed after the submission.

    HOW: real: it is removed.
    REPORTED: `stage_in`: "the model could not be copied", and rsync's words in the log.
    LOST: nothing.
    """
    folder = tmp_path / "model"
    (folder / MODEL.name).mkdir(parents=True)
    (folder / "resources.json").write_text("{}")
    run = Run(tmp_path, model=replace(MODEL, path=str(folder)))
    assert run.run(1)[0] == 0
    shutil.rmtree(folder)
    status, said = run.run(1)
    assert (status, run.exit(1, 2).outcome) == (1, Outcome.STAGE_IN), said
    assert "the model could not be copied" in run.exit(1, 2).message
    assert "No such file or directory" in said
    assert run.left_on_scratch() == []


REQUESTS = {name: f"--{name}={{{name}}}" for name in ("gpus", "cpus", "memory", "walltime")}
PACKED = {"scheduler": "slurm", "requests": REQUESTS}


def test_one_of_several_points_in_a_job_overruns_its_share(tmp_path: Path, broken: Broken) -> None:
    """FAULT: one of several points that share a job (`pack`) overruns its share of the walltime.

    HOW: real: a worker that would never end; the script by bash, in a job's variables.
    REPORTED: `timeout` for that point, with the batches that it did; the points after it run as if alone.
    LOST: nothing.
    """
    run = Run(
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
    broken.started.append(process)
    wait_until((run.home(2) / "begin").exists)
    broken.go()
    said = ended(process)
    assert process.returncode == 1, said
    assert [outcome(run, point) for point in (1, 2)] == ["timeout", "ok"]
    assert run.record(1).summary is not None
    assert run.record(1).signal == "USR1"


def test_a_card_that_was_too_small_for_one_point(tmp_path: Path) -> None:
    """FAULT: a point runs out of GPU memory, and larger ones on such a card would too.

    HOW: fake: an NVML of one card, and an error as torch raises it; script, gate and worker are real.
    REPORTED: `gpu_oom` for that point, `pruned` for the larger ones on the same kind of card, before \
    anything is copied to the node; smaller ones, and all on another kind of card, run.
    LOST: nothing: both are results, and GPU time is saved.
    """
    run = Run(tmp_path, workload="broken:TooLarge", sweep=SIZES, device="cuda")
    fake = {"PYTHONPATH": f"{WORKLOADS}/nvml:{WORKLOADS}", "JOBKIT_JOB": "77", "BROKEN_FROM": "2"}
    ends = [
        run.run("--offset", 0, JOBKIT_TASK=point, FAKE_CARD=card, **fake)
        for point, card in (("2", "V100"), ("3", "V100"), ("1", "V100"), ("3", "A100"))
    ]
    assert [status for status, _ in ends] == [0, 0, 0, 0], ends
    assert run.record(2).outcome is Outcome.GPU_OOM
    pruned = run.exit(3)
    assert (pruned.outcome, pruned.stage) == (Outcome.PRUNED, "gate")
    assert pruned.message == "batch_size-2-r1 ran out of memory on V100, with a smaller load"
    assert run.record(1).outcome is Outcome.OK
    assert run.record(3, 2).outcome is Outcome.GPU_OOM, "it ran, on another card"


@pytest.mark.parametrize("off_s", [3 * 3600, -3 * 3600])
def test_a_node_whose_clock_is_wrong(tmp_path: Path, off_s: int) -> None:
    """FAULT: the node's clock is three hours ahead of the login node's, or behind it.

    HOW: fake: `date` and Python's clock in the job tell another time.
    REPORTED: nothing: what was measured is measured by one clock alone, and no time comes out negative.
    LOST: nothing.
    """
    date = tmp_path / "bin" / "date"
    date.parent.mkdir()
    date.write_text(f'#!/bin/bash\nexec {shutil.which("date")} -d "$(({off_s})) seconds" "$@"\n')
    date.chmod(0o755)
    run = Run(tmp_path)
    clock = {"PATH": f"{date.parent}:{os.environ['PATH']}", "CLOCK_OFF_S": str(off_s)}
    status, said = run.run(1, PYTHONPATH=f"{WORKLOADS}/clock:{WORKLOADS}", **clock)
    assert status == 0, said
    begun = datetime.fromisoformat(read_begin(run.home() / "begin").at)
    record = run.record()
    for told in (begun, datetime.fromisoformat(record.started_at)):
        assert abs((told - datetime.now(UTC)).total_seconds() - off_s) < 300
    found = collect([run.dir]).points
    assert found["outcome"].tolist()[0] == "ok"
    assert (found.iloc[[0]].select_dtypes("number").fillna(0) >= 0).all(axis=None)
    (seen,) = look([run.dir], ask=False)
    took = Held(started_at=record.started_at, ended_at=record.ended_at).seconds
    assert seen.points[0].standing is Standing.DONE
    assert took is not None
    assert 0 <= took < 60
