from __future__ import annotations

import re

import pytest

from jobkit.core.shell import Completed
from jobkit.schedulers import sge
from jobkit.schedulers.parsing import find_job_id
from jobkit.schedulers.types import Array, JobId, Queued, State
from tests.support.surveys import ARRAY, captured


def job(name: str) -> str:
    """Return the id that a captured submission got."""
    return find_job_id(captured(f"sge/submit-{name}").stdout, sge.JOB_ID_PATTERNS, "qsub").id


def queued(answer: tuple[Queued, ...] | None, job_id: str) -> dict[int, Queued]:
    assert answer is not None
    return {task.task: task for task in answer if task.job_id == job_id}


def test_submit_argv() -> None:
    assert sge.submit_argv("job.sh", ARRAY) == ("qsub", "-terse", "-t", "1-3", "-tc", "2", "job.sh")
    one = Array(first=1, last=1, offset=6, throttle=None)
    assert sge.submit_argv("find.sh", one, [JobId("7"), JobId("9")]) == (
        "qsub", "-terse", "-hold_jid", "7,9", "-t", "1-1", "find.sh", "--offset", "6",
    )  # fmt: skip
    assert sge.log_name("demo-1", "12", 3) == "demo-1.o12.3"


def test_the_array_limit() -> None:
    assert sge.limit_argv() == captured("sge/config").argv
    assert sge.parse_limit(captured("sge/config").stdout) == 75_000
    assert sge.parse_limit("max_aj_tasks                 0\n") is None
    assert sge.parse_limit("nothing of the sort") is None


def test_an_array_counts_as_one_job() -> None:
    three = tuple(Array(first=1, last=5, offset=offset, throttle=None) for offset in (0, 5, 10))
    assert sge.task_limit_error(captured("sge/config").stdout, three) is None
    assert sge.task_limit_error("max_u_jobs 3\nmax_jobs 0\nmax_aj_instances 2\n", three) is None
    told = sge.task_limit_error("max_u_jobs   2\nmax_jobs   1\n", three)
    assert told == "15 points are 3 array jobs, but at most 1 are allowed (max_jobs)"


def test_the_commands_that_change_a_job() -> None:
    assert sge.throttle_argv(JobId("12"), 3) == ("qalter", "-tc", "3", "12")
    assert sge.cancel_argv(JobId("12")) == ("qdel", "12")
    assert sge.cancel_argv(JobId("12"), (9, 3, 4, 5)) == ("qdel", "12.3-5", "12.9")


def test_jobs_are_asked_for_by_their_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    assert sge.queue_argv((JobId("12"),)) == ("qstat", "-u", "ann", "-xml")
    since, jobs = "2026-01-02T03:04:05", (JobId("1"), JobId("2"))
    assert sge.queue_argv(jobs, ("ann", "bob")) == ("qstat", "-u", "ann,bob", "-xml")
    assert sge.accounting_argv(jobs, since, "", ("ann",)) == (
        "qacct", "-o", "ann", "-b", "202601020304", "-j",
    )  # fmt: skip
    assert sge.accounting_argv(jobs, since, "", ("ann", "bob")) == ("qacct", "-b", "202601020304", "-j")


def test_running_and_pending_and_error() -> None:
    answer = sge.parse_queue(captured("sge/qstat-live"))

    life = queued(answer, job("terse"))
    assert {number: task.state for number, task in life.items()} == {3: State.ERROR, 4: State.RUNNING}
    assert life[3].reason == "Eqw: in error: `qstat -j ID` says why, `qmod -cj ID` tries again"
    waiting = queued(answer, job("waiting"))
    assert [task.state for task in waiting.values()] == [State.RUNNING, *[State.PENDING] * 8]


def test_ranges_with_holes_come_back_whole() -> None:
    held = queued(sge.parse_queue(captured("sge/qstat-live")), job("held"))

    assert sorted(held) == [task for task in range(1, 201) if task > 128 or task % 6 != 2]
    assert {task.state for task in held.values()} == {State.HELD}


def test_gone_is_empty_and_no_answer_is_unknown() -> None:
    assert sge.parse_queue(captured("sge/qstat-empty")) == ()
    assert sge.parse_queue(captured("sge/qstat-unreachable")) is None
    assert sge.parse_queue(Completed(("qstat",), 0, "<job_info><queue", "")) is None
    assert sge.parse_queue(Completed(("qstat",), 0, "", "")) is None


@pytest.mark.parametrize(
    ("flags", "state"),
    [
        ("qw", State.PENDING),
        ("Rq", State.PENDING),
        ("hqw", State.HELD),
        ("hRwq", State.HELD),
        ("r", State.RUNNING),
        ("hr", State.RUNNING),
        ("t", State.RUNNING),
        ("Rr", State.RUNNING),
        ("s", State.RUNNING),
        ("tS", State.RUNNING),
        ("RtT", State.RUNNING),
        ("Eqw", State.ERROR),
        ("Ehqw", State.ERROR),
        ("EhRqw", State.ERROR),
        ("dr", State.ENDING),
        ("dRt", State.ENDING),
        ("dT", State.ENDING),
        ("", State.UNKNOWN),
        ("?", State.UNKNOWN),
    ],
)
def test_states_of_the_man_page(flags: str, state: State) -> None:
    row = f"<job_list><JB_job_number>5</JB_job_number><state>{flags}</state><tasks>1</tasks></job_list>"
    xml = f"<job_info><job_info>{row}</job_info></job_info>"

    (task,) = sge.parse_queue(Completed(("qstat",), 0, xml, "")) or ()

    assert task.state is state


def test_what_a_person_types_to_see_what_became_of_jobs() -> None:
    jobs = (JobId("7"), JobId("8"))
    assert sge.diagnostic_argvs(jobs, "demo-1") == (("qstat", "-j", "7,8"), ("qacct", "-j", "demo-1"))


def test_the_name_the_node_and_the_start_of_a_task() -> None:
    answer = sge.parse_queue(captured("sge/qstat-live"))
    running = queued(answer, job("terse"))[4]
    assert re.fullmatch(r"jobkit-capture-\d+", running.name)
    assert (running.node, running.elapsed_s) == ("localhost", None)
    assert re.fullmatch(r"[-\d]{10}T[:\d]{8}", running.start_at)
    waiting = queued(answer, job("waiting"))[9]
    assert (waiting.node, waiting.start_at, waiting.name) == ("", "", running.name)


def test_jobs_are_found_by_their_name() -> None:
    queue, accounting = sge.search_argvs("jobkit-since", "2026-01-02T03:04:05")
    assert queue == sge.queue_argv(())
    assert accounting == captured("sge/qacct-eqw").argv
    assert "jobkit-since" in {one.name for one in sge.parse_queue(captured("sge/qstat-eqw")) or ()}
    assert {one.name for one in sge.parse_accounting(captured("sge/qacct-eqw")) or ()} == {"jobkit-since"}


def test_a_shell_has_a_terminal_waits_for_a_node_and_gets_no_warning() -> None:
    options = [
        ("-q", "gpu.q"),
        ("-l", "s_rt=60"),
        ("-l", "s_rt=60,h_rt=90"),
        ("-c", "n"),
        ("-pe", "smp", "2"),
    ]
    head = ("qrsh", "-pty", "y", "-now", "n", "-cwd")
    shell = (*head, "-q", "gpu.q", "-l", "h_rt=90", "-pe", "smp", "2", "bash")
    assert sge.interactive_argv(options) == shell
