"""The log of a point while its job waits, runs and after it has ended, on the real daemons."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.daemons import Wait
from tests.cluster.lab import COUNT, HOLD, RELEASE, SLURM, ClusterLab, FaultySweep
from tests.support.commands import JOBKIT

WORDS = {"slurm": "slurm job {}, task 2", "sge": "sge job {}, task 2"}


def logs(lab: ClusterLab, *words: str) -> subprocess.CompletedProcess[str]:
    return lab.jobkit("logs", lab.run_dir(), *words)


def test_a_log_that_is_to_come_says_why_and_can_be_waited_for(lab: ClusterLab) -> None:
    lab.site(f"options: ['{HOLD[lab.scheduler]}']\n")
    lab.sweep(lab.spec(COUNT), "--set", "policy.follow_up=false")
    waits = logs(lab, "2")
    assert waits.returncode == 5, waits.stdout + waits.stderr
    assert "has no log yet: held, " in waits.stderr
    assert f"({WORDS[lab.scheduler].format(lab.job())})" in waits.stderr
    argv: list[str | Path] = [JOBKIT, "logs", lab.run_dir(), "2", "-f"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "held, " not in process.stderr.readline():
            assert process.poll() is None
        subprocess.run([*RELEASE[lab.scheduler], lab.job()], check=True, capture_output=True)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert out == "jobkit: point 2 batch_size-10-r1: ok\n"


@SLURM
@pytest.mark.fault
def test_a_log_whose_job_was_killed_is_not_followed_for_ever(faulty: FaultySweep, wait_until: Wait) -> None:
    """FAULT: the job script and its worker are killed while `jobkit logs -f` follows; no exit file comes.

    HOW: real: `kill -KILL` to the process group of the job script.
    REPORTED: `jobkit logs -f` ends, and prints that the point is lost, with the message of the accounting.
    LOST: results that the try had not yet copied to the run folder.
    """
    lab = faulty.lab
    faulty.fail({1: "slow"})
    faulty.sweep("--set", "repeats=1")
    run = lab.run_dir()
    begin = run / "results" / "batch_size-1-r1" / "try-1" / "begin"
    wait_until(begin.is_file, 60)
    with subprocess.Popen(
        [JOBKIT, "logs", run, "1", "-f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        pid = next(line for line in begin.read_text().splitlines() if line.startswith("pid="))
        os.killpg(os.getpgid(int(pid.removeprefix("pid="))), signal.SIGKILL)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0
    assert "batch_size-1-r1 try 1: lost, it ended (" in err
