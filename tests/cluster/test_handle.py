"""A run of Python on the real daemons: its jobs outlive Python, and cancel and resume reach them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jobkit
from tests.cluster.lab import SGE, SLURM, ClusterLab, held_by

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


@SLURM
@pytest.mark.fault
def test_jobs_outlive_the_python_that_began_them(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULT: the kernel of a notebook dies, or a person interrupts it, while its jobs wait.

    HOW: real: a Python that begins a sweep whose tasks are held, and waits, gets SIGKILL; Slurm.
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


@SGE
@pytest.mark.slow
def test_the_notebook_goes_from_a_dict_to_rows(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.home)
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    here = json.dumps({"scheduler": lab.scheduler, "site": str(lab.home / "lab.yaml")}).strip("{}")
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace("spec = {", f"spec = {{{here},")
            exec(source, names)  # noqa: S102 - the project's own
    assert names["run"].wait(0).counts["done"] == 6
    assert names["shards"]["items"].sum() == len(names["rows"]) == 500
    assert lab.scheduler in {one.scheduler for one in names["tagged"].jobs}
