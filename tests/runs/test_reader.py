from __future__ import annotations

import getpass
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.core.layout import ACCOUNTING_FILE
from jobkit.core.paths import CACHE_VARIABLE
from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.runs.reader import FOLDER, ask_accounting, ask_queue, cached_answer, local_time
from jobkit.schedulers import sge, slurm
from jobkit.schedulers.types import JobId, State
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

ARGV = ("squeue", "-j", "7")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / FOLDER


def asker(*texts: str, argv: tuple[str, ...] = ARGV) -> Callable[[], Completed]:
    """Return what answers once with each text."""
    left = list(texts)
    return lambda: Completed(argv, 1, left.pop(0), "a word of warning")


def test_a_young_answer_of_the_same_cluster_will_do_whoever_got_it(
    cache: Path, queue: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = asker("first", "second")
    first = cached_answer(ARGV, ask, 60)
    assert (first, cached_answer(ARGV, ask, 60)) == (Completed(ARGV, 1, "first", "a word of warning"), first)
    assert cached_answer(("squeue", "-j", "8"), asker("another question"), 60).stdout == "another question"
    assert len(list(cache.glob("*.json"))) == 2
    assert cached_answer(ARGV, ask, 0).stdout == "second", "asked anew, always"
    ask = asker("one", "two", "three")
    monkeypatch.setenv("SLURM_CONF", "/etc/one.conf")
    assert cached_answer(ARGV, ask, 60).stdout == "one"
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    assert cached_answer(ARGV, ask, 60).stdout == "two"
    (queue.folder / "squeue").rename(queue.folder.parent / "squeue")
    monkeypatch.setenv("PATH", str(queue.folder.parent))
    assert cached_answer(ARGV, ask, 60).stdout == "three"
    monkeypatch.setenv(CACHE_VARIABLE, str(queue.folder.parent / "squeue" / "cache"))
    ask = asker("first", "second")
    assert [cached_answer(ARGV, ask, 60).stdout for _ in range(2)] == ["first", "second"], "no place for it"


@pytest.mark.parametrize("text", ["{", '{"status": "x", "stdout": "", "stderr": ""}'])
def test_an_answer_that_is_old_of_the_future_or_spoilt_is_asked_for_again(cache: Path, text: str) -> None:
    ask = asker("first", "second", "third", "fourth")
    cached_answer(ARGV, ask, 60)
    (path,) = cache.glob("*.json")
    for age_s, answer in ((61, "second"), (-3600, "third")):
        os.utime(path, (time.time() - age_s,) * 2)
        assert cached_answer(ARGV, ask, 60).stdout == answer
    path.write_text(text, encoding="utf-8")
    assert [cached_answer(ARGV, ask, 60).stdout for _ in range(2)] == ["fourth", "fourth"]


ASK = """\
from jobkit.runs.reader import cached_answer
from jobkit.core.shell import run
print(cached_answer(("squeue",), lambda: run(("squeue",)), 60).stdout, end="")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_processes_that_ask_at_once_cost_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "squeue"
    program.write_text(f"#!/bin/sh\necho $$ | tee -a {tmp_path}/calls\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asking = [
        subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {process.communicate(timeout=60)[0] for process in asking}
    assert answers == {(tmp_path / "calls").read_text(encoding="utf-8")}


JOBS = (JobId("7"), JobId("8"))


def row(job: int, state: str, task: int) -> str:
    """Return a task as ``qstat -xml`` has it."""
    number = f"<JB_job_number>{job}</JB_job_number>"
    return f"<job_list>{number}<state>{state}</state><tasks>{task}</tasks></job_list>"


def kept(run: Path) -> list[dict[str, object]]:
    path = run / ACCOUNTING_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_a_failure_or_an_error_of_the_queue_is_kept(tmp_path: Path, queue: Programs) -> None:
    queue.add("squeue", 'echo "7_1|PENDING|length $SLURM_BITSTR_LEN"')
    (task,) = ask_queue(slurm, JOBS, [tmp_path]) or ()
    assert (task.job_id, task.state, task.reason) == ("7", State.PENDING, "length 0")
    assert queue.called() == ["squeue -r -h -o %i|%T|%r|%N|%M|%S|%j|%P|%u|%V -j 7,8"]
    assert kept(tmp_path) == []
    queue.says("squeue", status=1, error="slurm_load_jobs error: Unable to contact slurm controller\n")
    assert ask_queue(slurm, JOBS, [tmp_path]) is None
    (answer,) = kept(tmp_path)
    assert (answer["kind"], answer["scheduler"], answer["status"]) == ("queue", "slurm", 1)
    assert "Unable to contact" in str(answer["stderr"])
    assert str(answer["at"]).endswith("+00:00")
    queue.says("qstat", f"<job_info>{row(7, 'Eqw', 2)}{row(99, 'Eqw', 2)}</job_info>")
    tasks = ask_queue(sge, JOBS, [tmp_path])
    assert tasks is not None
    assert [(task.job_id, task.task, task.state) for task in tasks] == [("7", 2, State.ERROR)]
    assert [answer["scheduler"] for answer in kept(tmp_path)] == ["slurm", "sge"]


@pytest.mark.slow
def test_one_accounting_call_for_all_jobs_is_kept_raw_and_once(
    tmp_path: Path, queue: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedulers take local time."""
    monkeypatch.setenv("TZ", "IST-5:30")
    time.tzset()
    try:
        since = local_time("2026-01-02T10:15:00.123+00:00")
    finally:
        monkeypatch.undo()
        time.tzset()
    monkeypatch.setenv("PATH", f"{queue.folder}:{os.environ['PATH']}")
    rows = ["7_1|TIMEOUT|0:0|61||50M|1|n1|None", "5_1|FAILED|1:0|1||50M|1|n1|None"]
    queue.says("sacct", *rows)
    for _ in range(2):
        tasks = ask_accounting(slurm, JOBS, since, "demo", [tmp_path])
        assert tasks is not None
        assert [(task.job_id, task.outcome) for task in tasks] == [("7", Outcome.TIMEOUT)]
    (answer,) = kept(tmp_path)
    assert (answer["kind"], str(answer["stdout"]).splitlines()) == ("accounting", rows)
    assert "-S 2026-01-02T15:45:00 -j 7,8" in queue.called("sacct")[0]


@pytest.mark.slow
def test_a_scheduler_that_is_not_here_is_unknown_and_no_job_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_queue(slurm, (), [tmp_path]) == ()
    assert ask_accounting(slurm, (), "2026-01-02T03:04:05", "demo", [tmp_path]) == ()
    assert kept(tmp_path) == []
    assert ask_queue(sge, JOBS, [tmp_path]) is None
    assert ask_accounting(sge, JOBS, "2026-01-02T03:04:05", "demo", [tmp_path]) is None
    assert [answer["status"] for answer in kept(tmp_path)] == [127, 127]


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a folder away")
def test_a_run_of_somebody_else_is_asked_about_by_its_owner(tmp_path: Path, queue: Programs) -> None:
    queue.says("qstat", "<job_info/>")
    nobody = 65534  # Debian's and Red Hat's uid of the user who owns nothing
    os.chown(tmp_path, nobody, -1)
    assert ask_queue(sge, JOBS, [tmp_path]) == ()
    os.chown(tmp_path, 4_000_000, -1)
    ask_queue(sge, JOBS, [tmp_path])
    owners = [pwd.getpwuid(nobody).pw_name, getpass.getuser()]  # the second owner has no name here
    assert queue.called() == [f"qstat -s prs -u {owner} -xml" for owner in owners]
