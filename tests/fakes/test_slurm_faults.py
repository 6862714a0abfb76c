"""What can be wrong with the fake Slurm, as jobkit's own parser reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobkit.schedulers.types import Accounted, Array, JobId, State
from tests.fakes.cluster import FakeCluster
from tests.fakes.contract import Lab, lab_in, until

ONE = Array(first=1, last=1, offset=0, throttle=None)
TRAP = """\
echo "start ${SLURM_RESTART_COUNT:-0}" >>told
trap 'echo TERM >>told; exit 3' TERM
trap 'echo USR1 >>told; exit 4' USR1
until [[ -s end.$SLURM_ARRAY_TASK_ID ]]; do sleep 0.05; done
exit "$(<"end.$SLURM_ARRAY_TASK_ID")"
"""


@pytest.fixture
def lab(fake_slurm: FakeCluster, tmp_path: Path) -> Lab:
    fake_slurm.set(requeue_delay_s=0.2)
    return lab_in(tmp_path, "slurm", "#SBATCH --open-mode=append", body=TRAP)


def submit(lab: Lab, last: int = 1, *after: JobId) -> JobId:
    return lab.submit(
        lab.scheduler.submit_argv("job.sh", Array(first=1, last=last, offset=0, throttle=None), after)
    )


def running(lab: Lab, cluster: FakeCluster, last: int = 1) -> JobId:
    """Return a job whose tasks are at work: their traps are set."""
    job = submit(lab, last)
    until(lambda: told(lab).count("start 0") == last)
    assert set(cluster.words(job.id).values()) == {"RUNNING"}
    return job


def told(lab: Lab) -> list[str]:
    path = lab.folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def done(lab: Lab, job: JobId) -> list[Accounted]:
    until(lambda: not lab.queue(job))
    return lab.accounts(job)


def test_the_accounting_is_off_or_down(lab: Lab, fake_slurm: FakeCluster) -> None:
    job = submit(lab)
    argv = lab.scheduler.accounting_argv((job,), lab.since, lab.name)
    for fault, words in (
        ("accounting_off", "Slurm accounting storage is disabled"),
        ("accounting_down", "Problem talking to the database"),
    ):
        fake_slurm.fault(fault)
        answer = lab.run(*argv)
        assert lab.scheduler.parse_accounting(answer) is None
        assert words in answer.said
        fake_slurm.mend()
    assert lab.run(*argv).ok


def test_the_accounting_lags_by_so_many_calls(lab: Lab, fake_slurm: FakeCluster) -> None:
    job = running(lab, fake_slurm)
    fake_slurm.fault("accounting_lags", 2)
    lab.end(1, 7)
    until(lambda: not lab.queue(job))
    assert [[task.exit_status for task in lab.accounts(job)] for _ in range(3)] == [[None], [None], [7]]


def test_the_accounting_goes_on_listing_a_task_as_waiting(lab: Lab, fake_slurm: FakeCluster) -> None:
    """Show what was seen: ``370_[3,5%2]|CANCELLED`` of an array of which 3 had run to its end."""
    fake_slurm.set(record_delay_s=0)
    job = lab.submit(lab.scheduler.submit_argv("job.sh", Array(first=1, last=3, offset=0, throttle=1)))
    until(lambda: fake_slurm.words(job.id)[1] == "RUNNING")
    lab.end(1, 0)
    until(lambda: fake_slurm.words(job.id)[2] == "RUNNING")
    lab.run(*lab.scheduler.cancel_argv(job, (3,)))
    lab.end(2, 0)
    until(lambda: not lab.queue(job))
    told = lab.run("sacct", "-n", "-P", "-X", "-j", job.id, "--format=JobID,State").stdout.splitlines()
    assert told == [
        f"{job.id}_1|COMPLETED",
        f"{job.id}_2|COMPLETED",
        f"{job.id}_[2-3%1]|CANCELLED by {os.getuid()}",
    ]


def test_the_queue_is_empty_for_a_moment(lab: Lab, fake_slurm: FakeCluster) -> None:
    job = submit(lab)
    fake_slurm.fault("queue_empty", 2)
    assert [len(lab.queue(job)) for _ in range(4)] == [0, 0, 1, 1]


def test_a_job_id_is_given_again(lab: Lab, fake_slurm: FakeCluster) -> None:
    job = submit(lab)
    lab.end(1, 0)
    done(lab, job)
    fake_slurm.recycle(job.id)
    argv = ("sacct", "-n", "-P", "-X", "-j", job.id, "--format=JobName")
    assert lab.run(*argv).stdout == "someone-elses\n", "without -D only the latest is told"
    assert [(task.name, task.state) for task in lab.queue(job)] == [("someone-elses", State.RUNNING)]
    assert [(task.name, task.ended) for task in lab.accounts(job)] == [
        (lab.name, True),
        ("someone-elses", False),
    ]


def test_the_controller_refuses_every_third_call(lab: Lab, fake_slurm: FakeCluster) -> None:
    job = submit(lab)
    fake_slurm.fault("squeue_refuses_every", 3)
    answers = [lab.run(*lab.scheduler.queue_argv((job,))) for _ in range(6)]
    assert [answer.ok for answer in answers] == [True, True, False, True, True, False]
    assert "Rate limit exceeded" in answers[2].stderr
    assert lab.scheduler.parse_queue(answers[2]) is None
    assert len(fake_slurm.calls("squeue")) == 6
    assert not fake_slurm.calls("sacct")


def test_the_controller_is_away_and_the_jobs_go_on(lab: Lab, fake_slurm: FakeCluster) -> None:
    job = running(lab, fake_slurm)
    fake_slurm.fault("controller_away")
    lab.end(1, 5)
    refused = lab.run("sbatch", "--parsable", "job.sh")
    assert refused.status == 1
    assert "Unable to contact slurm controller" in refused.stderr
    assert lab.run("scancel", job.id).status == 8
    fake_slurm.mend()
    assert [task.exit_status for task in done(lab, job)] == [5]


def test_the_walltime_comes_with_a_warning(fake_slurm: FakeCluster, tmp_path: Path) -> None:
    fake_slurm.set(rate=60.0)
    lab = lab_in(tmp_path, "slurm", "#SBATCH --time=1", "#SBATCH --signal=B:USR1@30", body=TRAP)
    job = submit(lab)
    until(lambda: told(lab) == ["start 0", "USR1"])
    assert [task.exit_status for task in done(lab, job)] == [4]


def test_a_cancelled_task_has_a_while_to_tidy_up(lab: Lab, fake_slurm: FakeCluster) -> None:
    job = running(lab, fake_slurm, 2)
    lab.run(*lab.scheduler.cancel_argv(job, (2,)))
    until(lambda: "TERM" in told(lab))
    assert fake_slurm.words(job.id)[1] == "RUNNING"
    until(lambda: fake_slurm.words(job.id)[2] == "CANCELLED")


def test_nothing_is_left_behind(lab: Lab, fake_slurm: FakeCluster) -> None:
    job = running(lab, fake_slurm, 2)
    pids = [task.pid for task in fake_slurm.job(job.id).tasks]
    fake_slurm.close()
    for pid in pids:
        until(lambda pid=pid: _gone(pid))  # type: ignore[misc]


def test_the_tasks_end_with_the_process_that_set_the_cluster_up(tmp_path: Path) -> None:
    code = """if True:
        import pathlib, subprocess, sys
        sys.path.insert(0, sys.argv[1])
        from tests.fakes.cluster import FakeCluster
        cluster = FakeCluster("slurm", pathlib.Path(sys.argv[2]))
        subprocess.run([cluster.bin / "sbatch", "-o", "/dev/null", "--wrap", "sleep 60"], check=True)
        while not cluster.jobs()[0].tasks[0].pid:
            pass
        print(cluster.jobs()[0].tasks[0].pid)
        """
    argv = (sys.executable, "-c", code, str(Path(__file__).parents[2]), str(tmp_path / "cluster"))
    out = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    until(lambda: _gone(int(out.split()[-1])))


def _gone(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return not path.exists() or path.read_text().rpartition(")")[2].split()[0] == "Z"
