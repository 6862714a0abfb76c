"""The job script of every kind of environment: its whole text, and a run of it by bash; also in a container.

The texts stand in tests/data/scripts. After a change to a template that is meant, write them again
and read the difference: `python -m tests.whole.test_environments`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from jobkit.core.records import ModelRef, Outcome, TextRef
from jobkit.planning.job_script import render, render_find, render_follow
from jobkit.planning.points import Inputs, plan
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.commands import ran
from tests.whole.specs import write_spec
from tests.whole.test_job_script import DEADLINE_S, ScriptRun, wait_until

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "data" / "scripts"
FAKES = ROOT / "tests" / "fakes"
WITH_CONDA = f"{FAKES}:{os.environ['PATH']}"
PYTHON = "/opt/jobkit/bin/python"

ASKED = {"mail": "ada@example.org", "account": "nlp", "exclude": ["node07", "n[1-3]"], "reservation": "42"}
RARE = {**ASKED, "constraint": "a100&ib", "qos": "long"}
SETUP = {"setup": ["ulimit -n 4096"], "variables": {"NOTE": "it's quoted"}}
GOLDEN: dict[str, tuple[str, dict[str, object]]] = {
    "everything-slurm": ("slurm", {"resources": RARE, "environment": SETUP}),
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
    inputs = Inputs(run_id="stanza-20260101-120000-beef", text=text, model=model, device="cuda")
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


def test_shellcheck_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("shellcheck")
    names = "everything-sge conda-slurm container-slurm pack-slurm find-container-slurm follow-sge"
    scripts = [SCRIPTS / f"{name}.sh" for name in names.split()]
    done = subprocess.run([program, *scripts], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


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


def test_a_conda_environment_is_activated(tmp_path: Path) -> None:
    folder = tmp_path / "envs" / "my env"
    python = linked_python(folder)
    hooks = folder / "etc" / "conda" / "activate.d"
    hooks.mkdir(parents=True)
    (hooks / "ready.sh").write_text('MADE_READY="by conda$NEVER_SET_ANYWHERE"\nexport MADE_READY\n')
    run = ScriptRun(tmp_path, environment={"conda": "my env", "setup": told(tmp_path / "told")})
    run.ok(1, PATH=WITH_CONDA, FAKE_CONDA_ENVS=str(folder.parent))
    assert run.record().outcome is Outcome.OK
    assert (tmp_path / "told").read_text(encoding="utf-8") == f"{python}\nby conda\n"


@pytest.mark.parametrize(
    ("environment", "variables", "words"),
    [
        ({"conda": "nope"}, {"PATH": WITH_CONDA}, "Could not find conda environment: nope"),
        ({"venv": "/nowhere"}, {}, "/nowhere/bin/activate: No such file"),
        ({"modules": ["cuda"]}, {"BASH_FUNC_module%%": "() { return 127; }"}, ""),
    ],
    ids=["conda", "venv", "modules"],
)
def test_what_is_not_on_the_node(
    tmp_path: Path, environment: dict[str, object], variables: dict[str, str], words: str
) -> None:
    run = ScriptRun(tmp_path, environment=environment)
    status, said = run.run(1, **{"FAKE_CONDA_ENVS": str(tmp_path), **variables})
    assert (status, run.exit().outcome, run.left_on_scratch()) == (1, Outcome.ENVIRONMENT, []), said
    assert words in said


def test_a_venv_is_activated_and_one_that_lacks_a_package_is_a_fault_of_the_environment(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "my venv"
    venv.create(folder, with_pip=False, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (site_packages / "jobkit.pth").write_text(f"{ROOT}\n{here}\n", encoding="utf-8")
    run = ScriptRun(tmp_path, environment={"venv": str(folder), "setup": told(tmp_path / "told")})
    run.ok(1)
    assert run.record().outcome is Outcome.OK
    assert (tmp_path / "told").read_text(encoding="utf-8") == f"{folder}/bin/python\n\n"
    (site_packages / "half.pth").write_text("import sys; sys.modules['argparse'] = None\n", encoding="utf-8")
    status, said = run.run(1)
    assert (status, run.exit(1, 2).outcome) == (1, Outcome.ENVIRONMENT), said
    assert "argparse" in said
    assert "python cannot import jobkit on" in run.exit(1, 2).message


SYSTEM = os.environ["PATH"]


class Node:
    """A machine that has an image, and apptainer under one of its names."""

    def __init__(self, folder: Path, engine: str = "apptainer") -> None:
        self.image = folder / "my image.sif"
        self.image.write_text("SIF", encoding="utf-8")
        linked_python(folder / "inside").rename(folder / "inside" / "bin" / "python3")
        (folder / "bin").mkdir()
        (folder / "bin" / engine).symlink_to(FAKES / "apptainer")
        self.log = folder / "calls"
        self.env = {
            "PATH": f"{folder}/bin:{SYSTEM}",
            "FAKE_IMAGE_PATH": f"{folder}/inside/bin:{SYSTEM}",
            "FAKE_APPTAINER_LOG": str(self.log),
        }

    def calls(self) -> list[list[str]]:
        """Return the words of each call, the name of the program first."""
        return [call.split("\t") for call in self.log.read_text(encoding="utf-8").splitlines()]

    def binds(self, call: Sequence[str]) -> list[str]:
        """Return the paths that a call binds, and check that nothing else stands before the image."""
        before = list(call[2 : call.index(str(self.image))])
        assert [word for word in before[::2] if word != "--bind"] == []
        return before[1::2]


def test_a_signal_to_the_job_reaches_the_worker_in_the_image(tmp_path: Path) -> None:
    """USR1 goes to the whole process group, as from a scheduler: in the container it must not kill Python."""
    node = Node(tmp_path, "singularity")
    run = ScriptRun(tmp_path, workload="odd:Slow", environment={"container": str(node.image)})
    begun = tmp_path / "begun"
    process = run.start(1, ODD_TOLD=str(begun), **node.env)
    wait_until(begun.exists)
    os.killpg(process.pid, signal.SIGUSR1)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143, said
    record = run.record()
    assert (record.outcome, record.environment["SINGULARITY_CONTAINER"]) == ("timeout", str(node.image))
    assert record.summary is not None
    assert record.summary.batches == 1
    first, last = node.calls()
    assert node.binds(first) == node.binds(last) == [str(run.dir), str(run.own()), str(run.text)]
    assert [call[:2] for call in (first, last)] == [["singularity", "exec"]] * 2
    assert last[last.index("python3") :][:3] == ["python3", "-m", "jobkit.worker"]
    assert run.left_on_scratch() == []


@pytest.mark.fault
@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ("image", "there is no image {} on "),
        ("engine", "neither apptainer nor singularity is on PATH"),
        ("jobkit", "python3 in the container cannot import jobkit"),
    ],
)
def test_a_node_or_an_image_that_lacks_something(tmp_path: Path, lacking: str, message: str) -> None:
    """FAULT: the node has no file at `environment.container`, or no apptainer, or the image has no jobkit.

    HOW: real: the file is removed, or this machine has none; the image's Python is one that cannot import
    jobkit; a stand-in for apptainer.
    REPORTED: `environment`: "there is no image ... on HOST"; "neither apptainer nor singularity is on PATH on
    HOST"; "python3 in the container cannot import jobkit", and the log has Python's message.
    LOST: nothing: no worker was started.
    """
    node = Node(tmp_path)
    run = ScriptRun(tmp_path, environment={"container": str(node.image)})
    if lacking == "image":
        node.image.unlink()
    elif lacking == "engine":
        node.env["PATH"] = SYSTEM
    else:
        (tmp_path / "inside" / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -IS "$@"\n')
    status, said = run.run(1, **node.env)
    assert (status, run.exit().outcome, run.left_on_scratch()) == (1, Outcome.ENVIRONMENT, []), said
    assert message.format(node.image) in run.exit().message
    assert ("No module named 'jobkit'" in said) == (lacking == "jobkit")
    assert node.log.exists() == (lacking == "jobkit")


def test_a_sweep_whose_image_is_next_to_the_spec_and_a_shard_that_sees_its_corpus(tmp_path: Path) -> None:
    """The driver of a local run would fork its tries from one parent, which would leave its image."""
    node = Node(tmp_path)
    (tmp_path / "specs").mkdir()
    node.image = image = node.image.rename(tmp_path / "specs" / node.image.name)
    boxed = write_spec(tmp_path / "specs", environment={"container": image.name})
    env = {**node.env, "JOBKIT_CACHE": str(tmp_path / "cache"), "JOBKIT_CONFIG": str(tmp_path)}
    ran("sweep", boxed, cwd=tmp_path, env=env)
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/results/*/try-1/record.json")]
    images = [(one["outcome"], one["environment"]["SINGULARITY_CONTAINER"]) for one in records]
    assert images == [("ok", str(image))] * 2
    assert len([call for call in node.calls() if "jobkit.worker" in call]) == 2
    assert not [call for call in node.calls() if "jobkit.worker.parent" in call]
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "corpus.txt").write_text("One two.\n\nThree.\n", encoding="utf-8")
    write_spec(tmp_path / "specs", environment={"container": image.name}, sweep={"batch_size": [4]})
    ran("apply", boxed, "--corpus", "far", "--shards", "1", "--out", "out", cwd=tmp_path, env=env)
    (tmp_path / "new.txt").write_text("Four.\n", encoding="utf-8")
    ran("apply", boxed, "--corpus", "far", "new.txt", "--out", "out", cwd=tmp_path, env=env)
    *_, first, second = (node.binds(call) for call in node.calls() if "jobkit.worker" in call)
    places = {str(tmp_path / "far"), str(tmp_path)}
    assert [places & {*first}, places & {*second}] == [{str(tmp_path / "far")}, {str(tmp_path)}]


if __name__ == "__main__":
    write_golden()
