"""A client that died while it submitted; with the real daemons: tests/cluster/test_client.py."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.launch.scheduler_calls import reconcile_submission
from jobkit.runs.journal import read_journal
from jobkit.runs.reader import read_standings
from tests.support.builders import events, grid, point, write_event, write_points, write_submitted
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

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
    span: dict[str, object] = {
        "first": 1,
        "last": 3,
        "offset": 3,
        "throttle": 2,
        "role": "points",
        "round": 1,
    }
    write_event(run, "submitting", scheduler=scheduler, argv=["submit"], **(span | more))


def adopted(run: Path) -> list[str]:
    said: list[str] = []
    reconcile_submission(run, said.append)
    return said


def last(run: Path) -> dict[str, object]:
    return list(events(run))[-1]


def test_a_journal_without_gaps_asks_nobody(run: Path, controller: Controller) -> None:
    write_submitted(run, controller.scheduler, "8", first=1, last=3, offset=3)
    assert (adopted(run), controller.programs.called()) == ([], [])


def test_an_array_that_was_taken_is_found_in_the_queue(run: Path, controller: Controller) -> None:
    controller.queue("7", "12")
    assert adopted(run) == ["a submission was cut off; its job 12 was found by its name"]
    event = last(run)
    assert (event["event"], event["found"], event["job_id"]) == ("submitted", "by its name", "12")
    assert [submission.points_of(2) for submission in read_journal(run).submissions] == [(2,), (5,)]
    assert adopted(run) == [], "once"
    (seen,) = read_standings([run], ask=False)
    assert [one.task.job_id for one in seen.points if one.task] == ["7"] * 3 + ["12"] * 3


def test_one_that_has_ended_since_is_found_in_the_accounting(run: Path, controller: Controller) -> None:
    controller.queue()
    controller.accounting("7", "9")
    adopted(run)
    assert last(run)["job_id"] == "9"


def test_numbers_are_distinguished_as_numbers(run: Path, controller: Controller) -> None:
    """An older job of this name may have been journalled in a line that was cut short."""
    controller.accounting("9", "10")
    adopted(run)
    assert last(run)["job_id"] == "10"


def test_of_several_that_may_run_none_is_guessed(run: Path, controller: Controller) -> None:
    controller.queue("9")
    controller.accounting("10")
    with pytest.raises(JobkitError, match="job 9 belongs to this run") as refused:
        adopted(run)
    assert refused.value.exit_code == 3
    assert last(run)["event"] == "submitting"


def test_what_the_journal_does_not_keep_is_not_adopted(
    run: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server may take a line and lose it."""
    controller.queue("9")
    monkeypatch.setattr("jobkit.runs.journal.append_line", lambda *_: None)
    with pytest.raises(JobkitError, match="job 9 was written there, but cannot be read back"):
        adopted(run)


def test_one_that_was_not_taken_is_reported_as_refused(run: Path, controller: Controller) -> None:
    controller.queue("7")
    controller.accounting("7")
    assert adopted(run) == ["a submission was cut off before the scheduler took it"]
    event = last(run)
    assert (event["event"], event["status"], event["first"], event["round"]) == ("refused", None, 1, 1)
    assert read_journal(run).unanswered is None
    (seen,) = read_standings([run], ask=False)
    assert [one.standing for one in seen.points[3:]] == ["missing"] * 3


def test_jobs_of_other_names_are_not_ours(run: Path, controller: Controller) -> None:
    controller.queue("12", name="other")
    controller.accounting("13", name=f"{RUN_ID}-2")
    adopted(run)
    assert last(run)["event"] == "refused"


def test_where_the_queue_is_silent_nothing_is_decided(run: Path, controller: Controller) -> None:
    controller.away()
    with pytest.raises(JobkitError, match="does not answer, and a submission of this run was cut off") as e:
        adopted(run)
    assert (e.value.exit_code, last(run)["event"]) == (3, "submitting")


def test_an_accounting_that_is_away_leaves_it_to_the_queue(run: Path, controller: Controller) -> None:
    controller.queue("12")
    controller.away(accounting=True)
    adopted(run)
    assert last(run)["job_id"] == "12"


def test_a_submission_of_this_moment_may_still_be_at_it(run: Path, controller: Controller) -> None:
    intent(run, controller.scheduler, at=datetime.now(UTC).isoformat())
    with pytest.raises(JobkitError, match="a submission is under way") as caught:
        adopted(run)
    assert (caught.value.exit_code, controller.programs.called()) == (3, [])


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


def test_a_list_of_tasks_a_role_and_a_round_are_kept(run: Path, controller: Controller) -> None:
    (run / "tasks-2.txt").write_text("4\n5\n6\n", encoding="utf-8")
    intent(run, controller.scheduler, round=2, list="tasks-2.txt", offset=0)
    controller.queue("20")
    adopted(run)
    one = read_journal(run).submissions[-1]
    assert (one.round, one.lines) == (2, ((4,), (5,), (6,)))


def test_it_looks_from_a_minute_before_the_intent(run: Path, controller: Controller) -> None:
    controller.queue()
    adopted(run)
    calls = "\n".join(controller.programs.called())
    assert RUN_ID in calls
    if controller.scheduler == "slurm":
        local = datetime.fromisoformat("2026-01-02T10:14:00+00:00").astimezone()
        assert f"-S {local:%Y-%m-%dT%H:%M:%S} --name {RUN_ID}" in calls


def test_a_driver_here_that_died_so_early_runs_nothing(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", grid([1, 2]))
    write_event(run, "submitting", scheduler="local", first=1, last=2)
    assert adopted(run) == ["a submission was cut off before the scheduler took it"]
    assert json.loads((run / "journal.jsonl").read_text().splitlines()[-1])["event"] == "refused"
