"""What a run begins after, on real daemons: each case in which the scheduler's own option is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.runs import after
from jobkit.runs.reader import read_status
from tests.cluster.daemons import SlurmDaemons, said, until
from tests.cluster.lab import COUNT, SGE, SLURM, ClusterLab, FaultySweep
from tests.support.commands import ended_well

TWO = COUNT.replace("[1, 10, 100]", "[1]")
WAITS = "while [ ! -e {0} ]; do sleep 0.2; done; exit $(cat {0})"


def parent(lab: ClusterLab, name: str, status: int | None = None, *words: str) -> str:
    """Submit a job of the user's own, which ends with a status as soon as a file has it; return its id."""
    script = lab.home / f"{name}.sh"
    script.write_text("#!/bin/bash\n" + WAITS.format(f"'{lab.home / name}'") + "\n", encoding="utf-8")
    if status is not None:
        ends(lab, name, status)
    submit = {
        "slurm": ("sbatch", "--parsable", "--mem=50", "-o", "/dev/null"),
        "sge": ("qsub", "-terse", "-S", "/bin/bash", "-o", "/dev/null", "-j", "y"),
    }[lab.scheduler]
    return str(said(*submit, *words, str(script))).strip()


def ends(lab: ClusterLab, name: str, status: int) -> None:
    """Let a job of `parent` end."""
    (lab.home / name).write_text(f"{status}\n", encoding="utf-8")


def gone(lab: ClusterLab, job: str) -> bool:
    """Return whether the queue has forgotten a job, or does not count it any more."""
    words = ("squeue", "-h", "-j", job) if lab.scheduler == "slurm" else ("qstat", "-j", job)
    return not (said(*words) or "").strip()


def outcomes(run: Path) -> set[Outcome | None]:
    (seen,) = read_status([run])
    return {point.outcome for point in seen.points}


def test_a_job_that_failed_and_one_that_never_was_are_refused(
    lab: ClusterLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = parent(lab, "bad", 3)
    until(lambda: gone(lab, job), "the end of the job before", 60)
    refused = lab.sweep(lab.spec(TWO), "--after", job)
    assert refused.returncode == 3
    assert "did not end well" in refused.stderr
    assert f"any:{job}" in refused.stderr
    monkeypatch.setattr(after, "SUBMIT_S", 0.0)
    refused = lab.sweep(lab.spec(TWO), "--after", "999999")
    assert (refused.returncode, "knows it" in refused.stderr) == (3, True)
    assert not (lab.home / "runs").exists()
    ended_well(lab.sweep(lab.spec(TWO), "--after", f"any:{job}", "--wait"))


def test_two_jobs_of_which_one_fails(lab: ClusterLab) -> None:
    good, bad = parent(lab, "good"), parent(lab, "bad")
    spec = lab.spec(f"{TWO}after: [{good}, {bad}]\n")
    ended_well(lab.sweep(spec))
    run = lab.run_dir()
    assert f"begins after {good}, {bad}" in lab.jobkit("status", run).stdout
    ends(lab, "good", 0)
    ends(lab, "bad", 3)
    until(lambda: outcomes(run) == {Outcome.DEPENDENCY}, "the answer of the first step", 120)
    assert f"job {bad}: did not end well" in (run / "after-1.txt").read_text()
    assert lab.jobkit("resume", run).returncode == 3
    ended_well(lab.jobkit("resume", run, "--after", good, "--wait"))
    assert outcomes(run) == {Outcome.OK}


@SLURM
def test_a_job_that_failed_and_was_purged(lab: ClusterLab, slurm_alone: SlurmDaemons) -> None:
    """`afterok` of it would begin at once (measured)."""
    del slurm_alone
    conf = Path(os.environ["SLURM_CONF"])
    conf.write_text(conf.read_text(encoding="utf-8") + "MinJobAge=2\n", encoding="utf-8")
    said("scontrol", "reconfigure")
    job = parent(lab, "bad", 3)
    until(lambda: said("scontrol", "show", "job", job) is None, "the purge of the job", 180)
    refused = lab.sweep(lab.spec(TWO), "--after", job)
    assert (refused.returncode, "did not end well" in refused.stderr) == (3, True), refused.stderr


@SLURM
def test_a_job_that_failed_is_requeued_and_succeeds(lab: ClusterLab) -> None:
    """What waits for it with `afterok` would never begin (measured)."""
    job = parent(lab, "again", None, "--requeue")
    ended_well(lab.sweep(lab.spec(TWO), "--after", job))
    run = lab.run_dir()
    ends(lab, "again", 3)
    until(lambda: outcomes(run) == {Outcome.DEPENDENCY}, "the answer of the first step", 120)
    (lab.home / "again").unlink()
    said("scontrol", "requeue", job)
    until(lambda: not gone(lab, job), "the job in the queue", 30)
    said("scontrol", "update", f"JobId={job}", "StartTime=now")
    ended_well(lab.jobkit("resume", run))
    ends(lab, "again", 0)
    until(lambda: outcomes(run) == {Outcome.OK}, "the run after the requeued job", 200)


@SGE
def test_a_job_that_ends_with_100(lab: ClusterLab) -> None:
    """It stays in error, and what waits for it in the queue."""
    job = parent(lab, "error")
    ended_well(lab.sweep(lab.spec(TWO), "--after", job))
    run = lab.run_dir()
    ends(lab, "error", 100)
    until(lambda: "Eqw" in str(said("qstat")), "the error state", 60)
    refused = lab.sweep(lab.spec(TWO), "--after", job, "--new")
    assert (refused.returncode, f"qmod -cj {job}" in refused.stderr) == (3, True)
    assert f"job {job}, after which it begins, cannot end: Eqw" in lab.jobkit("status", run).stdout
    said("qdel", job)
    until(lambda: outcomes(run) == {Outcome.DEPENDENCY}, "the answer of the first step", 180)


def test_a_run_that_runs_points_again_then_a_corpus_then_a_job_of_the_user(faulty: FaultySweep) -> None:
    lab = faulty.lab
    job = parent(lab, "first")
    faulty.fail({1: "memory once"})
    faulty.sweep("--after", job, policy="{}")
    run = lab.run_dir()
    one = lab.spec((lab.home / "spec.yaml").read_text().replace("[1, 2, 3, 4, 5, 6]", "[6]"), "one.yaml")
    words = ("--corpus", "sample", "--out", "tagged", "--stand-in", "--after", run, "--print-jobs")
    applied = ended_well(lab.jobkit("apply", one, *lab.place, *words))
    jobs, last = applied.stdout.split(), lab.home / "last.txt"
    script = lab.spec(f"#!/bin/bash\ncd '{lab.home}'; ls tagged/winners >last.txt\n", "last.sh")
    waits = {
        "slurm": ("sbatch", "--mem=50", "-o", "/dev/null", f"--dependency=afterany:{':'.join(jobs)}"),
        "sge": ("qsub", "-S", "/bin/bash", "-o", "/dev/null", "-j", "y", "-hold_jid", ",".join(jobs)),
    }[lab.scheduler]
    assert said(*waits, str(script)) is not None
    ends(lab, "first", 0)
    until(last.is_file, "the job of the user", 300)
    assert outcomes(run) == {Outcome.OK}
    assert [point.latest.number for point in faulty.points()][:2] == [2, 1]
    assert (lab.home / "tagged" / "after-1.txt").read_text() == "ok\n"
    assert last.read_text().strip()
