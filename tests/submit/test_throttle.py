"""How many tasks run at a time; that it takes effect is seen in tests/cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import JOURNAL_FILE
from jobkit.submit.throttle import throttle
from tests.support.builders import grid, point, write_points, write_submitted

RUN_ID = point().run_id


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in front of PATH: a queue that holds two arrays, and programs that note their call."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    program(folder, "sacct", "true")
    program(folder, "scontrol", "true")
    holds(folder, "77_4 RUNNING", "78_1 PENDING")
    return folder


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f'#!/bin/bash\necho {name} "$@" >>{folder}/calls\n{body}\n', encoding="utf-8")
    (folder / name).chmod(0o755)


def holds(folder: Path, *tasks: str) -> None:
    rows = [f"{task}|{state}|None|n1|0:01|N/A|{RUN_ID}" for task, state in (task.split() for task in tasks)]
    program(folder, "squeue", "".join(f"echo '{row}'\n" for row in rows))


def changes(folder: Path) -> list[str]:
    told = (folder / "calls").read_text(encoding="utf-8").splitlines()
    return [line for line in told if line.startswith(("scontrol", "qalter"))]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run of six points in two arrays."""
    folder = write_points(tmp_path / "run", grid([1, 2, 3, 4, 5, 6]))
    write_submitted(folder, "slurm", "77", first=1, last=4)
    write_submitted(folder, "slurm", "78", first=1, last=2, offset=4)
    return folder


@pytest.mark.parametrize(
    ("most", "each", "said"),
    [
        (5, 2, "at most 2 at a time in each of 2 array jobs, 4 in all"),
        (1, 1, "at most 1 at a time in each of 2 array jobs, 2 in all"),
        (0, 0, "any number at a time"),
    ],
)
def test_arrays_share_the_number_as_they_do_when_submitted(
    run: Path, programs: Path, capsys: pytest.CaptureFixture[str], most: int, each: int, said: str
) -> None:
    assert throttle(run, most) == 0
    assert changes(programs) == [
        f"scontrol update JobId=77 ArrayTaskThrottle={each}",
        f"scontrol update JobId=78 ArrayTaskThrottle={each}",
    ]
    assert capsys.readouterr().err == f"run: {said}\n"
    events = [json.loads(line) for line in (run / JOURNAL_FILE).read_text().splitlines()]
    told = [(event["job_id"], event["throttle"]) for event in events if event["event"] == "throttled"]
    assert told == [("77", each), ("78", each)]


def test_an_array_that_has_ended_is_left_alone(
    run: Path, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holds(programs, "78_1 RUNNING")
    ended = "echo '78_1: Job has already finished' >&2; echo '78_2: No error' >&2; exit 1"
    program(programs, "scontrol", ended)
    assert throttle(run, 3) == 0
    assert changes(programs) == ["scontrol update JobId=78 ArrayTaskThrottle=3"]
    assert capsys.readouterr().err == "run: at most 3 at a time\n"


def test_a_refusal_is_told(run: Path, programs: Path) -> None:
    program(programs, "scontrol", "echo '77_3-8: Invalid user id' >&2; exit 1")
    with pytest.raises(JobkitError, match="slurm did not change job 77: 77_3-8: Invalid user id") as caught:
        throttle(run, 3)
    assert (caught.value.exit_code, caught.value.hint) == (3, f"jobkit status {run} shows what runs")
    assert len(changes(programs)) == 2


def test_a_queue_that_does_not_answer_changes_nothing(run: Path, programs: Path) -> None:
    program(programs, "squeue", "exit 1")
    with pytest.raises(JobkitError, match="slurm does not answer") as caught:
        throttle(run, 3)
    assert caught.value.exit_code == 3
    assert not changes(programs)


def test_what_is_in_no_queue_cannot_be_throttled(run: Path, programs: Path) -> None:
    holds(programs)
    with pytest.raises(JobkitError, match="none of its points is in the queue or running") as caught:
        throttle(run, 3)
    assert caught.value.exit_code == 2
    assert caught.value.hint.startswith(f"jobkit resume {run} --set max_parallel=N ")
    assert not changes(programs)


def test_a_run_here_has_one_point_at_a_time(tmp_path: Path, programs: Path) -> None:
    run = write_points(tmp_path / "here", grid([1, 2]))
    write_submitted(run, "local", "99", first=1, last=2)
    program(programs, "ps", "echo '99 python -m jobkit.submit.driver here'")
    with pytest.raises(JobkitError, match="a run on this machine has one point at a time") as caught:
        throttle(run, 2)
    assert caught.value.hint == f"jobkit cancel {run} stops it"
