"""Points that share a job and are forked from one parent, on real daemons."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jobkit.core.records import ModelRef, Outcome
from jobkit.runs.standing import PointState
from tests.cluster.daemons import Wait
from tests.cluster.halted import HaltedSweep, begun, record
from tests.cluster.lab import ClusterLab
from tests.cluster.test_workers import JOB_VARIABLE, TEXT, tagged_here
from tests.support.processes import parent_of, with_variable


def test_points_that_share_a_job_import_the_framework_once(
    lab: ClusterLab, wait_until: Wait, tiny_model: ModelRef
) -> None:
    text = (Path(__file__).parents[2] / "sweeps" / "demo.yaml").read_text(encoding="utf-8")
    text = text.replace("scheduler: local", "scheduler: auto").replace("repeats: 3", "repeats: 1")
    changes = (
        "resources.memory=4GiB",
        "resources.cpus=1",
        "sweep.batch_size=[20, 40]",
        "pack=2",
        f"text={TEXT}",
    )
    done = lab.sweep(lab.spec(text), "--wait", *(word for change in changes for word in ("--set", change)))
    assert done.returncode == 0, done.stdout + done.stderr
    run = lab.run_dir()
    entities = {path.read_bytes() for path in run.glob("results/*/try-1/entities.tsv")}
    assert entities == {tagged_here(tiny_model, lab.home)}
    records = [record(run, size) for size in (20, 40)]
    assert [one.forked for one in records] == [True, True]
    first, second = (one.import_s or 0.0 for one in records)
    assert second < first / 4
    mark = f"{JOB_VARIABLE[lab.scheduler]}={lab.job()}"
    wait_until(lambda: with_variable(mark) == [], 30)
    lab.clears_scratch()


@pytest.mark.fault
@pytest.mark.parametrize("how", ["kill", "cancel"])
def test_a_task_of_forked_points_is_killed(halted: HaltedSweep, how: str) -> None:
    """FAULT: a job that several forked points share is cancelled, or its script is killed outright.

    HOW: real: scancel or qdel, and kill -9 of the script that runs the points; Slurm and Grid Engine.
    REPORTED: `cancelled`; after kill -9 what the scheduler reports, or `ok` of a point that goes on.
    LOST: at most one sync interval; no process of the job is left on the node, also not the parent.
    """
    run = halted.sweep("1, 2, 3", "--set", "pack=3")
    parent = parent_of(halted.waits(1))
    script = parent_of(begun(run).pid or 0)
    mark = f"{JOB_VARIABLE[halted.lab.scheduler]}={begun(run).job}"
    assert parent in with_variable(mark)
    if how == "kill":
        os.kill(script, signal.SIGKILL)
        halted.go(1)  # on Slurm the point goes on
    else:
        done = halted.lab.jobkit("cancel", run)
        assert done.returncode == 0, done.stdout + done.stderr
    halted.wait_until(lambda: with_variable(mark) == [], 60)
    if how == "cancel":
        halted.is_(run, PointState.FAILED, Outcome.CANCELLED)
        assert record(run).forked
