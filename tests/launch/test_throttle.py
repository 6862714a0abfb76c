"""How many tasks run at a time; that it takes effect is seen in tests/cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.launch.cancel import throttle
from tests.support.builders import events, grid, write_points, write_submitted
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here


@pytest.fixture
def programs(queue: Programs) -> Programs:
    """Return a queue that holds two arrays."""
    queue.squeue("77_4 RUNNING", "78_1 PENDING")
    return queue


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
    run: Path, programs: Programs, capsys: pytest.CaptureFixture[str], most: int, each: int, said: str
) -> None:
    assert throttle(run, most) == 0
    assert programs.called("scontrol") == [
        f"scontrol update JobId=77 ArrayTaskThrottle={each}",
        f"scontrol update JobId=78 ArrayTaskThrottle={each}",
    ]
    assert capsys.readouterr().err == f"run: {said}\n"
    told = [(event["job_id"], event["throttle"]) for event in events(run) if event["event"] == "throttled"]
    assert told == [("77", each), ("78", each)]


def test_an_array_that_has_ended_is_left_alone(
    run: Path, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.squeue("78_1 RUNNING")
    ended = "echo '78_1: Job has already finished' >&2; echo '78_2: No error' >&2; exit 1"
    programs.add("scontrol", ended)
    assert throttle(run, 3) == 0
    assert programs.called("scontrol") == ["scontrol update JobId=78 ArrayTaskThrottle=3"]
    assert capsys.readouterr().err == "run: at most 3 at a time\n"


def test_a_refusal_is_reported(run: Path, programs: Programs) -> None:
    programs.add("scontrol", "echo '77_3-8: Invalid user id' >&2; exit 1")
    with pytest.raises(JobkitError, match="slurm did not change job 77: 77_3-8: Invalid user id") as caught:
        throttle(run, 3)
    assert (caught.value.exit_code, caught.value.hint) == (3, f"jobkit status {run} shows what runs")
    assert len(programs.called("scontrol")) == 2


def test_what_is_in_no_queue_cannot_be_throttled(run: Path, programs: Programs) -> None:
    programs.squeue()
    with pytest.raises(JobkitError, match="none of its points is in the queue or running") as caught:
        throttle(run, 3)
    assert caught.value.exit_code == 2
    assert caught.value.hint.startswith(f"jobkit resume {run} --set max_parallel=N ")
    assert not programs.called("scontrol")


def test_a_run_here_has_one_point_at_a_time(tmp_path: Path, programs: Programs) -> None:
    run = write_points(tmp_path / "here", grid([1, 2]))
    write_submitted(run, "local", "99", first=1, last=2)
    programs.add("ps", "echo '99 python -m jobkit.launch.resume here'")
    with pytest.raises(JobkitError, match="a run on this machine has one point at a time") as caught:
        throttle(run, 2)
    assert caught.value.hint == f"jobkit cancel {run} stops it"
