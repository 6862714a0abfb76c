"""Where a practice cluster lies, and what is asked of its folder and of this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.practice import packages, place
from tests.support.commands import jobkit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a path that is short enough wherever the tests run."""
    monkeypatch.setattr(place, "LONGEST_FOLDER", len(str(tmp_path)) + 20)
    return tmp_path


def test_a_folder_keeps_its_ports_and_another_gets_others(folder: Path) -> None:
    first, second = place.make(folder / "a", "sge"), place.make(folder / "b", "sge")
    assert place.make(folder / "a", "sge") == first == place.found(folder / "a", "sge")
    assert first.variables["SGE_QMASTER_PORT"] == str(first.ports[0])
    assert not set(first.ports) & set(second.ports)
    assert place.found(folder / "c", "sge") is None


def test_a_hint_names_the_folder_that_was_named(folder: Path) -> None:
    done = jobkit("practice", "env", "--dir", folder)
    assert done.stderr.rstrip().endswith(f"hint: jobkit practice up slurm --dir {folder}")


def test_a_port_that_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        taken = listener.getsockname()[1]
        draws = iter([taken, *range(place.FIRST_PORT, place.LAST_PORT, place.PORTS)])
        monkeypatch.setattr("random.randrange", lambda *_: next(draws))
        assert taken not in place.free_ports()


def test_a_folder_that_cannot_hold_a_cluster_is_refused(folder: Path) -> None:
    for name in ("x" * 30, "a b"):
        with pytest.raises(JobkitError, match="without blanks"):
            place.make(folder / name, "slurm")
    (folder / "slurm").mkdir()
    (folder / "slurm" / "thesis.tex").touch()
    with pytest.raises(JobkitError, match="no practice cluster"):
        place.make(folder, "slurm")
    assert (folder / "slurm" / "thesis.tex").exists()


def test_a_damaged_state_file_is_named(folder: Path) -> None:
    made = place.make(folder, "slurm")
    (made.folder / place.STATE_FILE).write_text("{}")
    with pytest.raises(JobkitError, match="damaged"):
        place.found(folder, "slurm")


@pytest.mark.slow
def test_packages_are_installed_and_start_no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the system that would change it are fakes; the script that calls them is real.

    apt-get is in use by another process at first.
    """
    log, policy, busy = (tmp_path / name for name in ("log", "policy-rc.d", "busy"))
    busy.touch()
    programs = {
        "sudo": 'shift; exec "$@"',
        "debconf-set-selections": f"sed 's/^/debconf /' >>{log}",
        "apt-get": f"""
            [ -e {busy} ] && rm {busy} && echo "E: Could not get lock /var/lib/apt/lists/lock." && exit 100
            {policy} gridengine-master start; echo "$? apt-get $*" >>{log}""",
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(packages, "KEEP_STOPPED", str(policy))
    monkeypatch.setattr(packages, "INSTALL_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(packages, "missing", lambda _: ["gridengine-master", "gridengine-exec"])
    packages.install("sge")
    debconf, update, install = log.read_text().splitlines()
    assert debconf.endswith("shared/gridengineconfig boolean false")
    assert update.startswith("101 apt-get update"), "invoke-rc.d starts nothing after a 101"
    assert install.endswith("--no-install-recommends gridengine-master gridengine-exec")
    assert not policy.exists()
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 100\n")
    with pytest.raises(JobkitError, match="cannot be installed") as refused:
        packages.install("sge")
    assert "as root, type this command again" in refused.value.hint
    assert not policy.exists()


@pytest.mark.parametrize("apt", [True, False])
def test_what_is_missing_is_named_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, apt: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "FOLDERS", ())
    monkeypatch.setattr(packages, "PLUGINS", {})
    if apt:
        (tmp_path / "apt-get").touch(0o755)
    with pytest.raises(JobkitError, match="slurmctld") as refused:
        packages.require("slurm")
    wanted = "apt-get install -y --no-install-recommends slurmctld" if apt else "Debian or Ubuntu"
    assert wanted in refused.value.hint
    for name in packages.PACKAGES["slurm"]:
        (tmp_path / name).touch(0o755)
    packages.require("slurm")
