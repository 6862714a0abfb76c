"""A corpus that a job reads and plans, on the real daemons."""

from __future__ import annotations

import json

import pytest

from jobkit.core.errors import ExitCode
from jobkit.extensions.corpus.plan import is_unplanned
from jobkit.runs.journal import read_journal
from tests.cluster.daemons import until
from tests.cluster.lab import HOLD, SGE, SLURM
from tests.cluster.test_apply import Applied
from tests.cluster.test_apply import applied as applied  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.commands import ended_well

JOB = ("--plan-as-job",)


def roles(applied: Applied) -> list[str]:
    return [str(job.role) for job in read_journal(applied.out).submissions]


def status(applied: Applied) -> tuple[int, str]:
    done = applied.lab.jobkit("status", applied.out)
    return done.returncode, done.stdout


@SLURM
def test_a_job_plans_the_corpus_and_submits_the_shards(applied: Applied) -> None:
    applied.takes(0)
    preview = ended_well(applied.apply(*JOB, "--dry-run"))
    assert "1 file, " in preview.stdout
    assert not applied.out.exists()
    done = ended_well(applied.apply(*JOB, "--wait"))
    assert "4 of 4 shards" in done.stdout
    assert roles(applied) == ["plan", "points", "follow"]
    assert applied.merged() == applied.rows
    jobs = json.loads((applied.out / "provenance.json").read_text())["jobs"]
    assert {job["scheduler"] for job in jobs} == {applied.lab.scheduler}
    again = applied.apply(*JOB)
    assert (again.returncode, "nothing to run again" in again.stderr) == (0, True), again.stderr


@SGE
def test_a_job_that_waits_is_shown_and_cancelled_and_resume_submits_another(applied: Applied) -> None:
    applied.takes(0)
    site = applied.lab.home / "lab.yaml"
    before = site.read_text(encoding="utf-8")
    applied.lab.site(f"options: ['{HOLD[applied.lab.scheduler]}']\n")
    assert applied.apply(*JOB).returncode == 0
    code, said = status(applied)
    assert (code, "the corpus is not planned yet" in said) == (ExitCode.TO_COME, True), said
    assert "which reads and plans the corpus, waits: " in said
    twice = applied.apply(*JOB)
    assert (twice.returncode, "reads and plans the corpus" in twice.stderr) == (ExitCode.TO_COME, True)
    here = applied.apply()
    assert (here.returncode, "jobkit cancel" in here.stderr) == (2, True), here.stderr
    cancelled = ended_well(applied.lab.jobkit("cancel", applied.out))
    assert "which reads and plans the corpus" in cancelled.stderr
    until(lambda: status(applied)[0] == ExitCode.FAILED, "a job that has ended", 90)
    site.write_text(before, encoding="utf-8")
    ended_well(applied.lab.jobkit("resume", applied.out, "--wait"))
    assert applied.merged() == applied.rows


@SLURM
@pytest.mark.fault
def test_nodes_that_may_not_submit_leave_the_shards_to_a_person(applied: Applied) -> None:
    """FAULT: nodes may not submit, so the job that planned a corpus cannot submit its shards.

    HOW: fake: a submit command on the node that refuses; the rest is real, Slurm.
    REPORTED: the journal's `left` and `jobkit status`; `jobkit resume` submits the shards.
    LOST: nothing: the plan is home.
    """
    lab = applied.lab
    applied.takes(0)
    lab.refuse_on_nodes()
    done = applied.apply(*JOB, "--wait")
    assert done.returncode == ExitCode.TO_COME, done.stdout + done.stderr
    assert not is_unplanned(applied.out)
    assert "the job that planned the corpus could not submit 4 shards" in done.stdout
    assert "this host is no submit host" in done.stdout
    ended_well(lab.jobkit("resume", applied.out, "--wait"))
    assert applied.merged() == applied.rows
