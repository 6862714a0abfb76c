"""What a spec asks for by plain keys, as the real schedulers read it back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.commands import jobkit

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


def sweep(home: Path, scheduler: str, queue: str, node: str, *more: str) -> subprocess.CompletedProcess[str]:
    (home / "spec.yaml").write_text(SPEC % (queue, node), encoding="utf-8")
    site = ("--scheduler", scheduler, "--site", f"{scheduler}-default")
    return jobkit("sweep", "spec.yaml", *site, *more, cwd=home)


@contextmanager
def held(home: Path, scheduler: str, cancel: str, queue: str, node: str, *more: str) -> Iterator[str]:
    """Submit the sweep held, yield its job id, and cancel it."""
    done = sweep(home, scheduler, queue, node, *more)
    assert done.returncode == 0, done.stderr
    (journal,) = home.glob("runs/*/journal.jsonl")
    job_id = str(json.loads(journal.read_text(encoding="utf-8").splitlines()[-1])["job_id"])
    try:
        yield job_id
    finally:
        subprocess.run([cancel, job_id], check=True, capture_output=True)


def said(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ})
    return done.stdout


@pytest.mark.slurm
def test_slurm_reads_the_plain_keys(tmp_path: Path) -> None:
    with held(tmp_path, "slurm", "scancel", "cpu", "n2") as job_id:
        job = said("scontrol", "show", "job", job_id)
    assert "MailUser=ada@example.org" in job
    assert "MailType=END,FAIL" in job
    assert "ExcNodeList=n2" in job


@pytest.mark.slurm
def test_slurm_gives_a_point_its_node(tmp_path: Path) -> None:
    with held(tmp_path, "slurm", "scancel", "cpu", "n2", "--set", "resources.exclusive=true") as job_id:
        assert "OverSubscribe=NO" in said("scontrol", "show", "job", job_id)


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("key", "value", "refusal"),
    [
        ("constraint", "a100&ib", "feature"),
        ("reservation", "nowhere", "reservation"),
    ],
)
def test_slurm_refuses_what_it_does_not_have(tmp_path: Path, key: str, value: str, refusal: str) -> None:
    done = sweep(tmp_path, "slurm", "cpu", "n2", "--set", f"resources.{key}={value}")
    assert done.returncode == 3, done.stderr
    assert refusal in done.stderr


@pytest.mark.sge
def test_grid_engine_reads_the_plain_keys(tmp_path: Path) -> None:
    with held(tmp_path, "sge", "qdel", "serial.q", "node07, node12") as job_id:
        job = said("qstat", "-j", job_id)
    assert "ada@example.org" in job
    assert "hostname=!(node07|node12)" in job


@pytest.mark.sge
def test_grid_engine_keeps_away_from_an_excluded_host(tmp_path: Path) -> None:
    """Of a cluster of one host, excluding it leaves none: the check before the submission says so."""
    host = said("qconf", "-sel").split()[0]
    assert host in {"localhost", socket.gethostname(), socket.getfqdn()}
    done = sweep(tmp_path, "sge", "serial.q", host)
    assert done.returncode == 3, done.stderr
    assert "hostname" in done.stderr


def init_sge(home: Path) -> str:
    """Have a site file written from what Grid Engine says; return its path."""
    path = home / "ours.yaml"
    done = jobkit("init", "--scheduler", "sge", "--only", "site", "--site", path, cwd=home)
    assert done.returncode == 0, done.stderr
    return str(path)


@pytest.mark.sge
def test_grid_engine_gives_a_point_its_host(tmp_path: Path) -> None:
    """By the resource that `jobkit init` finds; where the site file names none it is a fault."""
    alone = ("--set", "resources.exclusive=true")
    done = sweep(tmp_path, "sge", "serial.q", "node07", *alone)
    assert done.returncode == 2, done.stderr
    assert "site 'sge-default' has no header line for it" in done.stderr
    assert "max_parallel: 1" in done.stderr
    site = ("--site", init_sge(tmp_path), "--set", "resources.exclude=[]")
    with held(tmp_path, "sge", "qdel", "serial.q", "node07", *alone, *site) as job_id:
        assert "exclusive=true" in said("qstat", "-j", job_id)


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


@pytest.mark.sge
def test_grid_engine_that_counts_gpus_for_each_slot_gets_the_share_of_a_slot(tmp_path: Path) -> None:
    """Two GPUs for two workers are two slots with a GPU each; refused if one GPU has two slots."""
    (tmp_path / "spec.yaml").write_text(GPUS, encoding="utf-8")
    site = ("--scheduler", "sge", "--site", init_sge(tmp_path))
    done = jobkit("sweep", "spec.yaml", *site, "--set", "workers=2", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "counts GPUs for each CPU, so a job of 2 CPUs cannot have 1 GPU" in done.stderr
    done = jobkit("sweep", "spec.yaml", *site, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (journal,) = tmp_path.glob("runs/*/journal.jsonl")
    jobs = [
        event["job_id"]
        for event in map(json.loads, journal.read_text(encoding="utf-8").splitlines())
        if event["event"] == "submitted"
    ]
    try:
        one, two = (said("qstat", "-j", job) for job in jobs)
    finally:
        subprocess.run(["qdel", *jobs], check=True, capture_output=True)
    assert "ngpus=1" in one
    assert "parallel environment" not in one or "range: 1" in one
    assert "ngpus=1" in two
    assert "range: 2" in two
