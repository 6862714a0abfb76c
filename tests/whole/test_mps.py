"""Workers that share a GPU through NVIDIA's MPS."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.worker.mps import COMMAND
from tests.support.halted import ended, outcome
from tests.support.processes import parent_of
from tests.whole.test_job_script import DEADLINE_S, WORKLOADS, ScriptRun, wait_until
from tests.whole.test_workers import Crowd
from tests.workloads.told import WAIT

pytestmark = pytest.mark.fault
FAKE = Path(__file__).parents[1] / "fakes" / "mps"


class Sharing(Crowd):
    """A point with two workers that share a GPU that is not there, through a fake daemon."""

    def begin(
        self, *last: str, hang_s: int = 60, mps: str = "on", env: Mapping[str, str] | None = None
    ) -> None:
        """Start the point; ``last`` ends its text."""
        text = "\n\n".join([*(f"Number {n}." for n in range(6)), *last])
        workload = "oncard:ToldOnCard"
        self.run = ScriptRun(
            self.folder, workload=workload, text=text, device="cuda", order="text", workers=2, mps=mps
        )
        points = self.run.dir / "points.jsonl"
        points.write_text(points.read_text().replace('"hang_s": 60', f'"hang_s": {hang_s}'))
        (self.folder / "held").mkdir()
        paths = (WORKLOADS / "card", WORKLOADS / "nvml", WORKLOADS, WORKLOADS.parents[1])
        cards = {
            "TOLD": str(self.folder),
            "PATH": f"{FAKE}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "FAKE_CARD": "T4",
            "FAKE_HELD": str(self.folder / "held"),
            "CUDA_VISIBLE_DEVICES": "0",
        }
        self.process = self.run.start(1, **{**cards, **(env or {})})

    def daemon(self) -> int:
        """Return the process id of the control daemon; a server has a session of its own."""
        cmdlines = {pid: Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8") for pid in self.left()}
        found = [pid for pid, cmdline in cmdlines.items() if cmdline.endswith(f"{COMMAND}\0-f\0")]
        (pid,) = (pid for pid in found if os.getsid(pid) == parent_of(pid))
        return pid


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


def test_when_a_batch_hangs_the_daemon_ends_too(sharing: Sharing) -> None:
    """FAULT: one of the workers that share a GPU through MPS hangs.

    HOW: real: a batch that never ends; fake: NVIDIA's control daemon.
    REPORTED: `timeout`, as without MPS, and the number of the worker.
    LOST: nothing: the batches that were done are home; neither a daemon nor its folder is left.
    """
    sharing.begin(WAIT, hang_s=1)
    sharing.ends()
    record = sharing.run.record()
    assert (record.outcome, record.mps) == (Outcome.TIMEOUT, "on")


@pytest.mark.parametrize("killed", ["the supervisor", "the job script"])
def test_kill_9_of_a_process_that_uses_mps(sharing: Sharing, killed: str) -> None:
    """FAULT: the supervisor of workers that use MPS, or its job script, is killed.

    HOW: real: kill -9 of it; fake: NVIDIA's control daemon.
    REPORTED: `lost`, as without MPS.
    LOST: nothing: the batches that were done are home; neither a daemon nor its folder is left.
    """
    sharing.begin(WAIT)
    supervisor = parent_of(sharing.waits())
    assert sharing.daemon()
    if killed == "the supervisor":
        os.kill(supervisor, signal.SIGKILL)
    else:
        sharing.process.kill()
        sharing.process.wait()
        wait_until((sharing.run.home() / "exit").exists)
    sharing.ends()
    assert outcome(sharing.run) == "lost"


def test_kill_9_of_a_whole_job_that_uses_mps(sharing: Sharing) -> None:
    """FAULT: all processes of a job that uses MPS are killed outright, as Grid Engine does.

    HOW: real: kill -9 of their process group; fake: NVIDIA's control daemon.
    REPORTED: what the accounting reports.
    LOST: at most one sync interval; neither a daemon nor its folder is left.
    """
    sharing.begin(WAIT)
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
    sharing.begin(WAIT)
    sharing.waits()
    os.kill(sharing.daemon(), signal.SIGKILL)
    sharing.ends()
    record = sharing.run.record()
    assert record.outcome is Outcome.ENVIRONMENT
    assert record.message.startswith("the MPS daemon has ended: Starting control daemon")


@pytest.mark.parametrize(
    ("mps", "env", "reason"),
    [
        ("on", {"FAKE_MPS": "fails"}, "nvidia-cuda-mps-control does not answer: Failed to create pipe"),
        ("auto", {"PATH": os.environ["PATH"]}, "nvidia-cuda-mps-control is not on PATH"),
    ],
)
def test_mps_that_a_node_does_not_have(sharing: Sharing, env: dict[str, str], reason: str, mps: str) -> None:
    """FAULT: a node cannot run MPS: no command, or a daemon that does not start.

    HOW: real: a PATH without it; fake: NVIDIA's control daemon.
    REPORTED: with `mps: on` `environment`, with the reason; with `mps: auto` the point runs without MPS, \
    and the record has the reason.
    LOST: nothing.
    """
    sharing.begin(mps=mps, env=env)
    ended(sharing.process)
    record = sharing.run.record()
    assert record.outcome is (Outcome.OK if mps == "auto" else Outcome.ENVIRONMENT)
    assert record.mps.startswith(f"off: {reason}")
    assert sharing.left() == []
    assert sharing.run.left_on_scratch() == []
