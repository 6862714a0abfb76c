"""A laptop with macOS, as far as a Linux machine can be one: what macOS lacks is hidden."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENT = "several or dry-run or preflight"


@pytest.mark.rare
@pytest.mark.slow
def test_the_commands_that_run_nothing_here_answer_as_on_linux(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "support" / "macos.py", tmp_path / "sitecustomize.py")
    around = {**os.environ, "PYTHONPATH": str(tmp_path)}
    own = f"--basetemp={tmp_path / 'temp'}"  # else it removes what old runs of the tests left
    argv = (sys.executable, "-m", "pytest", "-q", "-n", "0", own, "tests/golden", "-k", CLIENT)
    done = subprocess.run(argv, cwd=ROOT, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
