"""The doctor's job, on fake schedulers: it runs, it waits, it hangs, it is held, it vanishes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.launch import helper_job
from jobkit.planning.prepare import Options
from jobkit.setup import doctor
from jobkit.setup.doctor import Case, open_case
from jobkit.setup.findings import Finding, Status, missing
from tests.fakes.cluster import FakeCluster

SPEC = """\
name: mine
workload: count
text: a.txt
device: cpu
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
"""


@pytest.fixture(autouse=True)
def soon(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "spec.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.setattr(helper_job, "FIRST_PAUSE_S", 0.2)


def case_of(scheduler: str, more: str = "") -> Case:
    Path("spec.yaml").write_text(SPEC + more, encoding="utf-8")
    return open_case(Path("spec.yaml"), Options(scheduler=scheduler))


def looked(case: Case, within_s: float = 60, say: Callable[[str], None] = print) -> dict[str, Finding]:
    return {one.name: one for one in doctor.in_a_job(case, [], within_s, say)}


def folders() -> list[Path]:
    return list(Path("runs").iterdir()) if Path("runs").exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["slurm", "sge"])
def test_what_a_job_finds_comes_home(scheduler: str, here: Path, request: pytest.FixtureRequest) -> None:
    cluster: FakeCluster = request.getfixturevalue(f"fake_{scheduler}")
    said: list[str] = []
    script = here / "seen.sh"
    found = looked(case_of(scheduler, f'environment: {{setup: ["cp $0 {script}"]}}\n'), say=said.append)

    assert list(found)[:2] == ["job", "home"]
    assert {"programs", "scratch", "inputs", "environment", "jobkit"} < set(found)
    assert {one.status for one in found.values()} == {Status.OK}, found
    assert found["job"].where.startswith("In a job, on ")
    assert any(line.startswith(f"submitted: {scheduler} job") for line in said)
    assert folders() == [], "all was well: nothing is left behind"
    assert cluster.jobs()[0].name.startswith("doctor-")
    header = script.read_text(encoding="utf-8")
    asked = {"slurm": ["#SBATCH --mem=200M", "#SBATCH --time=00:03:00"], "sge": ["#$ -l h_rt=00:03:00"]}
    assert all(line in header for line in asked[scheduler])
    assert "#SBATCH --signal" not in header, "it needs no warning"


def test_a_queue_that_does_not_start_it_is_not_waited_for_for_ever(fake_slurm: FakeCluster) -> None:
    fake_slurm.fault("full")
    said: list[str] = []
    found = looked(case_of("slurm"), within_s=1.5, say=said.append)

    (job,) = fake_slurm.jobs()
    assert found["job"].status is Status.MISSING
    assert "the job did not begin within 0:02" in found["job"].said
    assert "Resources" in found["job"].said
    assert f"job {job.id} was cancelled" in found["job"].said
    assert "--within" in found["job"].hint
    assert any("pending" in line for line in said)
    assert "cancelled" in json.dumps(fake_slurm.words(job.id)).lower()


def test_a_job_that_never_begins_is_cancelled_at_once_and_names_what_to_change(
    fake_slurm: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "WALLTIME_S", 10**6)
    found = looked(case_of("slurm"))["job"]
    assert found.status is Status.MISSING
    assert found.said.startswith("the job will not begin: PartitionTimeLimit: the walltime is longer")
    assert f"job {fake_slurm.jobs()[0].id} was cancelled" in found.said
    assert found.hint.startswith("change resources.walltime in the spec; the scheduler's answer: ")


def test_a_job_that_vanishes_without_an_answer(
    fake_slurm: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fake_slurm
    monkeypatch.setattr(helper_job, "GONE_GRACE_S", 1.0)
    found = looked(case_of("slurm", 'environment: {setup: ["echo last words; kill -9 $$"]}\n'))

    assert found["job"].status is Status.MISSING
    assert "left the queue and wrote no answer" in found["job"].said
    assert len(folders()) == 1, "what a failure leaves is kept"


def test_a_queue_that_does_not_answer_is_not_believed_to_be_empty(
    fake_slurm: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_job, "GONE_GRACE_S", 0.2)
    fake_slurm.fault("squeue_refuses_every", 1)
    found = looked(case_of("slurm"))

    assert found["job"].status is Status.OK, "its answer came home all the same"


REFUSED = (
    "name: ours\nscheduler: slurm\nqueue: nope\nrequests:\n"
    '  queue: "--partition={queue}"\n  memory: "--mem={memory}"\n  walltime: "--time={walltime}"\n'
)


def test_what_cannot_be_submitted_is_a_finding(fake_slurm: FakeCluster) -> None:
    Path("ours.yaml").write_text(REFUSED, encoding="utf-8")
    found = looked(case_of("slurm", "site: ours.yaml\n"))["job"]
    assert found.status is Status.MISSING
    assert "slurm refused" in found.said
    options = Options(scheduler="slurm", runs_dir=Path("/proc/runs"))
    assert looked(open_case(Path("spec.yaml"), options))["job"].status is Status.MISSING
    (found,) = doctor.in_a_job(case_of("slurm"), [missing("partition", "none")], 60, print)
    assert found.status is Status.UNKNOWN
    (found,) = doctor.in_a_job(case_of("local"), [], 60, print)
    assert (found.status, "submitted nothing" in found.said) == (Status.WARNING, True)
    assert fake_slurm.jobs() == []
