"""Programs that some tests need, and README.md does not name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jobkit.practice.packages import apt_install

MODULES = "/etc/profile.d/modules.sh"
PACKAGES = {"cc": "gcc", "ps": "procps", MODULES: "environment-modules"}
"""The packages of Debian that have not the name of their program."""


def need(program: str) -> None:
    """Have a program on PATH, or a file: install it if clusters may be (JOBKIT_CLUSTER=1), else skip."""
    if shutil.which(program) or Path(program).is_file():
        return
    if os.environ.get("JOBKIT_CLUSTER") != "1":
        pytest.skip(f"{program} is not on PATH; JOBKIT_CLUSTER=1 make unit installs it")
    apt_install([PACKAGES.get(program, program)])
