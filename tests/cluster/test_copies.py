"""Jobs on nodes without rsync, on real schedulers: cp copies inputs and results."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from jobkit.core.files import read_text
from jobkit.core.json_codec import from_json
from jobkit.core.records import Outcome, Record
from jobkit.runs.standing import PointState
from tests.cluster.halted import Halted, Wait, batches, begun, home, record
from tests.cluster.halted import halted as halted  # noqa: PLC0414 - a fixture is found by its name here
from tests.cluster.test_sweeps import COUNT, Lab
from tests.cluster.test_sweeps import lab as lab  # noqa: PLC0414 - the same
from tests.support.copiers import path_without
from tests.support.halted import gone
from tests.whole.test_job_script import left_on


@pytest.fixture
def hidden(tmp_path: Path) -> str:
    """Return the line of a job's set-up that hides rsync."""
    return f"export PATH='{path_without(tmp_path / 'programs', 'rsync')}'"


def test_a_sweep_without_rsync(lab: Lab, hidden: str) -> None:
    spec = lab.spec(f"{COUNT}environment: {{setup: [{json.dumps(hidden)}]}}\n")
    done = lab.sweep(spec, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [point["outcome"] for point in lab.points()] == ["ok"] * 6
    paths = list(lab.run_dir().glob("results/*/try-1/record.json"))
    copiers = [from_json(Record, read_text(path), where=str(path)).copier for path in paths]
    assert copiers == ["cp"] * 6
    lab.clears_scratch()
    assert not list(lab.run_dir().rglob(".*.part")), "a script writes exit.part after scratch is empty"


@pytest.mark.fault
def test_a_cancelled_job_without_rsync(halted: Halted, hidden: str) -> None:
    """FAULT: a job is cancelled on a node without rsync.

    HOW: real: `jobkit cancel` in the middle of the work, Slurm and Grid Engine; a PATH without rsync.
    REPORTED: `cancelled`, in a record with the batches done.
    LOST: nothing that was done; the node keeps no files.
    """
    run = halted.sweep("1", "--set", f"environment.setup={json.dumps([hidden])}")
    halted.waits(1)
    assert halted.lab.jobkit("cancel", run).returncode == 0
    halted.is_(run, PointState.FAILED, Outcome.CANCELLED)
    assert (record(run).copier, batches(run)) == ("cp", 1)
    halted.lab.clears_scratch()
    assert not list(home(run).glob(".*"))


@pytest.mark.fault
def test_a_killed_job_without_rsync(halted: Halted, hidden: str, wait_until: Wait) -> None:
    """FAULT: a job is killed with SIGKILL on a node without rsync.

    HOW: real: kill -9 of the job script, Slurm and Grid Engine; a PATH without rsync.
    REPORTED: `lost`.
    LOST: at most one sync interval; the next task on the node removes the folder on scratch.
    """
    run = halted.sweep("1", "--set", f"environment.setup={json.dumps([hidden])}")
    worker = halted.waits(1)
    wait_until((home(run) / "batches.jsonl").exists, 30)
    os.kill(begun(run).pid or 0, signal.SIGKILL)
    wait_until(lambda: gone(worker), 30)
    halted.is_(run, PointState.FAILED, Outcome.LOST)
    assert batches(run) == 1
    halted.go(1)
    assert halted.lab.jobkit("resume", run, "--wait").returncode == 0
    assert record(run, 1, 2).copier == "cp"
    assert batches(run, 1, 2) > 1
    wait_until(lambda: left_on(halted.lab.scratch) == [], 30)
