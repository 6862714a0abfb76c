from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import slurm_past
from jobkit.schedulers.protocol import PastJob, Whose, without_impossible
from tests.support.surveys import captured

MIB, GIB = 2**20, 2**30


@pytest.fixture(scope="module")
def jobs() -> dict[str, PastJob]:
    """Return the jobs that a real Slurm listed, the last run of each, by name or id of the task."""
    return {job.name if "_" not in job.job_id else job.job_id: job for job in read()}


def read() -> Iterator[PastJob]:
    return slurm_past.read(captured("slurm/past").stdout.splitlines(keepends=True), "")


def test_what_a_job_requested_and_used(jobs: dict[str, PastJob]) -> None:
    job = jobs["simple"]
    assert (job.ended, job.well, job.outcome, job.queue) == (True, True, None, "cpu")
    assert (job.memory_bytes, job.memory_key, job.walltime_s, job.cpus) == (400 * MIB, "--mem", 600.0, 2)
    assert job.held_bytes == job.process_bytes
    assert 100 * MIB < (job.held_bytes or 0) < 130 * MIB
    assert 4 <= job.elapsed_s < 60
    assert (job.cpu_s or 0) > 0
    assert job.gpus == 0
    held = [job.held_bytes or 0 for id_, job in sorted(jobs.items()) if "_" in id_]
    assert (len(held), held) == (3, sorted(held)), "each task of an array is a job"


def test_steps_at_the_same_time_are_added_up_and_others_are_not(jobs: dict[str, PastJob]) -> None:
    job = jobs["steps"]
    assert job.processes == 2
    assert 100 * MIB < (job.process_bytes or 0) < 150 * MIB  # one of two tasks of the first srun
    assert 2 * (job.process_bytes or 0) < (job.held_bytes or 0) < 360 * MIB  # both, and the batch step


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ([], 1),
        ([(5, 54), (5, 54)], 2),
        ([(5, 9), (9, 54)], 1),
        ([(5, 30), (20, 54), (40, 54)], 2),
        ([(5, 5), (5, 5)], 2),  # within one second: nothing shows that they followed each other
    ],
)
def test_tasks_are_the_most_of_all_steps_at_one_time(steps: list[tuple[int, int]], most: int) -> None:
    every = [("7", 5, 55, ""), ("7.batch", 5, 55, "1")]
    every += [(f"7.{number}", *span, "1") for number, span in enumerate(steps)]
    at = "2026-01-02T03:04"
    rows = [
        f"{name}|me|cpu|COMPLETED|0:0|{at}:{begun:02}|{at}:{over:02}|50|10|700M|2|1|{tasks}|00:00:09|9M|||||par"
        for name, begun, over, tasks in every
    ]
    (job,) = slurm_past.read([f"{row.replace('|par', '||par')}\n" for row in rows], "")
    assert job.processes == most


def test_each_component_of_a_heterogeneous_job_is_a_job() -> None:
    parts = [job for job in read() if job.name == "het"]
    assert [job.job_id.partition("+")[2] for job in parts] == ["0", "1"]
    assert [job.memory_bytes for job in parts] == [100 * MIB, 200 * MIB]


def test_memory_of_several_nodes_is_that_of_one(jobs: dict[str, PastJob]) -> None:
    job = jobs["two|nodes"]
    assert (job.nodes, job.memory_bytes, job.processes) == (2, 300 * MIB, 4)
    assert 2 * 55 * MIB < (job.held_bytes or 0) < 250 * MIB  # two of four tasks, and the batch step


def test_jobs_that_did_not_end_well(jobs: dict[str, PastJob]) -> None:
    assert (jobs["oom"].outcome, jobs["oom"].well) == (Outcome.RAM_OOM, False)
    assert (jobs["oom"].held_bytes or 0) > (jobs["oom"].memory_bytes or 0)
    assert (jobs["fail"].well, jobs["fail"].outcome, jobs["fail"].held_bytes) == (False, None, None)
    assert (jobs["cancelled"].well, jobs["cancelled"].outcome) == (False, Outcome.CANCELLED)
    assert jobs["fail"].state == "status 3 or 131"
    first = next(job for job in read() if job.name == "requeued")
    assert (first.state, first.ended) == ("REQUEUED", False)


NONE = {"held_bytes": None, "cpu_s": None}
SITES: dict[str, dict[str, Any]] = {
    "extern-only": {"held_bytes": None, "process_bytes": None, "cpu_s": 3600},
    "typed-gpus": {"gpus": 2, "gpu_bytes": 0, "gpu_percent": 0},
    "gpus-of-the-request": {"gpus": 2, "gpu_percent": None},
    "gpus-of-two-types": {"gpus": 3},
    "gpus-and-their-types": {"gpus": 3},
    "gpu-of-a-step": {"gpus": 1, "gpu_bytes": 21794 * MIB, "gpu_percent": 99},
    "twenty-nodes": NONE | {"walltime_s": None},
    "two-nodes": {"memory_bytes": 16 * GIB, "held_bytes": 7 * GIB, "cpu_s": 10_800},
    "46-times": {"cpu_s": None, "doubts": ("46 times the time of 2 CPUs",), "held_bytes": 10048532 * 1024},
    "eight-tasks": {"held_bytes": 15593440 * 1024, "processes": 8, "cpu_s": 417.815},
    "no-total-cpu": {"cpu_s": 7200, "doubts": ()},
    "of-a-node": {"memory_bytes": 4 * GIB},
    "of-a-cpu": {"memory_bytes": 8 * GIB, "memory_shares": 4},
    "huge": {"held_bytes": None, "cpu_s": 1800},
    "NaN": NONE | {"memory_bytes": None, "elapsed_s": 0, "cpus": 1, "gpus": 0, "gpu_percent": None},
    "line": {"job_id": "119", "held_bytes": 9 * GIB},
}
"""Rows as the accounting of sites has them: steps, types of GPUs, versions, and figures that cannot be."""


def test_rows_of_other_sites_and_versions() -> None:
    read = slurm_past.read(captured("slurm/sites").stdout.splitlines(), "")
    jobs = {job.name: without_impossible(job) for job in read}
    found = {name: {key: getattr(jobs[name], key) for key in wanted} for name, wanted in SITES.items()}
    assert found == SITES


def test_rows_before_slurm_21_request_memory_by_cpu() -> None:
    row = "7|me|cpu|COMPLETED|0:0|2026-01-02T03:04:05|2026-01-02T03:05:05|60|UNLIMITED|2Gc|4|1||00:01:00||"
    (job,) = slurm_past.read([f"{row}cpu=4|cpu=4,mem=8G||||old\n"], "")
    assert (job.memory_bytes, job.memory_shares, job.walltime_s) == (8 * 2**30, 4, None)
    assert slurm_past.lines(job, memory=2 * 2**30, walltime=None, cpus=None) == ["#SBATCH --mem-per-cpu=512M"]


def test_a_name_with_line_ends_is_no_row() -> None:
    (argv,) = slurm_past.argvs(Whose(ids=("7",)), (), "")
    bar = next(word.partition("=")[2] for word in argv if word.startswith("--delimiter="))
    row = captured("slurm/past").stdout.splitlines()[0]
    named = bar.join([*row.split("|")[:-1], f"a\n{row}\n{row}"])
    (job,) = slurm_past.read([bar.join(slurm_past.COLUMNS), *named.split("\n")], "")
    assert (job.job_id, job.name) == (row.partition("|")[0], "a")


def test_a_job_that_never_began_and_lines_that_are_no_rows() -> None:
    at = "2026-01-02T03:05:05"
    row = f"8|me|cpu|CANCELLED by 0|0:0|{at}|{at}|0|10|2G|0|1||00:00:00||cpu=1,mem=2G|||||never"
    lines = ["sacct: warning\n", "7.batch|||COMPLETED" + "|" * 17 + "\n", f"{row}\n"]
    assert list(slurm_past.read(lines[:2], "")) == []
    (job,) = slurm_past.read(lines, "")
    assert (job.began, job.memory_bytes, job.ended) == ("", 2 * 2**30, True)


def test_the_lines_of_the_next_job(jobs: dict[str, PastJob]) -> None:
    lines = slurm_past.lines(jobs["simple"], memory=200 * MIB, walltime=300, cpus=1)
    assert lines[:2] == ["#SBATCH --mem=200M", "#SBATCH --time=00:05:00"]
    assert lines[2:] == ["#SBATCH --ntasks=1", "#SBATCH --cpus-per-task=1"]
    assert slurm_past.lines(jobs["simple"], memory=None, walltime=None, cpus=None) == []


def test_one_command_asks_for_all_jobs_and_what_it_says_is_passed_on() -> None:
    (argv,) = slurm_past.argvs(Whose(ids=("12", "13_4")), (), "")
    assert argv[argv.index("-j") + 1] == "12,13_4"
    (argv,) = slurm_past.argvs(Whose(user="me"), [date(2026, 1, 2)], "")
    assert argv[argv.index("-u") + 1] == "me"
    assert slurm_past.refusal(Completed(("sacct",), 1, "", "sacct: error: no")) == "sacct: error: no"
    assert not slurm_past.refusal(captured("slurm/past-unknown"))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("JobAcctGatherFrequency  = 30", ["sampled every 30 s"]),
        ("JobAcctGatherFrequency = energy=10,task=5", ["sampled every 5 s"]),
        ("JobAcctGatherFrequency = task=0", ["does not see a short peak"]),
        ("JobAcctGatherType = jobacct_gather/none", ["no use of memory"]),
        ("JobAcctGatherType = jobacct_gather/cgroup", ["may count the page cache", "short peak"]),
        (
            "JobAcctGatherType = jobacct_gather/cgroup\nJobAcctGatherParams = No_File_Cache",
            ["leaves out the page cache", "short peak"],
        ),
        ("JobAcctGatherType = jobacct_gather/linux", ["share counts for each", "short peak"]),
    ],
)
def test_what_the_configuration_implies_for_memory(config: str, words: list[str]) -> None:
    sentences = slurm_past.how_measured(config)
    assert len(sentences) == len(words)
    assert all(word in sentence for word, sentence in zip(words, sentences, strict=True)), sentences
    row = "7|me|cpu|COMPLETED|0:0|2026-01-02T03:04:05|2026-01-02T03:05:05|60|9|2G|4|1||00:01:00||cpu=4||||{}"
    rows = [
        f"{row.format('|a')}\n",
        f"7.batch{row[1:].format('|batch').replace('||00:01:00||', '|1|00:01:00|2G|')}\n",
    ]
    (job,) = slurm_past.read(rows, config)
    assert job.doubts == (("page cache up to the limit",) if "may count" in words[0] else ())
    assert slurm_past.site_argvs(Whose(user="ada"))[0][0] == "scontrol"
