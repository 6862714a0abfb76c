"""Schedulers that give wrong answers, forget jobs, or are down or late: stand-ins whose tasks really run."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.launch import resubmit
from jobkit.launch.resume import run_again
from jobkit.runs import accounting
from jobkit.runs.reader import read_standings
from jobkit.runs.standing import PointState, PointStatus, RunStanding
from tests.fakes.cluster import FakeCluster
from tests.support.commands import jobkit
from tests.support.sites import EXCLUDE, REQUESTS

pytestmark = pytest.mark.fault

DEADLINE_S = 120
LOOK_S = 0.5
"""How long nothing happens until the scheduler is asked again: some states change by time alone."""
SPEC = """\
name: t
workload: {workload}
text: sample:30
sweep: {{batch_size: {sizes}}}
repeats: 1
resources: {{gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00", options: {{slurm: {options}}}}}
policy: {policy}
environment: {{variables: {{PYTHONPATH: '{path}', ODD_FAULTS: '{faults}'}}}}
"""
SITE = "name: fake\nscheduler: %s\nsync_interval_s: 1\nrequests: {%s}\n"


class Lab:
    """A user's folder on a fake cluster."""

    def __init__(self, cluster: FakeCluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        (home / "faults.json").write_text("{}", encoding="utf-8")
        name = cluster.scheduler
        site = SITE % (name, f"{REQUESTS[name]}, {EXCLUDE[name]}")
        (home / "site.yaml").write_text(site, encoding="utf-8")

    def fail(self, **faults: str) -> None:
        """Let batch sizes fail: ``fail(b2="slow")``."""
        said = {size[1:]: word for size, word in faults.items()}
        (self.home / "faults.json").write_text(json.dumps(said), encoding="utf-8")

    def sweep(
        self, points: int = 2, policy: str = "{follow_up: false}", options: str = "[]"
    ) -> subprocess.CompletedProcess[str]:
        text = SPEC.format(
            sizes=[*range(1, points + 1)],
            workload="odd:Faulty",
            policy=policy,
            options=options,
            path=Path(__file__).parents[1] / "workloads",
            faults=self.home / "faults.json",
        )
        (self.home / "spec.yaml").write_text(text, encoding="utf-8")
        scheduler = ["--scheduler", self.cluster.scheduler, "--site", "./site.yaml"]
        path = str(Path(__file__).parents[1] / "workloads")
        return jobkit("sweep", "spec.yaml", *scheduler, cwd=self.home, env={"PYTHONPATH": path})

    @property
    def run(self) -> Path:
        (folder,) = (self.home / "runs").iterdir()
        return folder

    @property
    def job(self) -> str:
        return str(self.cluster.jobs()[0].id)

    def look(self) -> RunStanding:
        return read_standings([self.run])[0]

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


@pytest.fixture(params=["slurm", "sge"])
def lab(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return a folder on a fake Slurm and on a fake Grid Engine; a minute passes at once."""
    return _lab(request.param, request, tmp_path, monkeypatch)


@pytest.fixture
def slurm_lab(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return a folder on a fake Slurm."""
    return _lab("slurm", request, tmp_path, monkeypatch)


@pytest.fixture
def sge_lab(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return a folder on a fake Grid Engine."""
    return _lab("sge", request, tmp_path, monkeypatch)


def _lab(name: str, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(accounting, "GONE_AFTER", timedelta(seconds=1))
    monkeypatch.setattr(resubmit, "POLL_S", 0.3)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "workloads"))
    home = folder / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    return Lab(request.getfixturevalue(f"fake_{name}"), home)


OK = Outcome.OK


@pytest.mark.parametrize("fault", ["accounting_off", "accounting_down"])
def test_without_the_accounting_the_files_tell(lab: Lab, fault: str) -> None:
    """FAULT: the accounting is off, or down, and a worker is killed.

    HOW: fake: sacct and qacct answer as they do then; the kill -9 is real.
    REPORTED: the outcome of each point from its record; of the killed one from its exit file: `lost`, with
    status 137.
    LOST: the killed try's last sync interval.
    """
    lab.cluster.fault(fault)
    lab.fail(b2="killed")
    assert lab.sweep().returncode == 0
    lab.until(lambda: lab.outcomes() == [OK, Outcome.LOST])
    assert "killed (walltime, memory, or a person)" in lab.point(2).counts.verdict.evidence


def test_an_accounting_that_lags_is_waited_for(lab: Lab) -> None:
    """FAULT: a task has left the queue without an exit file, and the accounting does not know it yet.

    HOW: fake: the accounting is some calls behind; the kill -9 of the job script and its processes is real.
    REPORTED: the point is unsettled, not lost; then the outcome from the accounting.
    LOST: the killed try's last sync interval.
    """
    lab.cluster.fault("accounting_lags", 3)
    lab.fail(b1="slow")
    assert lab.sweep().returncode == 0
    lab.until(lambda: lab.point(1).standing is PointState.RUNNING and bool(lab.point(1).tries))
    lab.cluster.kill(lab.job, 1, whole=True)  # nobody is left to write a file
    lab.until(lambda: lab.point(1).standing is not PointState.RUNNING)
    lab.until(lambda: lab.point(1).outcome is not None)
    assert lab.point(1).standing is PointState.FAILED
    assert "it ended" in lab.point(1).counts.verdict.evidence


def test_a_queue_that_forgets_at_once(slurm_lab: Lab) -> None:
    """FAULT: squeue has purged the job (`Invalid job id specified`) and the accounting is off.

    HOW: fake: jobs vanish from squeue when they end.
    REPORTED: outcomes from the records; a point whose script was killed with kill -9 is `lost`.
    LOST: the killed try's last sync interval.
    """
    lab = slurm_lab
    lab.cluster.fault("queue_purged")
    lab.cluster.fault("accounting_off")
    lab.fail(b2="slow")
    assert lab.sweep().returncode == 0
    lab.until(lambda: lab.point(2).standing is PointState.RUNNING and bool(lab.point(2).tries))
    lab.cluster.kill(lab.job, 2)
    lab.until(lambda: lab.outcomes() == [OK, Outcome.LOST])
    evidence = lab.point(2).counts.verdict.evidence
    assert "not in the queue since" in evidence or "was killed" in evidence


def test_a_queue_listing_that_is_empty_for_a_moment(lab: Lab) -> None:
    """FAULT: squeue or qstat lists nothing for a moment, while a task runs.

    HOW: fake: several empty answers in a row.
    REPORTED: the point is unsettled, then running again: never lost, never submitted twice.
    LOST: nothing.
    """
    lab.fail(b2="slow")
    assert lab.sweep().returncode == 0
    lab.until(lambda: lab.point(2).standing is PointState.RUNNING and bool(lab.point(2).tries))
    lab.cluster.fault("queue_empty", 1)
    assert lab.point(2).standing in {PointState.UNSETTLED, PointState.RUNNING}
    assert lab.point(2).standing is PointState.RUNNING
    with pytest.raises(JobkitError, match="is running: it is not run twice at a time"):
        run_again(lab.run, ["2"], [])


def test_a_number_that_was_given_again(lab: Lab) -> None:
    """FAULT: the scheduler's job ids start again, and another user's job gets the id of the run.

    HOW: fake: a job with the same id and another name runs.
    REPORTED: jobkit sees that this is another job: the killed point is `lost`, not running.
    LOST: the killed try's last sync interval.
    """
    lab.fail(b2="slow")
    assert lab.sweep().returncode == 0
    lab.until(lambda: lab.point(2).standing is PointState.RUNNING and bool(lab.point(2).tries))
    job = lab.job
    lab.cluster.fault("accounting_off")
    lab.cluster.kill(job, 2)
    lab.cluster.recycle(job)
    lab.until(lambda: lab.outcomes() == [OK, Outcome.LOST])


def test_a_controller_that_refuses_every_third_call(lab: Lab) -> None:
    """FAULT: the controller refuses every third call (a rate limit).

    HOW: fake: the messages of Slurm's rate limit, and of a busy qmaster.
    REPORTED: nothing: jobkit repeats the call, with growing pauses.
    LOST: nothing; nothing is submitted twice.
    """
    lab.cluster.fault("refuses_every", 3)
    done = lab.sweep()
    assert done.returncode == 0, done.stderr
    lab.until(lambda: lab.outcomes() == [OK] * 2)
    assert len(lab.cluster.jobs()) == 1


def test_a_controller_that_is_away_while_the_sweep_runs(lab: Lab) -> None:
    """FAULT: the controller does not answer while the sweep runs, and comes back.

    HOW: fake: its commands fail; the tasks go on.
    REPORTED: the results that are home, and that the controller does not answer; `jobkit resume` submits
    nothing (exit 3) until it does.
    LOST: nothing.
    """
    lab.fail(b2="slow")
    assert lab.sweep().returncode == 0
    lab.until(lambda: lab.point(2).standing is PointState.RUNNING and bool(lab.point(2).tries))
    lab.cluster.fault("controller_away")
    assert lab.look().silent == (lab.cluster.scheduler,)
    with pytest.raises(JobkitError, match="does not answer") as caught:
        run_again(lab.run, [], [])
    assert caught.value.exit_code == 3
    lab.cluster.fix()
    assert lab.point(2).standing is PointState.RUNNING


def test_a_job_of_another_cluster(slurm_lab: Lab) -> None:
    """FAULT: sbatch answers `id;cluster`, and later commands must name the cluster.

    HOW: fake: a second cluster, whose jobs only `-M` finds.
    REPORTED: nothing: jobkit records the name of the cluster and passes it.
    LOST: nothing.
    """
    lab = slurm_lab
    lab.cluster.fault("other_cluster", "lab2")
    done = lab.sweep()
    assert done.returncode == 0, done.stderr
    lab.until(lambda: lab.outcomes() == [OK] * 2)
    asked = [words for words in lab.cluster.calls("squeue") if "-M" in words]
    assert asked
    assert asked[0][asked[0].index("-M") + 1] == "lab2"


def test_a_partition_that_is_full(lab: Lab) -> None:
    """FAULT: the partition is full: no task starts.

    HOW: fake: a full partition, then an empty one.
    REPORTED: the point waits, with the scheduler's reason; then it runs.
    LOST: nothing.
    """
    lab.cluster.fault("full")
    assert lab.sweep().returncode == 0
    assert [point.standing for point in lab.look().points] == [PointState.WAITING] * 2
    lab.cluster.fix()
    lab.until(lambda: lab.outcomes() == [OK] * 2)


def test_a_task_in_error(sge_lab: Lab) -> None:
    """FAULT: a task is in error (Eqw), so it and the jobs that wait for it would wait forever.

    HOW: fake: the qmaster's state E.
    REPORTED: `queue_error` and the command that releases it; it is not submitted again.
    LOST: nothing.
    """
    lab = sge_lab
    lab.cluster.fault("full")
    assert lab.sweep().returncode == 0
    lab.cluster.in_error(lab.job, 2)
    one = lab.point(2)
    assert (one.standing, one.outcome) == (PointState.STUCK, Outcome.QUEUE_ERROR)
    assert "qmod -cj" in one.counts.verdict.evidence
    with pytest.raises(JobkitError, match="is stuck"):
        run_again(lab.run, ["2"], [])


def test_the_scheduler_runs_a_point_again_by_itself(slurm_lab: Lab) -> None:
    """FAULT: a node fails, and the scheduler requeues the task by itself, under the same number.

    HOW: fake: NODE_FAIL with requeue; the kill of the old process is real.
    REPORTED: the point waits, then runs; both tries are kept, the first as `node_fail`.
    LOST: the killed try's last sync interval.
    """
    lab = slurm_lab
    lab.cluster.set(requeue_delay_s=1)
    lab.fail(b2="slow")
    assert lab.sweep().returncode == 0
    lab.until(lambda: lab.point(2).standing is PointState.RUNNING and bool(lab.point(2).tries))
    lab.fail()
    lab.cluster.node_fails(lab.job, 2)
    lab.until(lambda: lab.outcomes() == [OK] * 2)
    lab.until(lambda: [tried.verdict.outcome for tried in lab.point(2).tries] == [OK, Outcome.NODE_FAIL])
    assert "NODE_FAIL" in lab.point(2).tries[1].verdict.evidence
    assert len(lab.cluster.jobs()) == 1
