"""A run of Python on the real daemons: its jobs outlive Python, and cancel and resume reach them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import jobkit
from tests.cluster.lab import ClusterLab, held_by


@pytest.mark.fault
def test_jobs_outlive_the_python_that_began_them(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULT: the kernel of a notebook dies, or a person interrupts it, while its jobs wait.

    HOW: real: a Python that begins a sweep whose tasks are held, and waits, gets SIGKILL; Slurm and Grid
    Engine.
    REPORTED: the next Python gets the handle of this run: nothing is submitted twice, `cancel` ends the jobs,
    and `resume` runs the points to their end.
    LOST: nothing.
    """
    monkeypatch.chdir(lab.home)
    spec: dict[str, Any] = {
        "name": "count",
        "workload": "count",
        "sweep": {"batch_size": [1, 10]},
        "repeats": 1,
        "resources": {"gpus": 0, "cpus": 1, "memory": "400MiB", "walltime": "2m"},
        "scheduler": lab.scheduler,
        "site": str(lab.home / "lab.yaml"),
    }
    hold = [f"resources.options={held_by(lab.scheduler)}"]
    begins = f"import jobkit; run = jobkit.sweep({spec}, {hold}); print('begun', flush=True); run.wait()"
    with subprocess.Popen([sys.executable, "-c", begins], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        process.kill()
    run = jobkit.sweep(spec, hold)
    assert not run.submitted
    assert dict(run.status().counts) == {"waiting": 2}
    assert len(lab.submitted()) == len(run.jobs)
    assert run.cancel().wait(60).counts["cancelled"] == 2
    state = run.resume(changes={"resources.options": {}}).wait(120)
    assert (dict(state.counts), state.exit_code) == ({"done": 2}, 0)
