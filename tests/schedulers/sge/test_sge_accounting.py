from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import sge
from jobkit.schedulers.parsing import find_job_id
from jobkit.schedulers.types import Accounted, JobId, State
from tests.support.surveys import captured


def job(name: str) -> str:
    """Return the id that a captured submission got."""
    return find_job_id(captured(f"sge/submit-{name}").stdout, sge.JOB_ID_PATTERNS, "qsub").id


def accounted(answer: tuple[Accounted, ...] | None, job_id: str) -> dict[int, Accounted]:
    assert answer is not None
    return {task.task: task for task in answer if task.job_id == job_id}


def test_the_accounting_of_a_life() -> None:
    tasks = accounted(sge.parse_accounting(captured("sge/qacct")), job("terse"))

    outcomes = {number: (task.outcome, task.exit_status) for number, task in sorted(tasks.items())}
    assert outcomes == {
        1: (None, 0),
        2: (None, 7),
        3: (Outcome.QUEUE_ERROR, 100),
        4: (None, 137),
        5: (None, 0),
    }
    assert all(task.ended for task in tasks.values())
    assert tasks[4].evidence == "qacct: failed 100 : assumedly after job, exit_status 137 (Killed)"
    assert tasks[1].node == "localhost"
    assert tasks[1].elapsed_s == 1


def test_a_task_past_h_rt_timed_out() -> None:
    (task,) = accounted(sge.parse_accounting(captured("sge/qacct")), job("limit")).values()

    assert (task.outcome, task.exit_status) == (Outcome.TIMEOUT, 137)
    assert "of h_rt 3 s" in task.evidence


def test_the_last_attempt_counts() -> None:
    answer = captured("sge/qacct")
    retried = job("retry")
    (task,) = accounted(sge.parse_accounting(answer), retried).values()
    assert (task.ended, task.outcome, task.exit_status) == (True, None, 3)

    first = next(r for r in answer.stdout.split("=" * 62) if f"jobnumber    {retried} " in r)
    (task,) = sge.parse_accounting(Completed(("qacct",), 0, first, "")) or ()
    assert (task.ended, task.exit_status) == (False, 99)


def test_resident_memory_is_in_kib_whatever_the_unit_says() -> None:
    (task,) = accounted(sge.parse_accounting(captured("sge/qacct")), job("memory")).values()

    assert 300_000_000 < (task.max_rss_bytes or 0) < 330_000_000


def test_not_known_yet_is_not_unreachable() -> None:
    assert sge.parse_accounting(captured("sge/qacct-unknown")) == ()
    assert sge.parse_accounting(captured("sge/qacct-no-file")) is None
    assert sge.parse_accounting(Completed(("qacct",), 127, "", "qacct: command not found")) is None


def record(**fields: str) -> str:
    lines = {
        "jobnumber": "5",
        "taskid": "2",
        "failed": "100 : assumedly after job",
        "exit_status": "137 (Killed)",
    }
    return "=" * 62 + "\n" + "".join(f"{key:13}{value}\n" for key, value in (lines | fields).items())


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"ru_wallclock": "60s", "category": "-l h_rt=60"}, Outcome.TIMEOUT),
        ({"ru_wallclock": "59s", "category": "-q x -l h_rt=0:1:0"}, None),
        ({"ru_wallclock": "5s", "maxvmem": "2.5G", "category": "-l h_rt=60,h_vmem=2G"}, Outcome.RAM_OOM),
        ({"maxvmem": "2.5G", "slots": "2", "category": "-l h_vmem=2G -pe smp 2"}, None),
        ({"failed": "37 : qmaster enforced h_rt"}, Outcome.TIMEOUT),
        ({"failed": "0", "exit_status": "1", "maxvmem": "3G", "category": "-l h_vmem=2G"}, None),
        ({"failed": "26 : opening output file", "exit_status": "0"}, Outcome.QUEUE_ERROR),
        ({"failed": "19 : before writing exit_status", "exit_status": "0"}, Outcome.NODE_FAIL),
        (
            {
                "ru_wallclock": "0s",
                "start_time": "Sat Nov 21 02:11:46 2026",
                "end_time": "Sat Nov 21 02:12:47 2026",
                "category": "-l h_rt=60",
            },
            Outcome.TIMEOUT,
        ),
    ],
)
def test_a_kill_is_held_against_the_limits(fields: dict[str, str], outcome: Outcome | None) -> None:
    (task,) = sge.parse_accounting(Completed(("qacct",), 0, record(**fields), "")) or ()

    assert (task.job_id, task.task, task.ended, task.outcome) == ("5", 2, True, outcome)


def test_a_start_that_failed_is_in_the_queue_and_in_the_accounting() -> None:
    listed = sge.parse_queue(captured("sge/qstat-eqw")) or ()
    (stuck,) = (one for one in listed if one.name == "jobkit-since")
    assert stuck.state is State.ERROR
    told = accounted(sge.parse_accounting(captured("sge/qacct-eqw")), stuck.job_id)
    assert (told[stuck.task].outcome, told[stuck.task].ended) == (Outcome.QUEUE_ERROR, True)
    since = sge.parse_accounting(captured("sge/qacct-since"))
    assert accounted(since, stuck.job_id) == {}, "qacct -b looks at the start, and it has none"


def test_several_runs_are_asked_about_by_owner_and_time() -> None:
    asked = captured("sge/qacct-since")
    *_, start, _ = asked.argv
    since = datetime.strptime(start, "%Y%m%d%H%M").replace(tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:59")
    assert sge.accounting_argv((JobId("1"),), since, "", ("root",)) == asked.argv
    tasks = sge.parse_accounting(asked)
    assert tasks is not None
    assert [(task.task, task.exit_status, task.name) for task in tasks] == [
        (1, 3, "jobkit-since"),
        (2, 3, "jobkit-since"),
    ]
    assert sge.parse_accounting(captured("sge/qacct-since-none")) == (), "a table of nothing is an answer"
