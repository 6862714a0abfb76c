"""The daemons of the real clusters, to be killed and started again by tests that have a cluster alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

DEADLINE_S = 60
START_WITHIN_S = 20
"""Within this an idle controller starts a job; it looks every second."""
SPOOL = Path("/var/spool/gridengine")


class Daemons:
    """Some daemons, each with a pid file and a command that starts it.

    Parameters
    ----------
    known
        Pid file and command of each, by its name, in the order in which they start.
    """

    def __init__(self, known: dict[str, tuple[Path, Sequence[str | Path]]]) -> None:
        self._known = known

    def kill(self, name: str) -> None:
        """Kill a daemon as a crash would (SIGKILL), and wait until it is gone."""
        pid = self._alive(name)
        assert pid is not None, f"{name} does not run"
        os.kill(pid, signal.SIGKILL)
        until(lambda: self._alive(name) is None, f"{name} does not die")

    def start(self, name: str) -> None:
        """Start a daemon that was killed; it may take a while until it answers: see `healed`."""
        if self._alive(name) is not None:
            return
        path, argv = self._known[name]
        path.unlink(missing_ok=True)  # it names a process that is no more
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=DEADLINE_S,
            start_new_session=True,
        )

    def healed(self) -> None:
        """Start what does not run, and return when the whole cluster answers and takes jobs."""
        for name in self._known:
            self.start(name)
        until(self.healthy, "the cluster does not heal")

    def healthy(self) -> bool:
        """Tell whether the cluster answers and takes jobs."""
        raise NotImplementedError

    def _alive(self, name: str) -> int | None:
        """Return the pid of a daemon that runs, and is no zombie."""
        with contextlib.suppress(OSError, ValueError):
            pid = int(self._known[name][0].read_text())
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
            return pid if state != "Z" else None
        return None


class SlurmDaemons(Daemons):
    """``slurmdbd``, ``slurmctld``, ``slurmd-n1`` and ``slurmd-n2``, as slurm-up starts them."""

    def __init__(self) -> None:
        self.conf = Path(os.environ["SLURM_CONF"])
        run = self.conf.parent / "run"
        nodes = {
            f"slurmd-{node}": (run / f"slurmd-{node}.pid", ("slurmd", "-N", node, "-f", self.conf))
            for node in ("n1", "n2")
        }
        super().__init__(
            {
                "slurmdbd": (run / "slurmdbd.pid", ("slurmdbd",)),
                "slurmctld": (run / "slurmctld.pid", ("slurmctld", "-f", self.conf)),
                **nodes,
            }
        )

    def healthy(self) -> bool:
        """Tell whether controller and accounting answer and both nodes take jobs; resume drained ones."""
        if not said("scontrol", "ping") or said("sacct", "-n", "-X") is None:
            return False
        states = dict(
            line.split() for line in (said("sinfo", "-hN", "-p", "cpu", "-o", "%N %t") or "").splitlines()
        )
        for node in (name for name, state in states.items() if state.startswith(("drain", "drng"))):
            said("scontrol", "update", f"nodename={node}", "state=resume")
        return len(states) == 2 and set(states.values()) <= {"idle", "mix", "alloc"}

    def starts_jobs(self) -> bool:
        """Tell whether an array, as jobkit submits it, begins on both nodes."""
        where = ("-p", "cpu", "-N", "2", "-w", "n1,n2", "-t", "1", "-o", "/dev/null")
        job = said("sbatch", "--parsable", "--array=0-1", *where, "--wrap", "true")
        assert job is not None, "an array is refused"
        try:
            wait_for(lambda: said("squeue", "-h", "-tPD", "-j", job.strip()) == "", START_WITHIN_S)
        except TimeoutError:
            return False
        return True

    def begin_controller_anew(self) -> None:
        """End the controller in good order, and return when the cluster is healed."""
        said("scontrol", "shutdown", "slurmctld")
        until(lambda: self._alive("slurmctld") is None, "slurmctld does not end")
        self.healed()

    def set_slurmd_timeout(self, seconds: int) -> None:
        """Say how long a node may be silent until it counts as lost."""
        lines = self.conf.read_text().splitlines()
        said_so = [
            f"SlurmdTimeout={seconds}" if line.startswith("SlurmdTimeout=") else line for line in lines
        ]
        self.conf.write_text("\n".join(said_so) + "\n")
        assert said("scontrol", "reconfigure") is not None


class SgeDaemons(Daemons):
    """``qmaster`` and ``execd``, as sge-up starts them."""

    def __init__(self) -> None:
        places = f"SGE_ROOT={os.environ['SGE_ROOT']} SGE_CELL={os.environ['SGE_CELL']}"
        master = ("su", "-s", "/bin/bash", "sgeadmin", "-c", f"{places} /usr/sbin/sge_qmaster")
        super().__init__(
            {
                "qmaster": (SPOOL / "qmaster" / "qmaster.pid", master),
                "execd": (SPOOL / "execd" / "localhost" / "execd.pid", ("sge_execd",)),
            }
        )

    def healthy(self) -> bool:
        """Tell whether the master answers and its queues know the load of the host; clear error states."""
        listed = [line.split() for line in (said("qstat", "-f") or "").splitlines() if "@" in line]
        if any("E" in "".join(words[5:]) for words in listed):
            said("qmod", "-cq", "*")
        return len(listed) >= 2 and all(len(words) == 5 and words[3] != "-NA-" for words in listed)


def said(*argv: str) -> str | None:
    """Return what a command wrote, ``None`` where it failed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    return done.stdout if done.returncode == 0 else None


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Ask until it is true; fail at the deadline."""
    try:
        wait_for(condition, deadline_s)
    except TimeoutError:
        pytest.fail(f"{what}: not within {deadline_s:g} s")


def wait_for(condition: Callable[[], bool], deadline_s: float) -> None:
    """Ask until it is true.

    Raises
    ------
    TimeoutError
        Where it is not by the deadline.
    """
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.2)
