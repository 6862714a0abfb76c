from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

from jobkit.core.records import JobFacts, Outcome
from jobkit.worker import pool
from jobkit.worker.pool import Worker
from jobkit.worker.record import Report, Task
from tests.worker.test_supervisor import PLAIN

ARGV = (sys.executable, "-m", "jobkit.worker.pool")


def task(folder: Path) -> Task:
    return Task(point=PLAIN, try_number=1, inputs=folder, out=folder, job=JobFacts(scheduler="hand"))


def test_a_worker_whose_parent_has_gone_does_nothing() -> None:
    ours, theirs = Pipe()
    with ours, theirs:
        argv = [*ARGV, str(theirs.fileno()), "1"]
        done = subprocess.run(argv, pass_fds=[theirs.fileno()], timeout=120, check=False)
    assert done.returncode == 0


def test_a_worker_does_a_step_reports_and_ends_when_the_connection_closes(tmp_path: Path) -> None:
    ours, theirs = Pipe()
    argv = [*ARGV, str(theirs.fileno()), str(os.getpid())]
    with subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        ours.send(task(tmp_path))
        orders: list[pool.Order] = [("open", {}), ("load",)]
        for order in orders:
            ours.send(order)
            report: Report = ours.recv()
        ours.close()
        assert process.wait(30) == 0
    assert (report.failure, report.done, report.measured.items_per_call) == (None, None, 1)
    assert report.measured.readings.maxrss_bytes


def test_a_step_that_fails_is_reported_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = Worker(task(tmp_path))
    assert worker.report("open", [{}]).failure is None
    assert worker.report("load", []).failure is None
    report = worker.report("warm_up", [["Bug."], None])
    assert report.failure
    outcome, message = report.failure
    assert outcome is Outcome.BUG
    assert message.endswith("ValueError: on purpose")
    assert "told.py" in message
    assert "Traceback" in capsys.readouterr().err
