"""What a spec asks for by plain keys, as the real schedulers read it back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.requests import Trial
from jobkit.core.units import MIB
from tests.cluster.lab import CANCEL, QUEUE, SGE, SHOW, SLURM
from tests.support.commands import jobkit, ran

SPEC = """\
name: asks
workload: count
sweep: {batch_size: [1]}
repeats: 1
resources:
  gpus: 0
  cpus: 1
  memory: 200MiB
  walltime: "00:02:00"
  queue: %s
  mail: ada@example.org
  exclude: [%s]
  options: {slurm: ["--hold"], sge: ["-h"]}
policy: {follow_up: false}
"""
GPUS = """\
name: shares
workload: count
device: cuda
sweep: {gpus: [1, 2], batch_size: [1]}
repeats: 1
resources: {gpus: 1, cpus: 1, memory: 200MiB, walltime: "00:02:00", options: {sge: ["-h"]}}
policy: {follow_up: false}
environment: {setup: [":"]}
"""
ALONE = ("--set", "resources.exclusive=true")


class Asker:
    """Sweeps that are submitted held, in a folder."""

    def __init__(self, home: Path, scheduler: str) -> None:
        self.home, self.scheduler, self.site = home, scheduler, f"{scheduler}-default"

    def init(self) -> None:
        """Take a site file written from what the scheduler says."""
        self.site = str(self.home / "ours.yaml")
        words = ("--scheduler", self.scheduler, "--only", "site", "--site-file", self.site)
        ran("init", *words, cwd=self.home)

    def sweep(self, text: str, *more: str) -> subprocess.CompletedProcess[str]:
        (self.home / "spec.yaml").write_text(text, encoding="utf-8")
        site = ("--scheduler", self.scheduler, "--site", self.site)
        return jobkit("sweep", "spec.yaml", *site, *more, cwd=self.home)

    def asks(self, nodes: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Sweep `SPEC`, without some nodes."""
        return self.sweep(SPEC % (QUEUE[self.scheduler], nodes), *more)

    def shown(self, done: subprocess.CompletedProcess[str]) -> list[str]:
        """Return what the scheduler shows of each job of a sweep, and cancel the jobs."""
        assert done.returncode == 0, done.stderr
        (journal,) = self.home.glob("runs/*/journal.jsonl")
        events = map(json.loads, journal.read_text(encoding="utf-8").splitlines())
        jobs = [event["job_id"] for event in events if event["event"] == "submitted"]
        try:
            return [said(*SHOW[self.scheduler], job) for job in jobs]
        finally:
            said(CANCEL[self.scheduler], *jobs)


def said(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def asker(scheduler: str, tmp_path: Path) -> Asker:
    return Asker(tmp_path, scheduler)


@SLURM
def test_slurm_reads_the_plain_keys_and_gives_a_point_its_node(asker: Asker) -> None:
    (job,) = asker.shown(asker.asks("n2", *ALONE))
    assert "MailUser=ada@example.org" in job
    assert "MailType=END,FAIL" in job
    assert "ExcNodeList=n2" in job
    assert "OverSubscribe=NO" in job


@SGE
def test_grid_engine_reads_the_plain_keys_and_mails_when_the_last_task_has_ended(asker: Asker) -> None:
    points, follows = asker.shown(asker.asks("node07, node12", "--set", "policy.follow_up=true"))
    assert "hostname=!(node07|node12)" in points
    assert "ada@example.org" not in points
    assert "ada@example.org" in follows


@SGE
def test_grid_engine_gives_a_point_its_host(asker: Asker) -> None:
    """By the resource that `jobkit init` finds; where the site file names none it is a fault."""
    done = asker.asks("node07", *ALONE)
    assert done.returncode == 2, done.stderr
    assert "site 'sge-default' has no header line for it" in done.stderr
    assert "max_parallel: 1" in done.stderr
    asker.init()
    (job,) = asker.shown(asker.asks("node07", *ALONE, "--set", "resources.exclude=[]"))
    assert "exclusive=true" in job


@SGE
def test_grid_engine_that_counts_gpus_for_each_slot_gets_the_share_of_a_slot(asker: Asker) -> None:
    """Two GPUs for two workers are two slots with a GPU each; refused if one GPU has two slots."""
    asker.init()
    done = asker.sweep(GPUS, "--set", "workers=2")
    assert done.returncode == 2, done.stderr
    assert "counts GPUs for each CPU, so a job of 2 CPUs cannot have 1 GPU" in done.stderr
    one, two = asker.shown(asker.sweep(GPUS))
    assert "ngpus=1" in one
    assert "parallel environment" not in one or "range: 1" in one
    assert "ngpus=1" in two
    assert "range: 2" in two


@pytest.mark.slurm
def test_what_is_requested_suffices_where_memory_is_enforced(tmp_path: Path) -> None:
    """A first load holds 260 MiB more, so that 1.2 times a later one does not; half of it is killed."""
    trial = Trial("more at first", tmp_path / "home")
    report = trial.report()
    jobs = [job for by in ("recommend", "apply") for job in report[by]]
    assert {job["outcome"] for job in jobs} == {"ok"}
    assert len({(job["memory_bytes"], job["walltime_s"]) for job in jobs}) == 1, "one request"
    assert {job["outcome"] for job in trial.control(600 * MIB)} == {"ram_oom"}
