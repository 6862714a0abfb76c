"""Schedulers that give wrong answers, forget jobs, or are down or late: stand-ins whose tasks really run."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.launch import resume
from jobkit.launch.resume import run_again
from jobkit.runs import journal, tries
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStanding, PointStatus, RunStatus
from tests.fakes.cluster import FakeCluster
from tests.support.commands import ended_well, jobkit
from tests.support.sites import EXCLUDE, REQUESTS
from tests.whole.specs import write_spec
from tests.whole.test_job_script import WORKLOADS

pytestmark = pytest.mark.fault

DEADLINE_S = 120
LOOK_S = 0.5
"""How long nothing happens until the scheduler is asked again: some states change by time alone."""
SITE = f"""\
name: fake
scheduler: slurm
sync_interval_s: 1
requests: {{{REQUESTS["slurm"]}, {EXCLUDE["slurm"]}}}
"""


class Lab:
    """A user's folder on a fake cluster."""

    def __init__(self, cluster: FakeCluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        (home / "faults.json").write_text("{}", encoding="utf-8")
        (home / "site.yaml").write_text(SITE, encoding="utf-8")

    def fail(self, **faults: str) -> None:
        """Let batch sizes fail: ``fail(b2="slow")``."""
        said = {size[1:]: word for size, word in faults.items()}
        (self.home / "faults.json").write_text(json.dumps(said), encoding="utf-8")

    def sweep(self) -> subprocess.CompletedProcess[str]:
        """Submit two points, which nothing follows."""
        variables = {"PYTHONPATH": str(WORKLOADS), "ODD_FAULTS": str(self.home / "faults.json")}
        keys: dict[str, Any] = {"text": "sample:30", "scheduler": None, "policy": {"follow_up": False}}
        write_spec(self.home, workload="odd:Faulty", environment={"variables": variables}, **keys)
        scheduler = ["--scheduler", "slurm", "--site", "./site.yaml"]
        return jobkit("sweep", "spec.yaml", *scheduler, cwd=self.home, env={"PYTHONPATH": str(WORKLOADS)})

    def begin_slow(self) -> None:
        """Sweep two points of which the second never ends; return when that runs."""
        self.fail(b2="slow")
        assert self.sweep().returncode == 0
        self.until(lambda: self.point(2).standing is PointStanding.RUNNING and bool(self.point(2).tries))

    @property
    def run(self) -> Path:
        (folder,) = (self.home / "runs").iterdir()
        return folder

    @property
    def job(self) -> str:
        return str(self.cluster.jobs()[0].id)

    def look(self) -> RunStatus:
        return read_status([self.run])[0]

    def point(self, index: int) -> PointStatus:
        return self.look().points[index - 1]

    def outcomes(self) -> list[Outcome | None]:
        return [point.outcome for point in self.look().points]

    def until(self, condition: Callable[[], bool]) -> None:
        """Ask until it is true: whenever a try begins or ends, for the commands of a fake are processes."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, self.look()
            seen, again = self.marks(), time.monotonic() + LOOK_S
            while self.marks() == seen and time.monotonic() < again:
                time.sleep(0.02)

    def marks(self) -> set[Path]:
        """Return the files by which tries tell that they began and ended."""
        return {path for name in ("begin", "exit") for path in self.run.glob(f"results/*/*/{name}")}


@pytest.fixture
def lab(fake_slurm: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return a folder on a fake Slurm; a minute passes at once."""
    monkeypatch.setattr(journal, "GONE_AFTER", timedelta(seconds=1))
    monkeypatch.setattr(tries, "VISIBLE_AFTER", timedelta(seconds=1))
    monkeypatch.setattr(resume, "POLL_S", 0.3)
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    return Lab(fake_slurm, home)


OK = Outcome.OK


def test_a_queue_that_is_empty_or_away_or_shows_another_job_of_the_number(lab: Lab) -> None:
    """FAULT: the queue is empty for a moment, or silent; another user's job gets the id of a killed one.

    HOW: fake: an empty answer; commands that fail; a job with the same id and another name, and no
    accounting. The tasks go on; the kill is real.
    REPORTED: an empty queue: the point is unsettled, then running again: never lost, never submitted twice.
    A controller that is away: the results that are home, and that it does not answer; `jobkit resume`
    submits nothing (exit 3) until it does. Another job: the killed point is `lost`, not running.
    LOST: the killed try's last sync interval.
    """
    lab.begin_slow()
    lab.cluster.fault("queue_empty", 1)
    assert lab.point(2).standing in {PointStanding.UNSETTLED, PointStanding.RUNNING}
    assert lab.point(2).standing is PointStanding.RUNNING
    with pytest.raises(JobkitError, match="is running: it is not run twice at a time"):
        run_again(lab.run, ["2"], [])
    lab.cluster.fault("controller_away")
    assert [*lab.look().silent] == ["slurm"]
    with pytest.raises(JobkitError, match="does not answer") as caught:
        run_again(lab.run, [], [])
    assert caught.value.exit_code == 3
    lab.cluster.fix()
    assert lab.point(2).standing is PointStanding.RUNNING
    job = lab.job
    lab.cluster.fault("accounting_off")
    lab.cluster.kill(job, 2)
    lab.cluster.recycle(job)
    lab.until(lambda: lab.outcomes() == [OK, Outcome.LOST])


def test_a_controller_that_refuses_every_third_call_and_a_partition_that_is_full(lab: Lab) -> None:
    """FAULT: the controller refuses every third call (a rate limit); the partition is full: no task starts.

    HOW: fake: the message of Slurm's rate limit; a full partition, then an empty one.
    REPORTED: nothing of the limit: jobkit repeats the call, with growing pauses. The point waits, with the
    scheduler's reason; then it runs.
    LOST: nothing; nothing is submitted twice.
    """
    lab.cluster.fault("full")
    lab.cluster.fault("refuses_every", 3)
    ended_well(lab.sweep())
    lab.until(lambda: [point.standing for point in lab.look().points] == [PointStanding.WAITING] * 2)
    lab.cluster.fix("full")
    lab.until(lambda: lab.outcomes() == [OK] * 2)
    assert len(lab.cluster.jobs()) == 1


def test_an_accounting_that_lags_is_waited_for(lab: Lab) -> None:
    """FAULT: a task has left the queue without an exit file, and the accounting does not know it yet.

    HOW: fake: the accounting is some calls behind; the kill -9 of the job script and its processes is real.
    REPORTED: the point is unsettled, not lost; then the outcome from the accounting.
    LOST: the killed try's last sync interval.
    """
    lab.cluster.fault("accounting_lags", 3)
    lab.fail(b1="slow")
    assert lab.sweep().returncode == 0
    lab.until(lambda: lab.point(1).standing is PointStanding.RUNNING and bool(lab.point(1).tries))
    lab.cluster.kill(lab.job, 1, whole=True)  # nobody is left to write a file
    lab.until(lambda: lab.point(1).standing is not PointStanding.RUNNING)
    lab.until(lambda: lab.point(1).outcome is not None)
    assert lab.point(1).standing is PointStanding.FAILED
    assert "it ended" in lab.point(1).verdict.evidence


def test_a_job_of_another_cluster(lab: Lab) -> None:
    """FAULT: sbatch answers `id;cluster`, and later commands must name the cluster.

    HOW: fake: a second cluster, whose jobs only `-M` finds.
    REPORTED: nothing: jobkit records the name of the cluster and passes it.
    LOST: nothing.
    """
    lab.cluster.fault("other_cluster", "lab2")
    ended_well(lab.sweep())
    lab.until(lambda: lab.outcomes() == [OK] * 2)
    asked = [words for words in lab.cluster.calls("squeue") if "-M" in words]
    assert asked
    assert asked[0][asked[0].index("-M") + 1] == "lab2"


def test_the_scheduler_runs_a_point_again_by_itself(lab: Lab) -> None:
    """FAULT: a node fails, and the scheduler requeues the task by itself, under the same number.

    HOW: fake: NODE_FAIL with requeue; the kill of the old process is real.
    REPORTED: the point waits, then runs; both tries are kept, the first as `node_fail`.
    LOST: the killed try's last sync interval.
    """
    lab.cluster.set(requeue_delay_s=1)
    lab.begin_slow()
    lab.fail()
    lab.cluster.node_fails(lab.job, 2)
    lab.until(lambda: lab.outcomes() == [OK] * 2)
    lab.until(lambda: [tried.outcome for tried in lab.point(2).tries] == [OK, Outcome.NODE_FAIL])
    assert "NODE_FAIL" in lab.point(2).tries[1].evidence
    assert len(lab.cluster.jobs()) == 1
