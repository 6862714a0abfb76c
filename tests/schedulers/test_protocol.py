"""What holds for Slurm and Grid Engine alike, by the answers that their daemons gave."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.shell import Completed
from jobkit.schedulers import local, sge, slurm
from jobkit.schedulers.parsing import find_job_id, refusal
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import SCHEDULERS, by_name, runs_here
from jobkit.schedulers.types import JobId
from tests.support.surveys import FILES, captured

MODULES: tuple[Scheduler, ...] = (slurm, sge, local)
"""mypy compares each with the protocol; the registry loads them by name."""
CLUSTERS = [name for name in SCHEDULERS if not runs_here(name)]


def job_id(scheduler: str, text: str) -> JobId:
    return find_job_id(text, by_name(scheduler).JOB_ID_PATTERNS, "submit")


@pytest.mark.parametrize(
    ("answer", "cluster"),
    [
        ("slurm/submit-parsable", ""),
        ("slurm/submit-cluster", "lab"),
        ("slurm/submit-plain", ""),
        ("slurm/submit-plain-cluster", "lab"),
        ("sge/submit-terse", ""),
        ("sge/submit-plain", ""),
        ("sge/submit-plain-array", ""),
    ],
)
def test_the_job_id_of_every_form_of_answer(answer: str, cluster: str) -> None:
    """Noise before and after it does not hide it."""
    scheduler, said = answer.partition("/")[0], captured(answer).stdout
    job = job_id(scheduler, said)
    assert (job.id.isdigit(), job.id in said, job.cluster) == (True, True, cluster)
    noise = "sbatch: Verify job 12 of yours\nJSV: checked 12 resources\nquota: 3 of 5 GB used\n"
    assert job_id(scheduler, f"{noise}{said}\n\nHave a nice day, user 7\n") == job


@pytest.mark.parametrize("scheduler", CLUSTERS)
@pytest.mark.parametrize("text", ["quota exceeded", "", "x 7\njob 8 is done"])
def test_an_answer_without_a_job_id_is_quoted(scheduler: str, text: str) -> None:
    with pytest.raises(JobkitError) as raised:
        job_id(scheduler, f"{text}\n")
    assert raised.value.exit_code == ExitCode.REFUSED
    assert raised.value.message == f"submit printed no job id, but: {text or 'nothing'}"


OVER = [
    *(f"slurm/scancel-{how}" for how in ("all", "again", "partly")),
    *(f"slurm/throttle-{how}" for how in ("partly", "ended", "unknown")),
    *(f"sge/qdel-{how}" for how in ("all", "again", "partly", "unknown")),
    *(f"sge/throttle-{how}" for how in ("partly", "ended", "unknown")),
]
REFUSED = {
    "slurm/scancel-denied": "Access/permission denied",
    "slurm/scancel-wrong": "Invalid range",
    "slurm/throttle-denied": "Invalid user id",
    "sge/qdel-denied": "privileges to delete the job",
    "sge/throttle-denied": "must be at least owner",
}


@pytest.mark.parametrize("answer", [*OVER, *REFUSED])
def test_a_task_that_has_ended_is_no_refusal_of_a_change(answer: str) -> None:
    said = refusal(captured(answer), by_name(answer.partition("/")[0]).OVER_PATTERN)
    assert (said is None) == (answer in OVER)
    assert REFUSED.get(answer, "") in (said or "")
    assert "finished" not in (said or "")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        *(("slurm/squeue-gone", True), ("slurm/squeue-unknown", True), ("slurm/squeue-unreachable", False)),
        *(("sge/qstat-empty", True), ("sge/qstat-unreachable", False)),
        *(("slurm/sacct-unknown", True), ("slurm/sacct-unreachable", False), ("slurm/sacct-off", False)),
        *(("sge/qacct-unknown", True), ("sge/qacct-no-file", False)),
    ],
)
def test_gone_is_empty_and_no_answer_is_unknown(name: str, *, known: bool) -> None:
    scheduler = by_name(name.partition("/")[0])
    parse = scheduler.parse_accounting if "acct" in name else scheduler.parse_queue
    assert parse(captured(name)) == (() if known else None)


def test_the_registry_has_each_module_once_by_its_name() -> None:
    assert {scheduler.NAME: scheduler for scheduler in MODULES} == dict(SCHEDULERS)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(st.text(alphabet="0123456789_[].,-%|=\n CANCELDjobnumbertaskidfailedexit_status", max_size=300))
def test_no_answer_however_broken_raises(scheduler: str, text: str) -> None:
    by_name(scheduler).parse_queue(Completed(("queue",), 0, text, ""))
    by_name(scheduler).parse_accounting(Completed(("accounting",), 0, text, ""))


def test_the_driver_accounts_for_its_points() -> None:
    row = {"job_id": "7", "task": 2, "evidence": "process finished", "host": "n1", "elapsed_s": 1.5}
    (one,) = local.parse_accounting(Completed((), 0, json.dumps(row) + "\n\n", "")) or ()
    assert (one.job_id, one.task, one.ended, one.outcome) == ("7", 2, True, None)
    assert (one.node, one.elapsed_s) == ("n1", 1.5)
    for text in ("{", "[]", '{"job_id": 7}'):
        assert local.parse_accounting(Completed((), 0, text, "")) is None


@pytest.mark.parametrize("scheduler", CLUSTERS)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_answer_about_the_site_is_too_odd(scheduler: str, text: str) -> None:
    names = [*FILES[scheduler], "projects", "environment x"]
    answers = dict.fromkeys(names, Completed(("x",), 0, text, text))
    by_name(scheduler).survey_argvs(answers)
    assert by_name(scheduler).parse_survey(answers).trouble == ""
    assert by_name(scheduler).parse_survey({}).keeping.said == "not asked"
