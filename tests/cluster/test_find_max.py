"""The largest batch, predicted and run by the job that follows a sweep, on the real daemons."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from jobkit.runs.trials import Trial, trials
from tests.cluster.daemons import Wait
from tests.cluster.lab import CANCEL, WORKLOADS, ClusterLab
from tests.support.commands import ended_well

DEADLINE_S = 90
SPEC = """\
name: hungry
workload: hungry:Hungry
text: text.txt
sweep: {batch_size: [5, 10, 15, 20]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 1GiB, walltime: "00:02:00"}
find_max: {memory: 150MiB}
environment: {variables: {PYTHONPATH: '%s'}}
"""
CAPACITY = 150 * 2**20


@pytest.fixture
def spec(lab: ClusterLab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the spec of a workload whose memory is a line in the batch size, and of what it may have."""
    monkeypatch.setenv("PYTHONPATH", str(WORKLOADS))
    (lab.home / "text.txt").write_text("\n\n".join(["w" * 99 + "."] * 120) + "\n", encoding="utf-8")
    return lab.spec(SPEC % WORKLOADS)


def record(lab: ClusterLab, point: str) -> dict[str, dict[str, str]]:
    path = lab.run_dir() / "results" / point / "try-1" / "record.json"
    found: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def told(lab: ClusterLab) -> list[Trial]:
    return trials(lab.run_dir())


def ends(lab: ClusterLab) -> list[tuple[str, str]]:
    """Return role and state of the jobs that wait for the points, once the follow-up job has ended."""
    data = json.loads(lab.jobkit("status", lab.run_dir(), "--json").stdout)
    return [(job["role"], job["state"]) for job in data["runs"][0]["jobs"]]


def test_one_submission_measures_predicts_and_proves(lab: ClusterLab, spec: Path, wait_until: Wait) -> None:
    done = ended_well(lab.sweep(spec, "--wait"))
    sweep, follower = lab.jobs("points", "find")
    assert f"job {follower} tries the largest batch" in done.stderr
    (trial,) = told(lab)
    assert trial.held, trial
    assert trial.bound_bytes <= CAPACITY
    tried = record(lab, f"batch_size-{trial.batch_size}-verify")
    assert (tried["job"]["scheduler"], tried["job"]["job_id"]) == (lab.scheduler, follower)
    measured = [record(lab, f"batch_size-{size}-r1") for size in (5, 10, 15, 20)]
    assert {one["job"]["job_id"] for one in measured} == {sweep}
    assert max(str(one["ended_at"]) for one in measured) <= str(tried["started_at"])
    assert f"batch_size {trial.batch_size} fits in 150.0 MiB of process memory" in " ".join(
        done.stdout.split()
    )
    wait_until(lambda: ends(lab) == [("find", "ended"), ("follow", "ended")], 90)
    lab.clears_scratch()


def test_a_cancelled_sweep_does_not_hold_its_follower_for_ever(
    lab: ClusterLab, spec: Path, wait_until: Wait, tmp_path: Path
) -> None:
    text = spec.read_text(encoding="utf-8").replace("hungry:Hungry", "odd:Slow")
    text = text.replace("{PYTHONPATH", f"{{ODD_TOLD: '{tmp_path / 'told'}', PYTHONPATH")
    ended_well(lab.sweep(lab.spec(text)))
    sweep, _ = lab.jobs("points", "find")
    wait_until((tmp_path / "told").exists, DEADLINE_S)
    subprocess.run([CANCEL[lab.scheduler], sweep], check=True, capture_output=True, timeout=60)
    wait_until(lambda: bool(told(lab)), DEADLINE_S)
    assert told(lab)[-1].message == "no point has succeeded yet"
