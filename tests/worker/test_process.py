from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobkit.worker import process

EVENTS = "low 0\nhigh 0\nmax 12\noom 3\noom_kill %d\noom_group_kill 0\n"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a cgroup that is not there."""
    folder = tmp_path / "job" / "step"
    folder.mkdir(parents=True)
    monkeypatch.setattr(process, "_cgroup", lambda: folder)
    return folder


def test_kills_are_counted_by_the_nearest_group_that_counts_them_also_of_cgroup_v1(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert process.oom_kills() is None
    (group.parents[1] / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert process.oom_kills() == 3
    (group.parents[1] / "memory.events").write_text(EVENTS % 9)
    (group.parent / "memory.events").write_text(EVENTS % 2)
    assert process.oom_kills() == 2
    (group / "memory.events").write_text(EVENTS % 1)
    assert process.oom_kills() == 1
    (group / "memory.events").write_text("odd\n")
    assert process.oom_kills() is None
    assert process.cgroup_peak() is None
    (group / "memory.peak").write_text("4096\n")
    assert process.cgroup_peak() == 4096
    monkeypatch.setattr(process, "_cgroup", lambda: None)
    assert process.oom_kills() is None
    assert process.cgroup_peak() is None


@pytest.mark.slow
def test_the_age_of_a_process_counts_from_its_start() -> None:
    code = "from jobkit.worker import process; print(process.age_s())"
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.0 < float(done.stdout) < time.monotonic() - began_s + 0.02
    assert process.started_at(2**22 + 1) is None


CHILD = """
import os, sys
from jobkit.worker import process
process.DRIVER_FILES = (sys.argv[1],)
names = [os.open(path, os.O_CREAT | os.O_RDWR) for path in sys.argv[1:]]
if (pid := os.fork()) == 0:
    process.close_files()
    print([os.path.exists(f"/proc/self/fd/{name}") for name in names], flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.slow
def test_a_child_closes_what_it_inherits_but_not_the_files_of_the_driver(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("nvidiactl", "batches.jsonl")]
    done = subprocess.run([sys.executable, "-c", CHILD, *files], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, False]\n"
