from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import slurm
from jobkit.schedulers.types import Accounted, JobId
from tests.support.surveys import captured


def tasks_of(answer: tuple[Accounted, ...] | None) -> dict[int, Accounted]:
    assert answer is not None
    return {task.task: task for task in answer}


def sacct(*rows: str, status: int = 0) -> tuple[Accounted, ...] | None:
    return slurm.parse_accounting(Completed(("sacct",), status, "\n".join(rows), ""))


def test_an_answer_of_jobkit_0_1_lacks_columns() -> None:
    (task,) = slurm.parse_queue(Completed(("squeue",), 0, "5_1|RUNNING|None\n", "")) or ()
    assert (task.name, task.node, task.elapsed_s, task.start_at) == ("", "", None, "")
    (told,) = sacct("5_1|TIMEOUT|0:0|60||50M|1|n1|None") or ()
    assert (told.name, told.outcome) == ("", Outcome.TIMEOUT)
    assert slurm.parse_queue(Completed(("squeue",), 0, "5_1|RUNNING\n", "")) == ()


@pytest.mark.parametrize("task", [1, 2])
def test_a_task_has_an_account_for_each_time_it_ran_the_oldest_first(task: int) -> None:
    told = slurm.parse_accounting(captured("slurm/sacct-requeued"))
    assert told is not None
    runs = [one for one in told if one.task == task]
    first = {1: (True, Outcome.NODE_FAIL), 2: (False, None)}[task]
    assert [(run.ended, run.outcome) for run in runs] == [first, (False, None)]
    assert "REQUEUED" in runs[0].evidence or task == 1
    assert [run.node for run in runs] == ["n2", ""]


def test_a_step_before_any_run_belongs_to_none() -> None:
    assert sacct("9_4.batch|CANCELLED|0:15|12|77M||1|n1||batch") == ()


@given(st.lists(st.sampled_from(["PREEMPTED", "NODE_FAIL", "REQUEUED", "TIMEOUT", "RUNNING"]), max_size=5))
def test_steps_belong_to_the_run_before_them(states: list[str]) -> None:
    rows = [
        row
        for number, state in enumerate(states, 1)
        for row in (
            f"9_4|{state}|0:0|12||50M|1|n1|None|x",
            f"9_4.batch|CANCELLED|0:15|12|{number}M||1|n1||batch",
        )
    ]
    told = sacct("9_4.batch|CANCELLED|0:15|12|77M||1|n1||batch", *rows)
    assert told is not None
    assert [one.max_rss_bytes for one in told] == [number * 2**20 for number in range(1, len(states) + 1)]
    assert [one.evidence.split()[1].rstrip(",") for one in told] == states


def test_of_tasks_cancelled_next_to_others_that_wait_the_accounting_says_nothing() -> None:
    """They stay in the row of those that wait, or are in none: only the queue has let them go."""
    tasks = tasks_of(slurm.parse_accounting(captured("slurm/sacct-cancelled-part")))
    assert not any(task.ended for task in tasks.values())


def test_what_is_reported_in_two_parts_has_not_ended_after_the_first() -> None:
    """While slurmdbd was away a task exited with 7, one was killed for its memory, one was cancelled."""
    first = tasks_of(slurm.parse_accounting(captured("slurm/sacct-first-half")))
    assert len(first) == 5
    for task in first.values():
        assert (task.ended, task.outcome, task.exit_status, task.elapsed_s) == (False, None, None, None)
        assert "ExitCode" not in task.evidence
    assert first[2].evidence == "sacct: FAILED, but not yet when and how"
    second = tasks_of(slurm.parse_accounting(captured("slurm/sacct-second-half")))
    assert {number: (task.outcome, task.exit_status) for number, task in second.items()} == {
        1: (None, 0),
        2: (None, 7),
        3: (Outcome.RAM_OOM, 137),
        4: (Outcome.CANCELLED, 0),
        5: (None, 0),
    }
    assert {task.name for task in (*first.values(), *second.values())} == {"jobkit-capture"}


@given(st.text(st.characters(exclude_categories=["Cc", "Zl", "Zp", "Zs"]), min_size=1))
def test_a_name_may_hold_a_bar(name: str) -> None:
    (task,) = sacct(f"9_4|FAILED|0:0|12||50M|1|n1|None|{name}|2026-01-02T03:04:05") or ()
    assert (task.name, task.ended) == (name, True)


def test_accounting_argv_gives_the_start_and_keeps_the_steps() -> None:
    argv = slurm.accounting_argv((JobId("12"), JobId("13")), "2026-01-02T03:04:05", "demo")

    assert argv[:8] == ("sacct", "-n", "-P", "-D", "-S", "2026-01-02T03:04:05", "-j", "12,13")
    assert "-X" not in argv
    assert slurm.ENVIRONMENT["SLURM_BITSTR_LEN"] == "0"


def test_the_accounting_of_a_life() -> None:
    tasks = tasks_of(slurm.parse_accounting(captured("slurm/sacct-life")))

    assert all(task.ended for task in tasks.values())
    outcomes = {number: (task.outcome, task.exit_status) for number, task in tasks.items()}
    assert outcomes == {
        1: (None, 0),
        2: (None, 7),
        3: (Outcome.RAM_OOM, 137),
        4: (Outcome.CANCELLED, 0),
        5: (None, 0),
    }
    assert (tasks[3].max_rss_bytes or 0) > 300_000_000
    assert re.search(r"MaxRSS [0-9.,]+ MiB of ReqMem [0-9.,]+ MiB, ", tasks[3].evidence)
    assert "CANCELLED by 0" in tasks[4].evidence
    assert tasks[1].node in {"n1", "n2"}
    assert tasks[1].elapsed_s is not None


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("sacct-preempted", [Outcome.PREEMPTED, Outcome.NODE_FAIL]),
        ("sacct-timeout", [Outcome.TIMEOUT]),
    ],
)
def test_ends_that_the_cluster_brought_about(name: str, outcomes: list[Outcome]) -> None:
    tasks = slurm.parse_accounting(captured(f"slurm/{name}"))

    assert tasks is not None
    assert [task.outcome for task in tasks] == outcomes
    assert all(task.ended for task in tasks)


def test_the_row_that_waiting_tasks_share_names_one_that_has_just_begun() -> None:
    at_first = tasks_of(slurm.parse_accounting(captured("slurm/sacct-shared")))
    later = tasks_of(slurm.parse_accounting(captured("slurm/sacct-shared-later")))

    assert (at_first[3].outcome, at_first[3].never_began) == (Outcome.CANCELLED, True)
    assert (later[3].ended, later[3].outcome, later[3].node) == (False, None, "n1"), "its own row counts more"
    assert {task.never_began for number, task in later.items() if number in {4, 5}} == {True}
    assert not later[1].never_began
    assert 6 not in later, "what was cancelled by itself while it waited has no account"


def test_the_row_of_many_pending_tasks() -> None:
    whole, cut = (
        tasks_of(slurm.parse_accounting(captured(f"slurm/sacct-{n}"))) for n in ("pending", "truncated")
    )

    assert len(whole) == 40
    assert set(cut) < set(whole)
    assert not any(task.ended for task in whole.values())


def test_tasks_cancelled_before_they_began() -> None:
    tasks = tasks_of(slurm.parse_accounting(captured("slurm/sacct-cancelled-pending")))

    assert len(tasks) == 40
    assert {(task.ended, task.outcome) for task in tasks.values()} == {(True, Outcome.CANCELLED)}


def test_not_known_yet_is_not_unreachable() -> None:
    assert slurm.parse_accounting(captured("slurm/sacct-unknown")) == ()
    assert slurm.parse_accounting(captured("slurm/sacct-unreachable")) is None
    assert slurm.parse_accounting(captured("slurm/sacct-off")) is None


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("OUT_OF_MEMORY", Outcome.RAM_OOM),
        ("OUT_OF_ME+", Outcome.RAM_OOM),
        ("CANCELLED by 1234", Outcome.CANCELLED),
        ("BOOT_FAIL", Outcome.NODE_FAIL),
        ("DEADLINE", Outcome.TIMEOUT),
    ],
)
def test_end_states_of_the_man_page(state: str, outcome: Outcome) -> None:
    (task,) = sacct(f"9_4|{state}|0:125|12||50M|1|n1|None") or ()

    assert (task.task, task.ended, task.outcome) == (4, True, outcome)


@pytest.mark.parametrize("state", ["RUNNING", "REQUEUED", "COMPLETING", "SUSPENDED", "A_STATE_OF_TOMORROW"])
def test_a_state_that_is_no_end(state: str) -> None:
    (task,) = sacct(f"9_4|{state}|0:0|12||50M|1|n1|None") or ()

    assert (task.ended, task.outcome) == (False, None)


def test_out_of_memory_may_stand_at_the_step_alone() -> None:
    (task,) = sacct("9_4|FAILED|1:0|12||50M|1|n1|None", "9_4.batch|OUT_OF_MEMORY|0:125|12|4000K||1|n1|") or ()

    assert task.outcome is Outcome.RAM_OOM


def test_a_task_killed_before_its_memory_was_sampled_names_none() -> None:
    (task,) = (
        sacct("9_4|OUT_OF_MEMORY|0:125|1||50M|1|n1|None", "9_4.batch|OUT_OF_MEMORY|0:125|1|||1|n1|") or ()
    )
    assert task.evidence == "sacct: OUT_OF_MEMORY, ExitCode 0:125"


def test_a_job_whose_log_could_not_be_opened_never_ran() -> None:
    (task,) = sacct("9_4|FAILED|0:53|0||200M|1|n1|None", "9_4.batch|CANCELLED|0:53|0|||1|n1|") or ()

    assert (task.ended, task.outcome) == (True, Outcome.STAGE_OUT)
    assert "could not open the job's log" in task.evidence


@pytest.mark.parametrize(
    ("required", "outcome"), [("2Gc", None), ("1Gc", Outcome.RAM_OOM), ("3Gn", Outcome.RAM_OOM)]
)
def test_memory_per_cpu_of_older_versions(required: str, outcome: Outcome | None) -> None:
    own = f"9_4|FAILED|0:9|12||{required}|2|n1|None"

    (task,) = sacct(own, "9_4.batch|CANCELLED|0:9|12|3.5G||2|n1|") or ()

    assert task.outcome is outcome
