"""Practice clusters of real daemons: up, broken on purpose, fixed, and gone without a trace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobkit.practice import faults, packages
from jobkit.practice.cluster import Cluster
from jobkit.practice.daemons import started, wait_for
from tests.support.commands import jobkit

pytestmark = pytest.mark.skipif(
    os.environ.get("JOBKIT_CLUSTER") != "1", reason="needs real schedulers: set JOBKIT_CLUSTER=1"
)
OTHER_PROJECT = """\
import subprocess
pytest_plugins = ["jobkit.practice.fixtures"]
def test_of_another_project(practice_cluster):
    cluster = practice_cluster("slurm")
    done = subprocess.run(["sbatch", "--wait", "-o", "out", "--wrap", "hostname"], timeout=60)
    assert done.returncode == 0
    print("FOLDER", cluster.place.folder)
"""
SUBMIT = {
    "slurm": ("sbatch", "--parsable", "-o", "/dev/null", "--wrap"),
    "sge": ("qsub", "-terse", "-b", "y", "-shell", "n", "-j", "y", "-o", "/dev/null", "bash", "-c"),
}


ALONE = [pytest.param(name, marks=pytest.mark.xdist_group(f"alone-{name}")) for name in SUBMIT]


@pytest.fixture(params=ALONE)
def up(request: pytest.FixtureRequest) -> Cluster:
    """Return a cluster that no other test uses."""
    second: Cluster = request.getfixturevalue(f"second_{request.param}")
    return second


def submit(cluster: Cluster, script: str, *options: str) -> str:
    first, *words = SUBMIT[cluster.place.scheduler]
    return cluster.place.ask(first, *options, *words, script).stdout.strip()


def states(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Return state and reason of every job in the queue."""
    if cluster.place.scheduler == "slurm":
        rows = cluster.place.ask("squeue", "-h", "-o", "%i|%t|%r").stdout.splitlines()
        return {job: (state, reason) for job, state, reason in (row.split("|") for row in rows)}
    rows = cluster.place.ask("qstat", "-u", "*").stdout.splitlines()[2:]
    return {row.split()[0]: (row.split()[4], "") for row in rows}


def waits_for(cluster: Cluster, job: str, state: str, reason: str = "") -> None:
    def reached() -> bool:
        now = states(cluster).get(job, ("", ""))
        return now[0] == state and reason in now[1]

    wait_for(reached, f"job {job} is {state} {reason}", 120)


def test_another_project_has_a_cluster_and_then_no_trace_of_it(tmp_path: Path) -> None:
    packages.install("slurm")
    (tmp_path / "test_it.py").write_text(OTHER_PROJECT)
    argv = (sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", "test_it.py")
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    folder = Path(re.findall(r"FOLDER (\S+)", done.stdout)[0])
    assert not folder.exists()
    assert not started(folder)
    answer = jobkit("practice", "status", "--dir", folder.parent)
    assert (answer.returncode, "no practice cluster is up" in answer.stdout) == (2, True)


def test_it_takes_jobs_for_this_machine_only_and_a_second_up_changes_nothing(up: Cluster) -> None:
    where = up.place.folder.parent
    pids = {name: daemon.pid() for name, daemon in up.daemons.items()}
    answer = jobkit("practice", "up", up.place.scheduler, "--install", "--dir", where)
    assert answer.returncode == 0, answer.stderr
    assert {name: daemon.pid() for name, daemon in up.daemons.items()} == pids
    assert jobkit("practice", "status", "--dir", where).returncode == 0
    if up.place.scheduler == "slurm":  # Grid Engine listens on all addresses, and refuses other hosts
        listening = {f"{port:04X}" for port in up.place.ports}
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        own = {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[1][-4:] in listening}
        assert own == {"0100007F"}


def test_a_start_that_was_interrupted_begins_anew(up: Cluster) -> None:
    up.end()
    for last in ("slurm.conf", "default/common/bootstrap"):
        (up.place.folder / last).unlink(missing_ok=True)
    answer = jobkit("practice", "up", up.place.scheduler, "--dir", up.place.folder.parent)
    assert answer.returncode == 0, answer.stderr
    assert submit(up, "true")


def test_a_node_dies_with_its_jobs_and_comes_back(up: Cluster) -> None:
    slurm = up.place.scheduler == "slurm"
    job = submit(up, "sleep 61", *(("-w", faults.NODE) if slurm else ("-q", "gpu.q")))
    waits_for(up, job, "R" if slurm else "r")
    before = started(up.place.folder)
    faults.break_(up, "node")
    assert started(up.place.folder) < before, "the job died with its node"
    shown = (
        up.place.ask("sinfo", "-h", "-n", faults.NODE, "-o", "%t") if slurm else up.place.ask("qstat", "-f")
    )
    assert ("down" if slurm else "-NA-") in shown.stdout
    assert jobkit("practice", "status", "--dir", up.place.folder.parent).returncode == 2
    faults.fix(up)
    assert up.is_up()
    up.kind.end_jobs(up.place)


def test_a_disk_fails_and_a_job_cannot_start_until_it_is_fixed(up: Cluster) -> None:
    slurm = up.place.scheduler == "slurm"
    faults.break_(up, "disk")
    job = submit(up, "true", *(("-w", faults.NODE) if slurm else ()))
    if slurm:
        waits_for(up, job, "PD", "launch failed")
    else:
        wait_for(lambda: "E" in "".join(up.kind.states(up.place).values()), "a queue is in error", 120)
        assert states(up)[job][0] == "qw"
    faults.fix(up)
    wait_for(lambda: job not in states(up), "the job runs", 120)


def test_the_accounting_is_away_and_jobs_go_on(up: Cluster) -> None:
    slurm = up.place.scheduler == "slurm"
    ask = ("sacct", "-n", "-X") if slurm else ("qacct", "-j", "*")
    faults.break_(up, "accounting")
    assert not up.place.ask(*ask).ok
    job = submit(up, "true")
    wait_for(lambda: job not in states(up), "the job runs", 120)
    faults.fix(up)
    assert up.place.ask(*ask).ok


def test_an_urgent_job_preempts_and_leaves(up: Cluster) -> None:
    slurm = up.place.scheduler == "slurm"
    job = submit(up, "sleep 62", *(() if slurm else ("-q", "gpu.q")))
    waits_for(up, job, "R" if slurm else "r")
    faults.break_(up, "preempt")
    waits_for(up, job, "PD" if slurm else "S")
    faults.fix(up)
    waits_for(up, job, "R" if slurm else "r")
    assert not any("urgent" in line for line in up.kind.summary(up.place).splitlines())
    up.kind.end_jobs(up.place)
