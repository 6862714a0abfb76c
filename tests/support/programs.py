"""The schedulers' commands as programs on PATH that answer what a test writes, and note each call."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.layout import Exit
from jobkit.core.records import Outcome, Point
from jobkit.runs import reader as states
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding, RunStatus
from tests.support.builders import grid, point, write_points, write_submitted

RUN_ID = point().run_id
MOMENT = datetime(2026, 1, 2, 11, tzinfo=UTC)
FAILED = Exit(status=1, stage="run")


class Programs:
    """Programs in a folder in front of PATH; at first queue and accounting know nothing."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder / "programs", monkeypatch
        self.folder.mkdir()
        monkeypatch.setenv("PATH", f"{self.folder}:{os.environ['PATH']}")
        for name in ("squeue", "sacct", "qstat", "qacct", "scancel", "scontrol"):
            self.says(name)

    def add(self, name: str, body: str) -> None:
        """Let a program note its call, and then run lines of bash."""
        text = f'#!/bin/bash\necho "{name} $*" >>"{self.folder}/calls"\n{body}\n'
        (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / name).chmod(0o755)

    def says(self, name: str, *rows: str, status: int = 0, error: str = "") -> None:
        """Let a program print these rows, and end so."""
        text = "".join(f"{row}\n" for row in rows)
        self.add(name, f"cat <<'END'\n{text}END\necho -n {shlex.quote(error)} >&2\nexit {status}")

    def holds(self, *rows: str, name: str = RUN_ID) -> None:
        """Let squeue hold rows ``task|state|reason|node|time used|start``, of jobs of one name."""
        self.says("squeue", *(f"{row}|{name}" for row in rows))

    def squeue(self, *tasks: str) -> None:
        """Let squeue hold tasks: ``77_1 RUNNING``, and perhaps the reason."""
        rows = [[*task.split(), "None"] for task in tasks]
        self.holds(*(f"{row[0]}|{row[1]}|{row[2]}|n1|1:00|N/A" for row in rows))

    def scancel(self, *tasks: str) -> None:
        """Let scancel end tasks: squeue then lists them no more."""
        self.add("scancel", f"sed -i -E '/^({'|'.join(tasks)})[|]/d' '{self.folder}/squeue'")

    def sacct(self, *tasks: str) -> None:
        """Let sacct know tasks: ``77_1 FAILED 1:0``."""
        rows = map(str.split, tasks)
        self.says("sacct", *(f"{row[0]}|{row[1]}|{row[2]}|60||50M|1|n1|None|{RUN_ID}" for row in rows))

    def at(self, seconds: float) -> None:
        """Let it be so many seconds after eleven."""
        self.patch.setattr(states, "_now", (MOMENT + timedelta(seconds=seconds)).isoformat)

    def called(self, *names: str) -> list[str]:
        """Return the calls so far, of these programs or of all."""
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line for line in lines if not names or line.split()[0] in names]

    def calls(self) -> list[str]:
        """Return the calls since the last time."""
        lines = self.called()
        (self.folder / "calls").unlink(missing_ok=True)
        return lines

    @property
    def asked(self) -> Counter[str]:
        """How often each program was called since the last time."""
        return Counter(line.split()[0] for line in self.calls())


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Return the programs, with a cache of their own."""
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    return Programs(tmp_path, monkeypatch)


@pytest.fixture
def programs(queue: Programs) -> Programs:
    """Return the same at eleven o'clock."""
    queue.at(0)
    return queue


def seen(run: Path) -> RunStatus:
    (found,) = read_status([run])
    return found


def sweep(run: Path, count: int, scheduler: str = "slurm") -> list[Point]:
    """Make a run of so many points, submitted as job 77."""
    points = grid(range(1, count + 1))
    write_points(run, points)
    write_submitted(run, scheduler, "77", first=1, last=count)
    return points


def standings(run: Path) -> list[PointStanding]:
    return [point.standing for point in seen(run).points]


def outcomes(run: Path) -> list[Outcome | None]:
    return [point.outcome for point in seen(run).points]
