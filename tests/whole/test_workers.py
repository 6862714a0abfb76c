"""Several workers in one point."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from tests.support.halted import ended, outcome
from tests.support.processes import parent_of, with_variable
from tests.whole.test_job_script import DEADLINE_S, ScriptRun, wait_until
from tests.workloads.told import WAIT

pytestmark = pytest.mark.fault


class Crowd:
    """A point with two workers that do what their text tells."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str]
        self.run: ScriptRun

    def start(self, *last: str) -> None:
        """Start the point; ``last`` ends its text."""
        text = "\n\n".join([*(f"Number {n}." for n in range(6)), *last])
        self.run = ScriptRun(self.folder, workload="told:Told", text=text, order="text")
        points = self.run.dir / "points.jsonl"
        two = points.read_text().replace('"workers": 1', '"workers": 2')
        points.write_text(two)
        self.process = self.run.start(1, TOLD=str(self.folder))

    def waits(self) -> int:
        """Return a worker's process id, once it waits in the middle of its work."""
        wait_until(lambda: bool(list(self.folder.glob("waits-*"))))
        assert len(self.left()) >= 4, "a supervisor, its sampler and two workers"
        (said,) = self.folder.glob("waits-*")
        return int(said.name.partition("-")[2])

    def ends(self) -> str:
        """Return what the script said; check that no process is left, and that batches came home."""
        said = ended(self.process)
        wait_until(lambda: self.left() == [])
        assert len((self.run.home() / "batches.jsonl").read_bytes().splitlines()) >= 5
        assert self.run.left_on_scratch() == []
        return said

    def left(self) -> list[int]:
        return with_variable(f"TOLD={self.folder}")


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    """Return a starter of a point; at the end none of its processes is left."""
    starter = Crowd(tmp_path)
    yield starter
    if starter.process.poll() is None:
        os.killpg(starter.process.pid, signal.SIGKILL)
    starter.process.communicate(timeout=DEADLINE_S)
    for pid in starter.left():
        os.kill(pid, signal.SIGKILL)


def test_kill_9_of_the_supervisor(crowd: Crowd) -> None:
    """FAULT: the supervisor of several workers is killed outright.

    HOW: real: kill -9.
    REPORTED: `lost` with exit status 137, as for one worker.
    LOST: nothing: the kernel ends the workers with it, and the batches that were done are home.
    """
    crowd.start(WAIT, WAIT)
    wait_until(lambda: len(list(crowd.folder.glob("waits-*"))) == 2)
    worker = int(next(crowd.folder.glob("waits-*")).name.partition("-")[2])
    os.kill(parent_of(worker), signal.SIGKILL)
    crowd.ends()
    assert (crowd.process.returncode, crowd.run.exit().status) == (137, 137)
    assert outcome(crowd.run) == "lost"


def test_kill_9_of_the_script_of_several_workers(crowd: Crowd) -> None:
    """FAULT: the job script of several workers is killed outright.

    HOW: real: kill -9.
    REPORTED: `lost`, "the job script was killed", in record and exit file.
    LOST: nothing; no worker is left.
    """
    crowd.start(WAIT)
    crowd.waits()
    crowd.process.kill()
    crowd.process.wait()
    wait_until((crowd.run.home() / "exit").exists)
    crowd.ends()
    assert crowd.run.record().outcome is Outcome.LOST
    assert crowd.run.exit().message == "the job script was killed"


def test_a_signal_to_all_processes_of_several_workers(crowd: Crowd) -> None:
    """FAULT: the walltime of a point with several workers is near.

    HOW: real: USR1 to all its processes.
    REPORTED: `timeout`, as for one worker.
    LOST: nothing: the batches that were done are home.
    """
    crowd.start(WAIT)
    crowd.waits()
    os.killpg(crowd.process.pid, signal.SIGUSR1)
    crowd.ends()
    record = crowd.run.record()
    assert (record.outcome, record.signal) == (Outcome.TIMEOUT, "USR1")
