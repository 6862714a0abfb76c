from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from jobkit.core.errors import WOULD_REFUSE
from jobkit.setup.doctor import next_command
from tests.support.commands import jobkit

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.usefixtures("fake_slurm")
def test_what_it_writes_passes_doctor_and_a_dry_run(here: Path) -> None:
    done = jobkit("init", "--scheduler", "slurm")
    first, second, third, *_ = done.stdout.splitlines()
    assert (done.returncode, third) == (0, "next: jobkit doctor first.yaml")
    assert first.startswith("wrote config/site.yaml")
    assert second.startswith("wrote first.yaml")

    done = jobkit("doctor", "first.yaml", "--set", "workload=count", "--set", "resources.gpus=0")
    assert (done.returncode, "missing" in done.stdout) == (0, False), done.stdout
    (trial,) = [line for line in (here / "first.yaml").read_text().splitlines() if "--stand-in" in line]
    words = trial.removeprefix("#   jobkit ").partition("    ")[0].split()
    done = jobkit(*words, "--dry-run")
    assert (done.returncode, "queue" in done.stderr) == (0, False), done.stderr
    assert WOULD_REFUSE not in done.stderr, "also where torch is a CPU build"


@pytest.mark.usefixtures("fake_slurm")
def test_only_a_site_file(here: Path) -> None:
    given = ["--scheduler", "slurm", "--site-file", str(here / "ours.yaml")]
    done = jobkit("init", *given, "--only", "site")
    assert f"a spec names it: site: {here / 'ours.yaml'}" in done.stdout
    words = ["--scheduler", "slurm", "--site", given[-1]]
    assert done.stdout.splitlines()[-1] == f"next: jobkit doctor {' '.join(words)}"
    assert next_command("", words) == f"jobkit init {' '.join(given)} --only spec"
    again = jobkit("init", *given)
    assert f"using the site file {here / 'ours.yaml'}" in again.stderr
    assert (here / "first.yaml").exists(), again.stdout


def test_the_spec_says_what_installs_its_workload(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    absent = {"stanza", "spacy"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else real(name))
    assert jobkit("init", "--scheduler", "local").returncode == 0
    (note,) = re.findall(r"# (.*)\nworkload: stanza-ner", (here / "first.yaml").read_text())
    assert note.startswith("not installed here: ")
    assert "[stanza]" in note
    assert "; installed: count" in note
    assert "spacy" not in note
