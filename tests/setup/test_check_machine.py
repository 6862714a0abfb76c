from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import ModelRef
from jobkit.schedulers.registry import by_name
from jobkit.setup import machine
from jobkit.setup.findings import Status
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
