"""Points run again, here or by a controller that keeps a queue. With real ones: tests/cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.layout import DRIVER_LOCK, TUNE_GOAL_FILE, Exit
from jobkit.core.records import Outcome
from jobkit.launch import resume
from jobkit.launch.cancel import cancel
from jobkit.launch.resume import run_again, run_follow_up, undecided
from jobkit.runs.driver_lock import driving, last_driver
from jobkit.runs.journal import JobTask, Role, note, read_journal
from jobkit.runs.reader import read_status
from jobkit.runs.results import read_run
from jobkit.runs.status import PointStanding
from jobkit.schedulers.types import State
from tests.support.builders import events, write_begin, write_event, write_exit
from tests.support.statuses import a_point, a_run, with_job
from tests.support.swept import BUG, LATE, OK, OOM, Clock, Sweep
from tests.support.swept import clock as clock  # noqa: PLC0414 - a fixture is found by its name here
from tests.support.swept import local as local  # noqa: PLC0414 - the same
from tests.support.swept import sweep as sweep  # noqa: PLC0414 - the same


def refused(sweep: Sweep, *only: str, overrides: tuple[str, ...] = ()) -> JobkitError:
    with pytest.raises(JobkitError) as caught:
        run_again(sweep.run, only, overrides)
    assert sweep.calls() == []
    return caught.value


def test_the_job_of_a_search_is_undecided_while_it_ends_and_when_it_left_no_trace(tmp_path: Path) -> None:
    (tmp_path / TUNE_GOAL_FILE).touch()
    run = replace(a_run([a_point(1, PointStanding.FAILED, Outcome.LOST)]), folder=tmp_path)
    task = JobTask("slurm", "79", 1)
    ending = replace(with_job(run, Role.TUNE, State.ENDING), ending=frozenset({task}))
    lost, known = with_job(run, Role.TUNE), replace(with_job(run, Role.TUNE), ended=frozenset({task}))
    lines = [undecided(one) for one in (ending, lost, known, with_job(run, Role.TUNE, State.RUNNING))]
    assert [len(line) for line in lines] == [1, 1, 0, 0]
    assert "was cancelled, and is not over yet" in lines[0][0]
    assert "without a trace" in lines[1][0]


@pytest.mark.slow
def test_only_what_failed_or_is_missing_is_submitted_by_what_it_gets(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.ended(OK, OOM, BUG, OOM, LATE, OK)
    assert run_again(sweep.run, (), ()) == 0
    said = capsys.readouterr().err
    assert "6 points: 2 done, 4 failed (2 ram_oom, 1 bug, 1 timeout)" in said
    assert "again: 2 points, with 150MiB of memory\nagain: 1 point\n" in said
    assert "again: 1 point, with 00:02:00 of walltime" in said
    lists = {name: (sweep.run / name).read_text() for name in sweep.files() if name.startswith("tasks-")}
    assert lists == {"tasks-2.txt": "2\n4\n", "tasks-3.txt": "3\n", "tasks-4.txt": "5\n"}
    assert "--mem=150M" in (sweep.run / "job-2.sh").read_text()
    first, *_, following = sweep.calls()
    assert first.endswith(f"--array=1-2%4 {sweep.run}/job-2.sh --list tasks-2.txt 0")
    assert "--dependency=afterany:101:102:103 --array=1-1" in following
    assert following.endswith("/follow.sh")
    roles = [(submission.role, submission.round) for submission in read_journal(sweep.run).submissions]
    assert roles == [("points", 1), ("points", 2), ("points", 3), ("points", 4), ("follow", 4)]


@pytest.mark.slow
def test_points_run_again_next_to_others_and_together_keep_to_max_parallel(sweep: Sweep) -> None:
    sweep.ended(OOM, BUG, None, None, None, None)
    name = sweep.points[0].run_id
    sweep.queue("".join(f"100_{task}|RUNNING|None||0:10|n1|{name}\n" for task in (3, 4, 5, 6)))
    run_again(sweep.run, (), ())
    arrays = [call for call in sweep.calls() if "follow.sh" not in call]
    assert ["sbatch --parsable --array=1-1%1" in call for call in arrays] == [True, True]
    sweep.queue(f"102_1|RUNNING|None||0:10|n1|{name}\n")
    sweep.ended(OK, BUG, OK, OK, OK, OK)
    run_follow_up(sweep.run)
    found = [(one["job_id"], one["throttle"]) for one in events(sweep.run) if one["event"] == "throttled"]
    shared = [("100", 3), ("101", 1), ("100", 2), ("101", 1), ("102", 1)]
    assert found == [*shared, ("102", 4)], "what has ended leaves its slots"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "waits"), [("RUNNING|None||0:10|n1", True), ("PENDING|JobHeldUser||0:00|N/A", False)]
)
def test_points_wait_for_one_array_if_each_slot_has_one_that_no_person_must_release(
    sweep: Sweep, state: str, *, waits: bool
) -> None:
    sweep.ended(OOM, BUG, OK, OK, OK, None)
    sweep.queue(f"100_6|{state}|{sweep.points[0].run_id}\n")
    write_event(sweep.run, "throttled", job_id="100", throttle=1, most=1, refused="")
    run_again(sweep.run, (), ())
    first, second, _ = sweep.calls()
    assert ("--dependency=afterany:100 --array=1-1%1" in first) is waits
    assert "--dependency=afterany:101 --array=1-1%1" in second


@pytest.mark.slow
def test_two_at_once_submit_once(sweep: Sweep) -> None:
    sweep.ended(OK, OOM, BUG, OK, OK, OK)
    command = [sys.executable, "-m", "jobkit", "resume", str(sweep.run)]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted("nothing to run again" in text for text in said) == [False, True]
    assert len(sweep.calls()) == 3
    done, waiting = PointStanding.DONE, PointStanding.WAITING
    assert sweep.standings() == [done, waiting, waiting, done, done, done]


def n1_failed(sweep: Sweep) -> None:
    sweep.ended(OK, None, OK, OK, OK, OK)
    row = f"100_2|NODE_FAIL|0:0|60||50M|1|n1|None|{sweep.points[0].run_id}\n"
    (sweep.folder / "accounting").write_text(row, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refuses", "given", "excluded", "said"),
    [
        ("", (), "n1", "again: 1 point, not on n1"),
        ("--exclude=n1", (), "", "only n1 matches the request, so the points may run there again"),
        ("n2,n1", ("resources.exclude=[n2]",), "n2", ""),  # a person's node stays excluded
        ("--exclude=n1", None, "", "only n1 matches the request, so the points may run there again"),
    ],
)
def test_a_node_that_failed_is_used_again_only_if_no_other_matches(
    sweep: Sweep,
    capsys: pytest.CaptureFixture[str],
    refuses: str,
    given: tuple[str, ...] | None,
    excluded: str,
    said: str,
) -> None:
    """``given``: what a person sets; ``None``: the job that follows resumes."""
    n1_failed(sweep)
    sweep.refuse(*[refuses] * bool(refuses))
    assert (run_follow_up(sweep.run) if given is None else run_again(sweep.run, (), given)) == 0
    assert said in capsys.readouterr().err
    lines = re.findall("^#SBATCH --exclude=(.*)$", (sweep.run / "job-2.sh").read_text(), re.MULTILINE)
    assert lines == [excluded] * bool(excluded)
    assert sweep.standings()[1] is PointStanding.WAITING


@pytest.mark.slow
def test_a_check_that_refuses_leaves_nothing_behind(sweep: Sweep) -> None:
    n1_failed(sweep)  # so it is asked with that node excluded, and again without
    sweep.refuse("--test-only")
    before, journal = sweep.files(), (sweep.run / "journal.jsonl").read_text()
    error = refused(sweep)
    assert (error.exit_code, "would refuse this sweep" in error.message) == (3, True)
    for key in ("sweep.batch_size=[9]", "text=other.txt", "name=x", "workload=odd:Slow"):
        error = refused(sweep, overrides=(key,))
        assert f"--set {key}: the results depend on {key.partition('=')[0]}" in error.message
        assert "resources" in error.hint
    assert sweep.files() - before == {".lock"}
    assert (sweep.run / "journal.jsonl").read_text() == journal
    sweep.refuse()
    assert run_again(sweep.run, (), ()) == 0


@pytest.mark.slow
def test_a_second_group_that_is_refused_is_reported(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.ended(OK, OOM, BUG, LATE, OK, OK)
    sweep.refuse("job-3.sh")
    assert run_again(sweep.run, (), ()) == 3
    said = capsys.readouterr().err
    assert "1 point not submitted: slurm would refuse this sweep" in said
    assert "submitted: slurm job 101" in said
    assert sweep.standings()[1:4].count(PointStanding.WAITING) == 1, "the round's name is free again"
    assert {"tasks-3.txt", "job-3.sh"}.isdisjoint(sweep.files())


@pytest.mark.slow
def test_after_a_lost_answer_no_other_group_is_submitted(sweep: Sweep) -> None:
    sweep.ended(OK, OOM, BUG, LATE, OK, OK)
    (sweep.run / ".lock").mkdir()
    assert refused(sweep).message == f"{sweep.run}/.lock: Is a directory"
    (sweep.run / ".lock").rmdir()
    (sweep.run / "tasks-2.txt").mkdir()
    assert "tasks-2.txt" in refused(sweep).message
    (sweep.run / "tasks-2.txt").rmdir()
    (sweep.folder / "mute").touch()
    with pytest.raises(JobkitError, match="not known whether slurm took the job") as caught:
        run_again(sweep.run, (), ())
    assert caught.value.exit_code == 3
    assert sweep.rounds() == [("submitting", 2)]
    with pytest.raises(JobkitError, match="a submission is under way"):
        run_again(sweep.run, (), ())


@pytest.mark.slow
def test_a_task_without_a_trace_is_given_a_minute_in_which_its_record_counts(
    sweep: Sweep, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.ended(OK, None, OK, OK, OK, None)
    clock.meanwhile = lambda: sweep.end(sweep.points[5], OK)
    assert run_again(sweep.run, (), ()) == 0
    assert 60 <= clock.s <= 90
    said = capsys.readouterr().err
    assert said.count("2 points left the queue without a trace: looking again for a minute") == 1
    assert "6 points: 5 done, 1 failed (1 lost)" in said
    assert len(sweep.calls()) == 2


@pytest.mark.slow
def test_what_was_cancelled_and_is_ending_runs_again_once_it_has_ended(
    sweep: Sweep, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """As typed straight after `jobkit cancel`, which says so."""
    sweep.ended(OK, None, OK, OK, OK, OK)
    write_begin(sweep.run, sweep.points[1], job=100)
    note(sweep.run, "cancelled", job_id="100", tasks=[2], status=0)
    sweep.queue(f"100_2|COMPLETING|None|n1|0:30|N/A|{sweep.run.name}\n")

    assert run_again(sweep.run, (), ()) == 5
    assert clock.s <= 100
    assert "not run again now; once that is over, type this command again\nnothing" in capsys.readouterr().err
    assert sweep.calls() == [], "what is long in ending is left"

    def over() -> None:
        sweep.queue()
        sweep.end(sweep.points[1], Outcome.CANCELLED)

    before, clock.meanwhile = clock.slept, over
    assert run_again(sweep.run, (), ()) == 0
    assert "1 point cancelled, and not over yet: looking again for a minute" in capsys.readouterr().err
    assert (clock.slept - before, len(sweep.calls())) == (1, 2)


@pytest.mark.slow
def test_points_share_tasks_as_the_spec_says(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.ended(BUG, BUG, BUG, BUG, BUG, OK)
    sweep.refuse("follow.sh")
    run_again(sweep.run, ("1", "2", "3"), ("pack=2",))
    assert "no job runs again what fails" in capsys.readouterr().err, "the job that follows is refused"
    assert (sweep.run / "tasks-2.txt").read_text() == "1 2\n3\n"
    assert "--array=1-2" in sweep.calls()[0]
    (sweep.run / "follow.sh").unlink()
    before = len(sweep.calls())
    run_again(sweep.run, ("4", "5"), ("pack=5",))
    assert len(sweep.calls()) == before + 1, "a run without a job that follows gets none"
    assert "--time=00:02:00\n" in (sweep.run / "job-3.sh").read_text(), "of the points that the job holds"


@pytest.mark.slow
def test_what_a_person_set_is_kept_for_the_points_that_it_was_set_for(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.ended(OOM, BUG, OK, OK, OK, OK)
    given = ("resources.memory=1GiB", "environment.variables={FIXED: yes}")
    run_again(sweep.run, ("1",), given)
    assert "again: 1 point, with environment.variables=*** and with 1GiB" in capsys.readouterr().err
    sweep.queue()
    write_begin(sweep.run, sweep.points[0], 2, job=101)
    write_exit(sweep.run, sweep.points[0], Exit(status=1, stage="run", outcome=OOM), 2)

    assert run_again(sweep.run, (), ()) == 0
    told = capsys.readouterr().err
    assert "again: 1 point, with environment.variables=*** and with 1536MiB of memory" in told
    assert "again: 1 point\n" in told
    grown, plain = ((sweep.run / f"job-{number}.sh").read_text() for number in (3, 4))
    assert "--mem=1536M" in grown
    assert "export FIXED=" in grown
    assert "--mem=100M" in plain
    assert "FIXED" not in plain


def left(sweep: Sweep) -> list[tuple[object, str]]:
    return [(event["points"], str(event["why"])) for event in events(sweep.run) if event["event"] == "left"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_the_node_may_not_submit_is_left_to_a_person(
    sweep: Sweep, clock: Clock, capsys: pytest.CaptureFixture[str]
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
    sweep.silent()
    assert run_follow_up(sweep.run) == 0
    assert clock.s >= resume.JOB_PATIENCE_S
    points, why = left(sweep)[-1]
    assert (points, "does not answer" in why) == ([], True)


@pytest.mark.slow
def test_here_the_points_run_at_once(local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_again(local, ("1", "3"), ()) is None
    done, missing = PointStanding.DONE, PointStanding.MISSING
    assert [point.standing for point in read_status([local])[0].points] == [done, missing, done]
    told = [(event["event"], event.get("only")) for event in events(local)]
    assert told == [("submitting", [1, 3]), ("submitted", [1, 3])]
    assert "begins: 2 points" in capsys.readouterr().err
    logs = sorted(path.name.rpartition("_")[2] for path in (local / "logs").glob("*"))
    assert logs == ["1.out", "3.out", "log.out"], "one job of submitit's runs both"
    assert run_again(local, ("missing",), ()) is None
    assert run_again(local, (), ()) == 0
    assert (local / "tasks-3.txt").read_text() == "2\n"


@pytest.mark.slow
def test_here_the_policy_is_followed_as_often_as_it_says(local: Path) -> None:
    def outcomes() -> list[tuple[Outcome | None, int]]:
        (seen,) = read_status([local])
        return [(point.outcome, len(point.tries)) for point in seen.points]

    failed_here(local, OOM, BUG, BUG)
    spec = local / "sweep.yaml"
    text = spec.read_text(encoding="utf-8")
    assert "follow_up: true" in text
    spec.write_text(text.replace("follow_up: true", "follow_up: false"), encoding="utf-8")
    assert run_follow_up(local) == 0
    assert outcomes() == [(OOM, 1), (BUG, 1), (BUG, 1)]
    spec.write_text(text, encoding="utf-8")
    assert run_follow_up(local) == 0
    assert outcomes() == [(OK, 2), (BUG, 1), (BUG, 1)]
    assert list(events(local))[-1]["only"] == [1]


def failed_here(run: Path, *outcomes: Outcome) -> None:
    """Let a driver here have run all points, and let them have ended so."""
    span: dict[str, object] = {"scheduler": "local", "first": 1, "last": 3, "round": 1}
    write_event(run, "submitting", **span)
    write_event(run, "submitted", job_id="1", cluster="", **span)
    points = read_status([run], ask=False)[0].points
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


@pytest.mark.slow
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
    own_disk = True
    monkeypatch.setattr("jobkit.runs.driver_lock._own_disk", lambda _: own_disk)
    assert [point.outcome for point in read_status([local])[0].points] == [Outcome.LOST] * 3
    (local / "accounting.jsonl").write_text("")
    own_disk = False
    assert [*read_status([local])[0].silent] == ["local"]
    commands: list[Callable[[], object]] = [lambda: run_again(local, (), ()), lambda: cancel(local, [], [])]
    for command in commands:
        with pytest.raises(JobkitError, match="started on node07; jobkit cannot see from here") as refused:
            command()
        assert f"jobkit resume {local} --machine-gone node07" in refused.value.hint
    with pytest.raises(JobkitError, match="this run was not started there") as wrong:
        run_again(local, (), (), machine_gone="node08")
    assert wrong.value.hint == "it was started on node07"
    assert run_again(local, ("1",), (), machine_gone="node07") is None
    assert [point.outcome for point in read_status([local])[0].points] == [OK, Outcome.LOST, Outcome.LOST]
