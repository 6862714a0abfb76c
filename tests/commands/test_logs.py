from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from jobkit.core.layout import Exit
from tests.support.builders import grid, write_begin, write_exit, write_points, write_submitted
from tests.support.commands import JOBKIT, jobkit

POINTS = grid([50, 100])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run whose first point has ended and whose second runs."""
    folder = write_points(tmp_path / "run", POINTS)
    (folder / "logs").mkdir()
    write_submitted(folder, "slurm", "77", first=1, last=2)
    log = b"hello\n\xff\nTraceback (most recent call last):\n"
    for point in POINTS:
        write_begin(folder, point)
        (folder / "logs" / f"77_{point.index}.out").write_bytes(log)
    write_exit(folder, POINTS[0], Exit(status=1, stage="run"))
    return folder


def test_the_log_goes_to_stdout_and_whose_it_is_to_stderr(run: Path) -> None:
    done = jobkit("logs", run, "p001")
    assert (done.returncode, done.stdout[:11]) == (0, "hello\n\\xff\n")
    assert done.stderr.startswith("p001 try 1: slurm job 77, task 1, ")
    done = jobkit("logs", run, "1", "--err", "-f", "--try", "1")
    assert (done.returncode, done.stdout) == (0, "Traceback (most recent call last):\n")


@pytest.mark.slow
def test_faults_end_with_2_and_what_is_to_come_with_5(run: Path) -> None:
    assert jobkit("logs", run, "3").returncode == 2
    assert jobkit("logs", run, "1", "--try", "2").returncode == 2
    (run / "logs" / "77_2.out").unlink()
    assert jobkit("logs", run, "2").returncode == 5


@pytest.mark.slow
def test_ctrl_c_ends_what_follows_and_nothing_else(run: Path) -> None:
    argv: list[str | Path] = [JOBKIT, "logs", run, "2", "-f"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"hello\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read().endswith(b"jobkit: interrupted\n")
