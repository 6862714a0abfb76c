"""How answers join points; what is collected from them is in test_collect.py."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.layout import ACCOUNTING_FILE
from jobkit.core.records import Outcome
from jobkit.runs.journal import CHANGES, GONE, JobTask, read_accounts
from tests.support.builders import grid, write_answer, write_points, write_submitted

ROW = "77_1|{}|0:0|60||50M|1|node1|None|{}\n"
ENDED, RUNNING = ROW.format("TIMEOUT", ""), ROW.format("RUNNING", "")
QUEUED = "77_1|RUNNING|None\n"
START = datetime(2026, 1, 2, 11, tzinfo=UTC)
ONE = JobTask("slurm", "77", 1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run of one point, submitted to Slurm as task 1 of job 77."""
    folder = write_points(tmp_path / "run", grid([50]))
    write_submitted(folder, "slurm", "77", first=1, last=1)
    return folder


def after(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def miss(run: Path, at: str, *tasks: str, scheduler: str = "slurm") -> None:
    write_answer(run, scheduler, GONE, " ".join(tasks), argv=[], at=at)


def test_which_of_several_answers_stands(run: Path) -> None:
    ended, refused = (True, Outcome.TIMEOUT), "77_1|PENDING|BadConstraints\n"
    for answers, stands in (
        ([("accounting", ENDED), ("accounting", "")], ended),
        ([("queue", QUEUED), ("accounting", ENDED)], ended),
        ([("accounting", ENDED), ("queue", QUEUED)], ended),
        ([("queue", QUEUED), ("accounting", RUNNING)], (False, None)),
        ([("queue", refused)], (False, Outcome.QUEUE_ERROR)),
    ):
        (run / ACCOUNTING_FILE).unlink(missing_ok=True)
        for kind, text in answers:
            write_answer(run, "slurm", kind, text, argv=[kind])
        account = read_accounts(run).runs[ONE][-1]
        assert (account.ended, account.outcome) == stands, answers
    assert account.evidence.endswith("error (BadConstraints: no node has what it requests)")
    (run / ACCOUNTING_FILE).unlink()
    write_answer(run, "pbs", "accounting", ENDED)
    assert not read_accounts(run).runs, "of a scheduler that is not there"


def test_a_status_that_the_controller_knew_stays_known(run: Path) -> None:
    """Of 201 sacct alone prints 73; 73 itself would be that home could not be written."""
    failed = "77_1|FAILED|73:0|60||50M|1|node1|None|run|2026-01-02T11:00:00\n"
    known = "77                  1                   51456               2026-01-02T11:00:00 \n"
    other = known.replace("T11", "T10")  # of an earlier run of the task
    write_answer(run, "slurm", "accounting", other + failed, argv=["sacct", "squeue", "1"])
    assert read_accounts(run).runs[ONE][-1].evidence == "sacct: FAILED, ExitCode 73 or 201"
    write_answer(run, "slurm", "accounting", known + failed, argv=["sacct", "squeue"])
    write_answer(run, "slurm", "accounting", failed, argv=["sacct"])
    assert read_accounts(run).runs[ONE][-1].exit_status == 201


def test_the_accounting_itself_may_unsay_an_end(run: Path) -> None:
    """As after a preemption: for some seconds sacct -D shows no more than PREEMPTED (measured)."""
    preempted, pending = ROW.format("PREEMPTED", ""), ROW.format("PENDING", "")
    write_answer(run, "slurm", "accounting", preempted, argv=["sacct"])
    write_answer(run, "slurm", "accounting", preempted + pending, argv=["sacct", "-j", "77,78"])
    runs = read_accounts(run).runs[ONE]
    assert [(one.ended, one.outcome) for one in runs] == [(True, Outcome.PREEMPTED), (False, None)]


@pytest.mark.parametrize(
    "line",
    [
        {"argv": ["sacct"], "status": 0, "stdout": "", "stderr": "", "at": "", "kind": "accounting"},
        {"argv": None, "status": 0},
        {"argv": [], "status": "well", "stdout": "", "stderr": ""},
    ],
)
def test_a_line_that_is_no_answer_is_named(run: Path, line: dict[str, object]) -> None:
    (run / ACCOUNTING_FILE).write_text(json.dumps(line) + "\n")
    accounts = read_accounts(run)
    assert not accounts.runs
    assert f"{run / ACCOUNTING_FILE}:1: not an answer: " in accounts.notes[0]


@pytest.mark.parametrize(
    ("kind", "row"),
    [("accounting", "77_1|TIMEOUT|0:0|60||50M|1|node1|None|"), ("queue", "77_1|RUNNING|None|n1|1:00|N/A|")],
)
def test_a_number_given_again_to_a_job_of_another_name_is_of_another_job(
    run: Path, kind: str, row: str
) -> None:
    for name, known in (("other", False), ("demo", True), ("", True)):
        (run / ACCOUNTING_FILE).unlink(missing_ok=True)
        write_answer(run, "slurm", kind, f"{row}{name}\n")
        assert bool(read_accounts(run, name="demo").runs) is known
    assert read_accounts(run, name=None).runs


def test_tasks_of_several_points_and_of_points_submitted_again(tmp_path: Path) -> None:
    folder = write_points(tmp_path / "run", grid([50, 100, 150]))
    (folder / "tasks-1.txt").write_text("1 2\n3\n", encoding="utf-8")
    write_submitted(folder, "slurm", "77", first=1, last=2, list="tasks-1.txt")
    write_submitted(folder, "slurm", "78", first=2, last=2, round=2)
    write_submitted(folder, "slurm", "79", first=2, last=2, round=3)
    accounts = read_accounts(folder)
    assert accounts.submitted == {1: ONE, 2: JobTask("slurm", "79", 2), 3: JobTask("slurm", "77", 2)}
    assert accounts.earlier == {2: (ONE, JobTask("slurm", "78", 2))}
    assert accounts.packed == {ONE}


def test_a_task_is_gone_when_two_looks_a_minute_apart_did_not_find_it(run: Path) -> None:
    miss(run, after(0), "77.1", "77.2", "77", ".1", "77.x", "")
    assert read_accounts(run).gone == {}
    assert read_accounts(run).missed["slurm"] == {ONE, JobTask("slurm", "77", 2)}, "other words name no task"
    miss(run, after(59), "77.1", "77.2")
    accounts = read_accounts(run)
    due = [accounts.due("slurm", after(seconds)) for seconds in (100, 119)]
    assert (accounts.gone, due) == ({}, [False, True])
    miss(run, after(60), "77.1")
    accounts = read_accounts(run)
    assert accounts.gone == {ONE: after(0)}
    assert accounts.missed == {"slurm": frozenset({ONE})}
    miss(run, after(90), "77.2")
    assert read_accounts(run).gone == {}, "one was found, and the other missed anew"
    (run / ACCOUNTING_FILE).unlink()

    def change(at: str, words: str) -> None:
        write_answer(run, "slurm", GONE, words, argv=CHANGES, at=at)

    miss(run, after(0), "77.1", "77.2")  # lines of changes are as good as those that name all
    change(after(30), "-77.2 77.3")
    assert read_accounts(run).missed == {"slurm": frozenset({ONE, JobTask("slurm", "77", 3)})}
    change(after(60), "")
    assert read_accounts(run).gone == {ONE: after(0)}
    change(after(90), "-77.1")
    assert read_accounts(run).gone == {JobTask("slurm", "77", 3): after(30)}


def test_schedulers_miss_tasks_apart_from_each_other(run: Path) -> None:
    miss(run, after(0), "77.1")
    miss(run, after(30), "5.1", scheduler="sge")
    miss(run, after(60), "77.1")
    accounts = read_accounts(run)
    assert accounts.gone == {ONE: after(0)}
    assert accounts.missed_at == {"slurm": after(60), "sge": after(30)}
    assert accounts.due("local", after(0)), "never looked"
    miss(run, after(0), "99.4", scheduler="local")
    assert JobTask("local", "99", 4) in read_accounts(run).gone, "a process that is not there is gone at once"
    for at in ("yesterday", "2026-01-02T13:00:00"):
        (run / ACCOUNTING_FILE).unlink()
        miss(run, after(0), "77.1")
        miss(run, at, "77.1")
        accounts = read_accounts(run)
        assert (accounts.gone, accounts.due("slurm", after(9999))) == ({}, False), "a time of no known zone"


def test_each_line_of_a_driver_here_is_of_another_try(tmp_path: Path) -> None:
    folder = write_points(tmp_path / "run", grid([50, 100, 150]))
    write_submitted(folder, "local", "99", first=1, last=3)
    for words, index in (("first", 1), ("of 2", 2), ("second", 1)):
        row = {"job_id": "99", "task": index, "evidence": words, "host": "n", "elapsed_s": 1}
        write_answer(folder, "local", "accounting", json.dumps(row), argv=[])
    said = {task.task: [one.evidence for one in ran] for task, ran in read_accounts(folder).runs.items()}
    assert said == {1: ["first", "second"], 2: ["of 2"]}
