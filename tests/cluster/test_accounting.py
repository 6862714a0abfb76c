"""The accounting is down while tasks end, on a real slurmdbd."""

from __future__ import annotations

import os
import signal

import pytest

from jobkit.core.records import Outcome
from jobkit.runs.standing import PointState, PointStatus
from tests.cluster.daemons import SlurmDaemons
from tests.cluster.halted import SLURM, HaltedSweep, begun, seen
from tests.cluster.test_requeued import in_queue

pytestmark = pytest.mark.fault


@SLURM
def test_the_accounting_dies_before_a_task_and_comes_back_after_it(
    slurm_alone: SlurmDaemons, halted: HaltedSweep
) -> None:
    """FAULT: slurmdbd is down before a task begins, and comes back after the task was killed.

    HOW: real: kill -9 of slurmdbd, and of the job script with all its processes; then slurmdbd starts again.
    At first it reports such a task as `FAILED`, with status 0 and no end; the end follows some seconds
    later.
    REPORTED: the point is unsettled until slurmdbd knows the end; then `lost`, with the signal that it
    reports.
    LOST: results that the try had not yet copied to the run folder.
    """
    slurm_alone.kill("slurmdbd")
    run = halted.sweep()
    halted.waits(1)
    begin = begun(run)
    os.killpg(os.getpgid(begin.pid or 0), signal.SIGKILL)
    halted.wait_until(lambda: not in_queue(begin.job), 30)
    assert (seen(run)[0].standing, seen(run)[0].outcome) == (PointState.UNSETTLED, None)
    slurm_alone.start("slurmdbd")
    looks: list[PointStatus] = []

    def settled() -> bool:
        looks.append(seen(run)[0])
        return looks[-1].outcome is not None

    halted.wait_until(settled, 60)
    assert {look.standing for look in looks[:-1]} <= {PointState.UNSETTLED}
    assert (looks[-1].standing, looks[-1].outcome) == (PointState.FAILED, Outcome.LOST)
    assert "sacct: FAILED, ExitCode 0:9" in looks[-1].counts.verdict.evidence
