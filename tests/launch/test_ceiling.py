"""The ceiling on GPU-hours: what the plan says, what is refused, and what counts as spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.layout import SPEC_FILE, Exit
from jobkit.core.records import Outcome
from jobkit.launch import ceiling
from jobkit.runs.journal import Role
from jobkit.spec.policy import Policy
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.builders import record, write_event, write_exit, write_record, write_submitted
from tests.support.commands import jobkit
from tests.support.programs import Programs, sweep
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

SPEC = """\
name: t
workload: {command: "true {size}"}
device: cuda
text: sample:10
sweep: {size: [1, 2]}
repeats: 1
scheduler: slurm
resources: {gpus: 2, cpus: 1, walltime: 30m}
"""


@pytest.fixture
def cluster(here: Path, queue: Programs) -> Path:
    """Return a folder with a spec, and a Slurm that takes arrays but no submission."""
    queue.add("scontrol", "echo MaxArraySize = 1001")
    queue.add("sinfo", "exit 1")
    queue.add("sbatch", 'case "$*" in *--test-only*) ;; *) echo SUBMITTED >&2; exit 1;; esac')
    (here / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return here


@pytest.mark.slow
def test_a_plan_above_the_ceiling_of_spec_or_site_is_refused_before_anything_is_submitted(
    cluster: Path,
) -> None:
    within = jobkit("sweep", "spec.yaml", "--max-gpu-hours", "2")
    assert "at most 2.0 GPU-hours, 30.0 with all retries; the ceiling is 2 GPU-hours" in within.stderr
    assert "SUBMITTED" in within.stderr
    for words in (("--max-gpu-hours", "1.9"), ("--set", "max_gpu_hours=1.9", "--dry-run")):
        done = jobkit("sweep", "spec.yaml", "--new", *words)
        assert done.returncode == ExitCode.USAGE
        assert "the ceiling is 1.9 GPU-hours, and this comes to 2 at most" in done.stderr
        assert "SUBMITTED" not in done.stderr
    assert len([*(cluster / "runs").iterdir()]) == 1
    site = "name: ours\nscheduler: slurm\nmax_gpu_hours: 1\nrequests: {gpus: '--gres=gpu:{gpus}', "
    site += "cpus: '-c {cpus}', memory: '--mem={memory}', walltime: '--time={walltime}'}\n"
    (cluster / "ours.yaml").write_text(site, encoding="utf-8")
    of_site = ("sweep", "spec.yaml", "--site", "./ours.yaml", "--dry-run")
    assert "the ceiling is 1 GPU-hours, and this comes to 2" in jobkit(*of_site).stderr
    assert jobkit(*of_site, "--set", "max_gpu_hours=null").returncode == 0
    cpus = jobkit(*of_site, "--set", "device=cpu", "--set", "resources.gpus=0")
    assert "without a GPU it does not bind" in cpus.stdout


def test_what_was_spent_and_what_is_open(tmp_path: Path, queue: Programs) -> None:
    del queue
    run = tmp_path / "run"
    spec = SweepSpec(name="t", scheduler="slurm", max_gpu_hours=1.0)
    spec = spec.model_copy(update={"resources": spec.resources.model_copy(update={"walltime": 900})})
    ran, skipped, _, killed = sweep(run, 4)
    (run / SPEC_FILE).write_text(spec.as_yaml(), encoding="utf-8")
    done = record(ran)
    write_record(
        run, replace(done, started_at="2026-01-02T10:00:00+00:00", ended_at="2026-01-02T10:05:00+00:00")
    )
    write_exit(run, skipped, Exit(status=0, stage="gate", outcome=Outcome.PRUNED))
    write_exit(run, killed, Exit(status=1, stage="run", outcome=Outcome.LOST))
    (run / "results" / skipped.point_id / "try-1" / "begin").unlink(missing_ok=True)
    spent_s, open_s = ceiling.spent_and_open(run, spec)
    assert (spent_s >= 300, open_s) == (True, 900)
    room_s = 3600 - spent_s - open_s
    ceiling.refuse_above(spec, room_s, run)
    with pytest.raises(JobkitError, match="in the queue"):
        ceiling.refuse_above(spec, room_s + 1, run)
    write_submitted(run, "slurm", "78", first=1, last=1, role=Role.FIND, offset=4)
    assert ceiling.spent_and_open(run, spec)[1] == 1800
    assert ceiling.with_retries(Policy()) == 1 + 2 + 6 * 2, "retries have the longer walltime"
    assert ceiling.with_retries(Policy(follow_up=False)) == 1


def test_a_ceiling_that_a_person_changes_holds_for_the_job_that_follows(tmp_path: Path) -> None:
    from jobkit.launch.resume import spec_of_run

    run = tmp_path / "run"
    sweep(run, 1)
    (run / SPEC_FILE).write_text(SweepSpec(name="t", max_gpu_hours=1.0).as_yaml(), encoding="utf-8")
    write_event(run, "ceiling", max_gpu_hours=7.5)
    assert spec_of_run(run).max_gpu_hours == 7.5
    write_event(run, "ceiling", max_gpu_hours=None)
    assert spec_of_run(run).max_gpu_hours is None
