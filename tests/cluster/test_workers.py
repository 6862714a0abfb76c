"""Several workers in one point, on real daemons."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.runs.status import PointStanding
from tests.cluster.daemons import Wait
from tests.cluster.halted import batches, begun, home, seen
from tests.cluster.lab import JOB_VARIABLE, SGE, WORKLOADS, ClusterLab, on
from tests.cluster.test_killed import why
from tests.support.commands import ended_well
from tests.support.processes import parent_of, with_variable
from tests.workloads.told import WAIT

SPEC = """\
name: crowd
workload: oncard:ToldOnCard
text: text.txt
order: text
workers: 2
sweep: {batch_size: [1]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 1GiB, walltime: "00:02:00"}
policy: {follow_up: false}
"""
MPS = """\
device: cuda
mps: on
model: {name: en, size: tiny, fallback: stand-in}
environment:
  setup: [":"]
  variables:
    PYTHONPATH: '%s'
    TOLD: '%s'
    FAKE_HELD: '%s'
    FAKE_CARD: T4
    CUDA_VISIBLE_DEVICES: "0"
    PATH: '%s:/usr/bin:/bin'
"""


@pytest.fixture
def short(lab: ClusterLab) -> Iterator[Path]:
    """Return the scratch of the cluster's site, with a path so short that sockets can be below it."""
    with tempfile.TemporaryDirectory(prefix="mps") as scratch:
        site = lab.home / "lab.yaml"
        site.write_text(site.read_text().replace(str(lab.scratch), scratch))
        yield Path(scratch)


def shares_a_gpu(lab: ClusterLab, scratch: Path) -> str:
    """Return the spec of workers that share a GPU through MPS; neither is there."""
    tests = WORKLOADS.parent
    path = ":".join(map(str, (WORKLOADS / "card", WORKLOADS / "nvml", WORKLOADS, tests.parent)))
    return SPEC + MPS % (path, lab.home, scratch, tests / "fakes" / "mps")


@pytest.mark.fault
@on("scheduler victim", "slurm supervisor", "sge script")
def test_kill_9_on_a_node(
    lab: ClusterLab, wait_until: Wait, monkeypatch: pytest.MonkeyPatch, short: Path, victim: str
) -> None:
    """FAULT: the supervisor of several workers or their job script is killed outright, on a real cluster.

    HOW: real: kill -9 of the supervisor, Slurm, and of the script, Grid Engine; fake: a GPU, shared by MPS.
    REPORTED: `lost`, as with one worker.
    LOST: at most one sync interval; no process of the job, no daemon and no folder of it is left on the node.
    """
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    (lab.home / "text.txt").write_text("\n\n".join([*(f"Number {n}." for n in range(6)), WAIT, WAIT]))
    ended_well(lab.sweep(lab.spec(shares_a_gpu(lab, short))))
    run = lab.run_dir()
    wait_until(lambda: len(list(lab.home.glob("waits-*"))) == 2, 60)
    wait_until(lambda: (home(run) / "batches.jsonl").exists() and batches(run) == 6, 30)
    worker = int(next(lab.home.glob("waits-*")).name.partition("-")[2])
    victims = {"supervisor": parent_of(worker), "script": begun(run).pid or 0}
    mark = f"{JOB_VARIABLE[lab.scheduler]}={begun(run).job}"
    assert with_variable(mark)
    assert list(short.rglob("mps-*/pipe/control"))
    os.kill(victims[victim], signal.SIGKILL)
    wait_until(lambda: with_variable(mark) == [] and with_variable(f"TOLD={lab.home}") == [], 60)
    wait_until(lambda: stands(run) == (PointStanding.FAILED, Outcome.LOST), 90)
    assert batches(run) == 6
    assert why(run)
    wait_until(lambda: not list(short.rglob("mps-*")), 30)


def stands(run: Path) -> tuple[PointStanding, Outcome | None]:
    (one,) = seen(run)
    return one.standing, one.outcome


@SGE
def test_two_tasks_of_a_node_choose_different_gpus(lab: ClusterLab, wait_until: Wait) -> None:
    lab.site("gpus: choose\n")
    variables = {
        "PYTHONPATH": WORKLOADS / "nvml",
        "FAKE_CARD": "T4",
        "FAKE_CARDS": "2",
        "FAKE_HELD": lab.home,
    }
    command = 'touch "$CUDA_VISIBLE_DEVICES"; until [ -e go ]; do sleep 0.1; done'
    spec: dict[str, object] = {
        "name": "cards",
        "workload": {"command": f"cd '{lab.home}'; {command}; : {{kind}}", "shell": True},
    }
    spec |= {"text": "sample:20", "device": "cuda", "sweep": {"kind": ["a", "b"]}, "repeats": 1}
    spec |= {"environment": {"variables": {name: str(value) for name, value in variables.items()}}}
    spec |= {"resources": {"gpus": 1, "cpus": 1, "memory": "400MiB", "walltime": "00:02:00"}}
    ended_well(lab.sweep(lab.spec(json.dumps(spec))))
    wait_until(lambda: {path.name for path in lab.home.glob("GPU-*")} == {"GPU-0", "GPU-1"}, 60)
    (lab.home / "go").touch()
    wait_until(lambda: [one.outcome for one in seen(lab.run_dir())] == [Outcome.OK] * 2, 60)
