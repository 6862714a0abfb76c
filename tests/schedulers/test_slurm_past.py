from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import slurm_past
from jobkit.schedulers.past import PastJob
from tests.support.surveys import captured

MIB = 2**20


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
    first = next(job for job in read() if job.name == "requeued")
    assert (first.state, first.ended) == ("REQUEUED", False)


def test_the_use_of_gpus_is_read_where_the_site_records_it(jobs: dict[str, PastJob]) -> None:
    assert (jobs["gpu"].gpus, jobs["gpu"].gpu_bytes, jobs["gpu"].gpu_percent) == (1, None, None)
    text = captured("slurm/past").stdout
    recorded = text.replace("energy=0,fs/disk", "gres/gpumem=2G,gres/gpuutil=37,energy=0,fs/disk")
    (job,) = (job for job in slurm_past.read(recorded.splitlines(), "") if job.name == "gpu")
    assert (job.gpu_bytes, job.gpu_percent) == (2 * 2**30, 37.0)


def test_rows_before_slurm_21_request_memory_by_cpu() -> None:
    row = "7|me|cpu|COMPLETED|0:0|2026-01-02T03:04:05|2026-01-02T03:05:05|60|UNLIMITED|2Gc|4|1||00:01:00||"
    (job,) = slurm_past.read([f"{row}cpu=4|cpu=4,mem=8G||||old\n"], "")
    assert (job.memory_bytes, job.memory_shares, job.walltime_s) == (8 * 2**30, 4, None)
    assert slurm_past.lines(job, memory=2 * 2**30, walltime=None, cpus=None) == ["#SBATCH --mem-per-cpu=512M"]


def test_a_job_that_never_began_and_lines_that_are_no_rows() -> None:
    at = "2026-01-02T03:05:05"
    row = f"8|me|cpu|CANCELLED by 0|0:0|{at}|{at}|0|10|2G|0|1||00:00:00||cpu=1,mem=2G|||||never"
    lines = ["sacct: warning\n", "7.batch|||COMPLETED" + "|" * 17 + "\n", f"{row}\n"]
    assert list(slurm_past.read(lines[:2], "")) == []
    (job,) = slurm_past.read(lines, "")
    assert (job.began, job.memory_bytes, job.ended) == ("", 2 * 2**30, True)


def test_the_lines_of_the_next_job(jobs: dict[str, PastJob]) -> None:
    lines = slurm_past.lines(jobs["simple"], memory=200 * MIB, walltime=300, cpus=1)
    assert lines == ["#SBATCH --mem=200M", "#SBATCH --time=00:05:00", "#SBATCH --cpus-per-task=1"]
    assert slurm_past.lines(jobs["simple"], memory=None, walltime=None, cpus=None) == []


SAMPLED = {"30": 30.0, "energy=10,task=5": 5.0, "task=0": 0.0}


def test_how_often_memory_is_sampled() -> None:
    config = "JobAcctGatherFrequency  = {}\n"
    assert {text: slurm_past.sampling_s(config.format(text)) for text in SAMPLED} == SAMPLED
    assert slurm_past.sampling_s("slurmctld is down\n") is None
    assert slurm_past.site_argv()[0] == "scontrol"


def test_one_command_asks_for_all_jobs_and_what_it_says_is_passed_on() -> None:
    (argv,) = slurm_past.argvs(("12", "13_4"), "me", 7)
    assert argv[argv.index("-j") + 1] == "12,13_4"
    (argv,) = slurm_past.argvs((), "me", 7)
    assert argv[argv.index("-u") + 1] == "me"
    assert slurm_past.refusal(Completed(("sacct",), 1, "", "sacct: error: no")) == "sacct: error: no"
    assert not slurm_past.refusal(captured("slurm/past-unknown"))
