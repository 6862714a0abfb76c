"""The job that runs the points of a driver: one for all of them, and what is left if it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.daemons import until
from tests.support.commands import JOBKIT, jobkit
from tests.support.copiers import path_without

SPEC = """\
name: turns
workload:
  command: touch HERE/began-{batch_size}; until [[ -e HERE/go ]]; do sleep 0.05; done
  shell: true
text: sample:5
sweep: {batch_size: [1, 2]}
repeats: 1
scheduler: local
resources: {gpus: 0, cpus: 1, memory: 500MiB, walltime: 2m}
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the driver of two points, of which the first runs until there is a file ``go``."""
    (tmp_path / "spec.yaml").write_text(SPEC.replace("HERE", str(tmp_path)), encoding="utf-8")
    argv = [str(JOBKIT), "sweep", "spec.yaml"]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        until((tmp_path / "began-1").exists, "the first point", 60)
        yield process
        process.kill()
        (tmp_path / "go").touch()


def started(folder: Path, word: str) -> list[int]:
    """Return the processes of the job whose command line has a word, and the run folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # it has ended
            continue
        if word.encode() in words and f"{folder}/runs/".encode() in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.slow
def test_when_its_driver_is_killed_the_job_ends_after_the_running_point(
    driver: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert started(tmp_path, "jobkit-points")
    driver.kill()
    (tmp_path / "go").touch()
    until(lambda: not started(tmp_path, "jobkit-points"), "the end of the job", 60)
    assert len(list(tmp_path.glob("runs/*/results/*/try-1/exit"))) == 1
    assert not (tmp_path / "began-2").exists()


@pytest.mark.slow
def test_when_the_job_is_killed_the_point_is_lost_and_another_job_runs_the_next(
    driver: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (job,) = started(tmp_path, "submitit.local._local")
    for pid in [job, *started(tmp_path, "jobkit-points")]:
        os.kill(pid, signal.SIGKILL)
    until((tmp_path / "began-2").exists, "the second point", 60)
    (tmp_path / "go").touch()
    assert driver.wait(60) in {0, 4}, "4 if the first point has not brought its record home yet"
    evidence = next(tmp_path.glob("runs/*/accounting.jsonl")).read_text(encoding="utf-8").splitlines()
    assert "process interrupted" in evidence[0]
    assert "process finished" in evidence[1]


@pytest.mark.fault
@pytest.mark.parametrize(("program", "detached"), [("stat", False), ("sed", False), ("timeout", True)])
def test_a_machine_without_a_program_of_the_job_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, *, detached: bool
) -> None:
    """FAULT: this machine lacks a program that the job script needs (`stat`, `sed`, `timeout`).

    HOW: real: a PATH without it; `jobkit sweep` on this machine, with `--detach` and without.
    REPORTED: one sentence with its name and the package that has it (exit 2).
    LOST: nothing; no run folder is made, and no point runs.
    """
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.setenv("PATH", path_without(tmp_path / "bare", program))
    refused = jobkit("sweep", "spec.yaml", *(["--detach"] if detached else []), cwd=tmp_path)
    assert refused.returncode == 2
    assert f"not on PATH: {program}; a job script needs it" in refused.stderr
    assert not list((tmp_path / "runs").glob("*"))
