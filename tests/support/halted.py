"""Points that wait in the middle of a try, for tests that then do something to them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.report.tables import collect
from tests.whole.test_job_script import DEADLINE_S, ScriptRun, wait_until


class Halted:
    """Points of a workload that waits at a moment of its try."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, run: ScriptRun, point: int = 1, *, at: str = "batch", until: str = ""
    ) -> subprocess.Popen[str]:
        """Start a point, and return when it waits; ``until`` names what tells where not the worker does."""
        told = self.told(point)
        process = run.start(
            point, BROKEN_AT=at, BROKEN_TOLD=str(told), BROKEN_GO=str(self.folder / "go"), ODD_TOLD=str(told)
        )
        self.started.append(process)
        wait_until((self.folder / until if until else told).exists)
        return process

    def told(self, point: int = 1) -> Path:
        return self.folder / f"told-{point}"

    def worker(self, point: int = 1) -> int:
        return int(self.told(point).read_text(encoding="ascii"))

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def halted(tmp_path: Path) -> Iterator[Halted]:
    """Return a starter of points that wait; at the end none is left."""
    starter = Halted(tmp_path)
    yield starter
    starter.go()
    for process in starter.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    """Return what a script said, once it has ended."""
    return process.communicate(timeout=DEADLINE_S)[0]


def outcome(run: ScriptRun, point: int = 1) -> str:
    """Return the outcome of a point, as `jobkit collect` tells it."""
    return str(collect([run.dir]).points.iloc[point - 1]["outcome"])
