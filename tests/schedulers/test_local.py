from __future__ import annotations

import json
import subprocess

import pytest

from jobkit.core.shell import Completed, run
from jobkit.schedulers import local
from jobkit.schedulers.types import JobId, State

ROW = {"job_id": "7", "task": 2, "evidence": "process finished", "host": "n1", "elapsed_s": 1.5}


def test_the_driver_accounts_for_its_points() -> None:
    (one,) = local.parse_accounting(Completed((), 0, json.dumps(ROW) + "\n\n", "")) or ()
    assert (one.job_id, one.task, one.ended, one.outcome) == ("7", 2, True, None)
    assert (one.node, one.elapsed_s) == ("n1", 1.5)


@pytest.mark.parametrize("text", ["{", "[]", '{"job_id": 7}'])
def test_what_is_no_accounting_is_unknown(text: str) -> None:
    assert local.parse_accounting(Completed((), 0, text, "")) is None


DRIVERS = "  7 /usr/bin/python3 -m jobkit.launch.resume /runs/r1\n 8 python jobkit sweep demo.yaml\n"


@pytest.mark.parametrize(
    ("status", "text", "error", "alive"),
    [
        (0, DRIVERS, "", ["7", "8"]),
        (0, "  7 /usr/sbin/cron -f\n 8\n\n", "", []),
        (1, "", "", []),
        (1, "", "error: process ID out of range\n", None),
        (127, "", "ps: command not found", None),
    ],
)
def test_what_ps_says_of_drivers(status: int, text: str, error: str, alive: list[str] | None) -> None:
    tasks = local.parse_queue(Completed(("ps",), status, text, error))
    assert (None if tasks is None else [task.job_id for task in tasks]) == alive
    assert {(task.task, task.state) for task in tasks or ()} <= {(local.WHOLE, State.RUNNING)}


@pytest.mark.slow
@pytest.mark.program("ps")
def test_a_process_of_ones_own_is_found_by_the_real_ps() -> None:
    with subprocess.Popen(
        ["bash", "-c", "exec -a jobkit.launch.resume cat"], stdin=subprocess.PIPE
    ) as process:
        jobs = (JobId(str(process.pid)), JobId("4194304"))
        answer = run(local.queue_argv(jobs))
        assert answer.status in {0, 1}
        assert local.parse_queue(answer) is not None
    assert local.parse_queue(run(local.queue_argv(jobs))) == ()
