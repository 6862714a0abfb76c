"""The PATH of a bare machine: what Debian always has, and what README.md names; nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

README_NAMES = ("make",)
"""The programs that README.md asks for, besides this Python."""
FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


def required_packages() -> list[str]:
    """Return the packages that every Debian has: essential ones, and those of priority ``required``."""
    form = "${Package} ${Essential} ${Priority}\\n"
    done = subprocess.run(("dpkg-query", "-W", "-f", form), capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [name for name, essential, *priority in rows if essential == "yes" or priority == ["required"]]


def required_programs() -> Iterator[str]:
    """Yield the names of the programs of these packages, with those that they install as alternatives."""
    done = subprocess.run(
        ("dpkg-query", "-L", *required_packages()), capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        path = Path(line)
        if str(path.parent) in FOLDERS and not path.is_dir():
            yield path.name
    yield from ("awk", "which")  # links that update-alternatives(1) makes


def link_programs(folder: Path) -> None:
    """Link the programs of a bare machine into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in {*required_programs(), *README_NAMES}:
        if found := shutil.which(name, path=os.pathsep.join(FOLDERS)):
            (folder / name).symlink_to(found)
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}").resolve()
    for name in ("python3", python.name):
        (folder / name).symlink_to(python)
