from __future__ import annotations

import getpass
import json
import os
import pwd
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from jobkit.core.layout import ACCOUNTING_FILE
from jobkit.core.records import Outcome
from jobkit.outcome.accounting import Accounts
from jobkit.outcome.journal import Task
from jobkit.schedulers import sge, slurm
from jobkit.schedulers.types import JobId, State
from jobkit.status import queue
from jobkit.status.queue import QueryOptions, ask_accounting, ask_queue, local_time, log_missing_tasks

JOBS = (JobId("7"), JobId("8"))
Fake = Callable[..., None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Return a maker of programs on PATH that print and end as told, and note how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name: str, *, out: str = "", err: str = "", status: int = 0) -> None:
        (folder / f"{name}.out").write_text(out)
        (folder / f"{name}.err").write_text(err)
        program = folder / name
        program.write_text(
            f'#!/bin/sh\necho "$SLURM_BITSTR_LEN $*" >>{folder}/{name}.calls\n'
            f"cat {folder}/{name}.out\ncat {folder}/{name}.err >&2\nexit {status}\n"
        )
        program.chmod(0o755)

    return make


def calls(tmp_path: Path, name: str) -> list[str]:
    return (tmp_path / "bin" / f"{name}.calls").read_text().splitlines()


def kept(run: Path) -> list[dict[str, object]]:
    path = run / ACCOUNTING_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_one_queue_call_for_all_jobs(tmp_path: Path, fake: Fake) -> None:
    fake("squeue", out="7_1|RUNNING|None\n8_1|PENDING|Resources\n")

    tasks = ask_queue(slurm, JOBS, tmp_path)

    assert tasks is not None
    assert [(task.job_id, task.state) for task in tasks] == [("7", State.RUNNING), ("8", State.PENDING)]
    assert calls(tmp_path, "squeue") == ["0 -r -h -o %i|%T|%r|%N|%M|%S|%j -j 7,8"]
    assert kept(tmp_path) == []


def test_a_queue_that_fails_is_unknown_and_kept(tmp_path: Path, fake: Fake) -> None:
    fake("squeue", err="slurm_load_jobs error: Unable to contact slurm controller\n", status=1)

    assert ask_queue(slurm, JOBS, tmp_path) is None

    (answer,) = kept(tmp_path)
    assert (answer["kind"], answer["scheduler"], answer["status"]) == ("queue", "slurm", 1)
    assert "Unable to contact" in str(answer["stderr"])
    assert str(answer["at"]).endswith("+00:00")


def test_a_task_in_error_is_kept_and_other_jobs_are_left_out(tmp_path: Path, fake: Fake) -> None:
    row = "<job_list><JB_job_number>{}</JB_job_number><state>Eqw</state><tasks>2</tasks></job_list>"
    fake("qstat", out=f"<job_info>{row.format(7)}{row.format(99)}</job_info>")

    tasks = ask_queue(sge, JOBS, tmp_path)

    assert tasks is not None
    assert [(task.job_id, task.task, task.state) for task in tasks] == [("7", 2, State.ERROR)]
    assert [answer["kind"] for answer in kept(tmp_path)] == ["queue"]


def test_one_accounting_call_for_all_jobs_is_kept_raw(tmp_path: Path, fake: Fake) -> None:
    out = "7_1|TIMEOUT|0:0|61||50M|1|n1|None\n5_1|FAILED|1:0|1||50M|1|n1|None\n"
    fake("sacct", out=out)

    tasks = ask_accounting(slurm, JOBS, "2026-01-02T03:04:05", "demo", tmp_path)

    assert tasks is not None
    assert [(task.job_id, task.outcome) for task in tasks] == [("7", Outcome.TIMEOUT)]
    (answer,) = kept(tmp_path)
    assert (answer["kind"], answer["stdout"]) == ("accounting", out)
    assert "-S 2026-01-02T03:04:05 -j 7,8" in calls(tmp_path, "sacct")[0]


def test_the_same_answer_again_is_not_kept_again(tmp_path: Path, fake: Fake) -> None:
    for out in ("", "", "7_1|RUNNING|0:0|1||50M|1|n1|None\n"):
        fake("sacct", out=out)
        ask_accounting(slurm, JOBS, "2026-01-02T03:04:05", "demo", tmp_path)

    assert len(kept(tmp_path)) == 2


def test_an_accounting_that_fails_is_unknown(tmp_path: Path, fake: Fake) -> None:
    fake("sacct", err="sacct: error: Problem talking to the database\n", status=1)

    assert ask_accounting(slurm, JOBS, "2026-01-02T03:04:05", "demo", tmp_path) is None
    assert kept(tmp_path)[0]["status"] == 1


def test_a_scheduler_that_is_not_here_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert ask_queue(sge, JOBS, tmp_path) is None
    assert ask_accounting(sge, JOBS, "2026-01-02T03:04:05", "demo", tmp_path) is None
    assert [answer["status"] for answer in kept(tmp_path)] == [127, 127]


def test_no_jobs_are_asked_about_by_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert ask_queue(slurm, (), tmp_path) == ()
    assert ask_accounting(slurm, (), "2026-01-02T03:04:05", "demo", tmp_path) == ()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a folder away")
def test_a_run_of_somebody_else_is_asked_about_by_its_owner(tmp_path: Path, fake: Fake) -> None:
    fake("qstat", out="<job_info/>")
    nobody = 65534  # Debian's and Red Hat's uid of the user who owns nothing
    os.chown(tmp_path, nobody, -1)
    assert ask_queue(sge, JOBS, tmp_path) == ()
    assert calls(tmp_path, "qstat") == [f" -u {pwd.getpwuid(nobody).pw_name} -xml"]
    os.chown(tmp_path, 4_000_000, -1)
    ask_queue(sge, JOBS, tmp_path)
    assert calls(tmp_path, "qstat")[1] == f" -u {getpass.getuser()} -xml", "its owner has no name here"


ONE, TWO = Task("slurm", "7", 1), Task("slurm", "7", 2)


def knowing(*, missed: Collection[Task] = (), gone: Collection[Task] = (), at: str = "") -> Accounts:
    """Return what a run knew before of tasks that were missed."""
    return Accounts(
        submissions=(),
        submitted={},
        runs={},
        missed={"slurm": frozenset(missed)},
        gone=dict.fromkeys(gone, at),
        looked={"slurm": at} if at else {},
    )


NOW = "2026-01-02T11:00:00+00:00"


@pytest.mark.parametrize(
    ("missed", "before", "noted"),
    [
        ([], knowing(), None),
        ([TWO, ONE], knowing(), "7.1 7.2"),
        ([ONE], knowing(missed=[ONE], at="2026-01-02T10:59:01+00:00"), None),
        ([ONE], knowing(missed=[ONE], at="2026-01-02T10:59:00+00:00"), ""),
        ([ONE], knowing(missed=[ONE], gone=[ONE], at="2026-01-02T10:00:00+00:00"), None),
        ([ONE, TWO], knowing(missed=[ONE], at="2026-01-02T10:59:59+00:00"), "7.2"),
        ([], knowing(missed=[ONE], at="2026-01-02T10:59:59+00:00"), "-7.1"),
    ],
)
def test_what_is_missed_is_noted_when_it_is_news_and_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed: list[Task], before: Accounts, noted: str | None
) -> None:
    monkeypatch.setattr(queue, "_now", lambda: NOW)
    log_missing_tasks("slurm", frozenset(missed), before, tmp_path, QueryOptions())
    lines = [(line["at"], line["kind"], line["stdout"]) for line in kept(tmp_path)]
    assert lines == ([] if noted is None else [(NOW, "gone", noted)])


def test_the_same_is_missed_again_and_noted_again(tmp_path: Path) -> None:
    for _ in range(2):
        log_missing_tasks("slurm", {ONE}, knowing(), tmp_path, QueryOptions())
    assert len(kept(tmp_path)) == 2, "how long it was missed is the time between the two"


def test_what_cannot_be_kept_is_handed_back(tmp_path: Path, fake: Fake) -> None:
    read_only, own = tmp_path / "theirs", tmp_path / "own"
    own.mkdir()
    (read_only / ACCOUNTING_FILE).mkdir(parents=True)  # nobody can append to a folder, root neither
    fake("sacct", out="7_1|TIMEOUT|0:0|61||50M|1|n1|None\n")
    asking = QueryOptions()
    ask_accounting(slurm, JOBS, "2026-01-02T03:04:05", "", [read_only, own], asking)
    log_missing_tasks("slurm", {ONE}, knowing(), read_only, asking)
    assert list(asking.unsaved) == [read_only]
    kinds = [json.loads(line)["kind"] for line in asking.unsaved[read_only]]
    assert (kinds, [line["kind"] for line in kept(own)]) == (["accounting", "gone"], ["accounting"])


def test_answers_are_shared_for_as_long_as_is_asked(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    fake("squeue", out="7_1|RUNNING|None\n")
    for asking in (QueryOptions(60), QueryOptions(60), QueryOptions()):
        assert ask_queue(slurm, JOBS, tmp_path, asking)
    assert len(calls(tmp_path, "squeue")) == 2


@pytest.mark.parametrize(("zone", "local"), [("UTC", "10:15:00"), ("IST-5:30", "15:45:00")])
def test_schedulers_are_told_local_time(monkeypatch: pytest.MonkeyPatch, zone: str, local: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert local_time("2026-01-02T10:15:00.123+00:00") == f"2026-01-02T{local}"
    finally:
        monkeypatch.undo()
        time.tzset()
