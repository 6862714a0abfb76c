"""`environment.venv` and `environment.conda` as jobs: which Python the worker runs from.

Debian has no package of conda: tests/fakes/conda stands in for it, with the shape of the real hook.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from jobkit.core.layout import Exit, read_exit
from tests.support.commands import jobkit
from tests.whole.test_environments import FAKES, ROOT, made_venv

QUEUE = {"slurm": "cpu", "sge": "serial.q"}
SPEC = """\
name: environments
workload: count
sweep: {batch_size: [1]}
repeats: 1
policy: {follow_up: false}
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
"""
TELL = "import sys; 'jobkit.worker' in sys.orig_argv and print(sys.prefix, file=open({path!r}, 'w'))\n"
"""A .pth file, which Python runs as it starts: of all processes only the worker writes where it is from."""


@dataclass(frozen=True)
class Lab:
    """A user's folder on a cluster that has conda."""

    scheduler: str
    home: Path

    @property
    def envs(self) -> Path:
        """Where conda has its environments."""
        return self.home / "envs"

    @property
    def told(self) -> Path:
        """The file that a worker in an environment of `python` writes its prefix to."""
        return self.home / "told"

    def python(self, folder: Path) -> Path:
        """Make an environment with jobkit, whose worker tells where it runs from."""
        made_venv(folder, with_jobkit=True)
        (site_packages,) = folder.glob("lib/python*/site-packages")
        (site_packages / "tell.pth").write_text(TELL.format(path=str(self.told)), encoding="utf-8")
        return folder

    def sweep(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one point as a job, and stay until it is home."""
        spec = f"{SPEC}environment: {json.dumps(environment)}\n"
        (self.home / "spec.yaml").write_text(spec, encoding="utf-8")
        shipped = ROOT / "templates" / "sites" / f"{self.scheduler}-default.yaml"
        conda = [f'export PATH="{FAKES}:$PATH"', f'export FAKE_CONDA_ENVS="{self.envs}"']
        site = yaml.safe_load(shipped.read_text(encoding="utf-8"))
        site |= {"name": "lab", "queue": QUEUE[self.scheduler], "setup": conda}
        (self.home / "lab.yaml").write_text(json.dumps(site), encoding="utf-8")
        site_words = ("--scheduler", self.scheduler, "--site", "./lab.yaml")
        return jobkit("sweep", "spec.yaml", *site_words, "--wait", cwd=self.home)

    def exit(self) -> Exit:
        """Return what the job script left."""
        (path,) = self.home.glob("runs/*/results/*/try-1/exit")
        return read_exit(path)


@pytest.fixture
def lab(scheduler: str, tmp_path: Path, kept_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("JOBKIT_CACHE", str(kept_cache))
    home = tmp_path / "my home"
    home.mkdir()
    return Lab(scheduler, home)


def worked(lab: Lab, folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert (lab.exit().stage, lab.exit().outcome) == ("done", None)
    assert lab.told.read_text(encoding="utf-8") == f"{folder}\n"


def test_the_worker_runs_from_the_venv(lab: Lab) -> None:
    folder = lab.python(lab.home / "my venv")
    worked(lab, folder, lab.sweep(venv=str(folder)))


@pytest.mark.parametrize("by", ["name", "folder"])
def test_the_worker_runs_from_the_conda_environment(lab: Lab, by: str) -> None:
    folder = lab.python(lab.envs / "my env")
    worked(lab, folder, lab.sweep(conda="my env" if by == "name" else str(folder)))
