"""What can be wrong with the fake Slurm, as jobkit's own parser reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobkit.schedulers.types import Accounted, Array, JobId
from tests.fakes.cluster import FakeCluster
from tests.fakes.contract import ScenarioLab, lab_in, until

TRAP = """\
echo "start ${SLURM_RESTART_COUNT:-0}" >>told
trap 'echo TERM >>told; exit 3' TERM
trap 'echo USR1 >>told; exit 4' USR1
until [[ -s end.$SLURM_ARRAY_TASK_ID ]]; do sleep 0.05; done
exit "$(<"end.$SLURM_ARRAY_TASK_ID")"
"""


@pytest.fixture
def lab(fake_slurm: FakeCluster, tmp_path: Path) -> ScenarioLab:
    fake_slurm.set(requeue_delay_s=0.2)
    return lab_in(tmp_path, "slurm", "#SBATCH --open-mode=append", body=TRAP)


def submit(lab: ScenarioLab, last: int = 1, *after: JobId) -> JobId:
    return lab.submit(
        lab.scheduler.submit_argv("job.sh", Array(first=1, last=last, offset=0, throttle=None), after)
    )


def running(lab: ScenarioLab, cluster: FakeCluster, last: int = 1) -> JobId:
    """Return a job whose tasks are at work: their traps are set."""
    job = submit(lab, last)
    until(lambda: told(lab).count("start 0") == last)
    assert set(cluster.words(job.id).values()) == {"RUNNING"}
    return job


def told(lab: ScenarioLab) -> list[str]:
    path = lab.folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def done(lab: ScenarioLab, job: JobId) -> list[Accounted]:
    until(lambda: not lab.queue(job))
    return lab.accounts(job)


def test_the_walltime_comes_with_a_warning(fake_slurm: FakeCluster, tmp_path: Path) -> None:
    fake_slurm.set(rate=60.0)
    lab = lab_in(tmp_path, "slurm", "#SBATCH --time=1", "#SBATCH --signal=B:USR1@30", body=TRAP)
    job = submit(lab)
    until(lambda: told(lab) == ["start 0", "USR1"])
    assert [task.exit_status for task in done(lab, job)] == [4]


def test_a_cancelled_task_has_a_while_to_tidy_up(lab: ScenarioLab, fake_slurm: FakeCluster) -> None:
    job = running(lab, fake_slurm, 2)
    lab.run(*lab.scheduler.cancel_argv(job, (2,)))
    until(lambda: "TERM" in told(lab))
    assert fake_slurm.words(job.id)[1] == "RUNNING"
    until(lambda: fake_slurm.words(job.id)[2] == "CANCELLED")


def test_nothing_is_left_behind(lab: ScenarioLab, fake_slurm: FakeCluster) -> None:
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
        pathlib.Path("job.sh").write_text("#!/bin/sh\\nsleep 60\\n")
        subprocess.run([cluster.bin / "sbatch", "-o", "/dev/null", "--array=1", "job.sh"], check=True)
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
