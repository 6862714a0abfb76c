"""What past jobs have wasted, as the accounting of a scheduler tells it, and what is advised."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.blocks import as_text
from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.core.units import GIB, MIB
from jobkit.extensions.past_jobs import (
    CPUS,
    MEMORY,
    WALLTIME,
    AlikeJobs,
    History,
    JudgedResource,
    alike,
    as_json,
    ask,
    blocks,
    chance_of_next,
    covered_share,
    worst_first,
)
from jobkit.schedulers.protocol import PastJob
from tests.support.commands import jobkit
from tests.support.surveys import DATA, captured

JOB = PastJob(
    scheduler="slurm",
    job_id="1",
    name="train",
    user="me",
    queue="gpu",
    state="COMPLETED",
    ended=True,
    well=True,
    began="2026-01-02T03:04:05",
    elapsed_s=600.0,
    walltime_s=36_000.0,
    memory_bytes=16 * GIB,
    memory_key="--mem",
    held_bytes=3 * GIB,
    cpus=8,
    cpu_s=900.0,
)


def test_the_most_that_was_used_and_the_median() -> None:
    jobs = AlikeJobs((JOB, replace(JOB, held_bytes=int(3.4 * GIB), elapsed_s=1000.0)))
    assert jobs.need(CPUS).next == 2
    need = jobs.need(MEMORY)
    assert need.middle == pytest.approx(3.2 * GIB)
    assert need.most == int(3.4 * GIB)


OVER = {"well": False, "state": "FAILED", "outcome": Outcome.RAM_OOM}
LATE = OVER | {"outcome": Outcome.TIMEOUT}


@pytest.mark.parametrize(
    ("changes", "resource", "wanted"),
    [
        ({"held_bytes": 15 * GIB}, MEMORY, 16 * GIB),  # not more than was requested while that was enough
        ({"held_bytes": 17 * GIB}, MEMORY, 21 * GIB),  # more than was requested, and no limit held
        ({"cpu_s": 6000.0}, CPUS, 10),
        ({"cpu_s": 4807.0}, CPUS, 8),  # all of them, in a run that was a little longer than 600 s
        ({"held_bytes": 90 * MIB}, MEMORY, 400 * MIB),
        ({"elapsed_s": 0.0, "held_bytes": 0}, WALLTIME, 300),
        (OVER, MEMORY, 24 * GIB),
        (OVER | {"held_bytes": 20 * GIB}, MEMORY, 30 * GIB),
        (OVER | {"held_bytes": None}, MEMORY, 24 * GIB),
        (LATE, WALLTIME, 72_000),
        (OVER | {"outcome": Outcome.CANCELLED}, MEMORY, None),
        ({"held_bytes": None, "memory_bytes": None}, MEMORY, None),
        ({"cpu_s": None}, CPUS, None),
    ],
)
def test_a_job_is_advised_by_its_end(
    changes: dict[str, Any], resource: JudgedResource, wanted: int | None
) -> None:
    jobs = AlikeJobs((replace(JOB, **changes),))
    need = jobs.need(resource)
    assert (need.next, need.exceeded) == (wanted, int(wanted is not None and "outcome" in changes))
    assert need.changes == (wanted not in {None, need.requested})
    assert jobs.ended_well == ("outcome" not in changes)


def test_memory_that_is_not_reserved_any_more() -> None:
    jobs, unknown = AlikeJobs((JOB, replace(JOB, nodes=2))), AlikeJobs((replace(JOB, memory_bytes=None),))
    reserved = [one.reserved_memory() for one in (jobs, unknown)]
    assert reserved == [(600 * 3 * 16 * GIB, 600 * 3 * 4 * GIB), None]
    assert [one.saved_memory for one in (jobs, unknown)] == [600 * 3 * 12 * GIB, 0]


def test_gpus_are_idle_only_if_the_site_records_that_none_was_used() -> None:
    idle = replace(JOB, gpus=2, gpu_percent=0.0, gpu_bytes=0)
    assert AlikeJobs((idle, idle)).idle_gpu_s == 2400.0
    assert AlikeJobs((idle, replace(idle, gpu_percent=3.0))).idle_gpu_s == 0.0
    assert AlikeJobs((idle, replace(idle, gpu_percent=None))).idle_gpu_s is None


def test_jobs_of_another_name_or_request_are_judged_apart() -> None:
    other, larger = replace(JOB, name="merge"), replace(JOB, memory_bytes=32 * GIB, job_id="3")
    later = replace(JOB, job_id="4", began="2025-01-02T03:04:05")
    groups = list(alike([JOB, other, larger, later]))
    assert [[job.job_id for job in group.jobs] for group in groups] == [["4", "1"], ["1"], ["3"]]


@pytest.mark.parametrize("number", [1, 20])
def test_the_largest_of_so_many_holds_for_the_next_one_as_often_as_it_is_said(number: int) -> None:
    chance, rounds = random.Random(5), 4000  # noqa: S311 - a simulation
    for draw in (chance.random, lambda: chance.choice([1.0, 2.0, 3.0])):
        held = sum(max(draw() for _ in range(number)) >= draw() for _ in range(rounds))
        assert held / rounds > chance_of_next(number) - 0.02


@pytest.mark.parametrize("number", [5, 59])
def test_the_share_that_the_largest_covers_is_covered_with_95_percent_confidence(number: int) -> None:
    chance, rounds = random.Random(7), 4000  # noqa: S311 - a simulation
    share = covered_share(number)
    covered = sum(max(chance.random() for _ in range(number)) >= share for _ in range(rounds))
    assert covered / rounds == pytest.approx(0.95, abs=0.012)


def test_fifty_nine_jobs_are_needed_for_95_of_100() -> None:
    assert covered_share(58) < 0.95 <= covered_share(59)
    assert covered_share(0) == 0.0


Program = Callable[[str, str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return ``program(name, body)``: a command on PATH that prints what a real one has printed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)

    def write(name: str, body: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return write


@pytest.fixture
def slurm(program: Program, tmp_path: Path) -> Program:
    """Have a Slurm whose accounting has the captured jobs."""
    (tmp_path / "answer").write_text(captured("slurm/past").stdout, encoding="utf-8")
    program("sbatch", "exit 1")
    program("sacct", f"cat {tmp_path}/answer")
    program("scontrol", "echo 'JobAcctGatherFrequency = 30'")
    return program


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_jobs_are_chosen_by_id_array_and_name() -> None:
    every = ask((), days=7)
    array = next(job.job_id.partition("_")[0] for job in every.jobs if "_" in job.job_id)
    assert {job.name for job in ask((array,), days=7).jobs} == {"arr"}
    assert len(ask((array,), days=7).jobs) == 3
    assert [job.job_id for job in ask((f"{array}_2",), days=7).jobs] == [f"{array}_2"]
    assert {job.name for job in ask((), days=7, name="s*").jobs} == {"simple", "steps"}
    assert every.sampling_s == 30.0
    found = ask(("999", every.jobs[0].job_id), days=7)
    assert found.unknown == ("999",)
    assert "requeued" not in {job.name for job in found.jobs}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "ids", "name", "message"),
    [
        ("", ("999",), "*", "999: Slurm's accounting (sacct) has no such job"),
        ("", ("999.0",), "*", "999.0: Slurm's accounting (sacct) has no job or task of this name"),
        ("", (), "zz*", "no job of yours called 'zz*'"),
        ("8|me|cpu|RUNNING|0:0|{at}|Unknown", ("8",), "*", "not ended yet"),
        ("8|me|cpu|CANCELLED by 0|0:0|{at}|{at}", ("8",), "*", "it used nothing"),
    ],
)
def test_nothing_to_judge_is_a_sentence(
    slurm: Program, row: str, ids: tuple[str, ...], name: str, message: str
) -> None:
    if row:
        rest = "0|10|2G|1|1||00:00:00||cpu=1,mem=2G|||||never"
        slurm("sacct", f"echo '{row.format(at='2026-01-02T03:04:05')}|{rest}'")
    with pytest.raises(JobkitError) as raised:
        ask(ids, days=7, name=name)
    assert message in raised.value.message
    assert raised.value.hint or row
    assert "." not in "".join(ids) or "jobkit waste 999" in raised.value.hint


@pytest.mark.slow
def test_an_accounting_that_is_off_is_named(slurm: Program) -> None:
    slurm("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    with pytest.raises(JobkitError) as raised:
        ask((), days=7)
    assert "does not answer: Slurm accounting storage is disabled" in raised.value.message
    assert raised.value.exit_code == 3


@pytest.mark.usefixtures("program")
def test_without_a_scheduler_there_is_no_accounting() -> None:
    with pytest.raises(JobkitError, match="no accounting to ask"):
        ask((), days=7)
    done = jobkit("waste")
    assert (done.returncode, "past jobs: jobkit waste --mine" in done.stderr) == (2, True)


@pytest.mark.slow
def test_grid_engine_is_asked_for_each_id(program: Program) -> None:
    program("qconf", f"cat {DATA}/sge/lab-complexes.txt")
    program("qacct", f"cat {DATA}/sge/past.txt")
    data = json.loads(jobkit("waste", "--scheduler", "sge", "1", "3", "--json").stdout)
    assert {group["name"] for group in data["groups"]} == {"simple", "arr"}


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_a_person_reads_a_line_for_each_name_and_request_and_then_all_about_one() -> None:
    every = jobkit("waste", "--mine", "--days", "9")
    rows = every.stdout.partition("─\n")[2].partition("\n\n")[0].splitlines()
    assert "does not record the use of GPUs" in every.stdout
    assert every.stderr.startswith(f"next: jobkit waste --name {rows[0].split()[0]} --days 9 ")
    (arr,) = [row.split(maxsplit=2) for row in rows if row.startswith("arr ")]
    assert (arr[1], "45 % of 300.0 MiB   2 % of 00:05:00" in arr[2]) == ("3", True)
    text = "".join(jobkit("waste", "--name", name).stdout for name in ("arr", "steps", "oom"))
    assert "#SBATCH --mem=600M" in text
    assert "about 1 in 4 of the next jobs uses more" in text
    assert "1 job ran out of memory" in text
    assert "does not advise less" in text


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_ids_are_typed_as_schedulers_print_them() -> None:
    array = next(job.job_id.partition("_")[0] for job in ask((), days=7).jobs if "_" in job.job_id)
    every = json.loads(jobkit("waste", f"{array}_[1-3]", "--json").stdout)
    two = json.loads(jobkit("waste", f"{array}_1,{array}_2", "--json").stdout)
    other = json.loads(jobkit("waste", f"{array}.1-3:1", f"{array}[1-3]", "--json").stdout)
    assert [len(found["groups"][0]["jobs"]) for found in (every, two, other)] == [3, 2, 3]


SAID = {
    "more-memory": ["Jobs used more than requested (memory)", "#SBATCH --mem=59392M"],
    "more-cpus": ["Jobs used more than requested (CPUs busy)", "#SBATCH --cpus-per-task=12"],
    "extern-only": ["Not known: memory"],
    "typed-gpus": ["0 % busy, 0.0 MiB", "No job used its GPU"],
    "46-times": [
        "Impossible, so jobkit does not use it: 111_9734: 46 times the time of 2 CPUs",
        "--mem=12288M",
    ],
    "requeued": ["requeued: 1 job on", "1 job ran again", "01:30:00   01:55:00"],
    "cafe*": ["job on Slurm"],
}


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("name", SAID)
def test_what_is_said_of_jobs_of_other_sites(tmp_path: Path, name: str) -> None:
    latin = captured("slurm/sites").stdout.replace("|huge", "|cafe-\xe9")
    (tmp_path / "answer").write_text(latin, encoding="latin-1")
    text = jobkit("waste", "--name", name).stdout
    assert [words for words in SAID[name] if words not in text] == [], text
    assert "The request fits" not in text


def test_ten_thousand_jobs_are_printed_piece_by_piece() -> None:
    history = History(scheduler="slurm", jobs=(JOB,) * 10_000, running=(), unknown=(), sampling_s=None)
    assert "at most 0.03 %, with 95 % confidence" in as_text(blocks(history, worst_first(history.jobs)), None)
    pieces = list(as_json(history))
    assert max(map(len, pieces)) < sum(map(len, pieces)) / 9
    (group,) = json.loads("".join(pieces))["groups"]
    assert (len(group["jobs"]), group["jobs"][0]["name"]) == (10_000, "train")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", ""], "--name is empty"),
        (["--mine", "4711"], "name no RUN and no JOBID"),
        (["4711", "--days", "3"], "however old the job is"),
        ([""], "RUN is empty"),
    ],
)
def test_words_that_ask_for_two_things_are_refused(words: list[str], message: str) -> None:
    done = jobkit("waste", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_number_that_is_a_folder_too_is_refused_with_both_commands(tmp_path: Path) -> None:
    (tmp_path / "4711").mkdir()
    done = jobkit("waste", "4711", cwd=tmp_path)
    assert done.returncode == 2
    assert "jobkit waste ./4711" in done.stderr
    assert "cd / && jobkit waste 4711" in done.stderr
