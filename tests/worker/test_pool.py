from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import pytest

from jobkit.worker import pool
from jobkit.worker.process import BLOCKED
from jobkit.worker.record import TryState, WorkerState, now
from tests.support.builders import by_hand
from tests.worker.test_supervisor import PLAIN
from tests.worker.test_supervisor import restored as restored  # noqa: PLC0414 - a fixture is found by its name here


@pytest.mark.slow
def test_workers_take_no_notice_of_a_schedulers_signals_and_one_may_end_before_the_others(
    tmp_path: Path,
) -> None:
    begun = TryState(by_hand(PLAIN, tmp_path), now(), workers=[WorkerState(), WorkerState()])
    with pool.started(begun) as workers:
        for process in workers._processes.values():  # at once, so before Python has started in them
            for number in BLOCKED:
                os.kill(process.pid, number)
        workers.ask(dict.fromkeys(workers, ("open", {})))
        workers.ask({0: ("load",)})
        workers.end([0])
        assert workers._processes[0].returncode == 0
        assert list(workers) == [1]
        workers.ask({1: ("load",)})
    assert [measured.items_per_call for measured in begun.workers] == [1, 1]


@pytest.mark.slow
def test_a_worker_whose_parent_has_gone_does_nothing() -> None:
    ours, theirs = Pipe()
    with ours, theirs:
        argv = [sys.executable, "-m", "jobkit.worker.pool", str(theirs.fileno()), "1"]
        done = subprocess.run(argv, pass_fds=[theirs.fileno()], timeout=120, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("visible", "seen", "renumbered"),
    [
        (None, ["0", "1", "0", "1"], ["0", "1"]),
        ("3,2", ["3", "2", "3", "2"], ["0", "1"]),
        ("GPU-b,GPU-a", ["GPU-b", "GPU-a", "GPU-b", "GPU-a"], ["GPU-b", "GPU-a"]),
        ("", ["", "", "", ""], ["", ""]),
    ],
)
def test_each_worker_sees_one_gpu_by_the_number_that_a_daemon_of_mps_gives_it(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, seen: list[str], renumbered: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    two = replace(PLAIN, device="cuda", gpus=2)
    assert [pool._one_gpu(number, two)["CUDA_VISIBLE_DEVICES"] for number in range(4)] == seen
    with_mps = [pool._one_gpu(number, two, renumbered=True) for number in range(2)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in with_mps] == renumbered
    assert pool._one_gpu(0, PLAIN) == {}
