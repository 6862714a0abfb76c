"""The daemons of the real clusters, to be killed and started again by tests that have a cluster alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.practice import cluster
from jobkit.practice.cluster import Cluster

Wait = Callable[[Callable[[], bool], float], None]
"""``wait_until(condition, deadline_s)``."""
DEADLINE_S = 60
BUSY = 4
"""How many times as long all may take next to other tests. A deadline costs time only if it is missed."""
START_WITHIN_S = 20
"""Within this an idle controller starts a job; it looks every second."""


class Daemons:
    """The daemons of the practice cluster that the environment names.

    Parameters
    ----------
    folder
        The folder of the cluster.
    """

    def __init__(self, folder: Path) -> None:
        self.cluster: Cluster
        (self.cluster,) = cluster.found(folder.parent, folder.name)

    def kill(self, name: str) -> None:
        """Kill a daemon as a crash would (SIGKILL), and wait until it is gone."""
        daemon = self.cluster.daemons[name]
        assert daemon.pid() is not None, f"{name} does not run"
        daemon.end(signal.SIGKILL)

    def start(self, name: str) -> None:
        """Start a daemon that was killed; it may take a while until it answers: see `healed`."""
        self.cluster.daemons[name].start()

    def healed(self) -> None:
        """Start what does not run, and return when the whole cluster answers and takes jobs."""
        self.cluster.start()


class SlurmDaemons(Daemons):
    """``slurmdbd``, ``slurmctld``, ``slurmd-n1``, ``slurmd-n2``, and what these need."""

    def __init__(self) -> None:
        self.conf = Path(os.environ["SLURM_CONF"])
        super().__init__(self.conf.parent)

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

    def restart_controller(self) -> None:
        """End the controller in good order, and return when the cluster is healed."""
        said("scontrol", "shutdown", "slurmctld")
        until(lambda: self.cluster.daemons["slurmctld"].pid() is None, "slurmctld does not end")
        self.healed()


class SgeDaemons(Daemons):
    """``qmaster`` and ``execd``."""

    def __init__(self) -> None:
        super().__init__(Path(os.environ["SGE_ROOT"]))


def said(*argv: str) -> str | None:
    """Return what a command wrote, ``None`` where it failed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    return done.stdout if done.returncode == 0 else None


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Ask until it is true; fail at the deadline."""
    try:
        wait_for(condition, deadline_s)
    except TimeoutError:
        pytest.fail(f"{what}: not within {BUSY * deadline_s:g} s")


def wait_for(condition: Callable[[], bool], deadline_s: float) -> None:
    """Ask until it is true.

    Parameters
    ----------
    deadline_s
        On an idle machine.

    Raises
    ------
    TimeoutError
        If it is not by `BUSY` times the deadline.
    """
    began = asked = time.monotonic()
    while not condition():
        if (now := time.monotonic()) > began + BUSY * deadline_s:
            raise TimeoutError
        # a command that asks takes a quarter of a core; after a minute once in three seconds does
        time.sleep(max(0.2, 3 * (now - asked), (now - began) / 20))
        asked = time.monotonic()
