from __future__ import annotations

from dataclasses import replace

import pytest

from jobkit.core.records import Outcome
from jobkit.outcome.journal import Role
from jobkit.schedulers.types import State
from jobkit.status.advice import advice, job_line
from jobkit.status.standing import Standing
from jobkit.status.summary import JobStatus, PointStatus
from tests.support.statuses import a_job, a_point, a_run, waits

DONE = a_point(1, Standing.DONE, Outcome.OK)
FOLLOW = a_job(Role.FOLLOW, "waiting", waits(State.PENDING, "Dependency"))


def commands(*points: object, **known: object) -> list[str]:
    return [step.command for step in advice(a_run(points, **known), "runs/demo").steps]  # type: ignore[arg-type]


def test_what_is_done_is_collected() -> None:
    assert commands(DONE) == ["jobkit collect runs/demo"]


def test_what_failed_is_explained_and_run_again() -> None:
    failed = [a_point(n, Standing.FAILED, Outcome.BUG) for n in (2, 3)]
    said = advice(a_run([DONE, *failed, a_point(4, Standing.MISSING)]), "runs/demo")
    assert [(step.command, step.does) for step in said.steps] == [
        ("jobkit status runs/demo 2", "all about p002, and why it failed"),
        (
            "jobkit resume runs/demo",
            "runs again the 2 points that failed and submits the point never submitted",
        ),
        ("jobkit collect runs/demo", "the table of what is done"),
    ]
    assert said.notices == ()


def test_what_was_cancelled_did_not_fail_and_runs_again_all_the_same() -> None:
    cancelled = [a_point(n, Standing.FAILED, Outcome.CANCELLED) for n in (2, 3)]
    failed, missing = a_point(4, Standing.FAILED, Outcome.BUG), a_point(5, Standing.MISSING)

    def told(*points: PointStatus) -> list[tuple[str, str]]:
        return [(step.command, step.does) for step in advice(a_run(points), "runs/demo").steps]

    again = "jobkit resume runs/demo"
    both = "runs again the point that failed and the 2 points that were cancelled"
    assert told(*cancelled) == [(again, "runs again the 2 points that were cancelled")]
    assert told(cancelled[0]) == [(again, "runs again the point that was cancelled")]
    assert told(*cancelled, failed, missing) == [
        ("jobkit status runs/demo 4", "all about p004, and why it failed"),
        (
            again,
            f"{both}, and submits the point never submitted",
        ),
    ]


def test_what_runs_can_be_followed() -> None:
    assert commands(a_point(7, Standing.RUNNING)) == [
        "jobkit logs runs/demo 7 -f",
        "jobkit status runs/demo --watch",
    ]
    assert commands(DONE, jobs=()) == commands(DONE)
    assert "jobkit status runs/demo --watch" in [
        step.command for step in advice(a_run([DONE], [a_job(Role.FIND, "running")]), "runs/demo").steps
    ]


def test_a_folder_is_quoted_as_the_shell_needs_it() -> None:
    (step,) = advice(a_run([DONE]), "my runs/$(x)").steps
    assert step.command == "jobkit collect 'my runs/$(x)'"


def test_a_task_in_error_is_mended_by_a_command_and_holds_the_job_that_follows() -> None:
    stuck = [
        a_point(n, Standing.STUCK, why="Eqw: why", queued=waits(State.ERROR, "Eqw")) for n in (3, 4, 6, 9)
    ]
    run = a_run([DONE, *stuck], [FOLLOW])
    said = advice(run, "runs/demo")
    assert said.steps[0].command == "qmod -cj 77.3-4 77.6 77.9"
    assert said.steps[0].does == "lets 4 points go on"
    assert said.notices == ("waiting for somebody: p003, p004, p006 and 1 more (Eqw: why)",)
    assert job_line(run, FOLLOW) == (
        "job 79, which runs again what the policy says, begins when the points have ended: never, "
        "unless somebody sees to those"
    )


def test_tasks_that_wait_for_different_reasons_are_mended_apart() -> None:
    held = a_point(3, Standing.WAITING, why="held", queued=waits(State.HELD, "JobHeldUser"))
    asked = a_point(4, Standing.STUCK, queued=waits(State.ERROR, "PartitionTimeLimit"))
    other = a_point(5, Standing.STUCK, queued=waits(State.ERROR, "DependencyNeverSatisfied"))
    admin = a_point(6, Standing.WAITING, queued=waits(State.HELD, "JobHeldAdmin"))
    said = advice(a_run([held, asked, other, admin]), "runs/demo")
    assert [step.command for step in said.steps if "watch" not in step.command] == [
        "scontrol release 77_3",
        "jobkit cancel runs/demo 4",
        "jobkit resume runs/demo --set resources.walltime=...",
        "jobkit cancel runs/demo 5",
        "jobkit resume runs/demo",
    ]
    assert said.notices[1] == "waiting for somebody: p004 (stuck)", "without a reason the state is told"
    assert len(said.notices) == 4


def test_a_scheduler_that_is_silent_is_told_and_nothing_is_submitted() -> None:
    points = [a_point(1, Standing.UNSETTLED), a_point(2, Standing.FAILED, Outcome.BUG)]
    run = a_run(points, [a_job(Role.FOLLOW, "unsettled")], silent=("slurm",))
    said = advice(run, "runs/demo")
    assert said.notices == ("slurm does not answer: what is home is told, what it holds is not known",)
    assert [step.command for step in said.steps] == ["jobkit status runs/demo 2"]
    assert job_line(run, run.jobs[0]) == ""


def test_a_submission_without_an_answer_is_found_by_resume() -> None:
    said = advice(a_run([DONE, a_point(2, Standing.MISSING)], unanswered={"at": "noon"}), "runs/demo")
    assert said.notices == ("a submission at noon got no answer: its job may be in the queue",)
    assert ("jobkit resume runs/demo", "finds the job by the run's name, and submits what is missing") in [
        (step.command, step.does) for step in said.steps
    ]
    (notice,) = advice(a_run([DONE], unanswered={}), "runs/demo").notices
    assert "at an unknown time" in notice


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"points": [2, 3], "why": "no\nsubmit host"}, "could not submit 2 points again: no submit host"),
        ({"points": [2], "why": "busy"}, "could not submit 1 point again: busy"),
        ({"points": [], "why": "down"}, "could not submit again: down"),
        ({"points": "?"}, "could not submit again: "),
    ],
)
def test_what_the_job_that_follows_left_is_told(left: dict[str, object], words: str) -> None:
    (notice,) = advice(a_run([DONE], left=left), "runs/demo").notices
    assert notice == f"the job that follows the sweep {words}"


def test_somebody_elses_run_is_only_looked_at() -> None:
    run = replace(a_run([DONE, a_point(2, Standing.FAILED, Outcome.BUG)]), mine=False)
    said = advice(run, "runs/demo")
    assert [step.command for step in said.steps] == ["jobkit status runs/demo 2", "jobkit collect runs/demo"]
    assert said.notices[-1] == "the run folder cannot be written from here: only its owner can change the run"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (a_job(Role.FIND, "running"), "job 79, which tries the largest batch, is at work"),
        (a_job(Role.FIND, "unsettled"), "has left the queue; how it ended is not known yet"),
        (a_job(Role.FOLLOW, "stuck", waits(State.ERROR, "Eqw"), why="Eqw: x"), "is stuck: Eqw: x"),
        (
            a_job(Role.FOLLOW, "waiting", waits(State.PENDING, "Dependency")),
            "begins when the points have ended",
        ),
        (
            a_job(Role.FOLLOW, "waiting", waits(State.HELD, "hqw"), why="hqw: held"),
            "waits though the points have ended: hqw: held",
        ),
    ],
)
def test_how_a_job_that_waits_for_the_points_stands(job: JobStatus, words: str) -> None:
    assert job_line(a_run([DONE], [job]), job).endswith(words)


def test_of_jobs_that_have_ended_the_last_is_said_to_and_how() -> None:
    first = a_job(Role.FOLLOW, "ended", why="sacct: COMPLETED, ExitCode 0:0")
    last = a_job(Role.FOLLOW, "ended", why="sacct: TIMEOUT, ExitCode 0:0", job="80")
    run = a_run([DONE], [first, last])
    assert [job_line(run, job) for job in run.jobs] == [
        "",
        "job 80, which runs again what the policy says, has ended (sacct: TIMEOUT, ExitCode 0:0)",
    ]


def test_a_job_that_is_held_while_points_run_waits_as_it_should() -> None:
    job = a_job(Role.FOLLOW, "waiting", waits(State.HELD, "hqw"))
    run = a_run([a_point(1, Standing.RUNNING)], [job])
    assert job_line(run, job).endswith("begins when the points have ended")
    assert not any("qrls" in step.command for step in advice(run, "runs/demo").steps)


def test_a_job_that_is_stuck_itself_is_mended_too() -> None:
    stuck = a_job(Role.FOLLOW, "stuck", waits(State.ERROR, "Eqw"))
    held = a_job(Role.FIND, "waiting", waits(State.HELD, "JobHeldUser"), job="80")
    never = a_job(Role.FIND, "stuck", waits(State.ERROR, "DependencyNeverSatisfied"), job="81")
    said = advice(a_run([DONE], [stuck, held, never]), "runs/demo")
    assert [(step.command, step.does) for step in said.steps[:2]] == [
        ("qmod -cj 79.1", "lets job 79 go on"),
        ("scontrol release 80_1", "lets job 80 go on"),
    ]
    assert not any("81" in step.command for step in said.steps)
