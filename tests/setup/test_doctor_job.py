"""The doctor's job, on fake schedulers: it runs, it waits, it hangs, it is held, it vanishes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.launch import helper_job
from jobkit.planning.resolve import Options
from jobkit.setup import doctor
from jobkit.setup.doctor_case import Case, open_case
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


@pytest.mark.parametrize("scheduler", ["slurm", "sge"])
def test_what_a_job_finds_comes_home(scheduler: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(f"fake_{scheduler}")
    said: list[str] = []
    found = looked(case_of(scheduler), say=said.append)

    assert list(found)[:2] == ["job", "home"]
    assert {"programs", "scratch", "inputs", "environment", "jobkit"} < set(found)
    assert {one.status for one in found.values()} == {Status.OK}, found
    assert found["job"].where.startswith("In a job, on ")
    assert any(line.startswith(f"submitted: {scheduler} job") for line in said)
    assert folders() == [], "all was well: nothing is left behind"


def test_the_header_is_the_sites_own(fake_slurm: FakeCluster, here: Path) -> None:
    script = here / "seen.sh"
    looked(case_of("slurm", f'environment: {{setup: ["cp $0 {script}"]}}\n'))

    text = script.read_text(encoding="utf-8")
    assert "#SBATCH --mem=200M" in text
    assert "#SBATCH --time=00:03:00" in text
    assert "#SBATCH --signal" not in text, "it needs no warning"
    assert fake_slurm.jobs()[0].name.startswith("doctor-")


def test_what_is_missing_on_the_node_keeps_the_folder(fake_slurm: FakeCluster) -> None:
    del fake_slurm
    found = looked(case_of("slurm", "environment: {venv: /no/such/venv}\n"))

    assert found["environment"].status is Status.MISSING
    assert len(folders()) == 1


def test_a_queue_that_does_not_start_it_is_not_waited_for_for_ever(fake_slurm: FakeCluster) -> None:
    fake_slurm.fault("full")
    said: list[str] = []
    found = looked(case_of("slurm"), within_s=1.5, say=said.append)

    (job,) = fake_slurm.jobs()
    assert found["job"].status is Status.MISSING
    assert "it did not begin within 0:02" in found["job"].said
    assert "Resources" in found["job"].said
    assert f"job {job.id} was cancelled" in found["job"].said
    assert "--within" in found["job"].hint
    assert any("pending" in line for line in said)
    assert _over(fake_slurm)


def _over(cluster: FakeCluster) -> bool:
    (job,) = cluster.jobs()
    return "cancelled" in json.dumps(cluster.words(job.id)).lower()


def test_a_job_in_error_is_cancelled_at_once(fake_sge: FakeCluster) -> None:
    fake_sge.fault("eqw", [1])
    found = looked(case_of("sge"))

    assert found["job"].status is Status.MISSING
    assert found["job"].said.startswith("it will not begin: ")
    assert "was cancelled" in found["job"].said
    assert found["job"].hint.startswith("what the scheduler says: ")


def test_a_job_that_vanishes_without_an_answer(
    fake_slurm: FakeCluster, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fake_slurm
    monkeypatch.setattr(helper_job, "GONE_GRACE_S", 1.0)
    found = looked(case_of("slurm", 'environment: {setup: ["echo last words; kill -9 $$"]}\n'))

    assert found["job"].status is Status.MISSING
    assert "left the queue, and it wrote no answer" in found["job"].said
    assert (here / "runs").exists()


def test_a_queue_that_does_not_answer_is_not_believed_to_be_empty(
    fake_slurm: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_job, "GONE_GRACE_S", 0.2)
    fake_slurm.fault("squeue_refuses_every", 1)
    found = looked(case_of("slurm"))

    assert found["job"].status is Status.OK, "its answer came home all the same"


def test_a_refused_submission_is_a_finding(fake_slurm: FakeCluster) -> None:
    del fake_slurm
    found = looked(case_of("slurm", "site: ours.yaml\n") if _site("queue: nope") else case_of("slurm"))

    assert found["job"].status is Status.MISSING
    assert "slurm refused" in found["job"].said


def _site(line: str) -> bool:
    text = (
        f"name: ours\nscheduler: slurm\n{line}\nrequests:\n"
        '  queue: "--partition={queue}"\n  memory: "--mem={memory}"\n  walltime: "--time={walltime}"\n'
    )
    return bool(Path("ours.yaml").write_text(text, encoding="utf-8"))


def test_runs_that_cannot_be_written_is_a_finding(fake_slurm: FakeCluster) -> None:
    case = open_case(Path("spec.yaml"), Options(scheduler="slurm", runs_dir=Path("/proc/runs")))
    found = looked(case)

    assert found["job"].status is Status.MISSING
    assert fake_slurm.jobs() == []


def test_where_something_is_missing_nothing_is_submitted(fake_slurm: FakeCluster) -> None:
    (found,) = doctor.in_a_job(case_of("slurm"), [missing("partition", "none")], 60, print)

    assert found.status is Status.UNKNOWN
    assert fake_slurm.jobs() == []


def test_without_a_scheduler_there_is_nobody_to_give_a_job_to() -> None:
    (found,) = doctor.in_a_job(case_of("local"), [], 60, print)

    assert found.status is Status.OK
    assert "no scheduler" in found.said
