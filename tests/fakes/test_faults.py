"""What can be wrong with a fake cluster, as jobkit's parsers read it, and that it leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.core.records import Outcome
from jobkit.schedulers.types import Accounted, Array, JobId, State
from tests.fakes.cluster import FakeCluster
from tests.fakes.contract import ScenarioLab, lab_in, until
from tests.support.processes import gone

TRAP = """\
echo "start ${RESTARTED:-${SLURM_RESTART_COUNT:-0}}" >>told
trap 'echo TERM >>told; exit 3' TERM
trap 'echo USR1 >>told; exit 4' USR1
until [[ -s end.${SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID} ]]; do sleep 0.05; done
exit "$(<"end.${SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID}")"
"""
Lab = Callable[..., ScenarioLab]


@pytest.fixture
def slurm(fake_slurm: FakeCluster, tmp_path: Path) -> Lab:
    fake_slurm.set(requeue_delay_s=0.2)
    return lambda *lines: lab_in(tmp_path, "slurm", *lines, body=TRAP)


@pytest.fixture
def sge(fake_sge: FakeCluster, tmp_path: Path) -> Lab:
    fake_sge.set(reschedule_delay_s=0.2)
    return lambda *lines: lab_in(tmp_path, "sge", *lines, body=TRAP)


def submit(lab: ScenarioLab, last: int = 1, *after: JobId) -> JobId:
    return lab.submit(
        lab.scheduler.submit_argv("job.sh", Array(first=1, last=last, offset=0, throttle=None), after)
    )


def running(lab: ScenarioLab, last: int = 1) -> JobId:
    """Return a job whose tasks are at work: their traps are set."""
    job = submit(lab, last)
    until(lambda: told(lab).count("start 0") == last)
    return job


def told(lab: ScenarioLab) -> list[str]:
    path = lab.folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def done(lab: ScenarioLab, job: JobId) -> list[Accounted]:
    until(lambda: not lab.queue(job))
    return lab.accounts(job)


def test_the_walltime_comes_with_a_warning(fake_slurm: FakeCluster, slurm: Lab) -> None:
    fake_slurm.set(rate=60.0)
    lab = slurm("#SBATCH --time=1", "#SBATCH --signal=B:USR1@30")
    job = submit(lab)
    until(lambda: told(lab) == ["start 0", "USR1"])
    assert [task.exit_status for task in done(lab, job)] == [4]


def test_a_cancelled_task_has_a_while_to_tidy_up(fake_slurm: FakeCluster, slurm: Lab) -> None:
    lab = slurm("#SBATCH --open-mode=append")
    job = running(lab, 2)
    assert set(fake_slurm.words(job.id).values()) == {"RUNNING"}
    lab.run(*lab.scheduler.cancel_argv(job, (2,)))
    until(lambda: "TERM" in told(lab))
    assert fake_slurm.words(job.id)[1] == "RUNNING"
    until(lambda: fake_slurm.words(job.id)[2] == "CANCELLED")


def test_a_deleted_task_is_killed_at_once(sge: Lab) -> None:
    lab = sge()
    job = running(lab)
    lab.run("qdel", job.id)
    assert [task.exit_status for task in done(lab, job)] == [137]
    assert told(lab) == ["start 0"]


def test_a_task_is_in_error_and_holds_who_waits(fake_sge: FakeCluster, sge: Lab) -> None:
    lab = sge()
    fake_sge.fault("eqw", [1])
    job = submit(lab, 2)
    after = submit(lab, 1, job)
    lab.end(2, 0)
    until(lambda: {task.task: task.state for task in lab.queue(job)} == {1: State.ERROR})
    assert [task.state for task in lab.queue(after)] == [State.HELD]
    lab.run("qdel", f"{job.id}.1")
    lab.end(1, 0)
    assert [task.exit_status for task in done(lab, after)] == [0]


def test_a_log_folder_that_is_not_there_puts_a_task_in_error(sge: Lab) -> None:
    lab = sge("#$ -o /nowhere/log")
    job = submit(lab)
    until(lambda: [task.state for task in lab.queue(job)] == [State.ERROR])
    assert [task.outcome for task in lab.accounts(job)] == [Outcome.QUEUE_ERROR]


@pytest.mark.parametrize(
    ("rerun", "outcomes"), [("n", [Outcome.NODE_FAIL]), ("y", [Outcome.NODE_FAIL, None])]
)
def test_a_node_fails(fake_sge: FakeCluster, sge: Lab, rerun: str, outcomes: list[Outcome | None]) -> None:
    lab = sge(f"#$ -r {rerun}")
    job = running(lab)
    fake_sge.node_fails(job.id, 1)
    lab.end(1, 0)
    assert [task.outcome for task in done(lab, job)] == outcomes


def test_nothing_is_left_behind(fake_slurm: FakeCluster, slurm: Lab) -> None:
    pids = [task.pid for task in fake_slurm.job(running(slurm(), 2).id).tasks]
    fake_slurm.close()
    until(lambda: all(map(gone, pids)))


def test_the_tasks_end_with_the_process_that_set_the_cluster_up(tmp_path: Path) -> None:
    code = """if True:
        import pathlib, subprocess, sys
        sys.path.insert(0, sys.argv[1])
        from tests.fakes.cluster import FakeCluster
        cluster = FakeCluster("slurm", pathlib.Path(sys.argv[2]))
        pathlib.Path("job.sh").write_text("#!/bin/sh\\nsleep 60\\n")
        subprocess.run([cluster.bin / "sbatch", "-o", "/dev/null", "--array=1", "job.sh"], check=True)
        while not cluster.jobs()[0].tasks[0].pid:
            pass
        print(cluster.jobs()[0].tasks[0].pid)
        """
    argv = (sys.executable, "-c", code, str(Path(__file__).parents[2]), str(tmp_path / "cluster"))
    out = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    until(lambda: gone(int(out.split()[-1])))
