from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.fakes.cluster import FakeCluster
from tests.support.commands import JOBKIT, jobkit

SPEC = """\
name: mine
workload: count
device: cpu
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
"""


@pytest.fixture(autouse=True)
def here(here: Path) -> Path:
    (here / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return here


def run(*words: str | Path, status: int = 0, **env: str) -> str:
    done = jobkit("doctor", *words, env=env)
    assert done.returncode == status, done.stderr
    assert "a bug" not in done.stderr
    return done.stdout


@pytest.mark.usefixtures("fake_slurm")
def test_from_top_to_bottom_under_headings() -> None:
    words = ("spec.yaml", "--scheduler", "slurm")
    *lines, counts, _, last = run(*words, "--all").splitlines()
    headings = [line for line in lines if line and not line.startswith(" ")]

    assert headings == ["This machine", "Slurm", "Folders and inputs", "Python, as a job would have it"]
    assert last.startswith("next: jobkit doctor spec.yaml --scheduler slurm --submit")
    few = run(*words).splitlines()
    assert (counts.replace(" ok", " ok (--all lists them)"), len(few) < len(lines)) == (few[-3], True)


@pytest.mark.slow
def test_the_sweep_that_is_next_is_the_one_that_was_looked_at() -> None:
    words = "spec.yaml --set device=cpu --set 'sweep.batch_size=[1]' --scheduler local --runs-dir 'my runs'"
    assert run(*shlex.split(words)).splitlines()[-1] == f"next: jobkit sweep {words}"


@pytest.mark.slow
def test_here_too_a_site_of_a_scheduler_is_refused_and_nothing_is_submitted() -> None:
    said = run("spec.yaml", "--scheduler", "local", "--site", "slurm-default", "--submit", status=4)
    assert said.count("is for slurm, not for local") == 1
    assert "--submit submitted nothing" in said


@pytest.mark.usefixtures("fake_slurm")
def test_a_fault_has_one_line_and_a_site_of_another_scheduler_leads_out(here: Path) -> None:
    (here / "bare.yaml").write_text("name: bare\nscheduler: slurm\nrequests: {gpus: x}\n", encoding="utf-8")
    said = run("spec.yaml", "--site", "./bare.yaml", "--set", "resources.queue=cpu", status=4)
    assert len(re.findall(r"^  missing +job script", said, re.MULTILINE)) == 1
    config = here / "config"
    config.mkdir()
    (config / "site.yaml").write_text("name: mine\nscheduler: sge\n", encoding="utf-8")
    said = run("spec.yaml", "--scheduler", "slurm", JOBKIT_CONFIG=str(config))
    assert "--site-file" in said
    assert "--site slurm" in " ".join(said.split())


def test_what_contradicts_itself_is_refused() -> None:
    assert "no SPEC" in jobkit("doctor", "--set", "name=x").stderr
    assert "no SPEC" in jobkit("doctor", "--stand-in").stderr


@pytest.mark.slow
def test_with_a_stand_in_a_model_that_is_missing_is_no_fault(here: Path) -> None:
    (here / "spec.yaml").write_text(SPEC.replace("count", "stanza-ner"), encoding="utf-8")
    words = ("spec.yaml", "--scheduler", "local")
    found = []
    for more in ([], ["--stand-in"]):
        findings = json.loads(jobkit("doctor", *words, "--json", *more).stdout)["findings"]
        found += [one for one in findings if one["name"] == "model"]
    assert [model["status"] for model in found] == ["missing", "ok"]
    assert "the tiny stand-in" in found[1]["said"]


def test_a_file_system_that_fails_is_a_finding() -> None:
    out = run("spec.yaml", "--scheduler", "local", "--set", f"text={'a' * 5000}", status=4)
    assert out.count("File name too long") == 2
    assert "fix what is missing" in out.splitlines()[-2]


def test_ctrl_c_is_130(fake_slurm: FakeCluster) -> None:
    fake_slurm.fault("full")
    argv = [str(JOBKIT), "doctor", "spec.yaml", "--scheduler", "slurm", "--submit"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "submitted" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(30) == 130
    assert "was cancelled" in said
    (job,) = fake_slurm.jobs()
    assert "CANCELLED" in json.dumps(fake_slurm.words(job.id)).upper()


@pytest.mark.slow
def test_a_machine_without_anything(here: Path) -> None:
    """No scheduler, no PATH to speak of, no home, a working folder that cannot be written."""
    env = {"PATH": str(here / "none"), "HOME": "/nonexistent", "LANG": "C"}
    argv: list[str | Path] = [JOBKIT, "doctor"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 4
    assert "missing" in done.stdout
    assert "a bug" not in done.stderr
