"""A fake cluster leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jobkit.practice.daemons import wait_for
from tests.fakes.cluster import FakeCluster
from tests.support.processes import gone


def test_its_tasks_end_when_it_is_closed(fake_slurm: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\nsleep 60\n", encoding="utf-8")
    argv = ("sbatch", "-o", "/dev/null", "--array=1-2", tmp_path / "job.sh")
    subprocess.run(argv, check=True, capture_output=True)
    wait_for(lambda: all(task.pid for task in fake_slurm.jobs()[0].tasks), "both tasks begin")
    pids = [task.pid for task in fake_slurm.jobs()[0].tasks]
    fake_slurm.close()
    wait_for(lambda: all(map(gone, pids)), "both tasks end")


def test_the_tasks_end_with_the_process_that_set_the_cluster_up(tmp_path: Path) -> None:
    code = """if True:
        import pathlib, subprocess, sys
        sys.path.insert(0, sys.argv[1])
        from tests.fakes.cluster import FakeCluster
        cluster = FakeCluster(pathlib.Path(sys.argv[2]))
        pathlib.Path("job.sh").write_text("#!/bin/sh\\nsleep 60\\n")
        subprocess.run([cluster.bin / "sbatch", "-o", "/dev/null", "--array=1", "job.sh"], check=True)
        while not cluster.jobs()[0].tasks[0].pid:
            pass
        print(cluster.jobs()[0].tasks[0].pid)
        """
    argv = (sys.executable, "-c", code, str(Path(__file__).parents[2]), str(tmp_path / "cluster"))
    out = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    wait_for(lambda: gone(int(out.split()[-1])), "the task ends")
