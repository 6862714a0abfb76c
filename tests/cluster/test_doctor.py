"""`jobkit doctor` on real schedulers: here, in a job, and interrupted."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import JOBKIT, jobkit

SPEC = """\
name: mine
workload: count
device: cpu
resources: {gpus: 1, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
"""
LATER = {"slurm": 'options: ["--begin=now+1hour"]\n', "sge": 'options: ["-a 203512312359"]\n'}
"""A job that waits, though there is room."""
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


def _gone(scheduler: str, number: str) -> bool:
    argv = ("squeue", "-h", "-j", number) if scheduler == "slurm" else ("qstat", "-j", number)
    return number not in subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout


def test_ctrl_c_cancels_the_job(scheduler: str) -> None:
    write_site(scheduler, LATER[scheduler])
    argv = [str(JOBKIT), "doctor", "spec.yaml", "--scheduler", scheduler, "--site", "ours.yaml", "--submit"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not (number := re.search(r"job (\d+); waiting", process.stderr.readline())):
            pass
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(60) == 130
    assert f"job {number[1]} was cancelled" in said
    assert _gone(scheduler, number[1])
