"""`jobkit doctor` on real schedulers: here, in a job, and where something is wrong."""

from __future__ import annotations

import json
import os
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
LATER = 'options: ["--begin=now+1hour"]\n', 'options: ["-a 203512312359"]\n'
"""A job that waits, though there is room."""
SITES = {
    "slurm": """\
name: ours
scheduler: slurm
queue: %s
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
queue: %s
requests:
  queue: "-q {queue}"
  gpus: "-l ngpus={gpus}"
  memory: "-l h_vmem={memory}"
  walltime: "-l h_rt={walltime}"
""",
}
QUEUES = {"slurm": ("partition", "gpu"), "sge": ("queue", "gpu.q")}


@pytest.fixture(
    params=[
        pytest.param("slurm", marks=pytest.mark.slurm),
        pytest.param("sge", marks=pytest.mark.sge),
    ]
)
def scheduler(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue(request.param)
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def write_site(scheduler: str, queue: str, more: str = "") -> None:
    Path("ours.yaml").write_text(SITES[scheduler] % queue + more, encoding="utf-8")


def doctor(scheduler: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = jobkit("doctor", "spec.yaml", "--scheduler", scheduler, "--site", "ours.yaml", *words)
    assert "Traceback" not in done.stderr
    return done


def told(scheduler: str, *words: str) -> dict[str, dict[str, str]]:
    """Return the findings by name."""
    done = doctor(scheduler, *words, "--json")
    return {load["name"]: load for load in json.loads(done.stdout)["findings"]}


def test_here_and_in_a_job(scheduler: str, home: Path) -> None:
    write_site(scheduler, QUEUES[scheduler][1])
    done = doctor(scheduler, "--submit")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "missing" not in done.stdout
    assert re.search(r"^In a job, on (n\d|localhost)$", done.stdout, re.MULTILINE)
    assert re.search(rf"ok +job +{scheduler} job \d+ ran, \d+ s after it was submitted", done.stdout)
    assert list((home / "runs").iterdir()) == []


def test_a_queue_that_the_cluster_does_not_have(scheduler: str) -> None:
    noun, queue = QUEUES[scheduler]
    write_site(scheduler, queue.replace("gpu", "gqu"))
    done = doctor(scheduler, "--submit")

    assert done.returncode == 4
    said = " ".join(done.stdout.split())
    assert f"did you mean {queue!r}? -> change `queue` in ours.yaml" in said
    assert re.search(rf"missing +{noun}", done.stdout)
    assert "not submitted" in said


def test_a_job_that_does_not_begin_is_cancelled(scheduler: str) -> None:
    write_site(scheduler, QUEUES[scheduler][1], LATER[scheduler == "sge"])
    done = doctor(scheduler, "--submit", "--within", "5s")

    assert done.returncode == 4
    said = " ".join(done.stdout.split())
    assert "it did not begin within 0:05" in said
    assert (number := re.search(r"job (\d+) was cancelled", said))
    assert _gone(scheduler, number[1])


def _gone(scheduler: str, number: str) -> bool:
    argv = ("squeue", "-h", "-j", number) if scheduler == "slurm" else ("qstat", "-j", number)
    return number not in subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout


def test_ctrl_c_cancels_the_job(scheduler: str) -> None:
    write_site(scheduler, QUEUES[scheduler][1], LATER[scheduler == "sge"])
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


def test_a_python_that_the_node_does_not_have(scheduler: str, home: Path) -> None:
    write_site(scheduler, QUEUES[scheduler][1])
    done = doctor(scheduler, "--submit", "--set", f"environment.venv={home}/venv")

    assert done.returncode == 4
    assert done.stdout.count("it could not be activated") == 2, "here, and on the node"
    assert len(list((home / "runs").iterdir())) == 1, "its log is kept"


@pytest.mark.slurm
def test_a_database_that_is_down(slurm: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cluster, its database at a port where nobody listens: for this test's commands alone."""
    del slurm
    conf = home / "slurm.conf"
    mine = Path(os.environ["SLURM_CONF"]).read_text(encoding="utf-8")
    conf.write_text(f"{mine}\nAccountingStoragePort=16819\n", encoding="utf-8")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    write_site("slurm", "gpu")
    found = told("slurm")

    assert found["accounting"]["status"] == "warning"
    assert "Connection refused" in found["accounting"]["said"]
    assert found["job"]["status"] == "ok"


@pytest.mark.slurm
def test_a_controller_that_is_down(slurm: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del slurm
    conf = home / "slurm.conf"
    mine = Path(os.environ["SLURM_CONF"]).read_text(encoding="utf-8")
    lines = [line for line in mine.splitlines() if not line.startswith("Accounting")]
    conf.write_text("\n".join([*lines, "SlurmctldPort=16817", ""]), encoding="utf-8")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    write_site("slurm", "gpu")
    done = doctor("slurm", "--submit")

    assert done.returncode == 4
    assert "is DOWN" in done.stdout
    assert "not submitted" in done.stdout
    monkeypatch.setenv("SLURM_CONF", "/nonexistent/slurm.conf")
    hung = doctor("slurm")
    assert hung.returncode == 4
    assert "no answer within 20 s" in " ".join(hung.stdout.split())


@pytest.mark.sge
def test_a_qmaster_that_is_down(sge: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del sge
    monkeypatch.setenv("SGE_QMASTER_PORT", "9")
    write_site("sge", "gpu.q")
    done = doctor("sge", "--submit")

    assert done.returncode == 4
    assert "unable to send message to qmaster" in " ".join(done.stdout.split())
    assert "not submitted" in done.stdout
