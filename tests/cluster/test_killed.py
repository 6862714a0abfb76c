"""Jobs that are killed on a node, or cannot write at home, on real daemons."""

from __future__ import annotations

import json
import os
import shutil
import signal
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.runs.status import PointStanding
from tests.cluster.daemons import said
from tests.cluster.halted import HaltedSweep, batches, begun, home, record, seen
from tests.cluster.lab import JOB_VARIABLE, RELEASE, ClusterLab, held_by, on
from tests.support.commands import ended_well
from tests.support.disks import disk, restricted
from tests.support.processes import gone, parent_of, with_variable
from tests.workloads.broken import fill

pytestmark = pytest.mark.fault


def test_kill_9_of_the_job_script(halted: HaltedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULT: the job script is killed with SIGKILL.

    HOW: real: kill -9, Slurm and Grid Engine, with their accounting and without (fake: an accounting command
    that answers that it is off).
    REPORTED: `lost`. Slurm leaves the worker alive, and the process that copies results home reports "the
    job script was killed". Grid Engine kills all processes: the reason is from qacct, or that the task was
    missing in the queue for a minute.
    LOST: at most one sync interval.
    """
    run = halted.sweep("1, 2")
    worker = halted.waits(1)
    halted.wait_until((home(run) / "batches.jsonl").exists, 30)
    os.kill(begun(run).pid or 0, signal.SIGKILL)
    halted.go(2)
    halted.wait_until(lambda: gone(worker), 30)
    halted.wait_until((home(run, 2) / "exit").exists, 30)
    if halted.lab.scheduler == "slurm":
        halted.wait_until((home(run) / "exit").exists, 30)
    else:
        halted.wait_until(lambda: f" {begun(run).job} " not in (said("qstat") or ""), 30)
    apart = Path(shutil.copytree(run, run.with_name("apart")))
    halted.is_(run, PointStanding.FAILED, Outcome.LOST)
    assert {"slurm": "the job script was killed", "sge": "qacct: failed 100"}[halted.lab.scheduler] in why(
        run
    )
    with_none(halted.lab, monkeypatch)
    if halted.lab.scheduler == "sge":
        assert halted.stands(apart) == (PointStanding.UNSETTLED, None)
        a_minute_passes(apart)
    assert halted.stands(apart) == (PointStanding.FAILED, Outcome.LOST)
    assert {"slurm": "the job script was killed", "sge": "not in the queue since"}[
        halted.lab.scheduler
    ] in why(apart)
    assert batches(run) == 1
    assert halted.stands(run, 2) == (PointStanding.DONE, Outcome.OK)


def why(run: Path) -> str:
    return seen(run, ask=False)[0].verdict.evidence


def with_none(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an accounting on PATH that says that it is off."""
    for name in ("sacct", "qacct"):
        program = lab.home / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\necho 'accounting is off' >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def a_minute_passes(run: Path) -> None:
    """Let what was missed in the queue have been missed two minutes earlier."""
    path = run / "accounting.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["at"] = (datetime.fromisoformat(line["at"]) - timedelta(minutes=2)).isoformat()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@on("scheduler what", "slurm cancel", "slurm script", "sge kill")
def test_a_job_of_several_points_ends_half_way(halted: HaltedSweep, what: str) -> None:
    """FAULT: a job that several forked points share (`pack`) is cancelled or killed half-way.

    HOW: real: `jobkit cancel`, or kill -9 of its script alone, which leaves the processes alive, Slurm;
    kill -9 of its processes, Grid Engine.
    REPORTED: the point that ran is `cancelled` or `lost`; the points that had not begun are `cancelled` too,
    or `stopped`: "its job ended before its turn came". If only the script is killed, the point goes on.
    LOST: at most one sync interval; finished points stay finished; no process of the job is left, also not
    the parent of the points.
    """
    run = halted.sweep("1, 2, 3, 4", "--set", "pack=4")
    halted.go(1)
    worker = halted.waits(2)
    halted.wait_until((home(run, 2) / "batches.jsonl").exists, 30)
    shell, mark = begun(run, 2).pid or 0, f"{JOB_VARIABLE[halted.lab.scheduler]}={begun(run, 2).job}"
    assert parent_of(worker) in with_variable(mark)
    assert record(run).forked
    second, others = Outcome.LOST, Outcome.STOPPED
    if what == "cancel":
        ended_well(halted.lab.jobkit("cancel", run))
        second = others = Outcome.CANCELLED
    elif what == "kill":
        os.killpg(os.getpgid(shell), signal.SIGKILL)
    else:
        os.kill(parent_of(shell), signal.SIGKILL)
        halted.go(2)
        second = Outcome.OK
    halted.wait_until(lambda: with_variable(mark) == [], 60)
    assert gone(worker)
    ends = [Outcome.OK, second, others, others]
    halted.wait_until(lambda: [one.outcome for one in seen(run)] == ends, 60)
    assert batches(run, 2) == (15 if what == "script" else 1)
    assert not home(run, 3).exists()


def test_home_cannot_be_written_when_the_job_begins(halted: HaltedSweep) -> None:
    """FAULT: home is full, or read-only, when the job begins.

    HOW: real: a tmpfs filled to the last byte, then a read-only mount, Slurm and Grid Engine.
    REPORTED: full: `stage_out`, from exit status 73, because the log is on the same disk. Read-only: Slurm
    cannot open the log, so `stage_out` from its exit code 0:53; on Grid Engine `jobkit status` shows the job
    in `Eqw`.
    LOST: nothing: no point ran.
    """
    scheduler = halted.lab.scheduler
    asked = f"resources.options={held_by(scheduler)}"
    with disk(halted.lab.home / "runs", 4) as full:
        run = halted.sweep("1", "--set", asked)
        filler = fill(full)
        release(halted.lab)
        halted.is_(run, PointStanding.FAILED, Outcome.STAGE_OUT)
        assert "the job could not write in the run folder" in seen(run)[0].verdict.evidence
        assert not home(run).exists()
        filler.unlink()
    run = halted.sweep("1", "--set", asked, runs="runs2")
    with restricted(run.parent, "ro"):
        release(halted.lab, "runs2")
        if scheduler == "slurm":
            halted.is_(run, PointStanding.FAILED, Outcome.STAGE_OUT)
        else:
            halted.is_(run, PointStanding.STUCK, Outcome.QUEUE_ERROR)
            assert "Eqw" in halted.lab.jobkit("status", run).stdout


def release(lab: ClusterLab, runs: str = "runs") -> None:
    """Let the run's job begin, which was submitted held."""
    (journal,) = (lab.home / runs).glob("*/journal.jsonl")
    job = json.loads(journal.read_text().splitlines()[-1])["job_id"]
    assert said(*RELEASE[lab.scheduler], job) is not None
