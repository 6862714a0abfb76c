"""What past jobs have wasted, as the accounting of a scheduler tells it, and what is advised."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import random
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.blocks import as_text
from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.core.units import GIB, MIB
from jobkit.extensions.past_jobs.ask import ask
from jobkit.extensions.past_jobs.auto import decided
from jobkit.extensions.past_jobs.groups import (
    CPUS,
    MEMORY,
    WALLTIME,
    AlikeJobs,
    History,
    JudgedResource,
    later_use_more,
    replay,
)
from jobkit.extensions.past_jobs.output import as_csv, as_json, blocks, lines_for, worst_first
from jobkit.schedulers import slurm_past
from jobkit.schedulers.protocol import PastJob, Whose
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
    submitted="2026-01-02T03:04:00",
    began="2026-01-02T03:04:05",
    over="2026-01-02T03:14:05",
    elapsed_s=600.0,
    walltime_s=36_000.0,
    memory_bytes=16 * GIB,
    memory_key="--mem",
    held_bytes=3 * GIB,
    cpus=8,
    cpu_s=900.0,
)


OVER = {"well": False, "state": "FAILED", "outcome": Outcome.RAM_OOM}
LATE = OVER | {"outcome": Outcome.TIMEOUT}


@pytest.mark.parametrize(
    ("changes", "resource", "wanted"),
    [
        ({"held_bytes": 15 * GIB}, MEMORY, 16 * GIB),  # not more than was requested while that was enough
        ({"held_bytes": 17 * GIB}, MEMORY, 19 * GIB),  # more than was requested, and no limit held
        ({}, CPUS, 2),
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
    assert jobs.well == ("outcome" not in changes)


def test_memory_that_is_not_reserved_any_more() -> None:
    jobs, unknown = AlikeJobs((JOB, replace(JOB, nodes=2))), AlikeJobs((replace(JOB, memory_bytes=None),))
    reserved = [one.reserved_memory() for one in (jobs, unknown)]
    assert reserved == [(600 * 3 * 16 * GIB, 600 * 3 * 4 * GIB), None]


def test_gpus_are_idle_only_if_another_job_on_such_a_gpu_shows_that_it_is_measured() -> None:
    idle = replace(JOB, gpus=2, gpu_type="a100", gpu_percent=0.0, gpu_bytes=0)
    for jobs, measured, said in (
        ((idle, idle), {"a100"}, True),
        ((idle, idle), {"h200"}, None),
        ((idle, replace(idle, gpu_percent=3.0)), {"a100"}, False),
        ((idle, replace(idle, gpu_percent=None)), {"a100"}, None),
    ):
        assert AlikeJobs(jobs, measured).idle is said


def test_jobs_of_another_name_or_request_are_judged_apart() -> None:
    other, larger = replace(JOB, name="merge"), replace(JOB, memory_bytes=32 * GIB, job_id="3")
    later = replace(JOB, job_id="4", submitted="2025-01-02T03:04:05")
    groups = History("slurm", [JOB, other, larger, later]).groups()
    assert [[job.job_id for job in group.ordered()] for group in groups] == [["4", "1"], ["1"], ["3"]]


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        ([f"nf-ALIGN_(sample_{number})" for number in range(300)], {"nf-ALIGN_(*)"}),
        ([f"fit-{number:04d}c3" for number in range(16, 60)], {"fit-*"}),
        ([f"demo-20260102-10153{number % 10}-3f{number}a" for number in range(10, 40)], {"demo-*-*-*"}),
        (["step1", "step2"] * 20, {"step1", "step2"}),
    ],
)
def test_names_of_which_each_job_has_its_own_are_one(names: list[str], groups: set[str]) -> None:
    jobs = (replace(JOB, job_id=f"{number}", name=name) for number, name in enumerate(names))
    found = History("slurm", jobs)
    assert {group.name for group in found.groups()} == groups


def in_order(sizes: list[float], hours_apart: int = 1, **changes: Any) -> list[PastJob]:
    """Return jobs that hold so many GiB, each submitted after the one before has ended."""
    began = datetime(2026, 1, 1)  # noqa: DTZ001 - local, as the accounting has it
    times = [(began + timedelta(hours=hours_apart * number)) for number in range(len(sizes))]
    return [
        replace(
            JOB,
            job_id=str(number),
            held_bytes=int(size * GIB),
            submitted=at.isoformat(),
            over=(at + timedelta(minutes=30)).isoformat(),
            **changes,
        )
        for number, (at, size) in enumerate(zip(times, sizes, strict=True))
    ]


def test_the_rate_is_that_of_the_order_of_submission() -> None:
    grows, shuffled = [1.0 + number / 4 for number in range(40)], [1.0 + number / 4 for number in range(40)]
    random.Random(3).shuffle(shuffled)  # noqa: S311 - a simulation
    assert later_use_more(grows) is True
    assert later_use_more(shuffled) is False
    assert later_use_more(([1.0] * 10 + [5.0] * 10) * 2) is None
    jumps = [*[1.0] * 10, 9.0, *[1.0] * 4]
    asked, lacking, short = replay(in_order(jumps))
    assert (asked, lacking, dict(short)) == (13, 1, {"memory": 1})
    assert replay(in_order(jumps, hours_apart=0))[0] == 0, "none had ended"
    steady, growing = (AlikeJobs(in_order(sizes)).need(MEMORY) for sizes in ([4.0] * 9 + [4.1], grows[:10]))
    assert (steady.next, growing.next) == (5 * GIB, 5 * GIB)
    assert (growing.most or 0) < 3.3 * GIB


def test_the_same_figure_in_each_job_is_no_measurement() -> None:
    jobs = AlikeJobs(in_order([4.0] * 12))
    assert (jobs.constant, jobs.need(MEMORY).next, jobs.need(WALLTIME).next) == (True, None, 1200)


def memory_of(lines: list[str], cpus: int, gpus: int, slots: int) -> float:
    """Return the MiB that header lines request in all."""
    text = "\n".join(lines)
    cpus = int(found[1]) if (found := re.search(r"--cpus-per-task=(\d+)", text)) else cpus
    slots = int(found[1]) if (found := re.search(r"-pe smp (\d+)", text)) else slots
    times = {"--mem": 1, "--mem-per-cpu": cpus, "--mem-per-gpu": gpus, "h_vmem": slots}
    keys = re.findall(r"(--mem[a-z-]*|h_vmem)=(\d+)M", text)
    return sum(times[key] * int(size) for key, size in keys)


@pytest.mark.parametrize(
    ("scheduler", "key"),
    [("slurm", "--mem"), ("slurm", "--mem-per-cpu"), ("slurm", "--mem-per-gpu"), ("sge", "h_vmem")],
)
def test_printed_options_hold_what_is_needed_together(scheduler: str, key: str) -> None:
    draw = random.Random(11)  # noqa: S311 - a simulation
    for _ in range(200):
        cpus, gpus = draw.randint(1, 64), draw.randint(1, 4)
        shares = {"--mem": 1, "--mem-per-gpu": gpus}.get(key, cpus)
        asked = draw.randint(1, 64) * shares * GIB
        job = replace(
            JOB,
            scheduler=scheduler,
            memory_key=key,
            memory_shares=shares,
            memory_bytes=asked,
            held_bytes=int(asked * draw.uniform(0.01, 1)),
            cpus=cpus,
            cpu_s=600 * cpus * draw.uniform(0.01, 1),
            gpus=gpus,
            environment="smp",
        )
        history = History(scheduler, [job])
        (group,) = history.groups()
        lines = lines_for(group)
        if printed := memory_of(lines, cpus, gpus, cpus):
            assert printed * MIB >= (job.held_bytes or 0), (job, lines)
        else:
            shrinks = any("cpus-per-task" in line or "-pe" in line for line in lines)
            assert key in {"--mem", "--mem-per-gpu"} or not shrinks, (job, lines)


Program = Callable[[str, str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return ``program(name, body)``: a command on PATH that prints what a real one has printed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("JOBKIT_STATE", str(tmp_path / "state"))
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
def test_jobs_are_chosen_by_name_and_by_id_as_schedulers_print_them() -> None:
    every = ask(MINE, since=SINCE)
    array = next(job.job_id.partition("_")[0] for job in every.jobs if "_" in job.job_id)
    assert {job.name for job in ask(Whose(ids=(array,))).jobs} == {"arr"}
    assert len(ask(Whose(ids=(array,))).jobs) == 3
    assert [job.job_id for job in ask(Whose(ids=(f"{array}_2",))).jobs] == [f"{array}_2"]
    assert {job.name for job in ask(MINE, since=SINCE, name="s*").jobs} == {"simple", "steps"}
    assert "sampled every 30 s" in " ".join(every.notes)
    found = ask(Whose(ids=("999", every.jobs[0].job_id)))
    assert found.unknown == ["999"]
    assert "requeued" not in {job.name for job in found.jobs}
    span = json.loads(jobkit("waste", f"{array}_[1-3]", "--json").stdout)
    two = json.loads(jobkit("waste", f"{array}_1,{array}_2", "--json").stdout)
    other = json.loads(jobkit("waste", f"{array}.1-3:1", f"{array}[1-3]", "--json").stdout)
    assert [len(found["groups"][0]["jobs"]) for found in (span, two, other)] == [3, 2, 3]


MINE, SINCE = Whose(), date(2026, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "ids", "name", "message"),
    [
        ("", ("999",), "*", "999: Slurm's accounting (sacct) has no such job"),
        ("", ("999.0",), "*", "999.0: Slurm's accounting (sacct) has no job or task of this name"),
        ("", (), "zz*", "no job that is asked for called 'zz*'"),
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
        ask(Whose(ids=ids), since=SINCE, name=name)
    assert message in raised.value.message
    assert raised.value.hint or row
    assert "." not in "".join(ids) or "jobkit waste 999" in raised.value.hint


@pytest.mark.slow
def test_an_accounting_that_is_off_is_named(slurm: Program) -> None:
    slurm("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    with pytest.raises(JobkitError) as raised:
        ask(MINE, since=SINCE)
    assert "does not answer: Slurm accounting storage is disabled" in raised.value.message
    assert raised.value.exit_code == 3


@pytest.mark.usefixtures("program")
def test_without_a_scheduler_there_is_no_accounting() -> None:
    with pytest.raises(JobkitError, match="no accounting to ask"):
        ask(MINE, since=SINCE)
    done = jobkit("waste")
    assert (done.returncode, "past jobs: jobkit waste --mine" in done.stderr) == (2, True)


@pytest.mark.usefixtures("slurm")
def test_a_day_to_come_is_refused() -> None:
    later = date.today() + timedelta(days=2)  # noqa: DTZ011 - local
    with pytest.raises(JobkitError, match=f"since {later}: no job has ended on a day to come") as raised:
        ask(Whose(user="me"), since=later)
    assert raised.value.hint.startswith(f"today is {later - timedelta(days=2)}; ")


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
    assert "#SBATCH --mem=600M" not in text, "a job of 11 s may have held more"
    assert "not known: jobs ran 11 s at most, and ten samples take 300 s" in text
    assert "#SBATCH --mem=300M" in text, "one that ran out of memory needs more"
    assert "nothing shows how often the next has enough" in text
    assert "1 job ran out of memory" in text
    assert "does not advise less" in text


def test_what_would_be_a_formula_is_text_and_tasks_decide_on_cpus() -> None:
    named = History("slurm", [replace(JOB, name="=cmd|' /C calc'!A0", processes=4)])
    (row,) = csv.DictReader("".join(as_csv(worst_first(named))).splitlines())
    assert (row["name"], row["cpus_next"]) == ("'=cmd|' /C calc'!A0", "")


def test_the_largest_figure_of_each_resource_is_shown_first() -> None:
    memory = replace(JOB, name="memory", user="a", memory_bytes=900 * GIB, elapsed_s=9000.0)
    many = [
        replace(JOB, name="x" * size, user="b", gpus=1, gpu_percent=50.0, memory_bytes=4 * GIB)
        for size in range(1, 30)
    ]
    every = History("slurm", [*many, memory])
    assert worst_first(every)[0].name == "memory"
    text = as_text(blocks(every, worst_first(every), table=True))
    assert "Less to gain" in text
    assert "as a share of the largest" in text


def page(*jobs: PastJob) -> str:
    history = History("slurm", jobs)
    return as_text(blocks(history, worst_first(history)), None)


FITTING = replace(
    JOB, memory_bytes=400 * MIB, held_bytes=90 * MIB, walltime_s=300.0, elapsed_s=100.0, cpus=1, cpu_s=90.0
)
FAILED = replace(FITTING, job_id="2", well=False, state="status 1")
WHOLE_NODE = replace(JOB, held_cpus=64, held_gpus=4)


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([FITTING], "The request fits: change nothing"),
        (
            [replace(FITTING, gpus=1)],
            "use of the GPU.\nThese parts of the request may stay: memory, walltime, CPUs",
        ),
        ([replace(FITTING, processes=2)], "These parts of the request may stay: memory, walltime."),
        ([FITTING, FAILED], "1 job failed (status 1): that does not show what a whole run needs"),
        ([FAILED], "No job completed"),
        ([replace(FAILED, outcome=Outcome.RAM_OOM, sampled_s=300.0)], "more than 90.0 MiB"),
        ([replace(JOB, name="short-1")], "Try --name 'short-*'"),
        ([WHOLE_NODE], "held 64 CPUs and 4 GPUs and requested 8 CPUs: leave out --exclusive"),
        ([replace(JOB, elapsed_s=4.0)] * 10, "Half of the jobs ran 4 s or less"),
    ],
)
def test_a_verdict_names_no_more_than_what_is_known(jobs: list[PastJob], said: str) -> None:
    text = page(*jobs)
    assert said in text
    assert ("The request fits" in text) == (jobs == [FITTING])
    assert not re.search("Use of memory is not known|too few samples", text)
    assert ("as it is" in text) == any(job.well and job.cpus == 1 for job in jobs)


def test_what_jobkit_knows_of_a_failed_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "letters-20261126-142847-2ae2"
    shutil.copytree(DATA.parent / "golden" / "runs" / run.name, run)
    assert f"jobkit status runs/{run.name}" in page(FITTING, replace(FAILED, name=run.name))


def test_each_job_that_cannot_be_judged_counts_once() -> None:
    """For want of samples and of a figure of its GPU; and no column that decides on the order is left out."""
    short = [
        replace(JOB, job_id=f"{number}", name="gpu", gpus=1, sampled_s=300.0, elapsed_s=2.0)
        for number in range(4)
    ]
    again = replace(JOB, job_id="9", name="more", again=True, well=False)
    jobs = History("slurm", [*short, again, replace(JOB, job_id="9", name="more", held_bytes=None)])
    groups = worst_first(jobs)
    text = as_text(blocks(jobs, groups, table=True), None)
    assert "5 jobs of 2 names of me on Slurm" in text
    assert "5 jobs, 1.35 CPU-hours could not be judged in full" in text
    (counts,) = re.findall(r'"not_judged": (.*?), "groups"', "".join(as_json(jobs, groups)))
    assert sum(json.loads(counts).values()) == 5
    busy = replace(JOB, name="busy", gpus=1, gpu_percent=10.0, elapsed_s=9.0)
    idle = replace(JOB, name="idle", gpus=1, gpu_percent=0.0)
    some = History("slurm", [busy, idle])
    rows = as_text(blocks(some, worst_first(some), table=True), None).partition("─\n")[2].splitlines()
    assert [row.split()[2] for row in rows[:2]] == ["?", "<0.01"]


@pytest.mark.parametrize("scheduler", ["slurm", "sge"])
def test_the_job_that_follows_a_run_is_no_row(scheduler: str) -> None:
    export = DATA / scheduler / "export-follows.txt"
    (points,) = ask(Whose(), file=export).groups()
    assert points.jobs[0].walltime_s == 300
    (follows,) = ask(Whose(ids=("4_1" if scheduler == "slurm" else "9.1",)), file=export).jobs
    assert follows.walltime_s == 600


SAID = {
    "more-memory": ["Jobs used more than requested (memory)", "#SBATCH --mem=54272M"],
    "more-cpus": ["Jobs used more than requested (CPUs busy)", "#SBATCH --cpus-per-task=12"],
    "extern-only": ["16.00 GiB  not known", "no MaxRSS"],
    "typed-gpus": ["2  not known", "no other job shows that this site measures it"],
    "46-times": [
        "Impossible, so not used: 111_9734: 46 times the time of 2 CPUs",
        "--mem=11264M",
    ],
    "requeued": ["requeued: 1 job on", "1 job ran again", "01:30:00  as it is"],
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
    history = History("slurm", [JOB] * 10_000)
    groups = worst_first(history)
    assert "no measurement" in as_text(blocks(history, groups), None)
    pieces = list(as_json(history, groups))
    assert max(map(len, pieces)) < sum(map(len, pieces)) / 9
    (group,) = json.loads("".join(pieces))["groups"]
    assert (len(group["jobs"]), group["jobs"][0]["name"]) == (10_000, "train")


def test_hours_that_are_not_known_are_null() -> None:
    """Zeros of a GPU that nothing shows to be measured, no MaxRSS, no CPU time; none is not the same as 0."""
    silent = replace(JOB, gpus=1, gpu_percent=0.0, gpu_bytes=0, held_bytes=None, cpu_s=None)
    found = []
    for job in (silent, JOB, WHOLE_NODE):
        history = History("slurm", [job])
        (group,) = json.loads("".join(as_json(history, worst_first(history))))["groups"]
        (_, line) = "".join(as_csv(worst_first(history))).splitlines()
        found.append((group["unused_hours"], line.split(",")[4:7]))
    known = {"gpu": 0.0, "gib": pytest.approx(13 / 6), "cpu": pytest.approx(13 / 12)}
    assert found[0] == ({"gpu": None, "gib": None, "cpu": None}, ["", "", ""])
    assert found[1] == (known, ["0.0", "2.167", "1.083"])
    assert found[2][0] == known | {"gpu": pytest.approx(4 / 6), "cpu": pytest.approx(64 / 6 - 0.25)}


@pytest.mark.rare
def test_of_very_many_jobs_a_part_is_kept_and_the_largest() -> None:
    found = History("slurm")
    for number in range(100_000):
        found.add(replace(JOB, job_id=str(number), held_bytes=GIB + number))
    (group,) = found.groups()
    assert (group.number, group.need(MEMORY).most) == (100_000, GIB + 99_999)
    assert len(group.jobs) <= 40_000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", ""], "--name is empty"),
        (["--mine", "4711"], "name no RUN and no JOBID"),
        (["--mine", "--user", "nosuch"], "--mine and --user: name one of them"),
        (["4711", "--days", "3"], "however old the job is"),
        ([""], "RUN is empty"),
        (["4711"], "the folder: jobkit waste ./4711; the job: (cd / && jobkit waste 4711)"),
    ],
)
def test_words_that_ask_for_two_things_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "4711").mkdir()
    done = jobkit("waste", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_export_that_comes_through_a_pipe_loses_no_job() -> None:
    """As with --from <(cat FILE): a pipe gives its lines only once."""
    export = DATA / "slurm" / "export-practice.txt"
    out, into = os.pipe()
    with os.fdopen(out, "rb"), os.fdopen(into, "wb") as stream:
        stream.write(export.read_bytes())  # not more than a pipe holds
        stream.close()
        assert ask(Whose(), file=Path(f"/dev/fd/{out}")).jobs == ask(Whose(), file=export).jobs


@pytest.mark.slow
@pytest.mark.usefixtures("program")
def test_jobs_of_all_users_are_read_from_a_file_and_counted_by_user(tmp_path: Path) -> None:
    columns = (*slurm_past.COLUMNS[:-1], "Account", "Submit", "JobName")
    rows = ["|".join(columns)]
    for number in range(60):
        at = datetime(2026, 1, 1 + number // 24, number % 24)  # noqa: DTZ001 - local
        over, user = at + timedelta(minutes=50), f"user{number % 2}"
        size = "" if number % 20 == 7 else f"{2_000_000 + 1000 * number}K"
        end = f"COMPLETED|0:0|{at.isoformat()}|{over.isoformat()}|3000"
        tres = "cpu=4,mem=16G,node=1"
        rows += [
            f"{number}|{user}|cpu|{end}|120|16G|4|1||00:50:00||{tres}|{tres}||||lab|{at.isoformat()}|fit"
        ]
        rows += [f"{number}.batch|||{end}|||4|1|1|00:50:00|{size}||||||lab|{at.isoformat()}|batch"]
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    table = jobkit("waste", "--from", "sacct.txt", "--all").stdout
    assert "60 jobs of 2 users on Slurm" in table
    assert "3 jobs, 10 CPU-hours could not be judged in full: no MaxRSS (3)" in table
    hidden = jobkit("waste", "--from", "sacct.txt", "--hash-users", "--csv").stdout.splitlines()
    assert [line.split(",")[2:4] for line in hidden] == [["name", "jobs"], ["fit", "30"], ["fit", "30"]]
    assert "user0" not in "".join(hidden)
    one = jobkit("waste", "--from", "sacct.txt", "--user", "user0").stdout
    assert "#SBATCH --mem=3072M" in one
    assert "what jobkit advises from the jobs that had ended before: 0 of" in one
    assert "95 % 2.00 GiB" in one
    few = jobkit("waste", "--from", "sacct.txt", "--at-least", "5000h").stdout
    assert "no jobs of one name and user leave 5000 hours unused" in few
    (tmp_path / "no-header").write_text(rows[1], encoding="utf-8")
    done = jobkit("waste", "--from", "no-header")
    assert (done.returncode, "neither the header of sacct" in done.stderr) == (2, True)
    assert "qacct -d 30 -j > FILE" in done.stderr


def test_how_often_an_export_was_sampled_is_an_assumption() -> None:
    export = ("waste", "--from", str(DATA / "slurm/export-all.txt"), "--name", "excl")
    assumed, given = (jobkit(*export, *more).stdout for more in ((), ("--sampled-every", "0:00:02")))
    assert "taken to be sampled every 30 s, Slurm's default" in assumed
    assert ("ten samples take 300 s" in assumed, "ten samples take 20 s" in given) == (True, True)
    assert "Slurm's default" not in given


def test_an_export_with_all_columns_has_what_jobs_held_and_how_many_tasks_ran() -> None:
    """Names and command lines with bars and line ends too."""
    export = str(DATA / "slurm/export-all.txt")
    rows = jobkit("waste", "--from", export).stdout.partition("─\n")[2].partition("\n\n")[0]
    found = {row.split()[0]: row for row in rows.splitlines()}
    assert set(found) == {"excl", "ntasks", "wide", "lines", "na|me"}
    assert "4 % of 8" in found["excl"]
    assert "78 % of 600.0 MiB" in found["wide"], "of 12 CPUs on two nodes, 100 MiB each"
    text = jobkit("waste", "--from", export, "--name", "excl").stdout
    assert "1, held 8" in text
    text = jobkit("waste", "--from", export, "--name", "ntasks").stdout
    assert "asked for 4 tasks; one ran at a time, on 1 CPU: without srun" in text
    assert "#SBATCH --ntasks=1" in text


@pytest.mark.slow
def test_what_a_partition_gives_by_default_is_called_so(slurm: Program) -> None:
    partition = "PartitionName=cpu DefaultTime=NONE MaxTime=00:05:00 DefMemPerNode=UNLIMITED"
    slurm("scontrol", f"echo 'DefMemPerCPU = 200'; echo '{partition}'")
    text = jobkit("waste", "--name", "gpu").stdout
    rows = {line.split()[0]: line.split()[1:4] for line in text.splitlines() if line}
    assert rows["memory"] == ["200.0", "MiB", "(default)"]
    assert rows["walltime"][:2] == ["00:05:00", "(default)"]
    assert "(default)" not in jobkit("waste", "--name", "steps").stdout


@pytest.mark.slow
def test_the_jobs_of_a_user_are_one_call_and_one_whom_no_system_knows_is_named(
    slurm: Program, tmp_path: Path
) -> None:
    slurm("sacct", f"echo x >> {tmp_path}/asked; echo 'sacct: error: Invalid user id: x' >&2; exit 1")
    done = jobkit("waste", "--user", "no-such-user", "--since", "90d")
    assert (done.returncode, "no user no-such-user" in done.stderr) == (2, True)
    assert (tmp_path / "asked").read_text(encoding="utf-8").split() == ["x"]


@pytest.mark.slow
def test_a_day_that_is_over_is_asked_once(slurm: Program, tmp_path: Path) -> None:
    slurm("scontrol", "echo 'ClusterName = lab'")
    slurm("sacct", f"echo x >> {tmp_path}/asked; cat {tmp_path}/answer")
    first = jobkit("waste", "--all", "--since", "3d", "--json").stdout
    again = jobkit("waste", "--all", "--since", "3d", "--json").stdout
    assert json.loads(first) == json.loads(again)
    asked = (tmp_path / "asked").read_text(encoding="utf-8").split()
    assert len(asked) in {4 + 1, 4 + 2}, (
        "of four days the last, in the first hour the last two, are asked again"
    )


@pytest.mark.slow
def test_a_full_disk_keeps_no_part_of_an_answer(
    slurm: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    slurm("scontrol", "echo 'ClusterName = lab'")
    monkeypatch.setattr(gzip.GzipFile, "write", write)
    since = date.today() - timedelta(days=3)  # noqa: DTZ011 - local
    with pytest.raises(JobkitError, match=f"has ended since {since}"):
        ask(Whose(), since=since, name="zz*")
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert kept == []


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_auto_is_the_answer_for_the_name_of_the_run(tmp_path: Path) -> None:
    answer = (tmp_path / "answer").read_text(encoding="utf-8")
    named = "\n".join(
        f"{line[: line.rindex('|')]}|demo-20260102-101530-3f{line[:1]}a" for line in answer.splitlines()
    )
    (tmp_path / "answer").write_text(named + "\n", encoding="utf-8")
    found = decided("demo", "slurm", {"memory": 8 * GIB, "walltime": 600})
    memory = {key: value for key, value in found["memory"].items() if isinstance(value, int)}
    assert 100 * MIB < memory["floor"] <= memory["request"] <= memory["ceiling"] == 8 * GIB
    assert "called demo-*" in str(found["memory"]["line"])
    other = decided("other", "slurm", {"memory": 8 * GIB})
    assert other["memory"]["request"] == 8 * GIB
    assert decided("demo", "local", {"memory": GIB})["memory"]["request"] == GIB
    assert decided("demo", "slurm", {}) == {}


def test_a_job_that_ran_and_was_cancelled_as_it_waited_again_keeps_its_run(tmp_path: Path) -> None:
    job = {"JobID": "5", "User": "ada", "ReqMem": "16G", "AllocCPUS": "4", "NNodes": "1", "JobName": "tag"}
    ran = {"State": "REQUEUED", "Start": "2026-11-01T00:00:00", "End": "2026-11-01T01:00:00"}
    ran |= {"ElapsedRaw": "3600", "TotalCPU": "00:30:00", "AllocTRES": "cpu=4,mem=16G,node=1"}
    waited = {"State": "CANCELLED by 1000", "Start": "None", "End": "2026-11-01T02:00:00", "ElapsedRaw": "0"}
    lines = [
        "|".join(slurm_past.EXPORTED),
        *("|".join((job | run).get(name, "") for name in slurm_past.EXPORTED) for run in (ran, waited)),
    ]
    (tmp_path / "jobs").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = ask(Whose(ids=("5",)), file=tmp_path / "jobs")
    assert ([job.again for job in found.jobs], found.running, found.unknown) == ([True], [], [])
