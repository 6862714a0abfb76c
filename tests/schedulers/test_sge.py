from __future__ import annotations

import os
import pwd
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.schedulers import sge
from jobkit.schedulers.parsing import find_job_id
from jobkit.schedulers.types import Accounted, Array, JobId, JobRequest, Queued, State
from tests.support.surveys import ARRAY, REQUEST, captured


def job(name: str) -> str:
    """Return the id that a captured submission got."""
    return find_job_id(captured(f"sge/submit-{name}").stdout, sge.JOB_ID_PATTERNS, "qsub").id


def queued(answer: tuple[Queued, ...] | None, job_id: str) -> dict[int, Queued]:
    assert answer is not None
    return {task.task: task for task in answer if task.job_id == job_id}


def test_the_commands_that_submit_change_and_show_a_job() -> None:
    first = "qsub -terse -b n -now n -t 1-3 -tc 2 job.sh"
    assert sge.submit_argv("job.sh", ARRAY) == tuple(first.split())
    one, before = Array(first=1, last=1, offset=6, throttle=None), [JobId("7"), JobId("9")]
    follows = "qsub -terse -b n -now n -hold_jid 7,9 -t 1-1 find.sh --offset 6"
    assert sge.submit_argv("find.sh", one, before) == tuple(follows.split())
    assert sge.log_name("demo-1", "12", 3) == "demo-1.o12.3"
    assert sge.throttle_argv(JobId("12"), 3) == ("qalter", "-tc", "3", "12")
    assert sge.cancel_argv(JobId("12")) == ("qdel", "12")
    assert sge.cancel_argv(JobId("12"), (9, 3, 4, 5)) == ("qdel", "12.3-5", "12.9")


def test_the_array_limit() -> None:
    assert sge.limit_argv() == captured("sge/config").argv
    assert sge.parse_limit(captured("sge/config").stdout) == 75_000
    assert sge.parse_limit("max_aj_tasks                 0\n") is None
    assert sge.parse_limit("nothing of the sort") is None


def test_an_array_counts_as_one_job() -> None:
    three = tuple(Array(first=1, last=5, offset=offset, throttle=None) for offset in (0, 5, 10))
    assert sge.task_limit_error(captured("sge/config").stdout, three) is None
    assert sge.task_limit_error("max_u_jobs 3\nmax_jobs 0\nmax_aj_instances 2\n", three) is None
    said = sge.task_limit_error("max_u_jobs   2\nmax_jobs   1\n", three)
    assert said == "15 points are 3 array jobs, but at most 1 are allowed (max_jobs)"


def test_jobs_are_asked_for_by_their_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    me = pwd.getpwuid(os.getuid()).pw_name
    assert sge.queue_argv((JobId("12"),)) == ("qstat", "-s", "prs", "-u", me, "-xml")
    since, jobs = "2026-01-02T03:04:05", (JobId("1"), JobId("2"))
    assert sge.queue_argv(jobs, ("ann", "bob")) == ("qstat", "-s", "prs", "-u", "ann,bob", "-xml")
    assert sge.accounting_argv(jobs, since, "", ("ann",)) == (
        "qacct", "-o", "ann", "-b", "202601020304", "-j",
    )  # fmt: skip
    assert sge.accounting_argv(jobs, since, "", ("ann", "bob")) == ("qacct", "-b", "202601020304", "-j")


def test_running_and_pending_and_error() -> None:
    answer = sge.parse_queue(captured("sge/qstat-live"))

    life = queued(answer, job("terse"))
    assert {number: task.state for number, task in life.items()} == {3: State.ERROR, 4: State.RUNNING}
    assert f"qstat -j {life[3].job_id} shows why" in sge.explain(life[3])
    assert re.fullmatch(r"jobkit-capture-\d+", life[4].name)
    assert (life[4].node, life[4].elapsed_s) == ("localhost", None)
    assert re.fullmatch(r"[-\d]{10}T[:\d]{8}", life[4].start_at)
    waiting = queued(answer, job("waiting"))
    assert [task.state for task in waiting.values()] == [State.RUNNING, *[State.PENDING] * 8]
    assert (waiting[9].node, waiting[9].start_at, waiting[9].name) == ("", "", life[4].name)
    held = queued(answer, job("held"))  # ranges with holes
    assert sorted(held) == [task for task in range(1, 201) if task > 128 or task % 6 != 2]
    assert {task.state for task in held.values()} == {State.HELD}
    for cut in ("<job_info><queue", ""):
        assert sge.parse_queue(Completed(("qstat",), 0, cut, "")) is None


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.PENDING, ["qw", "Rq"]),
        (State.HELD, ["hqw", "hRwq"]),
        (State.RUNNING, ["r", "hr", "t", "Rr", "s", "tS", "RtT", "N", "qwP"]),
        (State.ERROR, ["Eqw", "Ehqw", "EhRqw"]),
        (State.ENDING, ["dr", "dRt", "dT"]),
        (State.UNKNOWN, ["", "?"]),
    ],
)
def test_states_of_the_man_page(state: State, words: list[str]) -> None:
    row = "<job_list><JB_job_number>5</JB_job_number><state>{}</state><tasks>1</tasks></job_list>"
    xml = f"<job_info><job_info>{''.join(map(row.format, words))}</job_info></job_info>"
    tasks = sge.parse_queue(Completed(("qstat",), 0, xml, "")) or ()
    assert [task.state for task in tasks] == [state] * len(words)


def accounted(answer: tuple[Accounted, ...] | None, job_id: str) -> dict[int, Accounted]:
    assert answer is not None
    return {task.task: task for task in answer if task.job_id == job_id}


def test_the_accounting_of_a_life() -> None:
    said = sge.parse_accounting(captured("sge/qacct"))
    tasks = accounted(said, job("terse"))

    ended = [(tasks[number].outcome, tasks[number].exit_status) for number in range(1, 6)]
    assert ended == [(None, 0), (None, 7), (Outcome.QUEUE_ERROR, 100), (None, 137), (None, 0)]
    assert all(task.ended for task in tasks.values())
    assert tasks[4].evidence == "qacct: failed 100 : assumedly after job, exit_status 137 (Killed)"
    assert (tasks[1].node, tasks[1].elapsed_s) == ("localhost", 1)
    (late,) = accounted(said, job("limit")).values()
    assert (late.outcome, late.exit_status) == (Outcome.TIMEOUT, 137)
    assert "of h_rt 3 s" in late.evidence
    (large,) = accounted(said, job("memory")).values()
    assert 300_000_000 < (large.max_rss_bytes or 0) < 330_000_000, "KiB, whatever the unit says"


def test_the_last_attempt_counts() -> None:
    answer = captured("sge/qacct")
    retried = job("retry")
    (task,) = accounted(sge.parse_accounting(answer), retried).values()
    assert (task.ended, task.outcome, task.exit_status) == (True, None, 3)

    first = next(r for r in answer.stdout.split("=" * 62) if f"jobnumber    {retried} " in r)
    (task,) = sge.parse_accounting(Completed(("qacct",), 0, first, "")) or ()
    assert (task.ended, task.exit_status) == (False, 99)


def record(**fields: str) -> Completed:
    lines = {"jobnumber": "5", "taskid": "2", "failed": "100 : after job", "exit_status": "137 (Killed)"}
    text = "".join(f"{key:13}{value}\n" for key, value in (lines | fields).items())
    return Completed(("qacct",), 0, "=" * 62 + "\n" + text, "")


A_MINUTE = {
    "ru_wallclock": "0s",
    "start_time": "Sat Nov 21 02:11:46 2026",
    "end_time": "Sat Nov 21 02:12:47 2026",
    "category": "-l h_rt=60",
}


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"ru_wallclock": "60s", "category": "-l h_rt=60"}, Outcome.TIMEOUT),
        ({"ru_wallclock": "59s", "category": "-q x -l h_rt=0:1:0"}, None),
        (A_MINUTE, Outcome.TIMEOUT),
        ({"ru_wallclock": "5s", "maxvmem": "2.5G", "category": "-l h_rt=60,h_vmem=2G"}, Outcome.RAM_OOM),
        ({"maxvmem": "2.5G", "slots": "2", "category": "-l h_vmem=2G -pe smp 2"}, None),
        ({"failed": "37 : qmaster enforced h_rt"}, Outcome.TIMEOUT),
        ({"failed": "44 : execd enforced h_rt limit"}, Outcome.TIMEOUT),
        ({"failed": "46 : execd enforced h_vmem limit", "exit_status": "137"}, Outcome.RAM_OOM),
        ({"failed": "45 : execd enforced h_cpu limit"}, None),
        ({"ru_wallclock": "61.5", "submit_cmd": "qsub -pe smp 2 -l h_rt=0:1:0 job.sh"}, Outcome.TIMEOUT),
        ({"failed": "0", "exit_status": "1", "maxvmem": "3G", "category": "-l h_vmem=2G"}, None),
        ({"failed": "26 : opening output file", "exit_status": "0"}, Outcome.QUEUE_ERROR),
        ({"failed": "19 : before writing exit_status", "exit_status": "0"}, Outcome.NODE_FAIL),
    ],
)
def test_a_kill_is_held_against_the_limits(fields: dict[str, str], outcome: Outcome | None) -> None:
    (task,) = sge.parse_accounting(record(**fields)) or ()

    assert (task.job_id, task.task, task.ended, task.outcome) == ("5", 2, True, outcome)


def test_a_start_that_failed_is_in_the_queue_and_in_the_accounting() -> None:
    listed = sge.parse_queue(captured("sge/qstat-eqw")) or ()
    (stuck,) = (one for one in listed if one.name == "jobkit-since")
    assert stuck.state is State.ERROR
    said = accounted(sge.parse_accounting(captured("sge/qacct-eqw")), stuck.job_id)
    assert (said[stuck.task].outcome, said[stuck.task].ended) == (Outcome.QUEUE_ERROR, True)
    since = sge.parse_accounting(captured("sge/qacct-since"))
    assert accounted(since, stuck.job_id) == {}, "qacct -b looks at the start, and it has none"


def test_several_runs_are_asked_about_by_owner_and_time() -> None:
    asked = captured("sge/qacct-since")
    *_, start, _ = asked.argv
    since = datetime.strptime(start, "%Y%m%d%H%M").replace(tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:59")
    assert sge.accounting_argv((JobId("1"),), since, "", ("root",)) == asked.argv
    tasks = sge.parse_accounting(asked) or ()
    assert [(task.task, task.exit_status, task.name) for task in tasks] == [
        (task, 3, "jobkit-since") for task in (1, 2)
    ]
    assert sge.parse_accounting(captured("sge/qacct-since-none")) == (), "a table of nothing is an answer"


ANSWERS = {"qconf_sq": "queues", "qconf_sc": "complexes", "qsub_w": "verify-ok", "qstat_F": "lab-instances"}


def refusals(request: JobRequest, **others: Completed) -> list[str]:
    answers = {name: captured(f"sge/{file}") for name, file in ANSWERS.items()} | others
    asked = sge.checks("job.sh", ARRAY, request)
    said = [check.refusal(request, answers["_".join(check.argv[:2]).replace("-", "")]) for check in asked]
    return [text for text in said if text]


ONLY_THESE = "no queue 'gpus.q' (it has: gpu.q, serial.q, short.q); did you mean 'gpu.q'?"
LONG = "01:00:00 is longer than queue 'short.q' allows (h_rt): at most 00:10:00"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue": "gpus.q"}, ONLY_THESE),
        ({"queue": "short.q", "walltime_s": 3600}, LONG),
        ({"queue": "gpu.q", "slots": 9}, "queue 'gpu.q' has no node with 9 CPUs: localhost has 8 CPUs"),
        ({"resources": ("ngpu", "h_vmem")}, "did you mean 'ngpus'? (change the site file"),
    ],
)
def test_a_refusal_names_the_value_and_what_to_change(changes: dict[str, Any], words: str) -> None:
    (said,) = refusals(replace(REQUEST, **changes))

    assert words in said
    assert "(change " in said


@pytest.mark.parametrize("queue", [None, "gpu.q", "gpu.q@localhost", "*.q", "short.q,serial.q", "@allhosts"])
def test_what_is_right_is_not_refused(queue: str | None) -> None:
    assert refusals(replace(REQUEST, queue=queue, walltime_s=3600, resources=("ngpus", "mf"))) == []


def test_where_no_queue_is_listed_nothing_is_refused() -> None:
    silent, request = captured("sge/qstat-unreachable"), replace(REQUEST, queue="no.q", resources=("nope",))
    assert refusals(request, qconf_sq=silent, qconf_sc=silent) == [], "verification decides"


@pytest.mark.parametrize("name", ["queue", "resource", "gpus", "pe", "h-rt", "script"])
def test_what_verification_refuses_is_passed_on(name: str) -> None:
    (said,) = refusals(REQUEST, qsub_w=captured(f"sge/verify-{name}"))

    assert said.startswith("qsub refuses the job: ")
    assert "Exiting." not in said


def test_verification_ignores_load_values_and_is_not_believed_about_them() -> None:
    answer, load = captured("sge/verify-load"), replace(REQUEST, resources=("mem_free",))
    assert "no suitable queues" in answer.said

    assert refusals(load, qsub_w=answer) == []
    assert refusals(replace(REQUEST, resources=("h_vmem",)), qsub_w=answer) != []
    assert refusals(load, qsub_w=captured("sge/verify-queue")) != []


def test_a_job_that_runs_now_is_no_reason_against_a_host_of_ones_own() -> None:
    answer = captured("sge/verify-exclusive-busy")
    assert "no suitable queues" in answer.said
    assert refusals(REQUEST, qsub_w=answer) == []


def shut(states: dict[str, str], status: int = 0) -> str:
    head = "queuename qtype resv/used/tot. load_avg arch states\n---\n"
    row = "{}                BIP   0/0/16         1.97     lx-amd64      {}\n"
    text = head + "".join(row.format(*instance) for instance in states.items())
    return sge.shut_reason(Completed(sge.shut_argv(), status, text, ""))


def test_queue_instances_in_error_are_named_with_the_command_that_clears_them() -> None:
    why = shut({"all.q@n1": "E", "gpu.q@n1": "aE"})
    assert why == "no queue starts a job until an administrator types: qmod -cq all.q@n1 gpu.q@n1"
    many = shut({f"all.q@n{n}": "E" for n in range(9)} | {"gpu.q@n1": "d"})
    assert many == "no queue starts a job until an administrator types: qmod -cq '*'"
    some = shut({"a.q@n": "E", "b.q@n": ""})
    assert some == "waits for a free slot; a.q starts no job until an administrator types: qmod -cq a.q@n"
    for states, status in (
        ({"a.q@n": "E", "a.q@m": ""}, 0),
        ({"a.q@n": "d"}, 0),
        ({}, 0),
        ({"a.q@n": "E"}, 1),
    ):
        assert shut(states, status) == "", "it may start a job, or does not answer"
