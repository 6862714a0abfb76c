"""What is done to a scheduler: asked, journalled, done, journalled. The answers are those of real ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobkit.core.errors import JobkitError
from jobkit.launch import scheduler_calls
from jobkit.launch.job import Job
from jobkit.launch.scheduler_calls import (
    MOST_SAID,
    SubmissionUnconfirmed,
    cancel_tasks,
    check_submission,
    reconcile_submission,
    submit_array,
    throttle,
)
from jobkit.runs.journal import Role, read_journal
from jobkit.runs.reader import read_status
from jobkit.schedulers import sge, slurm
from jobkit.schedulers.registry import query_environment, submission_environment
from jobkit.schedulers.types import Array, JobId
from tests.support.builders import events, grid, point, write_event, write_points, write_submitted
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.surveys import ARRAY, REQUEST
from tests.support.surveys import captured as answer_of

SEVEN = JobId("7")
JOB = Job(script="job.sh", array=ARRAY)


def captured(queue: Programs, program: str, name: str) -> None:
    """Let a program say what a real one said."""
    answer = answer_of(name)
    queue.says(program, *answer.stdout.splitlines(), status=answer.status, error=answer.stderr)


@pytest.mark.slow
def test_every_refusal_is_reported_once_and_else_the_start_that_is_expected(queue: Programs) -> None:
    captured(queue, "sinfo", "slurm/sinfo")
    captured(queue, "sbatch", "slurm/test-only-memory")
    with pytest.raises(JobkitError, match="slurm would refuse this sweep; nothing was submitted") as caught:
        check_submission(slurm, replace(REQUEST, queue="nowhere"), "job.sh", ARRAY)
    assert caught.value.exit_code == 3
    assert "no partition 'nowhere'" in caught.value.message
    assert caught.value.message.count("sbatch refuses the job") == 1
    queue.says("sinfo", status=1)
    captured(queue, "sbatch", "slurm/test-only-ok")
    queue.says("sacctmgr", status=1)
    (told,) = check_submission(slurm, REQUEST, "job.sh", ARRAY)
    assert "start" in told


@pytest.mark.slow
def test_intent_and_answer_are_journalled_with_the_errand(tmp_path: Path, queue: Programs) -> None:
    captured(queue, "sbatch", "slurm/submit-cluster")
    listed = Array(first=1, last=3, offset=2, throttle=4, listed="tasks-2.txt")
    (tmp_path / "tasks-2.txt").write_text("1\n2\n4\n5\n6\n", encoding="utf-8")
    taken = submit_array(slurm, tmp_path, Job(script="job-2.sh", array=listed, round=2), [SEVEN])
    assert taken.id
    assert (taken.id.cluster, taken.array, taken.role) == ("lab", listed, Role.POINTS)
    before, after = events(tmp_path)
    script = f"{tmp_path}/job-2.sh"
    words = f"sbatch --parsable --dependency=afterany:7 --array=1-3%4 {script} --list tasks-2.txt 2"
    assert before["argv"] == words.split()
    assert {key: value for key, value in after.items() if key in before and key not in {"at", "event"}} == {
        key: value for key, value in before.items() if key not in {"at", "event", "argv"}
    }
    (one,) = read_journal(tmp_path).submissions
    assert (one.job, [points for _, points in one.tasks()]) == (taken.id, [(4,), (5,), (6,)])


TIMED_OUT = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv' >&2; exit 1"


@pytest.mark.slow
def test_a_refusal_is_journalled_in_its_words_and_an_answer_that_tells_nothing_is_not(
    tmp_path: Path, queue: Programs
) -> None:
    for module, name, answer in (
        (slurm, "sbatch", "slurm/refused-partition"),
        (sge, "qsub", "sge/refused-queue"),
    ):
        captured(queue, name, answer)
        with pytest.raises(JobkitError, match=f"{module.NAME} refused the sweep") as caught:
            submit_array(module, tmp_path, JOB)
        assert (caught.value.exit_code, isinstance(caught.value, SubmissionUnconfirmed)) == (3, False)
        assert [event["event"] for event in events(tmp_path)][-2:] == ["submitting", "refused"]
        assert str(events(tmp_path)[-1]["said"]) in caught.value.message
        assert read_journal(tmp_path).unanswered is None
    for body in ("echo welcome", TIMED_OUT):
        queue.add("sbatch", body)
        with pytest.raises(SubmissionUnconfirmed, match="not known whether slurm took the job") as caught:
            submit_array(slurm, tmp_path, JOB)
        assert (caught.value.exit_code, f"jobkit resume {tmp_path}" in caught.value.hint) == (3, True)
        assert read_journal(tmp_path).unanswered is not None


@pytest.mark.slow
def test_a_busy_controller_is_asked_again(
    tmp_path: Path, queue: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(scheduler_calls, "time", SimpleNamespace(sleep=pauses.append))
    queue.says("sbatch", status=1, error="sbatch: error: Rate limit exceeded, please retry\n")
    with pytest.raises(JobkitError, match="Rate limit exceeded"):
        submit_array(slurm, tmp_path, JOB)
    assert (len(queue.called("sbatch")), tuple(pauses)) == (len(pauses) + 1, scheduler_calls.PAUSES_S)
    assert [event["event"] for event in events(tmp_path)] == ["submitting", "refused"], "one intent"


@pytest.mark.slow
def test_a_change_that_is_refused_is_reported_and_journalled(tmp_path: Path, queue: Programs) -> None:
    captured(queue, "qdel", "sge/qdel-denied")
    captured(queue, "qalter", "sge/throttle-denied")
    (said,) = throttle(sge, tmp_path, 2, {SEVEN: 5})
    refused = cancel_tasks(sge, tmp_path, SEVEN, [4, 5], whole=False)
    assert [event["refused"] for event in events(tmp_path)] == [said.partition("7: ")[2], refused]
    found = [(event["event"], event.get("throttle")) for event in events(tmp_path)]
    assert found == [("throttled", 2), ("cancelled", None)]
    assert read_journal(tmp_path).cancelled == {}
    queue.says("qdel", "x" * 3 * MOST_SAID)
    assert cancel_tasks(sge, tmp_path, SEVEN, [4, 5], whole=False) is None
    assert len(events(tmp_path)[-1]["said"]) == MOST_SAID, "of a long answer the beginning"


def test_a_job_around_and_options_of_the_shell_do_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SGE_ROOT"):
        monkeypatch.setenv(name, "x")
    left = {name for name in submission_environment() if name.startswith(("SBATCH_", "SLURM_", "SGE_ROOT"))}
    assert left == {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SGE_ROOT"}


@pytest.mark.parametrize("listed", [" [MY_ROUTE, x]  # of ours", "\n  - MY_ROUTE\n- x"])
def test_programs_that_ask_get_no_default_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    (tmp_path / "site.yaml").write_text(
        f"name: ours\npass_variables:{listed}\non: HOME_PAGE\n", encoding="utf-8"
    )
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path))
    users = ("SQUEUE_PARTITION", "SCANCEL_STATE", "SLURM_TIME_FORMAT", "HOME_PAGE")
    for name in (*users, "SLURM_CONF", "MY_ROUTE"):
        monkeypatch.setenv(name, "x")
    environment = query_environment(slurm)
    assert {name for name, value in environment.items() if value == "x"} == {"SLURM_CONF", "MY_ROUTE"}
    assert environment["SLURM_BITSTR_LEN"] == "0"


RUN_ID = point().run_id
QSTAT = "<?xml version='1.0'?><job_info><queue_info>{rows}</queue_info></job_info>"
QUEUED = (
    "<job_list><JB_job_number>{job}</JB_job_number><JB_name>{name}</JB_name><state>r</state>"
    "<tasks>1-3:1</tasks></job_list>"
)
QACCT = "=====\njobname      {name}\njobnumber    {job}\ntaskid       1\nfailed       0\nexit_status  0\n"


class Controller:
    """A queue and an accounting, as programs that answer what a test says."""

    def __init__(self, scheduler: str, programs: Programs) -> None:
        self.scheduler, self.programs = scheduler, programs
        self.names = {"slurm": ("squeue", "sacct"), "sge": ("qstat", "qacct")}[scheduler]
        self.queue()
        self.accounting()

    def queue(self, *jobs: str, name: str = RUN_ID) -> None:
        if self.scheduler == "slurm":
            text = "".join(f"{job}_1|RUNNING|None|n1|0:10|N/A|{name}\n" for job in jobs)
        else:
            text = QSTAT.format(rows="".join(QUEUED.format(job=job, name=name) for job in jobs))
        self.programs.says(self.names[0], text)

    def accounting(self, *jobs: str, name: str = RUN_ID) -> None:
        row = "{job}_1|COMPLETED|0:0|1||1G|1|n1|None|{name}\n" if self.scheduler == "slurm" else QACCT
        text = "".join(row.format(job=job, name=name) for job in jobs)
        self.programs.says(self.names[1], text)

    def away(self, *, accounting: bool = False) -> None:
        self.programs.says(self.names[accounting], status=1)


@pytest.fixture(params=["slurm", "sge"])
def controller(request: pytest.FixtureRequest, queue: Programs) -> Controller:
    return Controller(request.param, queue)


@pytest.fixture
def run(tmp_path: Path, controller: Controller) -> Path:
    """Return a run of six points as two arrays: job 7, and one whose answer never came."""
    folder = write_points(tmp_path / "run", grid(range(1, 7)))
    write_submitted(folder, controller.scheduler, "7", first=1, last=3)
    intent(folder, controller.scheduler)
    return folder


def intent(run: Path, scheduler: str, **more: object) -> None:
    span: dict[str, object] = {"first": 1, "last": 3, "offset": 3, "throttle": 2}
    span |= {"role": "points", "round": 1}
    write_event(run, "submitting", scheduler=scheduler, argv=["submit"], **(span | more))


def adopted(run: Path) -> list[str]:
    said: list[str] = []
    reconcile_submission(run, said.append)
    return said


def last(run: Path) -> dict[str, object]:
    return list(events(run))[-1]


@pytest.mark.slow
def test_an_array_that_was_taken_is_found_in_the_queue(run: Path, controller: Controller) -> None:
    controller.queue("7", "12")
    controller.away(accounting=True)
    assert adopted(run) == ["a submission was cut off; its job 12 was found by its name"]
    event = last(run)
    assert (event["event"], event["found"], event["job_id"]) == ("submitted", "by its name", "12")
    assert [submission.points_of(2) for submission in read_journal(run).submissions] == [(2,), (5,)]
    controller.programs.calls()
    assert (adopted(run), controller.programs.called()) == ([], []), "a journal without gaps asks nobody"
    (seen,) = read_status([run], ask=False)
    assert [one.task.job_id for one in seen.points if one.task] == ["7"] * 3 + ["12"] * 3


@pytest.mark.slow
def test_what_has_ended_since_is_found_in_the_accounting(run: Path, controller: Controller) -> None:
    """An older job of this name may have been journalled in a line that was cut short: 10 is after 9."""
    controller.accounting("7", "9", "10")
    adopted(run)
    assert last(run)["job_id"] == "10"
    calls = "\n".join(controller.programs.called())
    assert RUN_ID in calls
    if controller.scheduler == "slurm":
        minute_before = datetime.fromisoformat("2026-01-02T10:14:00+00:00").astimezone()
        assert f"-S {minute_before:%Y-%m-%dT%H:%M:%S} --name {RUN_ID}" in calls


@pytest.mark.slow
def test_while_it_cannot_be_known_nothing_is_decided(run: Path, controller: Controller) -> None:
    """Several jobs may run, the queue is silent, or a file server takes a line and loses it."""

    def refused(said: str) -> None:
        with pytest.raises(JobkitError, match=said) as caught:
            adopted(run)
        assert (caught.value.exit_code, last(run)["event"]) == (3, "submitting")

    controller.queue("9")
    controller.accounting("10")
    refused("job 9 belongs to this run")
    controller.accounting()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobkit.runs.journal.append_line", lambda *_: None)
        refused("jobkit wrote job 9 there, but cannot read it back")
    controller.away()
    refused("does not answer, and a submission of this run was cut off")
    controller.programs.calls()
    intent(run, controller.scheduler, at=datetime.now(UTC).isoformat())
    refused("a submission is under way")
    assert controller.programs.called() == [], "it may still be at it"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queued", "ended"), [(("7", RUN_ID), ("7", RUN_ID)), (("12", "other"), ("13", f"{RUN_ID}-2"))]
)
def test_one_that_was_not_taken_is_reported_as_refused(
    run: Path, controller: Controller, queued: tuple[str, str], ended: tuple[str, str]
) -> None:
    """Neither the array before it nor a job of another name is the one that was lost."""
    controller.queue(queued[0], name=queued[1])
    controller.accounting(ended[0], name=ended[1])
    assert adopted(run) == ["a submission was cut off before the scheduler took it"]
    event = last(run)
    assert (event["event"], event["status"], event["first"], event["round"]) == ("refused", None, 1, 1)
    assert read_journal(run).unanswered is None
    (seen,) = read_status([run], ask=False)
    assert [one.standing for one in seen.points[3:]] == ["missing"] * 3


@pytest.mark.slow
def test_a_submission_of_the_future_was_made_before_the_clock_was_set_back(
    run: Path, controller: Controller
) -> None:
    now = datetime.now(UTC)
    intent(run, controller.scheduler, at=(now + timedelta(hours=1)).isoformat())
    controller.accounting("20")
    adopted(run)
    assert read_journal(run).submissions[-1].job.id == "20"
    if controller.scheduler == "slurm":
        (since,) = re.findall(r"-S (\S+)", "\n".join(controller.programs.called()))
        assert datetime.fromisoformat(since).astimezone() < now - timedelta(hours=23)
    (run / "tasks-2.txt").write_text("4\n5\n6\n", encoding="utf-8")
    intent(run, controller.scheduler, round=2, list="tasks-2.txt", offset=0)
    controller.queue("21")
    adopted(run)
    one = read_journal(run).submissions[-1]
    assert (one.round, one.lines) == (2, ((4,), (5,), (6,))), "the list of tasks and the round are kept"


def test_a_driver_here_that_died_so_early_runs_nothing(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", grid([1, 2]))
    write_event(run, "submitting", scheduler="local", first=1, last=2)
    assert adopted(run) == ["a submission was cut off before the scheduler took it"]
    assert json.loads((run / "journal.jsonl").read_text().splitlines()[-1])["event"] == "refused"
