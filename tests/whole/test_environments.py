"""The job script of every kind of environment: its whole text, and a run of it by bash.

The texts stand in tests/data/scripts. After a change to a template that is meant, write them again
and read the difference: `python -m tests.whole.test_environments`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from unittest import mock

import pytest

from jobkit.core.records import ModelRef, Outcome, TextRef
from jobkit.planning.job_script import render, render_find, render_follow
from jobkit.planning.points import Inputs, plan
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from tests.whole.test_job_script import ScriptRun

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "data" / "scripts"
FAKES = ROOT / "tests" / "fakes"
WITH_CONDA = f"{FAKES}:{os.environ['PATH']}"
PYTHON = "/opt/jobkit/bin/python"

ASKED = {"mail": "ada@example.org", "account": "nlp", "exclude": ["node07"], "reservation": "42"}
SETUP = {"setup": ["ulimit -n 4096"], "variables": {"NOTE": "it's quoted"}}
GOLDEN: dict[str, tuple[str, dict[str, object]]] = {
    "plain-local": ("local", {}),
    "plain-slurm": ("slurm", {}),
    "plain-sge": ("sge", {}),
    "count-slurm": ("slurm", {"workload": "count"}),
    "everything-slurm": ("slurm", {"resources": {**ASKED, "constraint": "a100"}, "environment": SETUP}),
    "everything-sge": ("sge", {"resources": ASKED, "environment": SETUP}),
    "modules-slurm": ("slurm", {"environment": {"modules": ["cuda/12.4", "anaconda 3"]}}),
    "conda-slurm": ("slurm", {"environment": {"modules": ["anaconda3"], "conda": "my env"}}),
    "venv-slurm": ("slurm", {"environment": {"venv": "/home/ada/my venv"}}),
    "container-slurm": (
        "slurm",
        {"environment": {"modules": ["apptainer"], "container": "/images/my image.sif", **SETUP}},
    ),
    "container-sge": ("sge", {"environment": {"container": "docker://ghcr.io/ada/jobkit:1"}}),
    "pack-slurm": ("slurm", {"pack": 5}),
    "find-local": ("local", {}),
    "find-slurm": ("slurm", {"environment": {"venv": "/home/ada/my venv", **SETUP}}),
    "find-container-slurm": ("slurm", {"environment": {"container": "/images/my image.sif"}}),
    "find-sge": ("sge", {"resources": ASKED}),
    "follow-slurm": ("slurm", {"resources": ASKED, "environment": SETUP}),
    "follow-sge": ("sge", {"resources": ASKED}),
}
"""The scheduler and the keys of each text; ``find-`` and ``follow-`` are of jobs that follow a sweep."""
RENDERED = {"find": render_find, "follow": render_follow}


def golden_script(name: str) -> str:
    """Return the script of a golden text, the same on every machine."""
    scheduler, keys = GOLDEN[name]
    spec = SweepSpec.model_validate({"name": "stanza", **keys})
    text = TextRef(path="/data/a text.txt", sha256="0" * 64, size_bytes=165_000, name="a text.txt")
    model = ModelRef(
        path="/cache/models/en", name="en", size="full", stand_in=True, fingerprint="f", size_bytes=15_000_000
    )
    inputs = Inputs(
        run_id="stanza-20260101-120000-beef",
        text=text,
        model=None if spec.workload == "count" else model,
        device="cuda",
    )
    site = load_site(f"{scheduler}-default", scheduler)
    rendered = RENDERED.get(name.partition("-")[0], render)
    with mock.patch.object(sys, "executable", PYTHON), mock.patch("jobkit.planning.job_script.PLACES", ()):
        return rendered(spec, site, plan(spec, inputs)[0], Path("/home/ada/runs") / inputs.run_id)


@pytest.fixture(autouse=True)
def no_templates_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "no-config"))


@pytest.mark.parametrize("name", GOLDEN)
def test_the_whole_script(name: str) -> None:
    assert golden_script(name) == (SCRIPTS / f"{name}.sh").read_text(encoding="utf-8")


def test_every_golden_text_is_compared() -> None:
    assert {path.stem for path in SCRIPTS.iterdir()} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([program, SCRIPTS / f"{name}.sh"], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def write_golden() -> None:
    """Write all golden texts again, from the templates as they are."""
    SCRIPTS.mkdir(exist_ok=True)
    for name in GOLDEN:
        (SCRIPTS / f"{name}.sh").write_text(golden_script(name), encoding="utf-8")


def told(path: Path) -> list[str]:
    """Return shell lines that write which Python is active, and what the environment exports."""
    return [f'{{ command -v python; echo "${{MADE_READY:-}}"; }} >"{path}"']


def linked_python(folder: Path) -> Path:
    """Make ``bin/python`` in a folder, with jobkit importable: what an environment comes to."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("by", ["name", "folder"])
def test_a_conda_environment_is_activated(tmp_path: Path, by: str) -> None:
    folder = tmp_path / "envs" / "my env"
    python = linked_python(folder)
    hooks = folder / "etc" / "conda" / "activate.d"
    hooks.mkdir(parents=True)
    (hooks / "ready.sh").write_text('MADE_READY="by conda$NEVER_SET_ANYWHERE"\nexport MADE_READY\n')
    conda = "my env" if by == "name" else str(folder)
    run = ScriptRun(tmp_path, environment={"conda": conda, "setup": told(tmp_path / "told")})
    status, said = run.run(1, PATH=WITH_CONDA, FAKE_CONDA_ENVS=str(folder.parent))
    assert status == 0, said
    assert run.record().outcome is Outcome.OK
    assert (tmp_path / "told").read_text(encoding="utf-8") == f"{python}\nby conda\n"


@pytest.mark.parametrize(
    ("environment", "variables", "words"),
    [
        (
            {"conda": "nope"},
            {"PATH": f"{FAKES}:{os.environ['PATH']}"},
            "Could not find conda environment: nope",
        ),
        ({"conda": "any"}, {}, "conda: command not found"),
        ({"venv": "/nowhere"}, {}, "/nowhere/bin/activate: No such file"),
        ({"modules": ["cuda"]}, {"BASH_FUNC_module%%": "() { return 127; }"}, ""),
    ],
    ids=["conda environment", "conda", "venv", "modules"],
)
def test_what_is_not_on_the_node(
    tmp_path: Path, environment: dict[str, object], variables: dict[str, str], words: str
) -> None:
    run = ScriptRun(tmp_path, environment=environment)
    status, said = run.run(1, **{"FAKE_CONDA_ENVS": str(tmp_path), **variables})
    assert (status, run.exit().outcome, run.left_on_scratch()) == (1, Outcome.ENVIRONMENT, []), said
    assert words in said


def made_venv(folder: Path, *, with_jobkit: bool) -> Path:
    """Make a real virtual environment, and let it import jobkit and its own from here."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    here = next(path for path in sys.path if path.endswith("site-packages"))
    if with_jobkit:
        (site_packages / "jobkit.pth").write_text(f"{ROOT}\n{here}\n", encoding="utf-8")
    return folder / "bin" / "python"


def test_a_venv_is_activated(tmp_path: Path) -> None:
    python = made_venv(tmp_path / "my venv", with_jobkit=True)
    run = ScriptRun(
        tmp_path, environment={"venv": str(tmp_path / "my venv"), "setup": told(tmp_path / "told")}
    )
    status, said = run.run(1)
    assert status == 0, said
    assert run.record().outcome is Outcome.OK
    assert (tmp_path / "told").read_text(encoding="utf-8") == f"{python}\n\n"


def test_a_worker_that_cannot_import_a_package_is_a_fault_of_the_environment(tmp_path: Path) -> None:
    made_venv(tmp_path / "half", with_jobkit=True)
    site_packages = next((tmp_path / "half").glob("lib/python*/site-packages"))
    (site_packages / "half.pth").write_text("import sys; sys.modules['argparse'] = None\n", encoding="utf-8")
    run = ScriptRun(tmp_path, environment={"venv": str(tmp_path / "half")})
    status, said = run.run(1)
    assert (status, run.exit().outcome) == (1, Outcome.ENVIRONMENT), said
    assert "argparse" in said
    assert "python cannot import jobkit on" in run.exit().message


def test_a_venv_without_jobkit_is_reported_at_once(tmp_path: Path) -> None:
    made_venv(tmp_path / "bare", with_jobkit=False)
    run = ScriptRun(tmp_path, environment={"venv": str(tmp_path / "bare")})
    status, said = run.run(1, PYTHONPATH="")
    assert status == 1
    assert "python cannot import jobkit on" in said
    assert run.exit().outcome is Outcome.ENVIRONMENT


if __name__ == "__main__":
    write_golden()
