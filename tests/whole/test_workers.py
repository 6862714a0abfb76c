"""Several workers in one point, also such that share a GPU through NVIDIA's MPS."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.records import Outcome
from jobkit.worker.mps import COMMAND
from tests.support.halted import ended, outcome
from tests.support.processes import parent_of, with_variable
from tests.whole.test_job_script import DEADLINE_S, WORKLOADS, ScriptRun, wait_until
from tests.workloads.told import WAIT

pytestmark = pytest.mark.fault
FAKE = Path(__file__).parents[1] / "fakes" / "mps"


class Sharing:
    """A point with two workers that do what their text tells, on a GPU that is not there, with a fake MPS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str]
        self.run: ScriptRun

    def begin(self) -> None:
        """Start the point."""
        text = "\n\n".join([*(f"Number {n}." for n in range(6)), WAIT])
        keys: dict[str, Any] = {"workload": "oncard:ToldOnCard", "order": "text", "workers": 2, "mps": "on"}
        self.run = ScriptRun(self.folder, text=text, device="cuda", **keys)
        (self.folder / "held").mkdir()
        paths = (WORKLOADS / "card", WORKLOADS / "nvml", WORKLOADS, WORKLOADS.parents[1])
        cards = {"FAKE_CARD": "T4", "FAKE_HELD": str(self.folder / "held"), "CUDA_VISIBLE_DEVICES": "0"}
        path, python = f"{FAKE}:{os.environ['PATH']}", os.pathsep.join(map(str, paths))
        told = {"TOLD": str(self.folder), "PATH": path, "PYTHONPATH": python}
        self.process = self.run.start(1, **cards, **told)

    def waits(self) -> int:
        """Return a worker's process id, once it waits in the middle of its work."""
        wait_until(lambda: bool(list(self.folder.glob("waits-*"))))
        assert len(self.left()) >= 4, "a supervisor, its sampler and two workers"
        (said,) = self.folder.glob("waits-*")
        return int(said.name.partition("-")[2])

    def daemon(self) -> int:
        """Return the process id of the control daemon; a server has a session of its own."""
        cmdlines = {pid: Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8") for pid in self.left()}
        found = [pid for pid, cmdline in cmdlines.items() if cmdline.endswith(f"{COMMAND}\0-f\0")]
        (pid,) = (pid for pid in found if os.getsid(pid) == parent_of(pid))
        return pid

    def ends(self) -> None:
        """Check that no process is left, and that batches came home."""
        ended(self.process)
        wait_until(lambda: self.left() == [])
        assert len((self.run.home() / "batches.jsonl").read_bytes().splitlines()) >= 5
        assert self.run.left_on_scratch() == []

    def left(self) -> list[int]:
        return with_variable(f"TOLD={self.folder}")


@pytest.fixture
def sharing() -> Iterator[Sharing]:
    """Return a starter of a point, in a folder with a path so short that sockets can be below it."""
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        starter = Sharing(Path(folder))
        yield starter
        if starter.process.poll() is None:
            os.killpg(starter.process.pid, signal.SIGKILL)
        starter.process.communicate(timeout=DEADLINE_S)
        for pid in starter.left():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("killed", ["the supervisor", "the job script"])
def test_kill_9_of_what_leads_several_workers(sharing: Sharing, killed: str) -> None:
    """FAULT: the supervisor of several workers, which use MPS, is killed outright, or their job script.

    HOW: real: kill -9 of it; fake: NVIDIA's control daemon.
    REPORTED: `lost` with exit status 137, as for one worker; `lost`, "the job script was killed".
    LOST: nothing: the kernel ends the workers with their supervisor, and the batches that were done are home;
    neither a daemon nor its folder is left.
    """
    sharing.begin()
    supervisor = parent_of(sharing.waits())
    assert sharing.daemon()
    if killed == "the supervisor":
        os.kill(supervisor, signal.SIGKILL)
        sharing.process.wait()
        assert sharing.run.exit().status == 137
    else:
        sharing.process.kill()
        sharing.process.wait()
        wait_until((sharing.run.home() / "exit").exists)
        assert sharing.run.exit().message == "the job script was killed"
    sharing.ends()
    assert outcome(sharing.run) == "lost"


def test_kill_9_of_a_whole_job_that_uses_mps(sharing: Sharing) -> None:
    """FAULT: all processes of a job that uses MPS are killed outright, as Grid Engine does.

    HOW: real: kill -9 of their process group; fake: NVIDIA's control daemon.
    REPORTED: what the accounting reports.
    LOST: at most one sync interval; neither a daemon nor its folder is left.
    """
    sharing.begin()
    sharing.waits()
    os.killpg(sharing.process.pid, signal.SIGKILL)
    wait_until(lambda: sharing.left() == [])
    assert not list(sharing.run.own().rglob("mps-*"))


def test_kill_9_of_the_daemon(sharing: Sharing) -> None:
    """FAULT: the daemon of MPS is killed outright while its clients work.

    HOW: real: kill -9; fake: NVIDIA's control daemon.
    REPORTED: `environment`, "the MPS daemon has ended", and the last line of its log.
    LOST: nothing: the batches that were done are home; the workers and the server are ended.
    """
    sharing.begin()
    sharing.waits()
    os.kill(sharing.daemon(), signal.SIGKILL)
    sharing.ends()
    record = sharing.run.record()
    assert record.outcome is Outcome.ENVIRONMENT
    assert record.message.startswith("the MPS daemon has ended: Starting control daemon")
