"""A round as files, cut into array jobs; whole submissions are in test_sweep.py and test_resubmit.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.launch.job import find_job
from jobkit.launch.scheduler_calls import SubmissionUnconfirmed
from jobkit.launch.submission import (
    Round,
    ask_limits,
    cut_into_arrays,
    plan_arrays,
    round_jobs,
    submit_jobs,
    write_round,
)
from jobkit.planning.points import PointGroup
from jobkit.runs.journal import Submission, read_list
from jobkit.schedulers import local, sge, slurm
from jobkit.schedulers.survey import PRACTICE_ENV
from jobkit.schedulers.types import Array, JobId, JobRequest
from jobkit.spec.sweep_spec import Resources
from tests.support.builders import events
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

REQUEST = JobRequest(
    name="demo",
    queue=None,
    gpus=0,
    gpu_type=None,
    cpus=1,
    memory_bytes=2**20,
    walltime_s=60,
    account=None,
    qos=None,
)


def a_round(points: Sequence[int], *, pack: int = 1, number: int = 2) -> Round:
    group = PointGroup(points=tuple(points), resources=Resources(), request=REQUEST)
    return Round(number=number, script="#!/bin/bash\n", groups=[group], pack=pack, max_parallel=4)


@given(st.lists(st.integers(1, 99), min_size=1, unique=True), st.integers(1, 4), st.integers(1, 3))
def test_a_list_stands_where_task_k_does_not_run_point_k(points: list[int], pack: int, number: int) -> None:
    one = a_round(points, pack=pack, number=number)
    plain = pack == 1 and points == list(range(1, len(points) + 1))
    assert one.listed == ("" if plain else f"tasks-{number}.txt")


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    one = a_round([2, 5, 9], pack=2)
    assert [path.name for path in write_round(tmp_path, one)] == ["job-2.sh", "tasks-2.txt"]
    assert read_list(tmp_path / "tasks-2.txt") == tuple(one.tasks[0]) == ((2, 5), (9,))
    assert [path.name for path in write_round(tmp_path, a_round([1, 2], number=1))] == ["job.sh"]
    assert (tmp_path / "job.sh").read_text(encoding="utf-8") == "#!/bin/bash\n"
    assert {path.name for path in tmp_path.iterdir()} == {"job-2.sh", "tasks-2.txt", "job.sh"}


@pytest.fixture
def controller(queue: Programs) -> Programs:
    """Return a Slurm whose array limit is 2, and where the second array gets the answer in a file."""
    queue.add("scontrol", "echo MaxArraySize = 3")
    second = f'*"tasks-2.txt 2") cat {queue.folder}/second >&2; exit 1'
    queue.add("sbatch", f'case "$*" in {second};; esac; echo 7')
    return queue


def submitted(run: Path, controller: Programs, second: str) -> list[str]:
    """Submit two arrays, of which the second gets such an answer; return what the journal says."""
    (controller.folder / "second").write_text(second, encoding="utf-8")
    one = a_round([3, 5, 7])
    arrays = plan_arrays(slurm, one)
    listed = "tasks-2.txt"
    assert arrays == (
        Array(first=1, last=2, offset=0, throttle=2, listed=listed),
        Array(first=1, last=1, offset=2, throttle=2, listed=listed),
    )
    with pytest.raises(JobkitError) as caught:
        submit_jobs(slurm, run, round_jobs(one, arrays))
    assert caught.value.exit_code == 3
    assert isinstance(caught.value, SubmissionUnconfirmed) == ("timed out" in second)
    return [event["event"] for event in events(run)]


def test_an_array_that_is_refused_takes_the_earlier_ones_with_it(
    tmp_path: Path, controller: Programs
) -> None:
    found = submitted(tmp_path, controller, "sbatch: error: Job limit reached\n")
    assert found == ["submitting", "submitted", "submitting", "refused", "cancelled"]
    assert controller.called("scancel") == ["scancel 7"]


def test_where_an_answer_was_lost_nothing_is_taken_back(tmp_path: Path, controller: Programs) -> None:
    found = submitted(tmp_path, controller, "sbatch: error: Socket timed out on send/recv operation\n")
    assert found == ["submitting", "submitted", "submitting"]
    assert not controller.called("scancel")


POINTS = st.lists(st.integers(1, 10**5), min_size=1, max_size=60, unique=True)


@given(POINTS, st.integers(1, 9))
def test_every_point_is_of_one_task_in_order(points: list[int], pack: int) -> None:
    (cut,) = a_round(points, pack=pack).tasks
    assert [index for line in cut for index in line] == points
    assert all(len(line) == pack for line in cut[:-1])
    assert 1 <= len(cut[-1]) <= pack


@given(POINTS, st.integers(1, 9), st.none() | st.integers(1, 20))
def test_what_the_journal_makes_of_the_arrays_is_every_point_once(
    points: list[int], pack: int, limit: int | None
) -> None:
    cut = tuple(a_round(points, pack=pack).tasks[0])
    arrays = cut_into_arrays([len(cut)], limit, 4, "tasks-2.txt")
    spans = [(array.first, array.last, array.offset) for array in arrays]
    taken = [
        Submission(at="", scheduler="slurm", job=JobId("7"), first=a, last=b, offset=offset, lines=cut)
        for a, b, offset in spans
    ]
    assert [index for one in taken for _, points_ in one.tasks() for index in points_] == points
    assert {array.listed for array in arrays} == {"tasks-2.txt"}
    assert [array.words for array in arrays] == [("--list", "tasks-2.txt", str(a.offset)) for a in arrays]


def test_each_request_is_an_array_and_the_throttle_holds_for_all_together() -> None:
    groups = [
        PointGroup(points=points, resources=Resources(), request=REQUEST, options=options)
        for points, options in (((1, 3, 4), ()), ((2, 5), ("-c 2",)), ((6,), ("-c 4 --gres gpu:2",)))
    ]
    one = Round(number=1, script="", groups=groups, pack=1, max_parallel=2)
    arrays = plan_arrays(slurm, one, "MaxArraySize = 3")
    assert [(a.last, a.offset, a.option_words) for a in arrays] == [
        (2, 0, ()),
        (1, 2, ()),
        (2, 3, ("-c", "2")),
        (1, 5, ("-c", "4", "--gres", "gpu:2")),
    ]
    assert [line for tasks in one.tasks for line in tasks] == [(1,), (3,), (4,), (2,), (5,), (6,)]
    jobs = round_jobs(one, arrays)
    ids = [JobId(str(number)) for number in range(1, 5)]
    waits = [[job.id for job in planned.waits_for(ids[:place])] for place, planned in enumerate(jobs)]
    assert waits == [[], [], ["1"], ["2"]], "two arrays at a time, a task of each"
    assert {array.throttle for array in arrays} == {1}
    free = Round(number=1, script="", groups=groups, pack=1, max_parallel=None)
    assert {job.behind for job in round_jobs(free, plan_arrays(slurm, free, ""))} == {0}
    assert {job.walltime_s for job in jobs} == {one.groups[0].resources.walltime}


def test_the_job_that_follows_adds_the_next_point() -> None:
    one = find_job(6).array
    assert (one.first, one.last, one.offset, one.words) == (1, 1, 6, ("--offset", "6"))


LIMITS = "MaxArraySize = 11\nMaxJobCount = 100\n"


def test_within_the_limits_that_the_controller_reported() -> None:
    def planned(points: int, limits: str) -> list[tuple[int, int]]:
        return [(a.last, a.offset) for a in plan_arrays(slurm, a_round(range(points)), limits)]

    assert planned(25, LIMITS) == [(10, 0), (10, 10), (5, 20)]
    assert planned(25, "") == [(25, 0)]
    with pytest.raises(JobkitError, match=r"101 points.*at most 100 jobs.*nothing was submitted") as caught:
        planned(101, LIMITS)
    assert (caught.value.exit_code, "`pack`" in caught.value.hint) == (3, True)
    with pytest.raises(JobkitError, match="accepts no array jobs here") as caught:
        planned(5, "MaxArraySize = 1\n")
    assert caught.value.exit_code == 3


def test_the_limits_are_asked_for_or_there_are_none(queue: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "of the shell")
    queue.add("scontrol", 'echo "$* ${SBATCH_ACCOUNT:-}"')
    queue.add("qconf", "exit 1")
    assert ask_limits(slurm) == "show config \n"
    assert ask_limits(local) == ""
    with pytest.raises(JobkitError, match="the scheduler does not answer") as caught:
        ask_limits(sge)
    assert caught.value.exit_code == 3
    assert caught.value.hint.endswith(PRACTICE_ENV)


def test_a_controller_that_is_busy_is_asked_again_but_not_for_a_preview(
    queue: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobkit.launch.scheduler_calls.PAUSES_S", (0.0,))
    queue.add("scontrol", "echo Rate limit exceeded >&2; exit 1")
    for once, calls in (True, 1), (False, 3):
        with pytest.raises(JobkitError, match="the scheduler does not answer"):
            ask_limits(slurm, once=once)
        assert len(queue.called()) == calls
