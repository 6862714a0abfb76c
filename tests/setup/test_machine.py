from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.planning.job_script import COPIER, PROGRAMS
from jobkit.schedulers.registry import by_name
from jobkit.setup import machine
from jobkit.setup.findings import Facts, Finding, Status, advice
from jobkit.setup.machine import MACHINE, PYTHON, NodeRequest, check_node
from jobkit.spec.sweep_spec import FindMax, ModelSpec, SweepSpec

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    monkeypatch.delenv("STANZA_RESOURCES_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return cache


def test_commands_that_are_there_and_that_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = by_name("slurm")
    for name in slurm.COMMANDS[:-1]:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.commands(slurm, "as requested")

    assert (found.status, found.said) == (Status.MISSING, f"not on PATH: {slurm.COMMANDS[-1]}")
    assert "--scheduler local" in found.hint
    (tmp_path / slurm.COMMANDS[-1]).touch(mode=0o755)
    assert machine.commands(slurm, "as requested").status is Status.OK
    assert machine.commands(by_name("local"), "points run here").said == "points run here"


def folder(path: Path, *, shared: bool) -> Finding:
    return machine.folder_of("run folders", path, "--runs-dir", shared=shared)


def test_where_run_folders_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LITTLE_BYTES", 0)
    found = folder(tmp_path / "a" / "runs", shared=False)
    assert found.status is Status.OK
    assert "GiB free" in found.said
    assert not (tmp_path / "a").exists(), "it is not made"
    (tmp_path / "locked").mkdir(mode=0o500)
    locked = folder(tmp_path / "locked" / "runs", shared=False)
    assert locked.status is (Status.OK if os.geteuid() == 0 else Status.MISSING)
    nowhere = folder(Path("/proc/runs"), shared=True)
    assert nowhere.status is Status.MISSING
    assert nowhere.said.startswith("nothing can be written in /proc: ")
    assert "--runs-dir" in nowhere.hint
    monkeypatch.setattr(machine, "LITTLE_BYTES", shutil.disk_usage(tmp_path).total * 2)
    assert folder(tmp_path, shared=False).status is Status.WARNING, "nearly full"


def test_a_disk_of_this_machine_is_a_warning_where_nodes_must_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(machine, "MOUNTS", mounts)
    monkeypatch.setattr(machine, "LITTLE_BYTES", 0)
    for kind, status in (("ext4", Status.WARNING), ("nfs4", Status.OK), ("newfs", Status.OK)):
        mounts.write_text(f"22 1 0:1 / / rw - {kind} x rw\n", encoding="utf-8")
        found = folder(tmp_path, shared=True)
        assert found.status is status, kind
        assert f"on {kind}" in found.said
        assert folder(tmp_path, shared=False).status is Status.OK


SWEEP = "jobkit sweep first.yaml --set name=x"


def test_a_model_that_is_not_there() -> None:
    built = "the full stand-in will be built by the sweep"
    for model, sweep, status, words in (
        (ModelSpec(), SWEEP, Status.MISSING, "en is not on this machine"),
        (ModelSpec(), "", Status.WARNING, "jobkit models fetch en"),
        (ModelSpec(fallback="stand-in"), SWEEP, Status.WARNING, built),
        (ModelSpec(size="tiny"), SWEEP, Status.MISSING, "only the stand-in has the size 'tiny'"),
    ):
        found = machine.model(SweepSpec(name="x", model=model), Path(), sweep)
        assert (found.status, words in f"{found.said}\n{found.hint}") == (status, True)
        offered = model == ModelSpec() and bool(sweep)
        assert (f"{SWEEP} --stand-in" in found.hint.splitlines()) is offered, "if there is a stand-in"


def test_a_model_that_is_there(
    tiny_model: ModelRef, kept_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANZA_RESOURCES_DIR", tiny_model.path)
    found = machine.model(SweepSpec(name="x"), Path(), SWEEP)
    assert (found.status, found.said) == (Status.OK, f"en at {Path(tiny_model.path).absolute()}")

    monkeypatch.delenv("STANZA_RESOURCES_DIR")
    monkeypatch.setenv(CACHE_VARIABLE, str(kept_cache))
    spec = SweepSpec(name="x", model=ModelSpec(size="tiny", fallback="stand-in"))
    found = machine.model(spec, Path(), SWEEP)
    assert "the tiny stand-in is at /" in found.said
    assert advice([found], "again", "then", nodes=False).startswith("A sweep will work, with the")
    own = spec.model_copy(update={"find_max": FindMax(), "text": "letters.txt"})
    assert machine.model(own, Path(), SWEEP).status is Status.MISSING


GIB = 2**30
WANTED = NodeRequest(
    device="cuda",
    workload="stanza-ner",
    gpus=1,
    scratch_bytes=GIB,
    seen=("/home/ada/cache", "/home/ada/text.txt"),
    python="python",
    on_node=True,
    jobkit="0.1.0",
)
AWAY = {"on_node": False}
SAID = dict.fromkeys((f"program.{name}" for name in (*PROGRAMS, COPIER)), "/usr/bin/x") | {
    "scratch": "/scratch", "scratch.free": str(5 * GIB), "scratch.owner": "0", "scratch.mode": "drwxrwxrwt",
    "scratch.locks": "yes", "uid": "1000", "seen.0": "yes", "seen.1": "yes",
    "activation": "0", "python": "/env/bin/python", "worker": "0", "examine": "0",
}  # fmt: skip
TORCH = {
    "version": "2.5.0", "error": None, "import_s": 2.0, "built_for": "12.4", "works": True,
    "devices": 1, "name": "NVIDIA H200", "total_bytes": 140 * GIB,
}  # fmt: skip
FOR_CPU = TORCH | {"built_for": None, "works": False, "why": "is a CPU build"}
BROKEN = TORCH | {"works": False, "why": "the point requests CUDA, but torch sees no device"}
GPU = {"name": "NVIDIA H200", "driver": "570.1", "processes": 0, "accounting": False}
PYTHON_FOUND = {
    "python": "3.11.7", "jobkit": "0.1.0", "stanza": "1.10.1", "workload_error": None, "torch": TORCH,
    "gpus": [GPU], "cpus": 8,
}  # fmt: skip
PROGRAM = {"name": "tag", "path": None, "is_file": None, "interpreter": "", "interpreter_path": None}


def node(
    said: dict[str, str] | None = None, changes: dict[str, Any] | None = None, **python: Any
) -> dict[str, Finding]:
    """Return the findings about a node of which a look says all but what a test changes."""
    facts = Facts(said=SAID | (said or {}), python=PYTHON_FOUND | python)
    wanted = replace(WANTED, **(changes or {}))
    return {one.name: one for one in check_node(facts, wanted, (*MACHINE, *PYTHON))}


def test_a_node_with_all_that_a_point_needs() -> None:
    found = node()
    of_machine, of_python = ["programs", "scratch", "inputs", "CPUs"], ["environment", "jobkit"]
    assert list(found) == [*of_machine, *of_python, "torch", "CUDA", "NVML", "GPU accounting"]
    assert {one.status for one in found.values()} == {Status.OK}
    on_cpus = node(changes={"device": "cpu", "workload": "count", "seen": ()}, torch=None, stanza=None)
    assert list(on_cpus) == ["programs", "scratch", "CPUs", *of_python]
    assert "CPUs" not in node(changes=AWAY)
    assert {"CUDA", "GPU accounting"}.isdisjoint(node(torch=FOR_CPU, gpus=None)), "told already"


def test_a_look_that_ended_early_says_so_and_no_more() -> None:
    (found,) = check_node(Facts({}, {}), WANTED, PYTHON)
    assert (found.name, found.status) == ("environment", Status.UNKNOWN)
    for said, status, words in (
        ({"examine": "1", "examine.said": "ImportError: x"}, Status.MISSING, "failed: ImportError: x"),
        ({"examine": "124"}, Status.WARNING, "took too long"),
    ):
        findings = check_node(Facts(SAID | said, {}), WANTED, PYTHON)
        found = next(one for one in findings if one.name == "jobkit")
        assert (found.status, words in found.said) == (status, True)


OK, WARNING, MISSING, UNKNOWN = Status
BUSY, UNNAMED = {"gpus": [GPU, GPU | {"processes": 2}]}, {"gpus": [GPU, GPU], "gpus_named": False}
TAG = {"path": "/b/tag"}
LUA, DOS = TAG | {"interpreter": "lua", "interpreter_path": "/b/lua"}, TAG | {"interpreter": "/bin/sh\r"}
MISMATCH = "/env/bin/python -m pip install jobkit==0.1.0"


def said(**values: str) -> dict[str, Any]:
    return {"said": {name.replace("_", "."): value for name, value in values.items()}}


def of_program(**values: str) -> dict[str, Any]:
    return {"program": PROGRAM | values}


@pytest.mark.parametrize(
    ("name", "changes", "status", "words"),
    [
        ("programs", said(program_stat=""), MISSING, "not on PATH: stat"),
        ("scratch", said(scratch_owner="1000", scratch_mode="drwxr-xr-x"), OK, "5.00 GiB free"),
        ("scratch", said(scratch_owner="1001"), MISSING, "belongs to user 1001"),
        ("scratch", said(scratch_mode="drwxrwxrwx"), WARNING, "no sticky bit"),
        ("scratch", said(scratch_locks=""), WARNING, "its own copy of the inputs"),
        ("scratch", said(scratch_free=str(GIB - 1)), MISSING, "a point needs 1.00 GiB"),
        ("scratch", said(scratch_free="", scratch_error="/disk/ada"), MISSING, "(/disk/ada)"),
        ("inputs", said(seen_1="no"), MISSING, "the job cannot read /home/ada/text.txt"),
        ("environment", said(activation="1", activation_said="no gcc"), MISSING, "no gcc"),
        ("environment", said(python=""), MISSING, "there is no python here"),
        ("jobkit", said(worker="1", worker_said="No module"), MISSING, "worker: No module"),
        ("jobkit", said(worker="124"), MISSING, "the import took too long"),
        ("jobkit", {"workload_error": "No module named 'my'"}, MISSING, "No module named 'my'"),
        ("jobkit", {"jobkit": "0.0.9"}, WARNING, MISMATCH),
        ("torch", {"torch": TORCH | {"import_s": 45.0}}, WARNING, "45"),
        ("torch", {"torch": {"version": None, "error": "OSError: lib"}}, MISSING, "lib"),
        ("torch", {"torch": FOR_CPU}, MISSING, "the sweep asks for one"),
        ("torch", {"torch": FOR_CPU, "changes": {"given": False}}, WARNING, "the cluster has some"),
        ("CUDA", {"torch": BROKEN}, MISSING, "sees no device"),
        ("CUDA", {"torch": BROKEN, "changes": AWAY}, UNKNOWN, "--submit"),
        ("CUDA", {"changes": {"gpus": 2}}, WARNING, "requested: 2"),
        ("NVML", BUSY, WARNING, "1 of them"),
        ("NVML", {"gpus": []}, WARNING, "does not answer"),
        ("NVML", UNNAMED, WARNING, "`gpus: choose`"),
        ("program", of_program(**LUA), OK, "tag is /b/tag"),
        ("program", of_program(), MISSING, "not on PATH here\nload its module (environment.modules)"),
        ("program", of_program() | {"changes": AWAY}, WARNING, "tag is not on PATH here"),
        ("program", of_program(name="/opt/tag"), MISSING, "there is no '/opt/tag' here"),
        ("program", of_program(name="/opt/tag", is_file="yes"), MISSING, "chmod +x /opt/tag"),
        ("program", of_program(**DOS), MISSING, r"'/bin/sh\r', which is not here"),
    ],
)
def test_what_is_amiss(name: str, changes: dict[str, Any], status: Status, words: str) -> None:
    found = node(**changes)[name]
    assert found.status is status
    assert words in f"{found.said}\n{found.hint}"
    assert found.hint or status is not MISSING


@pytest.mark.slow
def test_what_brings_a_torch_for_cuda_can_be_pasted() -> None:
    words, command = node({"python": "/my env/bin/python"}, torch=FOR_CPU)["torch"].hint.splitlines()

    assert words.endswith("(jobkit help dependencies):")
    assert subprocess.run(["bash", "-n"], input=command, text=True, check=False).returncode == 0
    assert shlex.split(command)[:4] == ["/my env/bin/python", "-m", "pip", "install"]
    assert "--force-reinstall" in command, "pip says else that torch is there already"
    assert "--index-url" in command
