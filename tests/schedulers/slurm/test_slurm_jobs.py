from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import slurm
from jobkit.schedulers.parsing import expand_tasks
from jobkit.schedulers.types import Array, JobId, State
from tests.support.surveys import ARRAY, captured


def test_submit_argv() -> None:
    assert slurm.submit_argv("job.sh", ARRAY) == ("sbatch", "--parsable", "--array=1-3%2", "job.sh")
    one = Array(first=1, last=1, offset=6, throttle=None)
    waits = "--dependency=afterany:7:9"
    assert slurm.submit_argv("find.sh", one, [JobId("7", "lab"), JobId("9", "lab")]) == (
        "sbatch", "--parsable", waits, "--array=1-1", "find.sh", "--offset", "6",
    )  # fmt: skip
    assert slurm.log_name("demo-1", "12", 3) == "12_3.out"


def test_a_shell_has_the_options_that_srun_has() -> None:
    options = [("--gres=gpu:1",), ("-p", "gpu"), ("--no-requeue",), ("--export-file=3",), ("--mem=2G",)]
    shell = ("srun", "--pty", "--gres=gpu:1", "-p", "gpu", "--mem=2G", "bash")
    assert slurm.interactive_argv(options) == shell


def test_the_array_limit_is_on_the_index() -> None:
    assert slurm.limit_argv() == captured("slurm/config").argv
    assert slurm.parse_limit(captured("slurm/config").stdout) == 10_000


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ("MaxArraySize            = 1001\nSchedulerParameters     = bf_interval=1,max_array_tasks=300", 300),
        ("MaxArraySize = 0", 0),
        ("ClusterName = lab", None),
    ],
)
def test_other_array_limits(config: str, limit: int | None) -> None:
    assert slurm.parse_limit(config) == limit


@pytest.mark.parametrize(("points", "refused"), [(20_000, False), (20_001, True)])
def test_every_task_counts_for_the_controllers_job_count(
    points: int,
    refused: bool,  # noqa: FBT001 - pytest passes by name
) -> None:
    arrays = (
        Array(first=1, last=10_000, offset=0, throttle=None),
        Array(first=1, last=points - 10_000, offset=10_000, throttle=None),
    )
    told = slurm.task_limit_error(captured("slurm/config").stdout, arrays)
    assert (told is not None) is refused
    if told:
        assert told == "20,001 points, but the controller holds at most 20,000 jobs (MaxJobCount)"
    assert slurm.task_limit_error("ClusterName = lab", arrays) is None


def test_the_commands_that_change_a_job() -> None:
    argv = ("scontrol", "-M", "lab", "update", "JobId=12", "ArrayTaskThrottle=3")
    assert slurm.throttle_argv(JobId("12", "lab"), 3) == argv
    assert slurm.cancel_argv(JobId("12")) == ("scancel", "12")
    assert slurm.cancel_argv(JobId("12", "lab"), (3,)) == ("scancel", "-M", "lab", "12_3")
    assert slurm.cancel_argv(JobId("12"), (9, 3, 4, 5)) == ("scancel", "12_[3-5,9]")


@pytest.mark.parametrize("tasks", [range(4_000_000, 4_024_000, 2), (4,), range(1, 10_001)])
def test_one_command_cancels_however_many_tasks(tasks: Sequence[int]) -> None:
    command, *words = slurm.cancel_argv(JobId("1234567"), tuple(tasks))
    assert command == "scancel"
    assert max(map(len, words)) < 128 * 1024, "the longest argument that Linux takes"
    named = [expand_tasks(word.removeprefix("1234567_")) for word in words]
    assert [task for few in named for task in few] == list(tasks)


def test_queue_argv_asks_for_all_jobs_at_once() -> None:
    argv = slurm.queue_argv((JobId("12"), JobId("13")))

    assert argv == ("squeue", "-r", "-h", "-o", "%i|%T|%r|%N|%M|%S|%j", "-j", "12,13")
    assert "-M" in slurm.queue_argv((JobId("12", "lab"),))


def test_the_queue_tells_held_and_running() -> None:
    tasks = slurm.parse_queue(captured("slurm/squeue-live"))

    assert tasks is not None
    held = [task for task in tasks if task.state is State.HELD]
    assert [task.task for task in held] == [*range(1, 61, 3), *range(61, 100, 2)]
    assert {task.reason for task in held} == {"JobHeldUser"}
    running = [task for task in tasks if task.state is State.RUNNING]
    assert {task.reason for task in running} == {""}
    assert {task.node for task in running} <= {"n1", "n2"}
    assert all(0 <= (task.elapsed_s or 0) < 60 for task in running)
    assert all(re.fullmatch(r"[-\d]{10}T[:\d]{8}", task.start_at) for task in running)
    first = held[0]
    assert (first.node, first.elapsed_s, first.start_at, first.name) == ("", 0, "", "jobkit-capture")


@pytest.mark.parametrize(
    ("columns", "elapsed_s"), [("n[1-2]|2-03:04:05", 183_845), ("n1|12:34", 754), ("n1|INVALID", None)]
)
def test_a_name_may_hold_a_bar_and_a_time_is_one_or_none(columns: str, elapsed_s: float | None) -> None:
    row = f"5_1|RUNNING|None|{columns}|2026-01-02T03:04:05|a|b c\n"
    (task,) = slurm.parse_queue(Completed(("squeue",), 0, row, "")) or ()
    assert (task.name, task.elapsed_s, task.start_at) == ("a|b c", elapsed_s, "2026-01-02T03:04:05")
    assert task.node == columns.partition("|")[0]


def test_a_requeued_task_is_pending_again() -> None:
    tasks = slurm.parse_queue(captured("slurm/squeue-requeued"))

    assert tasks is not None
    assert next((task.task, task.state, task.reason) for task in tasks) == (2, State.PENDING, "BeginTime")


def test_a_preempted_task_waits_to_run_again() -> None:
    """For some seconds the accounting tells of its end alone; the queue knows better."""
    (queued,) = slurm.parse_queue(captured("slurm/squeue-again")) or ()
    assert queued.state is State.PENDING
    (at_once,) = slurm.parse_accounting(captured("slurm/sacct-again-at-once")) or ()
    assert (at_once.ended, at_once.outcome) == (True, Outcome.PREEMPTED)
    first, again = slurm.parse_accounting(captured("slurm/sacct-again")) or ()
    assert first == at_once
    assert (again.task, again.ended, again.outcome, again.node) == (first.task, False, None, "")


def test_jobs_are_found_by_their_name() -> None:
    queue, accounting = slurm.search_argvs("jobkit-capture", "2026-01-02T03:04:05")
    assert queue == captured("slurm/squeue-by-name").argv
    asked = captured("slurm/sacct-by-name").argv[2:]
    assert set(accounting) == {*asked, "2026-01-02T03:04:05"} - {"now-1hours"}
    tasks = slurm.parse_queue(captured("slurm/squeue-by-name"))
    told = slurm.parse_accounting(captured("slurm/sacct-by-name"))
    assert tasks
    assert told
    assert {task.name for task in tasks} | {task.name for task in told} == {"jobkit-capture"}
    assert len({task.job_id for task in told}) > 3


def test_a_cut_off_list_gives_the_tasks_that_are_whole() -> None:
    whole, cut = (slurm.parse_queue(captured(f"slurm/squeue-{name}")) for name in ("full", "truncated"))

    assert whole is not None
    assert cut is not None
    assert len(whole) == 40
    assert 5 < len(cut) < 40
    assert set(cut) <= set(whole)


def test_gone_is_empty_and_no_answer_is_unknown() -> None:
    assert slurm.parse_queue(captured("slurm/squeue-gone")) == ()
    assert slurm.parse_queue(captured("slurm/squeue-unknown")) == ()
    assert slurm.parse_queue(Completed(("squeue",), 0, "5_1|COMPLETED|None\n", "")) == ()
    assert slurm.parse_queue(captured("slurm/squeue-unreachable")) is None


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ("5_1|PENDING|Resources", State.PENDING),
        ("5_1|PENDING|PartitionTimeLimit", State.ERROR),
        ("5_1|PENDING|DependencyNeverSatisfied", State.ERROR),
        ("5_1|COMPLETING|None", State.ENDING),
        ("5_1|SUSPENDED|None", State.RUNNING),
        ("5_1|A_STATE_OF_TOMORROW|None", State.UNKNOWN),
        ("5_[1%1]|PENDING|JobArrayTaskLimit", State.PENDING),
    ],
)
def test_states_of_the_queue(row: str, state: State) -> None:
    (task,) = slurm.parse_queue(Completed(("squeue",), 0, row + "\n", "")) or ()

    assert (task.job_id, task.task, task.state) == ("5", 1, state)


def test_what_a_person_types_to_see_what_became_of_jobs() -> None:
    jobs = (JobId("7"), JobId("8"))
    assert slurm.diagnostic_argvs(jobs, "demo-1") == (("squeue", "-j", "7,8"), ("sacct", "-j", "7,8"))
    assert slurm.diagnostic_argvs((JobId("7", "blue"),), "demo-1") == (
        ("squeue", "-M", "blue", "-j", "7"),
        ("sacct", "-M", "blue", "-j", "7"),
    )
