"""A queue for tests that say what is in it: programs on PATH that answer from files, and count."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobkit.core.files import append_line
from jobkit.core.layout import JOURNAL_FILE
from jobkit.core.records import Point
from tests.support.builders import point, try_folder

RUN_ID = point().run_id
PROGRAMS = ("squeue", "sacct", "qstat", "qacct", "ps")


@dataclass(frozen=True)
class Queue:
    """What Slurm's and Grid Engine's commands answer, and how often each was asked."""

    folder: Path

    def says(self, program: str, *lines: str, status: int = 0) -> None:
        """Let a program print these lines and end so."""
        (self.folder / f"{program}.out").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (self.folder / f"{program}.status").write_text(f"{status}\n", encoding="ascii")

    def holds(self, *rows: str, name: str = RUN_ID) -> None:
        """Let squeue hold rows ``task|state|reason|node|time used|start``, of jobs of one name."""
        self.says("squeue", *(f"{row}|{name}" for row in rows))

    @property
    def asked(self) -> Counter[str]:
        """How often each program was called since the last look here."""
        calls = self.folder / "calls"
        found = Counter(calls.read_text(encoding="ascii").split()) if calls.exists() else Counter[str]()
        calls.unlink(missing_ok=True)
        return found


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Have a queue that is empty, an accounting that knows nothing, and a cache of one's own."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in PROGRAMS:
        program = folder / name
        program.write_text(
            f"#!/bin/sh\necho {name} >>'{folder}/calls'\ncat '{folder}/{name}.out'\n"
            f"exit $(cat '{folder}/{name}.status')\n",
            encoding="utf-8",
        )
        program.chmod(0o755)
    made = Queue(folder)
    for name in PROGRAMS:
        made.says(name)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    return made


def write_follower(
    run: Path, job: str, role: str = "follow", scheduler: str = "slurm", task: int = 1
) -> None:
    """Note a job that waits for the points in the journal."""
    line: dict[str, object] = {"at": "2026-01-02T10:15:01+00:00", "event": "submitted", "role": role}
    line |= {"scheduler": scheduler, "job_id": job, "first": task, "last": task, "offset": 0}
    append_line(run / JOURNAL_FILE, json.dumps(line))


def write_begin(run: Path, of: Point, *, at: str = "2026-01-02T10:20:00Z", scheduler: str = "slurm") -> None:
    """Bring home who runs a try: the task of job 77 that has the point's number, on node1."""
    text = f"scheduler={scheduler}\njob=77\ntask={of.index}\nrestart=0\nround=1\nhost=node1\npid=1\nat={at}\n"
    (try_folder(run, of) / "begin").write_text(text, encoding="utf-8")
