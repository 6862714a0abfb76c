"""The job that follows a sweep, and points that run again here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import DRIVER_LOCK, Exit
from jobkit.core.records import Outcome
from jobkit.launch import resume
from jobkit.launch import sweep as submit
from jobkit.launch.cancel import cancel
from jobkit.launch.resume import run_again, run_follow_up
from jobkit.planning.prepare import Options, prepare
from jobkit.runs.driver_lock import driving, last_driver
from jobkit.runs.journal import note, read_journal
from jobkit.runs.reader import read_standings
from jobkit.runs.results import read_run
from jobkit.runs.standing import PointState
from tests.support.builders import events, write_begin, write_event, write_exit
from tests.support.swept import BUG, LATE, OK, OOM, SPEC, Clock, Sweep
from tests.support.swept import clock as clock  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - the same


def left(sweep: Sweep) -> list[tuple[object, str]]:
    return [(event["points"], str(event["why"])) for event in events(sweep.run) if event["event"] == "left"]


def test_the_job_that_follows_does_what_the_policy_says_and_no_more(
    sweep: Sweep, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.ended(OK, OOM, BUG, LATE, Outcome.CANCELLED, Outcome.GPU_OOM)
    assert run_follow_up(sweep.run) == 0
    scripts = [call.rpartition("/")[2].split()[0] for call in sweep.calls()]
    assert scripts == ["job-2.sh", "job-3.sh", "follow.sh"]
    assert "again: 1 point, with 150MiB of memory" in capsys.readouterr().err
    sweep.queue()
    assert run_follow_up(sweep.run) == 0
    assert "2 lost" in capsys.readouterr().err, "which the policy leaves to a person"
    assert (len(sweep.calls()), clock.s >= 60) == (3, True)


def test_where_there_is_nothing_to_follow_up_nothing_is_submitted(sweep: Sweep) -> None:
    sweep.ended(OK, BUG, OK, OK, OK, OK)
    assert (run_follow_up(sweep.run), sweep.calls(), left(sweep)) == (0, [], [])


def test_what_the_node_may_not_submit_is_left_to_a_person(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.ended(OK, OOM, OK, LATE, OK, OK)
    sweep.refuse("job-")
    assert run_follow_up(sweep.run) == 0
    ((points, why),) = left(sweep)
    assert (points, "would refuse this sweep" in why) == ([2, 4], True)
    assert f"a person must resume it: jobkit resume {sweep.run}" in capsys.readouterr().err
    journal = read_journal(sweep.run)
    assert journal.left is not None
    sweep.refuse()
    assert run_again(sweep.run, (), ()) == 0
    assert read_journal(sweep.run).left is None


def test_a_part_that_could_not_be_submitted_is_left_too(sweep: Sweep) -> None:
    sweep.ended(OK, OOM, OK, LATE, OK, OK)
    sweep.refuse("job-3.sh")
    assert run_follow_up(sweep.run) == 0
    ((points, why),) = left(sweep)
    assert (points, "1 point not submitted" in why) == ([4], True)


def test_a_controller_that_stays_away_is_left_to_a_person(sweep: Sweep, clock: Clock) -> None:
    sweep.ended(OK, OOM, OK, OK, OK, None)
    sweep.silent()
    assert run_follow_up(sweep.run) == 0
    assert clock.s >= resume.JOB_PATIENCE_S
    ((points, why),) = left(sweep)
    assert (points, "does not answer" in why) == ([], True)


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Return a run that was made for this machine, with nothing run yet."""
    (tmp_path / "text.txt").write_text("One.\n\nTwo.\n", encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace("[1, 2, 3]", "[1]").replace("repeats: 2", "repeats: 3"), encoding="utf-8")
    prepared = prepare(spec, Options(scheduler="local", runs_dir=tmp_path / "runs"), build=True)
    submit.write_run(prepared)
    return prepared.run_dir


def test_here_the_points_run_at_once(local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_again(local, ("1", "3"), ()) is None
    (seen,) = read_standings([local])
    assert [point.standing for point in seen.points] == [PointState.DONE, PointState.MISSING, PointState.DONE]
    told = [(event["event"], event.get("only")) for event in events(local)]
    assert told == [("submitting", [1, 3]), ("submitted", [1, 3])]
    assert "again: 2 points" in capsys.readouterr().err
    assert run_again(local, ("missing",), ()) is None
    assert run_again(local, (), ()) == 0
    assert (local / "tasks-3.txt").read_text() == "2\n"


def test_here_the_policy_is_followed_as_often_as_it_says(local: Path) -> None:
    failed_here(local, OOM, BUG, BUG)
    assert run_follow_up(local) == 0
    (seen,) = read_standings([local])
    assert [(point.outcome, len(point.tries)) for point in seen.points] == [(OK, 2), (BUG, 1), (BUG, 1)]
    assert json.loads((local / "journal.jsonl").read_text().splitlines()[-1])["only"] == [1]


def failed_here(run: Path, *outcomes: Outcome) -> None:
    """Let a driver here have run all points, and let them have ended so."""
    span: dict[str, object] = {"scheduler": "local", "first": 1, "last": 3, "round": 1}
    write_event(run, "submitting", **span)
    write_event(run, "submitted", job_id="1", cluster="", **span)
    points = read_standings([run], ask=False)[0].points
    for point, outcome in zip(points, outcomes, strict=True):
        write_begin(run, point.point, scheduler="local", job=1)
        write_exit(run, point.point, Exit(status=1, stage="run", outcome=outcome))


@pytest.mark.parametrize("doing", [run_follow_up, lambda run: run_again(run, (), ())])
def test_here_it_can_be_interrupted(
    local: Path, monkeypatch: pytest.MonkeyPatch, doing: Callable[[Path], int | None]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    failed_here(local, OOM, OOM, OOM)
    monkeypatch.setattr("jobkit.launch.local.drive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        doing(local)
    event = list(events(local))[-1]
    driver = last_driver(local)
    assert driver is not None
    assert driver.pid == os.getpid()
    assert (event["event"], event["job_id"], event["said"]) == ("cancelled", driver.job_id, "interrupted")


@pytest.mark.fault
def test_a_run_that_was_killed_on_a_machine_that_is_gone(
    local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULT: the machine that ran the points is gone; the run folder is on a file server.

    HOW: fake: a lock file and a journal that name another machine, and a disk that looks like a file
    server's.
    REPORTED: `jobkit resume`, `status` and `cancel` name the machine on which the points were started, and
    report that it is not known whether it still runs; `jobkit resume --machine-gone NAME` runs them again.
    LOST: results that the try had not yet copied to the run folder.
    """
    with driving(local) as job:
        pass
    known = json.loads((local / DRIVER_LOCK).read_text()) | {"host": "node07", "boot": "another"}
    (local / DRIVER_LOCK).write_text(json.dumps(known))
    span: dict[str, object] = {"scheduler": "local", "first": 1, "last": 3, "round": 1}
    note(local, "submitting", job_id=job, cluster="node07", **span)
    note(local, "submitted", job_id=job, cluster="node07", **span)
    for result in read_run(local).points:
        write_begin(local, result.point, scheduler="local", job=job, task=str(result.point.index), round=1)
    assert [point.outcome for point in read_standings([local])[0].points] == [Outcome.LOST] * 3, (
        "this disk is this machine's own"
    )
    (local / "accounting.jsonl").write_text("")
    monkeypatch.setattr("jobkit.runs.driver_lock._own_disk", lambda _: False)
    assert read_standings([local])[0].silent == ("local",)
    commands: list[Callable[[], object]] = [lambda: run_again(local, (), ()), lambda: cancel(local, [], [])]
    for command in commands:
        with pytest.raises(JobkitError, match="was started on node07; whether it still runs") as refused:
            command()
        assert f"jobkit resume {local} --machine-gone node07" in refused.value.hint
    with pytest.raises(JobkitError, match="this run was not started there") as wrong:
        run_again(local, (), (), machine_gone="node08")
    assert wrong.value.hint == "it was started on node07"
    assert run_again(local, ("1",), (), machine_gone="node07") is None
    assert [point.outcome for point in read_standings([local])[0].points] == [OK, Outcome.LOST, Outcome.LOST]


def test_here_nothing_follows_where_the_spec_says_so(local: Path) -> None:
    failed_here(local, OOM, OOM, OOM)
    spec = local / "sweep.yaml"
    text = spec.read_text(encoding="utf-8")
    assert "follow_up: true" in text
    spec.write_text(text.replace("follow_up: true", "follow_up: false"), encoding="utf-8")
    assert run_follow_up(local) == 0
    assert [point.outcome for point in read_standings([local])[0].points] == [OOM] * 3
