"""`environment.modules` with Debian's own environment-modules: by hand, and as a Slurm job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobkit.core.layout import read_exit
from jobkit.core.records import Outcome
from tests.support.commands import jobkit
from tests.support.packages import MODULES, need
from tests.whole.test_job_script import Run

MODULEFILE = """\
#%Module1.0
setenv MADE_READY by-modules
"""
SPEC = """\
name: modules
workload: count
sweep: {batch_size: [1]}
repeats: 1
policy: {follow_up: false}
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
"""


@pytest.fixture(scope="session")
def modules() -> None:
    """Have environment-modules on this machine."""
    need(MODULES)


def environment(tmp_path: Path, module: str) -> dict[str, object]:
    (tmp_path / "modulefiles").mkdir()
    (tmp_path / "modulefiles" / "ready").write_text(MODULEFILE, encoding="utf-8")
    return {"modules": [module], "setup": [f'echo "$MADE_READY" >"{tmp_path}/told"']}


def ready(tmp_path: Path) -> list[str]:
    """Return what a site's ``setup`` would hold."""
    return [f"source {MODULES}", f"module use {tmp_path}/modulefiles"]


def test_a_module_is_loaded(modules: None, tmp_path: Path) -> None:
    del modules
    run = Run(tmp_path, site={"setup": ready(tmp_path)}, environment=environment(tmp_path, "ready"))
    status, said = run.run(1)
    assert status == 0, said
    assert (tmp_path / "told").read_text(encoding="utf-8") == "by-modules\n"


def test_a_module_that_is_not_there_ends_the_try(modules: None, tmp_path: Path) -> None:
    del modules
    run = Run(tmp_path, site={"setup": ready(tmp_path)}, environment=environment(tmp_path, "nope"))
    status, said = run.run(1)
    assert status == 1
    assert "nope" in said
    assert run.exit().outcome is Outcome.ENVIRONMENT


@pytest.mark.slurm
@pytest.mark.parametrize(("module", "code"), [("ready", 0), ("nope", 4)])
def test_a_module_in_a_slurm_job(modules: None, tmp_path: Path, module: str, code: int) -> None:
    del modules
    spec = f"{SPEC}environment: {json.dumps(environment(tmp_path, module))}\n"
    site = {"name": "lab", "scheduler": "slurm", "queue": "cpu", "setup": ready(tmp_path)}
    requests = {"queue": "-p {queue}", "memory": "--mem={memory}", "walltime": "-t {walltime}"}
    (tmp_path / "spec.yaml").write_text(spec, encoding="utf-8")
    (tmp_path / "lab.yaml").write_text(json.dumps(site | {"requests": requests}), encoding="utf-8")
    words = ("--scheduler", "slurm", "--site", "./lab.yaml", "--wait")
    done = jobkit("sweep", "spec.yaml", *words, cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    (exit_file,) = tmp_path.glob("runs/*/results/*/try-1/exit")
    assert read_exit(exit_file).outcome is (Outcome.ENVIRONMENT if code else None)
    assert (tmp_path / "told").is_file() == (code == 0)
