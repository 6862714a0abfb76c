"""The program with which a job script copies on this machine, and stand-ins for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from jobkit.core import shell

COPIER = "rsync" if shutil.which("rsync") else "cp"


def path_without(folder: Path, *hidden: str) -> str:
    """Return a PATH, a new folder, with all programs of this machine but some."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            link = folder / program.name
            if program.name not in hidden and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def rsync_of(version: str, folder: Path) -> Path:
    """Return a folder, in another one, with the rsync of a version: this machine's, else Debian's.

    Debian 12 has one from before 3.5 and one from after. A test that lacks its version is skipped.
    """
    there = folder / f"rsync-{version}"
    there.mkdir()
    have = shutil.which("rsync")
    if have and f" {version}." in shell.run([have, "--version"]).stdout.partition("\n")[0]:
        (there / "rsync").symlink_to(have)
        return there
    if os.environ.get("JOBKIT_CLUSTER") != "1" or not shutil.which("apt-get"):
        pytest.skip(f"rsync here is not {version}; JOBKIT_CLUSTER=1 has Debian's")
    for argv in (["apt-get", "download", f"rsync={version}.*"], ["sh", "-c", "dpkg -x *.deb ."]):
        if subprocess.run(argv, cwd=there, capture_output=True, check=False).returncode:
            pytest.skip(f"Debian's packages have no rsync {version}")
    return there / "usr" / "bin"


def stand_in(folder: Path, lines: str, program: str = COPIER) -> Path:
    """Write a program in a new folder that runs lines of bash, and then the real one."""
    folder.mkdir(exist_ok=True)
    path = folder / program
    path.write_text(f'#!/bin/bash\n{lines}\nexec {shutil.which(program)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path
