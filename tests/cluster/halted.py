"""Sweeps on a real cluster whose points wait in the middle of their work, until a test lets them go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.core.files import read_text
from jobkit.core.json_codec import from_json
from jobkit.core.layout import Begin, read_begin
from jobkit.core.records import Outcome, Record
from jobkit.runs.reader import read_status
from jobkit.runs.status import IN_QUEUE, PointStanding, PointStatus
from tests.cluster.daemons import Wait, wait_for
from tests.cluster.lab import WORKLOADS, ClusterLab
from tests.support.commands import ended_well

SPEC = """\
name: broken
workload: broken:Waits
text: sample:30
sweep: {batch_size: [%s]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 400MiB, walltime: "00:02:00"}
policy: {follow_up: false}
environment:
  variables:
    PYTHONPATH: '%s'
    BROKEN_AT: batch
    BROKEN_TOLD: '%s/told-{}'
    BROKEN_GO: '%s/go-{}'
"""


class HaltedSweep:
    """Sweeps whose points wait in the middle of their work, each until a file says that it goes on."""

    def __init__(self, lab: ClusterLab, wait_until: Wait) -> None:
        self.lab, self.wait_until = lab, wait_until

    def site(self, **keys: object) -> None:
        """Change keys of the site file."""
        path = self.lab.home / "lab.yaml"
        kept = [line for line in path.read_text().splitlines() if line.partition(":")[0] not in keys]
        path.write_text("\n".join([*kept, *(f"{key}: {value}" for key, value in keys.items())]) + "\n")

    def sweep(self, sizes: str = "1", *arguments: str, runs: str = "runs") -> Path:
        """Submit points of these batch sizes; return the run folder."""
        home = self.lab.home
        spec = self.lab.spec(SPEC % (sizes, WORKLOADS, home, home))
        ended_well(self.lab.sweep(spec, "--runs-dir", runs, *arguments))
        (run,) = (home / runs).iterdir()
        return run

    def waits(self, size: int) -> int:
        """Return the worker's process id, once it waits, and remove the file that says so."""
        told = self.lab.home / f"told-{size}"
        self.wait_until(told.exists, 60)
        pid = int(told.read_text())
        told.unlink()
        return pid

    def go(self, *sizes: int) -> None:
        for size in sizes:
            (self.lab.home / f"go-{size}").touch()

    def is_(self, run: Path, standing: PointStanding, outcome: Outcome | None, index: int = 1) -> None:
        """Wait until a point stands so; fail with how it stands."""
        try:
            wait_for(lambda: self.stands(run, index) == (standing, outcome), 60)
        except TimeoutError:
            pytest.fail(f"not {standing}, {outcome} in time, but {seen(run)[index - 1]}")

    def stands(self, run: Path, index: int = 1) -> tuple[PointStanding, Outcome | None]:
        one = seen(run)[index - 1]
        return one.standing, one.outcome


@pytest.fixture
def halted(lab: ClusterLab, wait_until: Wait, monkeypatch: pytest.MonkeyPatch) -> Iterator[HaltedSweep]:
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    starter = HaltedSweep(lab, wait_until)
    starter.site(kill_wait_s=4)
    yield starter
    starter.go(*range(1, 10))
    for run in lab.home.glob("runs*/broken*"):
        if any(one.standing in IN_QUEUE for one in seen(run)):
            lab.jobkit("cancel", run)


def seen(run: Path, *, ask: bool = True) -> tuple[PointStatus, ...]:
    return read_status([run], ask=ask)[0].points


def home(run: Path, size: int = 1, number: int = 1) -> Path:
    return run / "results" / f"batch_size-{size}-r1" / f"try-{number}"


def begun(run: Path, size: int = 1, number: int = 1) -> Begin:
    return read_begin(home(run, size, number) / "begin")


def record(run: Path, size: int = 1, number: int = 1) -> Record:
    path = home(run, size, number) / "record.json"
    return from_json(Record, read_text(path), where=str(path))


def batches(run: Path, size: int = 1, number: int = 1) -> int:
    return len((home(run, size, number) / "batches.jsonl").read_bytes().splitlines())
