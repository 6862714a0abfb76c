"""`jobkit doctor` on real schedulers: here, in a job, and interrupted."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import jobkit

SPEC = """\
name: mine
workload: count
device: cpu
resources: {gpus: 1, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
"""
SITES = {
    "slurm": """\
name: ours
scheduler: slurm
queue: gpu
requests:
  queue: "--partition={queue}"
  gpus: "--gres=gpu:{gpus}"
  cpus: "--cpus-per-task={cpus}"
  memory: "--mem={memory}"
  walltime: "--time={walltime}"
""",
    "sge": """\
name: ours
scheduler: sge
queue: gpu.q
requests:
  queue: "-q {queue}"
  gpus: "-l ngpus={gpus}"
  memory: "-l h_vmem={memory}"
  walltime: "-l h_rt={walltime}"
""",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def write_site(scheduler: str, more: str = "") -> None:
    Path("ours.yaml").write_text(SITES[scheduler] + more, encoding="utf-8")


def doctor(scheduler: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = jobkit("doctor", "spec.yaml", "--scheduler", scheduler, "--site", "ours.yaml", *words)
    assert "Traceback" not in done.stderr
    return done


def test_here_and_in_a_job(scheduler: str, home: Path) -> None:
    write_site(scheduler)
    done = doctor(scheduler, "--submit")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "missing" not in done.stdout
    assert re.search(r"^In a job, on (n\d|localhost)$", done.stdout, re.MULTILINE)
    assert re.search(rf"ok +job +{scheduler} job \d+ ran, \d+ s after it was submitted", done.stdout)
    assert list((home / "runs").iterdir()) == []
