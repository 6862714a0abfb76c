"""A user's folder on a real cluster, and a sweep whose points fail as a file says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobkit.core.files import write_atomically
from jobkit.core.records import Outcome
from jobkit.runs.reader import read_status
from jobkit.runs.status import PointStatus
from tests.cluster.daemons import until, wait_for
from tests.support import commands
from tests.support.sites import REQUESTS
from tests.whole.test_job_script import left_on

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "tests" / "workloads"

Answer = subprocess.CompletedProcess[str]


def on(words: str, *rows: str) -> pytest.MarkDecorator:
    """Run a test once for each row, ``scheduler word``, on that scheduler alone."""
    params = [pytest.param(*row.split(), marks=getattr(pytest.mark, row.split()[0])) for row in rows]
    return pytest.mark.parametrize(words.split(), params)


SLURM, SGE = on("scheduler", "slurm"), on("scheduler", "sge")
"""For a test of what does not depend on the scheduler."""

COUNT = """\
name: count
workload: count
sweep: {batch_size: [1, 10, 100]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 400MiB, walltime: "00:02:00"}
max_parallel: 2
"""
SITE = """\
name: lab
scheduler: %s
queue: %s
requests: {%s}
scratch: %s
sync_interval_s: 1
warning_s: 5
"""
QUEUE = {"slurm": "cpu", "sge": "serial.q"}
JOB_VARIABLE = {"slurm": "SLURM_ARRAY_JOB_ID", "sge": "JOB_ID"}
CPUS_VARIABLE = {"slurm": "SLURM_CPUS_PER_TASK", "sge": "NSLOTS"}
"""The CPUs that the scheduler gave the job."""
HOLD = {"slurm": "--hold", "sge": "-h"}
RELEASE = {"slurm": ("scontrol", "release"), "sge": ("qrls",)}
"""What releases a job, or some of its tasks."""
SHOW = {"slurm": ("scontrol", "show", "job"), "sge": ("qstat", "-j")}
CANCEL = {"slurm": "scancel", "sge": "qdel"}


def held_by(scheduler: str) -> str:
    """Return the value of ``resources.options`` with which an array waits to be released."""
    return f'{{{scheduler}: ["{HOLD[scheduler]}"]}}'


@dataclass
class ClusterLab:
    """A user's folder on a cluster."""

    scheduler: str
    home: Path
    scratch: Path

    def spec(self, text: str, name: str = "spec.yaml") -> Path:
        path = self.home / name
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def place(self) -> tuple[str | Path, ...]:
        """The words that name the scheduler and the site file."""
        return "--scheduler", self.scheduler, "--site", self.home / "lab.yaml"

    def jobkit(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return commands.jobkit(*arguments, cwd=self.home)

    def sweep(
        self, spec: Path, *arguments: str, how: Callable[..., Answer] = commands.jobkit
    ) -> subprocess.CompletedProcess[str]:
        return how("sweep", spec, *self.place, *arguments, cwd=self.home)

    def run_dir(self) -> Path:
        (folder,) = (self.home / "runs").iterdir()
        return folder

    def job(self) -> str:
        return str(self.submitted()[0]["job_id"])

    def submitted(self) -> list[dict[str, object]]:
        return [event for event in self.events() if event["event"] == "submitted"]

    def jobs(self, *roles: str) -> list[str]:
        """Return the ids of the jobs of some roles, in the order in which they were submitted."""
        return [str(event["job_id"]) for event in self.submitted() if event.get("role") in roles]

    def points(self) -> list[dict[str, object]]:
        data = json.loads(self.jobkit("collect", "runs", "--format", "json").stdout)
        rows: list[dict[str, object]] = data["points"]
        return rows

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.run_dir() / "journal.jsonl").read_text().splitlines()]

    def refuse_on_nodes(self) -> None:
        """Let the submit command refuse on the nodes."""
        program = self.home / "node" / {"slurm": "sbatch", "sge": "qsub"}[self.scheduler]
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho 'this host is no submit host' >&2\nexit 1\n")
        program.chmod(0o755)
        self.site(f"setup: ['export PATH=\"{program.parent}:$PATH\"']\n")

    def site(self, more: str) -> None:
        """Add lines to the site file."""
        path = self.home / "lab.yaml"
        path.write_text(path.read_text(encoding="utf-8") + more, encoding="utf-8")

    def clears_scratch(self) -> None:
        """Wait until scratch is empty: a point is done when its record is home, before its job ends."""
        until(lambda: left_on(self.scratch) == [], "an empty scratch")


@pytest.fixture
def lab(scheduler: str, tmp_path: Path, kept_cache: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterLab:
    monkeypatch.setenv("JOBKIT_CACHE", str(kept_cache))
    home, scratch = tmp_path / "my home", tmp_path / "scratch"
    home.mkdir()
    scratch.mkdir()
    site = SITE % (scheduler, QUEUE[scheduler], REQUESTS[scheduler], scratch)
    (home / "lab.yaml").write_text(site, encoding="utf-8")
    return ClusterLab(scheduler, home, scratch)


FAULTY = """\
name: faulty
workload: odd:Faulty
text: sample:30
sweep: {batch_size: [1, 2, 3, 4, 5, 6]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 400MiB, walltime: "00:02:00"}
policy: %s
environment: {variables: {PYTHONPATH: '%s', ODD_FAULTS: '%s'}}
"""


class FaultySweep:
    """A sweep whose points fail as a file says."""

    def __init__(self, lab: ClusterLab) -> None:
        self.lab, self.file = lab, lab.home / "faults.json"
        self.fail({})

    def fail(self, faults: dict[int, str]) -> None:
        write_atomically(self.file, json.dumps(faults))

    def sweep(self, *arguments: str, policy: str = "{follow_up: false}") -> str:
        spec = self.lab.spec(FAULTY % (policy, WORKLOADS, self.file))
        done = self.lab.sweep(spec, *arguments)
        assert done.returncode in {0, 4}, done.stdout + done.stderr
        return done.stderr

    def points(self) -> tuple[PointStatus, ...]:
        (seen,) = read_status([self.lab.run_dir()], ask=False)
        return seen.points

    def outcomes(self) -> list[Outcome | None]:
        return [point.outcome for point in self.points()]

    def becomes_ok(self, deadline_s: float) -> None:
        """Wait until all points are ok; fail with what the last tries of the others say."""
        try:
            wait_for(lambda: not self.not_ok(), deadline_s)
        except TimeoutError:
            pytest.fail("\n".join(["not ok in time:", *self.not_ok()]))

    def not_ok(self) -> list[str]:
        """Say of each point that is not ok what its last try was, and where it is."""
        others = (point for point in self.points() if point.outcome is not Outcome.OK)
        return [f"{one.outcome}: {one.latest.evidence} ({one.latest.folder})" for one in others]


@pytest.fixture
def faulty(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> FaultySweep:
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    return FaultySweep(lab)
