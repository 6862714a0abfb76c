"""Packages of Debian that some tests need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobkit.practice.packages import apt_install


def need(file: Path, package: str) -> None:
    """Have the package of a file on this machine; install it only if clusters may be (JOBKIT_CLUSTER=1)."""
    if file.exists():
        return
    if os.environ.get("JOBKIT_CLUSTER") != "1":
        pytest.skip(f"{package} is not installed: apt install {package}, or set JOBKIT_CLUSTER=1")
    apt_install([package])
