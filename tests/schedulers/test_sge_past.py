from __future__ import annotations

import tracemalloc
from datetime import date
from typing import Any

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import sge_past
from jobkit.schedulers.protocol import PastJob, Whose
from tests.support.surveys import captured

MIB, GIB = 2**20, 2**30
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


SITES: dict[str, dict[str, Any]] = {
    "letters": {"elapsed_s": 314.272, "walltime_s": 7200, "memory_bytes": 16 * GIB, "memory_shares": 4},
    "late": {"outcome": Outcome.TIMEOUT, "elapsed_s": 7195.099, "began": "2026-06-11T13:00:00"},
    "vmem": {"outcome": Outcome.RAM_OOM, "well": False},
    "rss": {"outcome": Outcome.RAM_OOM},
    "task": {"job_id": "5.7", "walltime_s": 7200, "memory_key": "h_rss", "memory_bytes": 3 * GIB, "gpus": 2},
    "no-fraction": {"elapsed_s": 314, "began": "2026-06-11T13:22:37"},
    "mpi": {"cpu_s": 1500, "held_bytes": None, "well": True},
    "open": {"began": "2026-06-11T13:22:37", "elapsed_s": 314, "held_bytes": 1778116608, "cpu_s": 300.736},
    "plain": {"elapsed_s": 3600, "process_bytes": 19496 * 1024, "state": "qacct: failed 0, exit_status 1"},
    "load": {"memory_bytes": 25 * GIB, "memory_shares": 1, "held_bytes": int(20.61 * GIB)},
    "host": {"memory_bytes": 8 * GIB, "memory_shares": 1, "gpus": 1},
    "site": {"memory_key": "rmem", "memory_bytes": 24 * GIB},
    "unstarted": {"outcome": Outcome.QUEUE_ERROR, "began": ""},
    "again": {"ended": False, "again": True},
    "NaN": {"began": "", "elapsed_s": 0, "cpus": 1, "cpu_s": None, "held_bytes": None, "walltime_s": None},
}
"""Records as qacct of Sun, Son of, Univa's, Altair's and the Open Cluster Scheduler print them."""


def test_records_of_other_sites_and_products() -> None:
    site = captured("sge/sites-complexes").stdout
    jobs = {job.name: job for job in sge_past.read(captured("sge/sites").stdout.splitlines(), site)}
    found = {name: {key: getattr(jobs[name], key) for key in wanted} for name, wanted in SITES.items()}
    assert found == SITES
    assert jobs.keys() == SITES.keys()


def test_the_lines_of_the_next_job(jobs: dict[str, PastJob]) -> None:
    job, memory = jobs["simple"], 300 * MIB
    shorter = sge_past.lines(job, memory=memory, walltime=300, cpus=None)
    assert shorter == ["#$ -l h_vmem=150M", "#$ -l h_rt=00:05:00"]
    alone = sge_past.lines(job, memory=memory, walltime=None, cpus=1)
    assert alone == ["#$ -l h_vmem=300M", "#$ -pe smp 1"]
    assert sge_past.lines(jobs["fail"], memory=MIB, walltime=None, cpus=1) == []


def test_a_call_for_each_id_and_one_for_all_of_mine() -> None:
    by_id = sge_past.argvs(Whose(ids=("7.1", "7.2", "9")), (), "")
    assert by_id == (("qacct", "-j", "7"), ("qacct", "-j", "9"))
    whose, days = Whose(user="ada", queue="gpu.q"), [date(2026, 1, 2), date(2026, 1, 3)]
    assert sge_past.argvs(whose, days, "") == (("qacct", "-o", "ada", "-q", "gpu.q", "-d", "2", "-j"),)
    assert sge_past.site_argvs(whose) == (("qconf", "-sc"),)


def test_a_job_that_is_not_found_is_an_answer_and_a_file_that_is_missing_is_none() -> None:
    assert not sge_past.refusal(Completed(("qacct",), 1, "", "error: job id 999 not found"))
    missing = "/opt/sge/default/common/accounting: No such file or directory"
    assert sge_past.refusal(Completed(("qacct",), 1, "", missing)) == missing


def test_a_large_accounting_is_read_record_by_record() -> None:
    rule = "=" * 62
    one = captured("sge/past").stdout.split(rule)[1].strip("\n").splitlines(keepends=True)
    lines = (line for _ in range(200) for line in (f"{rule}\n", *one, "\n"))
    tracemalloc.start()
    count = sum(1 for _ in sge_past.read(lines, SITE))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200
    assert most_bytes < MIB // 2


def test_nothing_and_a_half_record_are_no_jobs() -> None:
    assert list(sge_past.read([], SITE)) == []
    assert list(sge_past.read(["====\n", "qname gpu.q\n", "====\n"], SITE)) == []
    (job,) = sge_past.read(["jobnumber 5\n", "start_time -/-\n"], SITE)
    assert (job.job_id, job.began, job.ended) == ("5", "", True)
