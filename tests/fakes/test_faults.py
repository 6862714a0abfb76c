"""What can be wrong with a fake cluster, as jobkit's parsers read it, and that it leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.schedulers.types import Array, JobId
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
