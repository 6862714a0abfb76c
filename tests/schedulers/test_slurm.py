from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import slurm
from jobkit.schedulers.parsing import expand_tasks
from jobkit.schedulers.types import (
    Accounted,
    Array,
    Check,
    JobId,
    JobRequest,
    Queued,
    Remedy,
    SchedulerId,
    State,
)
from tests.support.surveys import ARRAY, DATA, REQUEST, captured


def test_the_commands_that_submit_change_and_show_a_job() -> None:
    assert slurm.submit_argv("job.sh", ARRAY) == ("sbatch", "--parsable", "--array=1-3%2", "job.sh")
    one = Array(first=1, last=1, offset=6, throttle=None)
    follows = "sbatch --parsable --dependency=afterany:7:9 --array=1-1 find.sh --offset 6"
    before = [JobId("7", "lab"), JobId("9", "lab")]
    assert slurm.submit_argv("find.sh", one, before) == tuple(follows.split())
    assert slurm.log_name("demo-1", "12", 3) == "12_3.out"
    there = "scontrol -M lab update JobId=12 ArrayTaskThrottle=3"
    assert slurm.throttle_argv(JobId("12", "lab"), 3) == tuple(there.split())
    assert slurm.cancel_argv(JobId("12")) == ("scancel", "12")
    assert slurm.cancel_argv(JobId("12", "lab"), (3,)) == ("scancel", "-M", "lab", "12_3")
    assert slurm.cancel_argv(JobId("12"), (9, 3, 4, 5)) == ("scancel", "12_[3-5,9]")


def test_the_array_limit_is_on_the_index() -> None:
    assert slurm.limit_argv() == captured("slurm/config").argv
    assert slurm.parse_limit(captured("slurm/config").stdout) == 10_000
    parameters = "MaxArraySize = 1001\nSchedulerParameters     = bf_interval=1,max_array_tasks=300"
    limits = {parameters: 300, "MaxArraySize = 0": 0, "ClusterName = lab": None}
    assert {config: slurm.parse_limit(config) for config in limits} == limits


def test_every_task_counts_for_the_controllers_job_count() -> None:
    first = Array(first=1, last=10_000, offset=0, throttle=None)
    config = captured("slurm/config").stdout
    assert slurm.task_limit_error(config, (first, first)) is None
    said = slurm.task_limit_error(config, (first, replace(first, last=10_001)))
    assert said == "20,001 points, but the controller holds at most 20,000 jobs (MaxJobCount)"
    assert slurm.task_limit_error("ClusterName = lab", (first, first, first)) is None


@pytest.mark.parametrize("tasks", [range(4_000_000, 4_024_000, 2), (4,), range(1, 10_001)])
def test_one_command_cancels_however_many_tasks(tasks: Sequence[int]) -> None:
    command, *words = slurm.cancel_argv(JobId("1234567"), tuple(tasks))
    assert command == "scancel"
    assert max(map(len, words)) < 128 * 1024, "the longest argument that Linux takes"
    named = [expand_tasks(word.removeprefix("1234567_")) for word in words]
    assert [task for few in named for task in few] == list(tasks)


def test_all_jobs_are_asked_for_at_once() -> None:
    jobs = (JobId("12"), JobId("13"))
    assert " ".join(slurm.queue_argv(jobs)) == "squeue -r -h -o %i|%T|%r|%N|%M|%S|%j|%P|%u|%V -j 12,13"
    assert "-M" in slurm.queue_argv((JobId("12", "lab"),))
    argv = slurm.accounting_argv(jobs, "2026-01-02T03:04:05", "demo")
    assert argv[:8] == ("sacct", "-n", "-P", "-D", "-S", "2026-01-02T03:04:05", "-j", "12,13")
    assert "-X" not in argv, "the steps are kept"
    assert slurm.ENVIRONMENT["SLURM_BITSTR_LEN"] == "0"


def test_the_queue_tells_held_running_and_requeued() -> None:
    tasks = slurm.parse_queue(captured("slurm/squeue-live")) or ()

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
    again = (slurm.parse_queue(captured("slurm/squeue-requeued")) or ())[0]
    assert (again.task, again.state, again.reason) == (2, State.PENDING, "BeginTime")


def test_a_name_may_hold_a_bar_and_a_time_is_one_or_none() -> None:
    for columns, elapsed_s in (("n[1-2]|2-03:04:05", 183_845), ("n1|INVALID", None)):
        row = f"5_1|RUNNING|None|{columns}|2026-01-02T03:04:05|a|b c|cpu,gpu\n"
        (task,) = slurm.parse_queue(Completed(("squeue",), 0, row, "")) or ()
        assert (task.name, task.elapsed_s, task.start_at) == ("a|b c", elapsed_s, "2026-01-02T03:04:05")
        assert task.node == columns.partition("|")[0]
    (said,) = sacct("9_4|FAILED|0:0|12||50M|1|n1|None|a|b c|2026-01-02T03:04:05")
    assert (said.name, said.ended) == ("a|b c", True)


def test_a_preempted_task_waits_to_run_again() -> None:
    """For some seconds the accounting tells of its end alone; the queue knows better."""
    (queued,) = slurm.parse_queue(captured("slurm/squeue-again")) or ()
    assert queued.state is State.PENDING
    (at_once,) = slurm.parse_accounting(captured("slurm/sacct-again-at-once")) or ()
    assert (at_once.ended, at_once.outcome) == (True, Outcome.PREEMPTED)
    first, again = slurm.parse_accounting(captured("slurm/sacct-again")) or ()
    assert first == at_once
    assert (again.task, again.ended, again.outcome, again.node) == (first.task, False, None, "")


def test_a_cut_off_list_gives_the_tasks_that_are_whole() -> None:
    whole, cut = (slurm.parse_queue(captured(f"slurm/squeue-{name}")) or () for name in ("full", "truncated"))
    assert len(whole) == 40
    assert 5 < len(cut) < 40
    assert set(cut) <= set(whole)
    whole_row, cut_row = (
        slurm.parse_accounting(captured(f"slurm/sacct-{n}")) for n in ("pending", "truncated")
    )
    assert set(tasks_of(cut_row)) < set(tasks_of(whole_row))


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        (State.PENDING, ["PENDING|Resources", "PENDING|PartitionTimeLimit||||a|cpu,gpu"]),
        (State.HELD, ["REQUEUE_HOLD|BeginTime", "SPECIAL_EXIT|None"]),
        (State.ERROR, ["RESV_DEL_HOLD|Reservation x is invalid", "PENDING|InvalidQOS||||a|cpu,gpu"]),
        (State.ENDING, ["COMPLETING|None"]),
        (State.RUNNING, ["SUSPENDED|None"]),
        (State.UNKNOWN, ["A_STATE_OF_TOMORROW|None"]),
    ],
)
def test_states_of_the_queue(state: State, columns: list[str]) -> None:
    rows = "".join(f"5_[1%1]|{one}\n" for one in columns)
    tasks = slurm.parse_queue(Completed(("squeue",), 0, rows, "")) or ()
    assert [(task.job_id, task.task, task.state) for task in tasks] == [("5", 1, state)] * len(columns)
    assert all(task.suspended is (state is State.RUNNING) for task in tasks)


def tasks_of(answer: tuple[Accounted, ...] | None) -> dict[int, Accounted]:
    assert answer is not None
    return {task.task: task for task in answer}


def sacct(*rows: str) -> tuple[Accounted, ...]:
    said = slurm.parse_accounting(Completed(("sacct",), 0, "\n".join(rows), ""))
    assert said is not None
    return said


def test_an_answer_of_jobkit_0_1_lacks_columns() -> None:
    (task,) = slurm.parse_queue(Completed(("squeue",), 0, "5_1|RUNNING|None\n", "")) or ()
    assert (task.name, task.node, task.elapsed_s, task.start_at) == ("", "", None, "")
    (said,) = sacct("5_1|TIMEOUT|0:0|60||50M|1|n1|None")
    assert (said.name, said.outcome) == ("", Outcome.TIMEOUT)
    for row in ("5_1|RUNNING", "5_1|COMPLETED|None"):
        assert slurm.parse_queue(Completed(("squeue",), 0, f"{row}\n", "")) == ()


def test_a_task_has_an_account_for_each_time_it_ran_the_oldest_first() -> None:
    said = slurm.parse_accounting(captured("slurm/sacct-requeued")) or ()
    first = {1: (True, Outcome.NODE_FAIL), 2: (False, None)}
    for task, end in first.items():
        runs = [one for one in said if one.task == task]
        assert [(run.ended, run.outcome) for run in runs] == [end, (False, None)]
        assert "REQUEUED" in runs[0].evidence or task == 1
        assert [run.node for run in runs] == ["n2", ""]


def test_steps_belong_to_the_run_before_them() -> None:
    states = ["PREEMPTED", "REQUEUED", "NODE_FAIL", "TIMEOUT", "RUNNING"]
    step = "9_4.batch|CANCELLED|0:15|12|{}M||1|n1||batch"
    rows = [(f"9_4|{state}|0:0|12||50M|1|n1|None|x", step.format(n)) for n, state in enumerate(states, 1)]
    said = sacct(step.format(77), *itertools.chain(*rows))
    assert [one.max_rss_bytes for one in said] == [number * 2**20 for number in range(1, len(states) + 1)]
    assert [one.evidence.split()[1].rstrip(",") for one in said] == states


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("preempted", [Outcome.PREEMPTED, Outcome.NODE_FAIL]),
        ("timeout", [Outcome.TIMEOUT]),
        ("cancelled-pending", [Outcome.CANCELLED] * 40),
        ("pending", [None] * 40),
        ("cancelled-part", [None] * 40),
        ("unknown", []),
    ],
)
def test_how_tasks_ended_by_the_accounting(name: str, outcomes: list[Outcome | None]) -> None:
    """Those cancelled next to others that wait stay in their row, or are in none: the queue knows better."""
    tasks = slurm.parse_accounting(captured(f"slurm/sacct-{name}")) or ()
    assert [task.outcome for task in tasks] == outcomes
    assert [task.ended for task in tasks] == [outcome is not None for outcome in outcomes]


LIFE = {1: (None, 0), 2: (None, None), 3: (Outcome.RAM_OOM, 137), 4: (Outcome.CANCELLED, 0), 5: (None, 0)}


def test_what_is_reported_in_two_parts_has_not_ended_after_the_first() -> None:
    """While slurmdbd was away a task exited with 7, one was killed for its memory, one was cancelled."""
    first, second = (
        tasks_of(slurm.parse_accounting(captured(f"slurm/sacct-{half}-half"))) for half in ("first", "second")
    )
    assert len(first) == 5
    for task in first.values():
        assert (task.ended, task.outcome, task.exit_status, task.elapsed_s) == (False, None, None, None)
        assert "ExitCode" not in task.evidence
    assert first[2].evidence == "sacct: FAILED, but not yet when and how"
    assert {number: (task.outcome, task.exit_status) for number, task in second.items()} == LIFE
    assert {task.name for task in (*first.values(), *second.values())} == {"jobkit-capture"}


def test_the_accounting_of_a_life() -> None:
    tasks = tasks_of(slurm.parse_accounting(captured("slurm/sacct-life")))

    assert all(task.ended for task in tasks.values())
    assert {number: (task.outcome, task.exit_status) for number, task in tasks.items()} == LIFE
    assert (tasks[3].max_rss_bytes or 0) > 300_000_000
    assert re.search(r"MaxRSS [0-9.,]+ MiB of ReqMem [0-9.,]+ MiB, ", tasks[3].evidence)
    assert "CANCELLED by 0" in tasks[4].evidence
    assert tasks[1].node in {"n1", "n2"}
    assert tasks[1].elapsed_s is not None


def test_the_row_that_waiting_tasks_share_names_one_that_has_just_begun() -> None:
    at_first = tasks_of(slurm.parse_accounting(captured("slurm/sacct-shared")))
    later = tasks_of(slurm.parse_accounting(captured("slurm/sacct-shared-later")))

    assert (at_first[3].outcome, at_first[3].never_began) == (Outcome.CANCELLED, True)
    assert (later[3].ended, later[3].outcome, later[3].node) == (False, None, "n1"), "its own row counts more"
    assert {task.never_began for number, task in later.items() if number in {4, 5}} == {True}
    assert not later[1].never_began
    assert 6 not in later, "what was cancelled by itself while it waited has no account"


def test_the_cluster_and_its_controllers() -> None:
    assert slurm.parse_identity(captured("slurm/other-config")) == SchedulerId(
        name="other", controllers=("vm:16917",)
    )
    old = "ClusterName = old\nControlMachine = a\nBackupController = b\nSlurmctldPort = 6817\n"
    assert slurm.parse_identity(Completed(("scontrol",), 0, old, "")) == SchedulerId(
        name="old", controllers=("a:6817", "b:6817")
    )
    assert slurm.parse_identity(Completed(("scontrol",), 1, "", "Unable to contact")) is None


def test_the_owner_of_a_job_follows_its_name() -> None:
    owner, at = "ada|2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5).astimezone()
    (queued,) = slurm.parse_queue(Completed((), 0, f"5_1|PENDING|None||0:00|N/A|a|b|cpu|{owner}\n", "")) or ()
    row = f"5_1|COMPLETED|0:0|60||50M|1|n1|None|a|b|2026-01-02T04:04:05|{owner}\n"
    (ended,) = slurm.parse_accounting(Completed((), 0, row, "")) or ()
    assert [(one.name, one.user, one.submitted_at) for one in (queued, ended)] == [("a|b", "ada", at)] * 2


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        (["OUT_OF_MEMORY", "OUT_OF_ME+"], Outcome.RAM_OOM),
        (["CANCELLED by 1234"], Outcome.CANCELLED),
        (["BOOT_FAIL"], Outcome.NODE_FAIL),
        (["DEADLINE"], Outcome.TIMEOUT),
        (["RUNNING", "REQUEUED", "COMPLETING", "SUSPENDED", "A_STATE_OF_TOMORROW"], None),
    ],
)
def test_states_of_the_man_page(states: list[str], outcome: Outcome | None) -> None:
    said = [sacct(f"9_4|{state}|0:125|12||50M|1|n1|None")[0] for state in states]
    assert {(task.task, task.ended, task.outcome) for task in said} == {(4, outcome is not None, outcome)}


def test_out_of_memory_may_stand_at_the_step_alone_and_names_no_memory_without_a_sample() -> None:
    (task,) = sacct("9_4|FAILED|1:0|12||50M|1|n1|None", "9_4.batch|OUT_OF_MEMORY|0:125|12|4000K||1|n1|")
    assert task.outcome is Outcome.RAM_OOM
    (task,) = sacct("9_4|OUT_OF_MEMORY|0:125|1||50M|1|n1|None", "9_4.batch|OUT_OF_MEMORY|0:125|1|||1|n1|")
    assert task.evidence == "sacct: OUT_OF_MEMORY, ExitCode 0:125"


def test_a_job_whose_log_could_not_be_opened_never_ran() -> None:
    (task,) = sacct("9_4|FAILED|0:53|0||200M|1|n1|None", "9_4.batch|CANCELLED|0:53|0|||1|n1|")
    assert (task.ended, task.outcome) == (True, Outcome.STAGE_OUT)
    assert "could not open the job's log" in task.evidence


def test_memory_per_cpu_of_older_versions() -> None:
    for required, outcome in (("2Gc", None), ("1Gc", Outcome.RAM_OOM), ("3Gn", Outcome.RAM_OOM)):
        own = f"9_4|FAILED|0:9|12||{required}|2|n1|None"
        (task,) = sacct(own, "9_4.batch|CANCELLED|0:9|12|3.5G||2|n1|")
        assert task.outcome is outcome, required


ANSWERS = {"sinfo": "sinfo", "sbatch": "test-only-ok", "sh": "charges", "sacctmgr": "qos"}


def asked_first(check: Check) -> str:
    return "sbatch" if "--test-only" in " ".join(check.argv) else check.argv[0]


def refusals(request: JobRequest, **others: Completed) -> list[str]:
    answers = {name: captured(f"slurm/{file}") for name, file in ANSWERS.items()} | others
    asked = slurm.checks("job.sh", ARRAY, request)
    named = [(check, answers[asked_first(check)]) for check in asked if asked_first(check) in answers]
    said = [check.refusal(request, answer) for check, answer in named]
    return [text for text in said if text]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue": "gqu"}, "no partition 'gqu' (it has: cpu, gpu, high, low); did you mean 'gpu'?"),
        ({"walltime_s": 7200}, "walltime 02:00:00 is longer than partition 'cpu' allows: at most 01:00:00"),
        ({"cpus": 64}, "partition 'cpu' has no node with 64 CPUs: 2 nodes have 8 CPUs, 7.81 GiB, 2 x v100"),
        ({"account": "rot"}, "no account of yours 'rot' (it has: nlp, root, sub); did you mean 'root'?"),
    ],
)
def test_a_refusal_names_the_value_and_what_to_change(changes: dict[str, Any], words: str) -> None:
    plain = captured("slurm/sinfo")
    noisy = replace(plain, stdout=f"Welcome to the cluster | news: none\n{plain.stdout}\n")
    for sinfo in (plain, noisy):
        (said,) = refusals(replace(REQUEST, **changes), sinfo=sinfo)
        assert words in said
        assert "(change " in said


def test_when_the_first_would_start_is_reported() -> None:
    tested = slurm.checks("job.sh", ARRAY, REQUEST)[1]
    said = tested.outlook(REQUEST, captured("slurm/test-only-ok"))
    assert re.fullmatch(r"Slurm estimates a start at [-\d]{10} [:\d]{8}: earlier if .*, later if .*", said)
    assert tested.outlook(REQUEST, captured("slurm/test-only-partition")) == ""


def test_maintenance_to_come_is_named_with_the_walltime_that_fits_before_it() -> None:
    request = replace(REQUEST, walltime_s=20 * 3600)
    maintenance = slurm.checks("job.sh", ARRAY, request)[-1]

    def said(hours: float, flags: str) -> str:
        start = datetime.now() + timedelta(hours=hours, seconds=30)  # noqa: DTZ005 - Slurm's are local
        row = f"ReservationName=m StartTime={start:%Y-%m-%dT%H:%M:%S} NodeCnt=2 Flags={flags} Users=root\n"
        return maintenance.outlook(request, Completed(("scontrol",), 0, row, ""))

    assert said(3, "MAINT,ALL_NODES").endswith("only a walltime below 03:00:00 can start there before it")
    assert [said(3, "DAILY"), said(-1, "MAINT"), said(30, "MAINT")] == ["", "", ""]
    none = Completed(("scontrol",), 0, "No reservations in the system\n", "")
    assert maintenance.outlook(request, none) == ""


def test_a_job_waits_for_a_partition_without_a_node_that_is_up() -> None:
    """``sbatch --test-only`` refuses it, in the words of a request that no node has; sbatch takes it."""
    no_node = "allocation failure: Requested node configuration is not available\n"
    answer = replace(captured("slurm/sinfo-down"), status=1, stderr=no_node)
    tested = slurm.checks("job.sh", ARRAY, REQUEST)[1]
    requests = [replace(REQUEST, queue=queue) for queue in (None, "gpu", "none")]
    drained = "is up: n[1-2] drained: fan broken: jobs wait for one"
    words = [f"no node of partition 'cpu' {drained}", f"no node of partition 'gpu' {drained}", ""]
    assert [tested.outlook(request, answer) for request in requests] == words
    refusals = [tested.refusal(request, answer) for request in requests]
    assert refusals == [None, None, f"sbatch refuses the job: {no_node.strip()}"]


def test_a_partition_of_several_that_never_starts_the_job_is_named() -> None:
    request = replace(REQUEST, queue="gpu-short,gpu", walltime_s=7200)
    partitions_asked = slurm.checks("job.sh", ARRAY, request)[0]
    said = partitions_asked.outlook(request, captured("slurm/other-nodes"))
    assert said == "not in every queue: walltime 02:00:00 is longer than gpu-short allows: at most 00:30:00"
    assert partitions_asked.outlook(request, Completed(("sinfo",), 1, "", "")) == ""


def test_what_is_right_or_unknown_is_not_refused() -> None:
    request = replace(REQUEST, queue="gpu,cpu", gpus=2, gpu_type="v100", walltime_s=3600, account="root")
    assert refusals(replace(request, qos="normal")) == []
    silent = Completed(("sinfo",), 1, "", "")
    assert refusals(replace(REQUEST, queue="gqu"), sinfo=silent) == [], "sbatch decides"
    rows = "cpu*|2-00:00:00|(null)|up|1|8|8000\nbig|infinite|gpu:2(S:0-1)|up|1|8|8000\n"
    sinfo = Completed(("sinfo",), 0, rows, "")
    assert refusals(replace(REQUEST, gpus=2, queue="big", walltime_s=10**7), sinfo=sinfo) == []
    (said,) = refusals(replace(REQUEST, gpus=1), sinfo=sinfo)
    assert "partition 'cpu' has no GPUs" in said
    off = captured("slurm/sacctmgr-off")
    assert refusals(replace(REQUEST, queue="nlp", account="nobody"), sh=off, sinfo=silent) == []
    qos = Completed(("sacctmgr",), 0, "normal\ngpuq\n", "")
    for account in ("nlp", "sub"):
        charged = replace(REQUEST, queue="nlp", account=account, qos="gpuq")
        assert refusals(charged, sinfo=silent, sacctmgr=qos) == [], "sub is below nlp"
    assert refusals(replace(REQUEST, queue="nlp,cpu"), sinfo=silent) == [], "cpu may start it"
    both = refusals(replace(REQUEST, queue="nlp"), sinfo=silent)[0].splitlines()
    assert both[0].endswith("(change resources.account: --set resources.account=nlp)")
    assert both[1].endswith("(change resources.qos: --set resources.qos=gpuq)")
    (said,) = refusals(replace(REQUEST, queue="open"), sinfo=silent)
    assert "'open' starts no job with QOS normal, and the job has normal: it never starts" in said


@pytest.mark.parametrize("name", ["partition", "gres", "gpus", "memory", "array", "script"])
def test_what_test_only_refuses_is_passed_on(name: str) -> None:
    (said,) = refusals(REQUEST, sbatch=captured(f"slurm/test-only-{name}"))

    assert said.startswith("sbatch refuses the job: ")


JOB = JobId("12")

RELEASE = ("scontrol", "release", "12_1")
FAMILIES = {
    "held by its owner": (State.HELD, Remedy(argv=RELEASE)),
    "held by an administrator": (State.HELD, Remedy(admin_argv=RELEASE)),
    "never": (State.ERROR, Remedy()),
    "waits": (State.PENDING, None),
    "unknown": (State.PENDING, None),
}


def test_each_reason_of_slurm_is_of_a_family_however_it_is_spelt() -> None:
    for line in (DATA / "slurm" / "reasons.txt").read_text().splitlines():
        family, reason = line.split("\t")
        state, way_out = FAMILIES[family.partition(":")[0]]
        if ": " in family:
            way_out = Remedy(key=family.replace("never: ", "resources."))
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", reason)
        for spelt in (reason, reason.upper(), words, words.replace(" ", "_").lower()):
            row = f"12_1|PENDING|{spelt}||0:00|2026-01-02T03:04:05|demo|cpu\n"
            (task,) = slurm.parse_queue(Completed(("squeue",), 0, row, "")) or ()
            found = slurm.remedy(JOB, (1,), task)
            assert (task.state, found and replace(found, value="")) == (state, way_out), spelt
            begins = state is State.PENDING and reason != "Dependency"
            assert bool(task.start_at) is begins, "not before a person acts, or another job ends"
            assert (slurm.explain(task) == spelt) is (family == "unknown"), spelt


def test_several_tasks_of_a_cluster_are_released_by_one_command() -> None:
    held = Queued(job_id="12", task=2, state=State.HELD, reason="JobHeldUser")
    argv = ("scontrol", "-M", "lab2", "release", "12_[2,4-5]")
    assert slurm.remedy(JobId("12", "lab2"), (2, 4, 5), held) == Remedy(argv=argv)
