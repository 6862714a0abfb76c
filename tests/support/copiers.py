"""The program with which a job script copies on this machine, and stand-ins for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

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


def stand_in(folder: Path, lines: str, program: str = COPIER) -> Path:
    """Write a program in a new folder that runs lines of bash, and then the real one."""
    folder.mkdir(exist_ok=True)
    path = folder / program
    path.write_text(f'#!/bin/bash\n{lines}\nexec {shutil.which(program)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path
