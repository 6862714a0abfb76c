"""A run of points, and schedulers that say of it what a test writes: for the tests of look and inquiry."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.job_files import Exit
from jobkit.core.records import Outcome, Point
from jobkit.status import queue as states
from jobkit.status.reader import read_standings
from jobkit.status.standing import RunStanding, Standing
from tests.support.builders import grid, point, write_points, write_submitted

RUN_ID = point().run_id


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file: what squeue says of the jobs it is asked about; sacct knows nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    told = tmp_path / "squeue.out"
    told.touch()
    for name, body in (("squeue", f"echo $* >>{tmp_path}/asked; cat {told}"), ("sacct", "true")):
        (folder / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return told


def seen(run: Path) -> RunStanding:
    (found,) = read_standings([run])
    return found


MOMENT = datetime(2026, 1, 2, 11, tzinfo=UTC)


class Programs:
    """What the schedulers' programs say when they are asked; real processes, whose answers a test writes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder / "programs", monkeypatch
        self.folder.mkdir()
        monkeypatch.setenv("PATH", f"{self.folder}:{os.environ['PATH']}")
        for name in ("squeue", "sacct", "qstat", "qacct"):
            body = f'echo "{name} $*" >>"{self.folder}/calls"\n. "{self.folder}/{name}.answer"\n'
            (self.folder / name).write_text(f"#!/bin/bash\n{body}", encoding="utf-8")
            (self.folder / name).chmod(0o755)
            self.say(name)
        self.at(0)

    def say(self, name: str, *rows: str, status: int = 0, error: str = "") -> None:
        text = "".join(f"{row}\n" for row in rows)
        answer = f"cat <<'END'\n{text}END\necho -n {shlex.quote(error)} >&2\nexit {status}\n"
        (self.folder / f"{name}.answer").write_text(answer, encoding="utf-8")

    def squeue(self, *tasks: str) -> None:
        """Say it of tasks: ``77_1 RUNNING``, and perhaps the reason and the job's name."""
        rows = [words + ["None", RUN_ID][len(words) - 2 :] for words in map(str.split, tasks)]
        self.say("squeue", *(f"{r[0]}|{r[1]}|{r[2]}|n1|1:00|N/A|{r[3]}" for r in rows))

    def sacct(self, *tasks: str) -> None:
        """Say it of tasks: ``77_1 FAILED 1:0``, and perhaps the job's name."""
        rows = [[*task.split(), RUN_ID] for task in tasks]
        self.say("sacct", *(f"{r[0]}|{r[1]}|{r[2]}|60||50M|1|n1|None|{r[3]}" for r in rows))

    def at(self, seconds: float) -> None:
        """Let it be so many seconds after eleven."""
        self.patch.setattr(states, "_now", (MOMENT + timedelta(seconds=seconds)).isoformat)

    def asked(self) -> list[str]:
        """Return the programs that were asked since the last time."""
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path, monkeypatch)


def sweep(run: Path, count: int, scheduler: str = "slurm") -> list[Point]:
    """Make a run of so many points, submitted as job 77."""
    points = grid(range(1, count + 1))
    write_points(run, points)
    write_submitted(run, scheduler, "77", first=1, last=count)
    return points


def standings(run: Path) -> list[Standing]:
    return [one.standing for one in seen(run).points]


def outcomes(run: Path) -> list[Outcome | None]:
    return [one.outcome for one in seen(run).points]


FAILED = Exit(status=1, stage="run")
