from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobkit.core.layout import CORPUS_FILE, ORDER_FILE, TUNE_GOAL_FILE
from jobkit.core.records import Outcome
from jobkit.extensions.tune.steps import FINAL
from jobkit.runs.hints import FixKind, advice, job_line
from jobkit.runs.journal import Role
from jobkit.runs.standing import PointState, PointStatus, RunStanding
from jobkit.schedulers.types import State
from tests.support.statuses import AT, a_point, a_run, submission, waits, with_job

DONE = a_point(1, PointState.DONE, Outcome.OK)
RESUME = "jobkit resume runs/demo"
COLLECT = "jobkit collect runs/demo"
BOTH = "runs again the point that failed and the 2 points that were cancelled"


def commands(run: RunStanding, folder: str = "runs/demo") -> list[str]:
    return [step.command for step in advice(run, folder).steps]


def marked(folder: Path, mark: str) -> Path:
    """Return a run folder that a file marks as one of an extension."""
    (folder / mark).touch()
    return folder


def failed(index: int, outcome: Outcome = Outcome.BUG) -> PointStatus:
    return a_point(index, PointState.FAILED, outcome)


@pytest.mark.parametrize(
    ("points", "typed"),
    [
        ([DONE], [COLLECT]),
        ([DONE, failed(2)], ["jobkit status runs/demo 2", RESUME, COLLECT]),
        ([failed(2, Outcome.CANCELLED)], [RESUME]),
        (
            [failed(2, Outcome.TIMEOUT)],
            ["jobkit status runs/demo 2", f"{RESUME} --set resources.walltime=HH:MM:SS"],
        ),
        (
            [failed(2, Outcome.RAM_OOM), failed(3)],
            ["jobkit status runs/demo 2", f"{RESUME} --only ram_oom --set resources.memory=SIZE", RESUME],
        ),
        (
            [a_point(7, PointState.RUNNING)],
            ["jobkit status runs/demo --watch", "jobkit logs runs/demo 7 -f"],
        ),
    ],
)
def test_what_to_type_next(points: list[PointStatus], typed: list[str]) -> None:
    assert commands(a_run(points)) == typed


def test_what_fixes_a_lack_of_memory_comes_before_the_page_of_the_point(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("name: demo\nsweep: {batch_size: [50]}\nresources: {memory: 8GiB}\n")
    run = replace(a_run([failed(2, Outcome.RAM_OOM)]), folder=tmp_path)
    assert commands(run) == [f"{RESUME} --set resources.memory=12GiB", "jobkit status runs/demo 2"]


@pytest.mark.parametrize(
    ("points", "does"),
    [
        (
            [failed(2), failed(3), a_point(4, PointState.MISSING)],
            "runs again the 2 points that failed and submits the point never submitted",
        ),
        ([failed(2, Outcome.CANCELLED)], "runs again the point that was cancelled"),
        (
            [
                failed(2, Outcome.CANCELLED),
                failed(3, Outcome.CANCELLED),
                failed(4),
                a_point(5, PointState.MISSING),
            ],
            f"{BOTH}, and submits the point never submitted",
        ),
    ],
)
def test_what_a_resume_does(points: list[PointStatus], does: str) -> None:
    (step,) = (step for step in advice(a_run(points), "runs/demo").steps if step.command == RESUME)
    assert step.does == does


def test_the_points_of_a_corpus_are_shards(tmp_path: Path) -> None:
    folder = marked(tmp_path, CORPUS_FILE)
    shards = [
        replace(point, point=replace(point.point, shard=True)) for point in (DONE, failed(2), failed(3))
    ]
    assert [step.command for step in advice(a_run(shards[:1], folder=folder), "tagged").steps] == [
        "jobkit merge tagged"
    ]
    (step,) = (
        step for step in advice(a_run(shards, folder=folder), "tagged").steps if step.kind is FixKind.CHANGE
    )
    assert step.does == "runs again the 2 shards that failed"


def test_a_job_that_is_running_can_be_followed() -> None:
    run = with_job(a_run([DONE]), Role.FIND, State.RUNNING)
    assert "jobkit status runs/demo --watch" in commands(run)


def test_the_answer_of_a_search_is_named(tmp_path: Path) -> None:
    folder = marked(tmp_path, TUNE_GOAL_FILE)
    found = replace(DONE, point=replace(DONE.point, phase=FINAL))
    assert commands(a_run([found], folder=folder)) == ["jobkit tune runs/demo", "jobkit collect runs/demo"]


def test_a_folder_is_quoted_as_the_shell_needs_it() -> None:
    assert commands(a_run([DONE]), "my runs/$(x)") == ["jobkit collect 'my runs/$(x)'"]


def test_a_task_in_error_is_released_by_a_command_and_holds_the_job_that_follows() -> None:
    stuck = [a_point(n, PointState.STUCK, queued=waits(State.ERROR, "Eqw")) for n in (3, 4, 6, 9)]
    run = with_job(a_run([DONE, *stuck]), Role.FOLLOW, State.PENDING, "Dependency")
    assert commands(run)[0] == "qmod -cj 77.3-4 77.6 77.9"
    (notice,) = advice(run, "runs/demo").notices
    assert "p003, p004, p006 and 1 more (Eqw: " in notice
    assert "a person must release them" in job_line(run, run.jobs[0])


def test_tasks_that_wait_for_different_reasons_are_released_apart() -> None:
    held = a_point(3, PointState.WAITING, queued=waits(State.HELD, "JobHeldUser"))
    long = a_point(4, PointState.STUCK, queued=waits(State.ERROR, "PartitionTimeLimit"))
    never = a_point(5, PointState.STUCK, queued=waits(State.ERROR, "DependencyNeverSatisfied"))
    admin = a_point(6, PointState.WAITING, queued=waits(State.HELD, "JobHeldAdmin"))
    advised = advice(a_run([held, long, never, admin]), "runs/demo")
    assert [step.command for step in advised.steps if step.kind is not FixKind.WATCH] == [
        "scontrol release 77_3",
        "jobkit cancel runs/demo 4",
        f"{RESUME} --set resources.walltime=...",
        "jobkit cancel runs/demo 5",
        RESUME,
    ]
    assert len(advised.notices) == 4


def test_without_a_reason_the_state_of_a_point_that_waits_is_named() -> None:
    stuck = a_point(4, PointState.STUCK, queued=waits(State.ERROR))
    (notice,) = advice(a_run([stuck]), "runs/demo").notices
    assert "p004 (stuck)" in notice


def test_a_scheduler_that_does_not_answer_is_named_and_nothing_is_submitted() -> None:
    points = [a_point(1, PointState.UNSETTLED), failed(2)]
    run = with_job(a_run(points, silent=("slurm",)), Role.FOLLOW)
    advised = advice(run, "runs/demo")
    assert len(advised.notices) == 1
    assert "slurm does not answer" in advised.notices[0]
    assert commands(run) == ["jobkit status runs/demo 2"]
    assert job_line(run, run.jobs[0]) == ""


def test_a_submission_of_this_half_minute_is_under_way_and_nothing_is_submitted_beside_it() -> None:
    begun = {"at": AT, "scheduler": "slurm"}
    soon, late = (
        replace(
            a_run([a_point(1, PointState.FAILED, Outcome.BUG)]),
            unanswered=begun,
            now=datetime.fromisoformat(AT) + timedelta(seconds=seconds),
        )
        for seconds in (1, 31)
    )
    said = advice(soon, "runs/demo")
    assert "a submission is under way" in said.notices[0]
    assert not any("resume" in step.command for step in said.steps)
    assert "got no answer" in advice(late, "runs/demo").notices[0]
    assert any("resume" in step.command for step in advice(late, "runs/demo").steps)


def test_a_command_is_listed_once() -> None:
    """The remedy of a full disk and the advice for the run are the same command."""
    full = [a_point(n, PointState.FAILED, Outcome.STAGE_OUT, why="no space left") for n in (1, 2)]
    commands = [step.command for step in advice(a_run(full), "runs/demo").steps]
    assert "jobkit resume runs/demo" in commands
    assert len(commands) == len(set(commands))


def test_points_here_that_did_not_begin_run_again() -> None:
    local = replace(submission(), scheduler="local")
    run = replace(a_run([a_point(1, PointState.MISSING)]), submissions=(local,))
    (step,) = [step for step in advice(run, "runs/demo").steps if "resume" in step.command]
    assert "did not begin" in step.does


def test_a_submission_without_an_answer_is_found_by_resume() -> None:
    run = a_run([DONE], unanswered={"at": "noon"})
    assert "a submission at noon" in advice(run, "runs/demo").notices[0]
    assert RESUME in commands(run)
    (notice,) = advice(a_run([DONE], unanswered={}), "runs/demo").notices
    assert "at an unknown time" in notice


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"points": [2, 3], "why": "no\nsubmit host"}, "could not submit 2 points again: no submit host"),
        ({"points": [2], "why": "busy"}, "could not submit 1 point again: busy"),
        ({"points": [], "why": "down"}, "could not submit again: down"),
        ({"points": "?"}, "could not submit again: "),
        (
            {"role": "plan", "points": [1, 2], "why": "no submit host"},
            "the job that planned the corpus could not submit 2 points: no submit host",
        ),
    ],
)
def test_what_a_job_of_the_run_could_not_submit_is_reported(
    tmp_path: Path, left: dict[str, object], words: str
) -> None:
    folder = marked(tmp_path, ORDER_FILE) if left.get("role") else tmp_path
    (notice,) = advice(a_run([DONE], left=left, folder=folder), "runs/demo").notices
    assert notice.endswith(words)


def test_a_corpus_that_could_not_be_planned_is_planned_again_by_resume(tmp_path: Path) -> None:
    left = {"role": "plan", "why": "a.txt:3: not UTF-8\nb.gz: broken"}
    run = a_run([], left=left, folder=marked(tmp_path, ORDER_FILE))
    found = advice(run, "runs/demo")
    assert found.notices == ("the corpus could not be planned: a.txt:3: not UTF-8", "b.gz: broken")
    assert [(step.command, step.does) for step in found.steps] == [
        (RESUME, "submits the job that plans the corpus again")
    ]


def test_nobody_is_advised_to_change_the_run_of_another_user() -> None:
    run = a_run([DONE, failed(2, Outcome.TIMEOUT)], mine=False)
    assert commands(run) == ["jobkit status runs/demo 2", COLLECT]
    assert "only its owner" in advice(run, "runs/demo").notices[-1]


@pytest.mark.parametrize(
    ("role", "state", "reason", "words"),
    [
        (Role.FIND, State.RUNNING, "", "job 79, which tries the largest batch, is running"),
        (Role.FIND, None, "", "has left the queue; how it ended is not known yet"),
        (
            Role.FOLLOW,
            State.ERROR,
            "BadConstraints",
            "is stuck: BadConstraints: no node has what it requests",
        ),
        (Role.FIND, State.PENDING, "Dependency", "begins when the points have ended"),
        (
            Role.FOLLOW,
            State.HELD,
            "JobHeldUser",
            "waits though the points have ended: JobHeldUser: held by its owner",
        ),
    ],
)
def test_how_a_job_that_waits_for_the_points_stands(
    role: Role, state: State | None, reason: str, words: str
) -> None:
    run = with_job(a_run([DONE]), role, state, reason)
    assert job_line(run, run.jobs[0]).endswith(words)


def test_a_job_that_plans_a_corpus_has_a_line_until_there_are_points() -> None:
    run = with_job(a_run([]), Role.PLAN, State.PENDING, "Resources")
    assert "plans the corpus, waits: Resources" in job_line(run, run.jobs[0])
    assert RESUME not in commands(run)
    run = with_job(a_run([DONE]), Role.PLAN, end="sacct: COMPLETED, ExitCode 0:0")
    assert job_line(run, run.jobs[0]) == ""


def test_a_job_that_runs_failed_points_again_has_no_line_while_nothing_is_wrong() -> None:
    for run in (
        with_job(a_run([a_point(1, PointState.RUNNING)]), Role.FOLLOW, State.PENDING, "Dependency"),
        with_job(a_run([DONE]), Role.FOLLOW, State.RUNNING),
        with_job(a_run([DONE]), Role.FOLLOW, end="sacct: COMPLETED, ExitCode 0:0"),
        with_job(a_run([failed(1, Outcome.CANCELLED)]), Role.FOLLOW, end="cancelled"),
    ):
        assert job_line(run, run.jobs[0]) == ""


def test_of_jobs_that_have_ended_the_last_has_a_line_if_a_point_failed() -> None:
    run = with_job(a_run([failed(1)]), Role.FOLLOW, end="sacct: COMPLETED, ExitCode 0:0")
    run = with_job(run, Role.FOLLOW, end="sacct: TIMEOUT, ExitCode 0:0", job="80")
    first, last = (job_line(run, job) for job in run.jobs)
    assert first == ""
    assert last.startswith("job 80, ")
    assert last.endswith("has ended (sacct: TIMEOUT, ExitCode 0:0)")


def test_a_job_that_is_held_while_points_run_waits_as_it_should() -> None:
    run = with_job(a_run([a_point(1, PointState.RUNNING)]), Role.FOLLOW, State.HELD, "hqw")
    assert job_line(run, run.jobs[0]) == ""
    assert not any("qrls" in command for command in commands(run))


def test_a_job_that_is_stuck_itself_is_released_too() -> None:
    run = with_job(a_run([DONE]), Role.FOLLOW, State.ERROR, "Eqw")
    run = with_job(run, Role.FIND, State.HELD, "JobHeldUser", job="80")
    run = with_job(run, Role.FIND, State.ERROR, "DependencyNeverSatisfied", job="81")
    assert commands(run)[:2] == ["scontrol release 80_1", "qmod -cj 79.1"]
    assert not any("81" in command for command in commands(run))
