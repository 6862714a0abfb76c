"""The search for the fastest setting on real schedulers, after the client has ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobkit.core.layout import SETTING_FILE, read_points
from jobkit.extensions.tune.measured import TuneAnswer
from jobkit.extensions.tune.search import Tuning
from tests.cluster.daemons import Wait
from tests.cluster.lab import CPUS_VARIABLE, SLURM, ClusterLab
from tests.support.commands import ended_well

DEADLINE_S = 120
SPEC = """\
name: quick
workload: count
text: sample:32
tune: {workers: 2, repeats: 1, budget: 5m}
resources: {gpus: 0, cpus: 1, memory: 400MiB, walltime: "00:01:00"}
"""


def tune(lab: ClusterLab, spec: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return lab.jobkit("tune", spec, *lab.place, *arguments)


def ended(lab: ClusterLab) -> Tuning:
    tuning = Tuning.read(lab.run_dir())
    assert isinstance(tuning.next, TuneAnswer)
    return tuning


def test_one_submission_finds_the_setting_and_a_sweep_takes_it(lab: ClusterLab) -> None:
    done = ended_well(tune(lab, lab.spec(SPEC), "--wait"))
    (job,) = lab.jobs("tune")
    assert f"job {job} searches for the fastest setting" in done.stderr
    assert "The setting: " in done.stdout
    tuning = ended(lab)
    records = [result.record for _, result in tuning.results if result.record]
    assert {(record.job.scheduler, record.job.job_id) for record in records} == {(lab.scheduler, job)}
    assert {record.environment[CPUS_VARIABLE[lab.scheduler]] for record in records} == {"2"}
    lab.clears_scratch()
    again = lab.sweep(lab.spec(SPEC, "again.yaml"), "--setting", str(lab.run_dir()), "--dry-run")
    assert tuning.winner
    assert again.returncode == 0, again.stderr
    assert "1 setting" in again.stdout


@SLURM
@pytest.mark.fault
def test_a_search_whose_job_is_killed_goes_on_by_itself(lab: ClusterLab, wait_until: Wait) -> None:
    """FAULT: the job of `jobkit tune` is killed in the middle of the search.

    HOW: real: scancel of that job alone, once it has chosen its third point.
    REPORTED: nothing: the job that follows submits the search again.
    LOST: the time of the point that was running.
    """
    ended_well(tune(lab, lab.spec(SPEC)))
    run = lab.run_dir()
    (job,) = lab.jobs("tune")
    wait_until(lambda: len(read_points(run)[0]) > 2, DEADLINE_S)
    subprocess.run(["scancel", job], check=True, timeout=60)
    wait_until((run / SETTING_FILE).is_file, DEADLINE_S)
    first, second = lab.jobs("tune")
    tuning = ended(lab)
    assert tuning.winner
    used = {result.record.job.job_id for _, result in tuning.results if result.record}
    assert used == {first, second}
    assert [result.point.index for _, result in tuning.results] == [*range(1, len(tuning.results) + 1)]
