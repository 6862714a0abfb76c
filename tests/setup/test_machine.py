from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.planning.job_script import COPIER, PROGRAMS
from jobkit.schedulers.registry import by_name
from jobkit.setup import machine
from jobkit.setup.findings import Facts, Finding, Status
from jobkit.setup.machine import (
    MACHINE,
    PYTHON,
    NodeRequest,
    check_node,
    cores,
    inputs,
    program,
    programs,
    scratch,
)
from jobkit.spec.sweep_spec import ModelSpec, SweepSpec

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    monkeypatch.delenv("STANZA_RESOURCES_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return cache


def test_which_jobkit_and_which_python() -> None:
    assert sys.executable in machine.jobkit_itself().said


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


def test_a_folder_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    found = machine.run_folders(tmp_path / "a" / "runs", shared=False)

    assert found.status is Status.OK
    assert "GiB free" in found.said
    assert not (tmp_path / "a").exists()


def test_a_disk_of_this_machine_is_a_warning_where_nodes_must_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(machine, "MOUNTS", mounts)
    for kind, status in (("ext4", Status.WARNING), ("nfs4", Status.OK), ("newfs", Status.OK)):
        mounts.write_text(f"22 1 0:1 / / rw - {kind} x rw\n", encoding="utf-8")
        found = machine.cache(shared=True)
        assert found.status is status, kind
        assert f"on {kind}" in found.said
        assert machine.cache(shared=False).status is Status.OK


def test_where_nothing_can_be_written() -> None:
    found = machine.run_folders(Path("/proc/runs"), shared=True)

    assert found.status is Status.MISSING
    assert found.said.startswith("nothing can be written in /proc: ")
    assert "--runs-dir" in found.hint


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LITTLE_BYTES", shutil.disk_usage(tmp_path).total * 2)

    assert machine.run_folders(tmp_path, shared=False).status is Status.WARNING


def test_a_text_that_is_there_and_one_that_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")

    assert machine.text(SweepSpec(name="x", text="a.txt"), tmp_path).said == "a.txt (11 bytes)"
    lost = machine.text(SweepSpec(name="x", text="b.txt"), tmp_path)
    assert lost.status is Status.MISSING
    assert lost.hint


SWEEP = "jobkit sweep first.yaml --set name=x"


@pytest.mark.parametrize(
    ("model", "status", "words"),
    [
        (ModelSpec(), Status.MISSING, "en is not on this machine"),
        (ModelSpec(fallback="stand-in"), Status.OK, "the full stand-in will be built by the sweep"),
        (ModelSpec(size="tiny"), Status.MISSING, "only the stand-in has the size 'tiny'"),
    ],
)
def test_a_model_that_is_not_there(model: ModelSpec, status: Status, words: str) -> None:
    found = machine.model(SweepSpec(name="x", model=model), Path(), SWEEP)

    assert found.status is status
    assert words in found.said


def test_a_model_that_nobody_asked_for_is_a_warning() -> None:
    found = machine.model(SweepSpec(name="x"), Path(), "")

    assert (found.status, found.hint) == (Status.WARNING, "jobkit models fetch en")


@pytest.mark.parametrize(("name", "offered"), [("en", True), ("de", False)])
def test_the_sweep_with_a_stand_in_can_be_typed_if_there_is_one(*, name: str, offered: bool) -> None:
    found = machine.model(SweepSpec(name="x", model=ModelSpec(name=name)), Path(), SWEEP)

    assert (f"{SWEEP} --stand-in" in found.hint.splitlines()) is offered


def test_a_model_that_is_there(
    tiny_model: ModelRef, kept_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANZA_RESOURCES_DIR", tiny_model.path)
    found = machine.model(SweepSpec(name="x"), Path(), SWEEP)
    assert (found.status, found.said) == (Status.OK, f"en at {Path(tiny_model.path).absolute()}")

    monkeypatch.delenv("STANZA_RESOURCES_DIR")
    monkeypatch.setenv(CACHE_VARIABLE, str(kept_cache))
    spec = SweepSpec(name="x", model=ModelSpec(size="tiny", fallback="stand-in"))
    assert "the tiny stand-in is built" in machine.model(spec, Path(), SWEEP).said


def test_root_or_not_a_folder_without_rights_is_seen(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    found = machine.run_folders(locked / "runs", shared=False)

    assert found.status is (Status.OK if os.geteuid() == 0 else Status.MISSING)


GIB = 2**30
WANTED = NodeRequest(
    device="cpu",
    workload="count",
    gpus=0,
    scratch_bytes=GIB,
    seen=("/home/ada/cache", "/home/ada/text.txt"),
    python="python",
    on_node=True,
    jobkit="0.1.0",
)
SAID = {
    **{f"program.{name}": f"/usr/bin/{name}" for name in PROGRAMS},
    "scratch": "/scratch",
    "scratch.free": str(5 * GIB),
    "uid": "1000",
    "scratch.owner": "0",
    "scratch.mode": "drwxrwxrwt",
    "scratch.locks": "yes",
    "seen.0": "yes",
    "seen.1": "yes",
}


def facts(said: dict[str, str] | None = None, **python: Any) -> Facts:
    return Facts(said=SAID | (said or {}), python=python)


def test_a_node_with_all_that_a_point_needs() -> None:
    found = list(check_node(facts(cpus=8), WANTED, MACHINE))

    assert [one.name for one in found] == ["programs", "scratch", "inputs", "CPUs"]
    assert {one.status for one in found} == {Status.OK}
    assert found[1].said == "/scratch has 5.00 GiB free"


def test_a_program_that_is_absent_is_missing_on_a_node_only() -> None:
    without = facts({"program.stat": ""})
    on_node, here = programs(without, WANTED), programs(without, replace(WANTED, on_node=False))

    assert (on_node.status, here.status) == (Status.MISSING, Status.WARNING)
    assert "not on PATH: stat" in on_node.said
    assert "setup" in on_node.hint


@pytest.mark.parametrize(("found", "words"), [("/usr/bin/rsync", "with rsync"), ("", "with cp: rsync")])
def test_what_a_job_copies_with(found: str, words: str) -> None:
    finding = programs(facts({f"program.{COPIER}": found}), WANTED)

    assert finding.status is Status.OK
    assert words in finding.said


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ({"scratch.owner": "1000", "scratch.mode": "drwxr-xr-x"}, Status.OK, "5.00 GiB free"),
        ({"scratch.owner": "1001"}, Status.MISSING, "belongs to user 1001"),
        ({"scratch.mode": "drwxrwxrwx"}, Status.WARNING, "no sticky bit"),
        ({"scratch.locks": ""}, Status.WARNING, "its own copy of the inputs"),
    ],
)
def test_scratch_that_others_share(said: dict[str, str], status: Status, words: str) -> None:
    found = scratch(facts(said), WANTED)
    assert found.status is status
    assert words in found.said


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"scratch.free": str(GIB - 1)}, "a point needs 1.00 GiB"),
        ({"scratch.free": ""}, "no folder could be made in scratch (nothing)"),
    ],
)
def test_scratch_without_room_or_without_a_folder(said: dict[str, str], words: str) -> None:
    found = scratch(facts(said), WANTED)

    assert found.status is Status.MISSING
    assert words in found.said
    assert found.hint == "change `scratch` in the site file"


def test_a_scratch_that_cannot_be_made_is_named() -> None:
    found = scratch(Facts(said={"scratch.error": "/disk/scratch/ada"}), WANTED)

    assert "(/disk/scratch/ada)" in found.said


def test_what_a_node_cannot_read_is_named() -> None:
    found = inputs(facts({"seen.1": "no"}), WANTED)

    assert found is not None
    assert found.status is Status.MISSING
    assert found.said == "it cannot read /home/ada/text.txt"
    assert "JOBKIT_CACHE" in found.hint


def test_what_there_is_nothing_to_say_of() -> None:
    assert inputs(facts(), replace(WANTED, seen=())) is None
    assert cores(facts(), WANTED) is None
    assert cores(facts(cpus=2), replace(WANTED, on_node=False)) is None


PYTHON_REQUEST = NodeRequest(
    device="cuda",
    workload="stanza-ner",
    gpus=1,
    scratch_bytes=0,
    seen=(),
    python="python",
    on_node=True,
    jobkit="0.1.0",
)
HERE = replace(PYTHON_REQUEST, on_node=False)
PYTHON_SAID = {"activation": "0", "python": "/env/bin/python", "worker": "0", "examine": "0"}
TORCH = {
    "version": "2.5.0",
    "error": None,
    "import_s": 2.0,
    "built_for": "12.4",
    "works": True,
    "devices": 1,
    "name": "NVIDIA H200",
    "total_bytes": 140 * 2**30,
}
GPU = {"name": "NVIDIA H200", "driver": "570.1", "processes": 0, "accounting": False}
FOUND = {
    "python": "3.11.7",
    "jobkit": "0.1.0",
    "stanza": "1.10.1",
    "workload_error": None,
    "torch": TORCH,
    "gpus": [GPU],
}


def probed(
    said: dict[str, str] | None = None, wanted: NodeRequest = PYTHON_REQUEST, **python: Any
) -> dict[str, Finding]:
    facts = Facts(said=PYTHON_SAID | (said or {}), python=FOUND | python)
    return {one.name: one for one in check_node(facts, wanted, PYTHON)}


def test_an_environment_in_which_all_works() -> None:
    found = probed()

    assert list(found) == ["environment", "jobkit", "torch", "CUDA", "NVML", "GPU accounting"]
    assert {one.status for one in found.values()} == {Status.OK}
    assert found["environment"].said == "Python 3.11.7 at /env/bin/python"
    assert found["jobkit"].said == "jobkit 0.1.0, stanza 1.10.1; it can run stanza-ner"
    assert found["torch"].said == "torch 2.5.0, for CUDA 12.4, imported in 2.0 s"
    assert found["CUDA"].said == "1 x NVIDIA H200, 140.00 GiB"


def test_a_cpu_sweep_asks_for_no_gpu() -> None:
    found = probed(wanted=replace(PYTHON_REQUEST, device="cpu", workload="count"), torch=None, stanza=None)

    assert list(found) == ["environment", "jobkit"]
    assert found["jobkit"].said == "jobkit 0.1.0; it can run count"


@pytest.mark.parametrize(
    ("said", "words", "hint"),
    [
        ({"activation": "1", "activation.said": "no module gcc"}, "activated: no module gcc", "environment"),
        ({"activation": "3"}, "activated: status 3", "setup"),
        ({"python": ""}, "there is no python here", "environment.venv"),
    ],
)
def test_an_environment_that_cannot_be_made_ready(said: dict[str, str], words: str, hint: str) -> None:
    found = probed(said)["environment"]

    assert found.status is Status.MISSING
    assert words in found.said
    assert hint in found.hint


def test_a_look_that_ended_early_says_so_and_no_more() -> None:
    found = {one.name: one for one in check_node(Facts(), PYTHON_REQUEST, PYTHON)}

    assert list(found) == ["environment"]
    assert found["environment"].status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"worker": "1", "worker.said": "No module named 'jobkit'"}, "worker: No module named 'jobkit'"),
        ({"worker": "139"}, "worker: status 139"),
        ({"worker": "124"}, "it took too long"),
    ],
)
def test_a_python_that_cannot_run_the_worker(said: dict[str, str], words: str) -> None:
    found = probed(said)["jobkit"]

    assert found.status is Status.MISSING
    assert words in found.said
    assert found.hint == "/env/bin/python -m pip install jobkit"


def test_a_look_at_packages_that_failed_or_hung() -> None:
    failed = Facts(said=PYTHON_SAID | {"examine": "1", "examine.said": "ImportError: x"})
    hung = Facts(said=PYTHON_SAID | {"examine": "124"})
    found = [
        next(one for one in check_node(facts, PYTHON_REQUEST, PYTHON) if one.name == "jobkit")
        for facts in (failed, hung)
    ]

    assert [one.status for one in found] == [Status.MISSING, Status.WARNING]
    assert found[0].said.endswith("failed: ImportError: x")


@pytest.mark.parametrize(
    ("name", "changes", "status", "words", "hint"),
    [
        ("jobkit", {"workload_error": "No module named 'my'"}, Status.MISSING, "No module named 'my'", ""),
        ("jobkit", {"jobkit": "0.0.9"}, Status.WARNING, "", "/env/bin/python -m pip install jobkit==0.1.0"),
        ("torch", {"torch": TORCH | {"import_s": 45.0}}, Status.WARNING, "45", ""),
        ("CUDA", {"wanted": replace(PYTHON_REQUEST, gpus=2)}, Status.WARNING, "requested: 2", ""),
        ("NVML", {"gpus": [GPU, GPU | {"processes": 2}]}, Status.WARNING, "1 of them", ""),
        ("NVML", {"gpus": []}, Status.WARNING, "", ""),
        ("NVML", {"gpus": [], "wanted": HERE}, Status.UNKNOWN, "", ""),
        ("GPU accounting", {"gpus": [GPU | {"accounting": True}]}, Status.OK, "on: ", ""),
        ("GPU accounting", {"gpus": [GPU | {"accounting": False}]}, Status.OK, "off: ", ""),
        ("GPU accounting", {"gpus": [GPU | {"accounting": None}]}, Status.OK, "have none", ""),
    ],
)
def test_what_python_finds_amiss(
    name: str, changes: dict[str, Any], status: Status, words: str, hint: str
) -> None:
    found = probed(**changes)[name]
    assert found.status is status
    assert words in found.said
    assert hint in found.hint


def test_torch_that_cannot_be_imported() -> None:
    broken = {"version": None, "error": "OSError: libcudart.so.12: cannot open"}
    found = probed(torch=broken)

    assert found["torch"].status is Status.MISSING
    assert "libcudart" in found["torch"].said
    assert "CUDA" not in found


def test_torch_without_cuda_is_missing_where_a_spec_asks_and_a_warning_where_none_does() -> None:
    cpu = TORCH | {"built_for": None, "works": False, "why": "is a CPU build"}
    asked, looked = probed(torch=cpu), probed(torch=cpu, wanted=replace(PYTHON_REQUEST, given=False))

    assert asked["torch"].status is Status.MISSING
    assert "the sweep asks for one" in asked["torch"].said
    assert looked["torch"].status is Status.WARNING
    assert "CUDA" not in asked, "told already"
    assert probed(torch=cpu, wanted=replace(PYTHON_REQUEST, device="cpu"))["torch"].status is Status.OK


def test_what_brings_a_torch_for_cuda_can_be_pasted() -> None:
    cpu = TORCH | {"built_for": None, "works": False, "why": "is a CPU build"}
    words, command = probed({"python": "/my env/bin/python"}, torch=cpu)["torch"].hint.splitlines()

    assert words.endswith("(jobkit help dependencies):")
    assert subprocess.run(["bash", "-n"], input=command, text=True, check=False).returncode == 0
    assert shlex.split(command)[:4] == ["/my env/bin/python", "-m", "pip", "install"]
    assert "--force-reinstall" in command, "pip says else that torch is there already"
    assert "--index-url" in command


def test_a_gpu_that_does_not_work_is_missing_on_a_node_and_unknown_elsewhere() -> None:
    broken = TORCH | {"works": False, "why": "the point requests CUDA, but torch sees no device"}
    on_node, here = probed(torch=broken), probed(torch=broken, wanted=HERE)

    assert on_node["CUDA"].status is Status.MISSING
    assert "sees no device" in on_node["CUDA"].said
    assert here["CUDA"].status is Status.UNKNOWN
    assert "--submit" in here["CUDA"].hint


def test_no_driver_library() -> None:
    assert "GPU accounting" not in probed(gpus=[])
    assert "GPU accounting" not in probed(gpus=None)


def found_program(**found: str | None) -> Finding | None:
    known = {"name": "tag", "path": None, "is_file": None, "interpreter": "", "interpreter_path": None}
    return program(facts(program=known | found), WANTED)


@pytest.mark.parametrize(
    ("found", "status", "said", "hint"),
    [
        ({"path": "/usr/bin/tag"}, Status.OK, "tag is /usr/bin/tag", ""),
        ({}, Status.MISSING, "tag is not on PATH here", "environment.modules"),
        ({"name": "/opt/tag"}, Status.MISSING, "there is no '/opt/tag' here", "workload.files"),
        ({"name": "/opt/tag", "is_file": "yes"}, Status.MISSING, "not executable", "chmod +x /opt/tag"),
        (
            {"path": "/b/tag", "interpreter": "lua"},
            Status.MISSING,
            "/b/tag needs 'lua'",
            "environment.modules",
        ),
        ({"path": "/b/tag", "interpreter": "/bin/sh\r"}, Status.MISSING, r"'/bin/sh\r'", "sed -i"),
        ({"path": "/b/tag", "interpreter": "lua", "interpreter_path": "/b/lua"}, Status.OK, "/b/tag", ""),
    ],
)
def test_the_program_of_a_command(found: dict[str, str], status: Status, said: str, hint: str) -> None:
    finding = found_program(**found)
    assert finding is not None
    assert finding.status is status
    assert said in finding.said
    assert hint in finding.hint


def test_a_program_may_be_absent_where_no_point_runs_and_in_an_image_it_is_added_there() -> None:
    absent = facts(program={"name": "tag", "path": None})
    here, boxed = replace(WANTED, on_node=False), replace(WANTED, container="/my.sif")
    found = [program(absent, wanted) for wanted in (here, boxed)]
    assert [one.status for one in found if one] == [Status.WARNING, Status.MISSING]
    assert found[1] is not None
    assert "not on PATH in /my.sif" in found[1].said
    assert "build the image" in found[1].hint
    assert program(facts(), WANTED) is None
