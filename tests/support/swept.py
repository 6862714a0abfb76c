"""A run of six points that has ended, and a controller that keeps a queue: for the tests of resume."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.layout import Exit
from jobkit.core.records import Outcome, Point
from jobkit.launch import resume as stage
from jobkit.launch import submission as submit
from jobkit.planning.prepare import Options, Prepared, prepare
from jobkit.runs import reader as states
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding
from tests.support.builders import events, record, write_begin, write_exit, write_record, write_submitted

SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [1, 2, 3]}
repeats: 2
resources: {gpus: 0, memory: 100MiB, walltime: "00:01:00"}
"""
SBATCH = """\
#!/bin/bash
cd {folder}
echo "sbatch $*" >>calls
for pattern in $(cat refuse 2>/dev/null); do
    if [[ "$*" == *$pattern* ]] || grep -qse "$pattern" $(tr ' ' '\\n' <<<"$*" | grep 'sh$'); then
        echo "sbatch: error: refused $pattern" >&2; exit 1
    fi
done
[[ "$*" != *--test-only* ]] || {{ [[ ! -e outlook ]] || cat outlook >&2; exit 0; }}
job=$(($(cat last) + 1))
echo $job >last
if [[ -e mute ]]; then echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1; fi
last=$(sed 's/.*--array=1-\\([0-9]*\\).*/\\1/' <<<"$*")
for task in $(seq $last); do echo "${{job}}_$task|PENDING|Priority||0:00|N/A|{name}" >>queue; done
echo $job
"""
OTHERS = {
    "squeue": "[ ! -e away ] || exit 1; cat queue",
    "sacct": "cat accounting",
    "scontrol": "echo MaxArraySize = 1001",
    "sinfo": "exit 1",
    "sacctmgr": "exit 1",
    "scancel": 'echo "scancel $*" >>calls',
}


def made(folder: Path, scheduler: str, text: str = SPEC) -> Prepared:
    """Return what is prepared of a spec, once its run is written."""
    (folder / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    options = Options(scheduler=scheduler, runs_dir=folder / "runs")
    prepared = prepare(folder / "spec.yaml", options, build=True)
    submit.write_run(prepared)
    return prepared


class Sweep:
    """A run of six points that was job 100, and the controller that ran it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "controller"
        self.folder.mkdir()
        monkeypatch.setenv("PATH", f"{self.folder}:{os.environ['PATH']}")
        self._programs("")
        prepared = made(folder, "slurm")
        self.run, self.points = prepared.run_dir, list(prepared.points)
        write_submitted(self.run, "slurm", "100", first=1, last=6, round=1)
        self._programs(prepared.points[0].run_id)
        for name, text in (("queue", ""), ("accounting", ""), ("last", "100")):
            (self.folder / name).write_text(text, encoding="utf-8")

    def _programs(self, name: str) -> None:
        texts = {program: f"#!/bin/bash\ncd {self.folder}\n{body}\n" for program, body in OTHERS.items()}
        texts["sbatch"] = SBATCH.format(folder=self.folder, name=name)
        for program, text in texts.items():
            (self.folder / program).write_text(text, encoding="utf-8")
            (self.folder / program).chmod(0o755)

    def ended(self, *outcomes: Outcome | None) -> None:
        """Let the points have ended so, in their order; ``None`` for one that left nothing."""
        for point, outcome in zip(self.points, outcomes, strict=True):
            self.end(point, outcome)

    def end(self, point: Point, outcome: Outcome | None) -> None:
        if outcome is Outcome.OK:
            told = record(point)
            write_record(self.run, replace(told, job=replace(told.job, job_id="100")))
        elif outcome is not None:
            write_begin(self.run, point, job=100)
            write_exit(self.run, point, Exit(status=1, stage="run", outcome=outcome))

    def queue(self, text: str = "") -> None:
        (self.folder / "queue").write_text(text, encoding="utf-8")

    def refuse(self, *patterns: str) -> None:
        """Refuse a submission if a pattern is in its arguments or in its script."""
        (self.folder / "refuse").write_text(" ".join(patterns), encoding="utf-8")

    def silent(self) -> None:
        (self.folder / "away").touch()

    def calls(self) -> list[str]:
        """Return the submissions, without the questions."""
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line for line in lines if "--test-only" not in line]

    def files(self) -> set[str]:
        return {path.name for path in self.run.iterdir()}

    def rounds(self) -> list[tuple[str, object]]:
        return [(str(event["event"]), event.get("round")) for event in events(self.run)][1:]

    def standings(self) -> list[PointStanding]:
        (seen,) = read_status([self.run])
        return [point.standing for point in seen.points]


OK, OOM, LATE, BUG = Outcome.OK, Outcome.RAM_OOM, Outcome.TIMEOUT, Outcome.BUG


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    return Sweep(tmp_path, monkeypatch)


class Clock:
    """Time that passes by sleeping only: no test waits."""

    def __init__(self) -> None:
        self.s, self.slept = 0.0, 0
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.s, self.slept = self.s + seconds, self.slept + 1
        self.meanwhile()

    def monotonic(self) -> float:
        return self.s

    def now(self) -> str:
        return (datetime(2026, 1, 2, 12, tzinfo=UTC) + timedelta(seconds=self.s)).isoformat()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    told = Clock()
    monkeypatch.setattr(stage, "time", told)
    monkeypatch.setattr(states, "_now", told.now)
    return told


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Return a run that was made for this machine, with nothing run yet."""
    text = SPEC.replace("[1, 2, 3]", "[1]").replace("repeats: 2", "repeats: 3")
    return made(tmp_path, "local", text).run_dir
