"""Several workers in one point, on real daemons."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.core.files import write_atomically
from jobkit.core.json_codec import from_json
from jobkit.core.records import ModelRef, Outcome, Record
from jobkit.planning.texts import find_text
from jobkit.runs.status import PointState
from jobkit.worker.paragraphs import read_paragraphs
from jobkit.worker.workloads.base import as_tsv
from jobkit.worker.workloads.stanza_ner import StanzaNer
from tests.cluster.daemons import Wait
from tests.cluster.halted import batches, begun, home, record, seen
from tests.cluster.lab import CPUS_VARIABLE, JOB_VARIABLE, SGE, SLURM, WORKLOADS, ClusterLab, on
from tests.cluster.test_killed import why
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
@on("scheduler victim", "slurm supervisor", "slurm script", "sge script")
def test_kill_9_on_a_node(
    lab: ClusterLab, wait_until: Wait, monkeypatch: pytest.MonkeyPatch, short: Path, victim: str
) -> None:
    """FAULT: the supervisor of several workers or their job script is killed outright, on a real cluster.

    HOW: real: kill -9, Slurm and (the script) Grid Engine; fake: a GPU shared through MPS.
    REPORTED: `lost`, as with one worker.
    LOST: at most one sync interval; no process of the job, no daemon and no folder of it is left on the node.
    """
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    (lab.home / "text.txt").write_text("\n\n".join([*(f"Number {n}." for n in range(6)), WAIT, WAIT]))
    done = lab.sweep(lab.spec(shares_a_gpu(lab, short)))
    assert done.returncode == 0, done.stdout + done.stderr
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
    wait_until(lambda: stands(run) == (PointState.FAILED, Outcome.LOST), 90)
    assert batches(run) == 6
    assert why(run)
    wait_until(lambda: not list(short.rglob("mps-*")), 30)


def stands(run: Path) -> tuple[PointState, Outcome | None]:
    (one,) = seen(run)
    return one.state, one.outcome


TEXT = "sample:60"


DEMO = ("resources.memory=4GiB", "resources.cpus=1", f"text={TEXT}")


def demo(lab: ClusterLab, *changes: str) -> str:
    """Run the demo with these changes; return what it printed."""
    text = (WORKLOADS.parents[1] / "sweeps" / "demo.yaml").read_text(encoding="utf-8")
    text = text.replace("scheduler: local", "scheduler: auto").replace("repeats: 3", "repeats: 1")
    done = lab.sweep(
        lab.spec(text), "--wait", *(word for one in (*DEMO, *changes) for word in ("--set", one))
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@SLURM
def test_two_workers_have_the_cpus_of_two_and_find_what_one_finds(
    lab: ClusterLab, tiny_model: ModelRef
) -> None:
    assert "STAND-IN" in demo(lab, "sweep.batch_size=[10]", "workers=2")
    (path,) = lab.run_dir().glob("results/*/try-1/entities.tsv")
    assert path.read_bytes() == tagged_here(tiny_model, lab.home)
    assert len(path.read_bytes().splitlines()) > 10
    one = record(lab.run_dir(), 10)
    assert [bool(share.batches) for share in one.workers] == [True, True]
    assert one.environment[CPUS_VARIABLE[lab.scheduler]] == "2"
    lab.clears_scratch()


@SGE
def test_points_that_share_a_job_import_the_framework_once(
    lab: ClusterLab, wait_until: Wait, tiny_model: ModelRef
) -> None:
    demo(lab, "sweep.batch_size=[20, 40]", "pack=2")
    entities = {path.read_bytes() for path in lab.run_dir().glob("results/*/try-1/entities.tsv")}
    assert entities == {tagged_here(tiny_model, lab.home)}
    records = [record(lab.run_dir(), size) for size in (20, 40)]
    assert [one.forked for one in records] == [True, True]
    first, second = (one.import_s or 0.0 for one in records)
    assert second < first / 4
    wait_until(lambda: with_variable(f"{JOB_VARIABLE[lab.scheduler]}={lab.job()}") == [], 30)
    lab.clears_scratch()


def tagged_here(model: ModelRef, folder: Path) -> bytes:
    """Return what the tagger finds here without a scheduler, at another batch size."""
    text = find_text(TEXT, base=folder, cache=folder)
    paragraphs = read_paragraphs(Path(text.path))
    tagger = StanzaNer()
    tagger.load(Path(model.path), "cpu", {"batch_size": 7}, 1)
    rows = []
    for first in range(0, len(paragraphs), 7):
        entities = tagger.process(paragraphs[first : first + 7]).entities
        rows += [row._replace(paragraph=row.paragraph + first) for row in entities]
    write_atomically(folder / "here.tsv", as_tsv(rows))
    return (folder / "here.tsv").read_bytes()


ON_GPUS = """\
name: gpus
workload: oncard:OnCard
device: cuda
model: {name: en, size: tiny, fallback: stand-in}
text: text.txt
sweep: {gpus: [1, 2], batch_size: [1]}
repeats: 1
resources: {gpus: 1, cpus: 1, memory: 1GiB, walltime: "00:02:00"}
policy: {follow_up: false}
environment:
  setup: ['export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-$(%s)}"']
  variables: {PYTHONPATH: '%s', FAKE_HELD: '%s', FAKE_CARD: T4, FAKE_CARDS: "2"}
"""
LIKE_A_PROLOG = "seq -s, 0 $(($(qstat -j $JOB_ID | grep -o ngpus=[0-9]* | cut -d= -f2) - 1))"
"""Prints the GPUs of a job of Grid Engine by its request, as the prolog of a site does; Slurm sets them."""


def test_each_number_of_gpus_is_a_request_of_its_own(
    lab: ClusterLab, tiny_model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs are not there; the schedulers, and what they give each job, are real."""
    assert tiny_model.stand_in
    site = lab.home / "lab.yaml"  # the GPUs of this Grid Engine are counted for each slot
    site.write_text(site.read_text().replace("-pe smp {cpus}", "-l ncpus={cpus}"))
    path = ":".join(map(str, (WORKLOADS / "card", WORKLOADS / "nvml", WORKLOADS, WORKLOADS.parents[1])))
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    (lab.home / "text.txt").write_text("\n\n".join(f"Number {n}." for n in range(9)))
    held = lab.home / "held"
    held.mkdir()
    done = lab.sweep(lab.spec(ON_GPUS % (LIKE_A_PROLOG, path, held)), "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = (
        from_json(Record, path.read_text(), where="record")
        for path in sorted(lab.run_dir().glob("results/*/try-1/record.json"))
    )
    assert (one.point.gpus, two.point.gpus) == (1, 2)
    assert one.job.job_id != two.job.job_id, "each request is an array job"
    assert one.environment["CUDA_VISIBLE_DEVICES"] in {"0", "1"}
    assert two.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert [share.gpu_uuid for share in two.workers] == ["GPU-0", "GPU-1"]
