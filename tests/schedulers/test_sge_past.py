from __future__ import annotations

import re
import tracemalloc

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import sge_past
from jobkit.schedulers.past import PastJob
from tests.support.surveys import captured

MIB = 2**20
SITE = captured("sge/lab-complexes").stdout


@pytest.fixture(scope="module")
def jobs() -> dict[str, PastJob]:
    """Return the jobs that a real Grid Engine listed, by name, or by id the tasks of an array."""
    read = sge_past.read(captured("sge/past").stdout.splitlines(keepends=True), SITE)
    return {job.name if "." not in job.job_id else job.job_id: job for job in read}


def test_what_a_job_requested_and_used(jobs: dict[str, PastJob]) -> None:
    job = jobs["simple"]
    assert (job.ended, job.well, job.outcome) == (True, True, None)
    assert (job.walltime_s, job.cpus, job.environment) == (600.0, 2, "smp")
    assert (job.memory_key, job.memory_shares, job.memory_bytes) == ("h_vmem", 2, 800 * MIB)
    assert 100 * MIB < (job.held_bytes or 0) < 130 * MIB
    assert (job.process_bytes or 0) <= (job.held_bytes or 0)
    assert job.began.startswith("20")
    assert (jobs["peak"].held_bytes or 0) >= 300 * MIB, "seen by the kernel, between two samples"
    held = [job.held_bytes or 0 for id_, job in sorted(jobs.items()) if "." in id_]
    assert (len(held), held) == (3, sorted(held)), "each task of an array is a job"


def test_jobs_that_did_not_end_by_themselves(jobs: dict[str, PastJob]) -> None:
    assert (jobs["fail"].well, jobs["fail"].outcome, jobs["fail"].memory_bytes) == (False, None, None)
    assert (jobs["late"].well, jobs["late"].outcome) == (False, Outcome.TIMEOUT)
    assert not jobs["cancelled"].well


def test_gpus_are_counted_by_slot_unless_the_site_counts_them_by_job() -> None:
    record = "jobnumber 5\nslots 2\ncategory -l ngpus=1 -pe smp 2\n".splitlines(keepends=True)
    (job,) = sge_past.read(record, SITE)
    assert job.gpus == 2
    by_job = re.sub(r"^(ngpus .*<= +YES +)YES", r"\1JOB", SITE, flags=re.MULTILINE)
    (job,) = sge_past.read(record, by_job)
    assert job.gpus == 1


def test_the_lines_of_the_next_job(jobs: dict[str, PastJob]) -> None:
    job, memory = jobs["simple"], 300 * MIB
    shorter = sge_past.lines(job, memory=memory, walltime=300, cpus=None)
    assert shorter == ["#$ -l h_vmem=150M", "#$ -l h_rt=00:05:00"]
    alone = sge_past.lines(job, memory=memory, walltime=None, cpus=1)
    assert alone == ["#$ -l h_vmem=300M", "#$ -pe smp 1"]
    assert sge_past.lines(jobs["fail"], memory=MIB, walltime=None, cpus=1) == []


def test_a_call_for_each_id_and_one_for_all_of_mine() -> None:
    assert sge_past.argvs(("7.1", "7.2", "9"), "me", 7) == (("qacct", "-j", "7"), ("qacct", "-j", "9"))
    assert sge_past.argvs((), "me", 7) == (("qacct", "-o", "me", "-d", "7", "-j"),)
    assert sge_past.site_argv() == ("qconf", "-sc")
    assert sge_past.sampling_s(SITE) is None


def test_a_job_that_is_not_found_is_an_answer_and_a_file_that_is_missing_is_none() -> None:
    assert not sge_past.refusal(Completed(("qacct",), 1, "", "error: job id 999 not found"))
    missing = "/opt/sge/default/common/accounting: No such file or directory"
    assert sge_past.refusal(Completed(("qacct",), 1, "", missing)) == missing


def test_a_large_accounting_is_read_record_by_record() -> None:
    rule = "=" * 62
    one = captured("sge/past").stdout.split(rule)[1].strip("\n").splitlines(keepends=True)
    lines = (line for _ in range(1_000) for line in (f"{rule}\n", *one, "\n"))
    tracemalloc.start()
    count = sum(1 for _ in sge_past.read(lines, SITE))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 1_000
    assert most_bytes < MIB // 2


def test_nothing_and_a_half_record_are_no_jobs() -> None:
    assert list(sge_past.read([], SITE)) == []
    assert list(sge_past.read(["====\n", "qname gpu.q\n", "====\n"], SITE)) == []
    (job,) = sge_past.read(["jobnumber 5\n", "start_time -/-\n"], SITE)
    assert (job.job_id, job.began, job.ended) == ("5", "", True)
