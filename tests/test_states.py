from __future__ import annotations

import getpass
import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.records import ACCOUNTING_FILE, Outcome
from jobkit.schedulers import sge, slurm
from jobkit.schedulers.base import JobId, State
from jobkit.states import ask_accounting, ask_queue

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
