"""Submission in array jobs, against fake controllers: programs on PATH that say what real ones said."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.launch import launch, sweep
from jobkit.launch.scheduler_calls import SubmissionUnconfirmed
from jobkit.launch.submission import Round, ask_limits, plan_arrays, round_jobs, submit_jobs, write_round
from jobkit.planning.points import PointGroup
from jobkit.planning.prepare import Options, Prepared, prepare
from jobkit.runs.journal import read_journal
from jobkit.schedulers import local, sge, slurm
from jobkit.schedulers.survey import PRACTICE_ENV
from jobkit.schedulers.types import Array, JobId, JobRequest
from jobkit.spec.sweep_spec import Resources
from tests.support.builders import events, write_submitted
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


@given(
    st.lists(st.integers(1, 10**5), min_size=1, max_size=60, unique=True) | st.just(list(range(1, 30))),
    st.integers(1, 9),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 50),
)
def test_what_the_journal_makes_of_the_arrays_is_every_point_once(
    points: list[int], pack: int, limit: int | None, parallel: int | None
) -> None:
    one = replace(a_round(points, pack=pack), max_parallel=parallel)
    arrays = plan_arrays(slurm, one, f"MaxArraySize = {limit + 1}" if limit else "")
    assert all(array.first == 1 and array.last <= (limit or len(points)) for array in arrays)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        write_round(run, one)
        for job, array in enumerate(arrays):
            listed = {"list": array.listed} if array.listed else {}
            write_submitted(run, "slurm", str(job), first=1, last=array.last, offset=array.offset, **listed)
        tasks = [task for taken in read_journal(run).submissions for _, task in taken.tasks()]
    assert [index for task in tasks for index in task] == points
    assert all(len(task) == pack for task in tasks[:-1])
    throttles = [array.throttle or 0 for array in arrays]
    assert all(throttles) if parallel else not any(throttles)
    assert sum(throttles) <= max(parallel or 0, len(arrays))


@pytest.fixture
def controller(queue: Programs) -> Programs:
    """Return a Slurm whose array limit is 2, and where the second array gets the answer in a file."""
    queue.add("scontrol", "echo MaxArraySize = 3")
    second = f'*"tasks-2.txt 2") cat {queue.folder}/second >&2; exit 1'
    queue.add("sbatch", f'case "$*" in {second};; esac; echo 7')
    return queue


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


@pytest.mark.parametrize(
    ("second", "found", "cancelled"),
    [
        ("sbatch: error: Job limit reached", ["refused", "cancelled"], ["scancel 7"]),
        ("sbatch: error: Socket timed out on send/recv operation", [], []),
    ],
)
def test_a_refused_array_takes_the_earlier_ones_with_it_and_a_lost_answer_does_not(
    tmp_path: Path, controller: Programs, second: str, found: list[str], cancelled: list[str]
) -> None:
    (controller.folder / "second").write_text(f"{second}\n", encoding="utf-8")
    one, listed = a_round([3, 5, 7]), "tasks-2.txt"
    arrays = plan_arrays(slurm, one)
    assert arrays == (
        Array(first=1, last=2, offset=0, throttle=2, listed=listed),
        Array(first=1, last=1, offset=2, throttle=2, listed=listed),
    )
    with pytest.raises(JobkitError) as caught:
        submit_jobs(slurm, tmp_path, round_jobs(one, arrays))
    assert (caught.value.exit_code, isinstance(caught.value, SubmissionUnconfirmed)) == (3, not found)
    told = [event["event"] for event in events(tmp_path)]
    assert told == ["submitting", "submitted", "submitting", *found]
    assert controller.called("scancel") == cancelled


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


SPEC = """\
name: t
workload: count
text: text.txt
sweep: {batch_size: [1, 2, 3]}
repeats: 2
resources: {gpus: 0, memory: 1GiB}
"""


@pytest.fixture
def prepared(tmp_path: Path, queue: Programs) -> Prepared:
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    for name in ("sinfo", "sacctmgr"):
        queue.add(name, "exit 1")
    ready = prepare(spec, Options(scheduler="slurm", runs_dir=tmp_path / "runs"), build=True, say=print)
    return replace(ready, follow_script=None)


def test_intent_stands_in_the_journal_before_the_act(
    prepared: Prepared, tmp_path: Path, queue: Programs
) -> None:
    queue.add("scontrol", "echo MaxArraySize = 1001")
    queue.add("sbatch", f"wc -l <{prepared.run_dir}/journal.jsonl >>{tmp_path}/seen; echo 7")
    (one,) = sweep.submit(prepared)
    assert (tmp_path / "seen").read_text().split() == ["0", "1"]
    assert [event["event"] for event in events(prepared.run_dir)] == ["submitting", "submitted"]
    assert one.array.throttle == 4


@pytest.fixture
def followed(prepared: Prepared, queue: Programs) -> Prepared:
    """Return the same with a job that follows; the array limit makes it two arrays."""
    queue.add("scontrol", "echo MaxArraySize = 4")
    return replace(prepared, find_script="#!/bin/bash\n")


NUMBERED = 'case "$*" in *--test-only*) exit 0;; *find.sh*) {last};; *--offset*) echo 8;; *) echo 7;; esac'


def test_a_job_follows_all_arrays(followed: Prepared, queue: Programs) -> None:
    queue.add("sbatch", NUMBERED.format(last="echo 9"))
    taken = sweep.submit(followed)
    assert [(str(one.id), one.role) for one in taken] == [("7", "points"), ("8", "points"), ("9", "find")]
    script = followed.run_dir / "find.sh"
    waits = f"sbatch --parsable --dependency=afterany:7:8 --array=1-1 {script} --offset 6"
    assert queue.called()[-1] == waits
    assert script.read_text(encoding="utf-8") == "#!/bin/bash\n"
    submitted = [event for event in events(followed.run_dir) if event["event"] == "submitted"]
    assert [(event["job_id"], event["offset"]) for event in submitted] == [("7", 0), ("8", 3), ("9", 6)]
    assert launch.submit_commands(followed)[-1] == (
        "sbatch",
        "--parsable",
        "--dependency=afterany:JOB1:JOB2",
        "--array=1-1",
        str(script),
        "--offset",
        "6",
    )


def test_a_refused_follower_cancels_the_sweep(followed: Prepared, queue: Programs) -> None:
    queue.add("sbatch", NUMBERED.format(last='echo "Job dependency problem" >&2; exit 1'))
    with pytest.raises(JobkitError, match="Job dependency problem") as caught:
        sweep.submit(followed)
    assert caught.value.exit_code == 3
    assert [(event["event"], event.get("job_id")) for event in events(followed.run_dir)][-3:] == [
        ("refused", None),
        ("cancelled", "7"),
        ("cancelled", "8"),
    ]


def test_a_refused_check_leaves_no_run_folder(prepared: Prepared, queue: Programs) -> None:
    queue.add("scontrol", "echo MaxArraySize = 1001")
    queue.add(
        "sbatch", 'echo "allocation failure: Requested node configuration is not available" >&2; exit 1'
    )
    with pytest.raises(JobkitError, match="nothing was submitted") as caught:
        sweep.submit(prepared)
    assert caught.value.exit_code == 3
    assert not prepared.run_dir.exists()


def test_a_place_that_cannot_be_written_is_named(prepared: Prepared, tmp_path: Path, queue: Programs) -> None:
    (tmp_path / "runs").write_text("a file is in the way", encoding="utf-8")
    queue.add("scontrol", "echo MaxArraySize = 1001")
    with pytest.raises(JobkitError, match=r"/runs: File exists"):
        sweep.submit(prepared)


def test_the_limits_are_asked_for_or_there_are_none(queue: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobkit.launch.scheduler_calls.PAUSES_S", (0.0,))
    monkeypatch.setenv("SBATCH_ACCOUNT", "of the shell")
    queue.add("scontrol", 'echo "$* ${SBATCH_ACCOUNT:-}"')
    assert ask_limits(slurm) == "show config \n"
    assert ask_limits(local) == ""
    queue.add("qconf", "exit 1")
    with pytest.raises(JobkitError, match="the scheduler does not answer") as caught:
        ask_limits(sge)
    assert caught.value.exit_code == 3
    assert caught.value.hint.endswith(PRACTICE_ENV)
    queue.add("scontrol", "echo Rate limit exceeded >&2; exit 1")
    for once, calls in (True, 1), (False, 2):  # a preview does not wait for a busy controller
        queue.calls()
        with pytest.raises(JobkitError, match="the scheduler does not answer"):
            ask_limits(slurm, once=once)
        assert len(queue.called()) == calls
