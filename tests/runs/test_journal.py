"""Which task ran which points, by the journal alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.files import append_line
from jobkit.core.layout import JOURNAL_FILE
from jobkit.runs.journal import JobTask, Role, Submission, read_journal
from jobkit.schedulers.types import JobId
from tests.support.builders import write_event, write_submitted

AT = "2026-01-02T10:15:00+00:00"


def submission(**fields: object) -> Submission:
    plain: dict[str, object] = {"at": AT, "scheduler": "slurm", "job": JobId("7"), "first": 1, "last": 3}
    return Submission(**(plain | fields))  # type: ignore[arg-type]  # a test names the fields it changes


def points_by_task(one: Submission) -> dict[int, tuple[int, ...]]:
    return {task.task: points for task, points in one.tasks()}


def test_which_points_the_tasks_of_other_jobs_run() -> None:
    cut_short = submission(lines=((4,), (9, 2)))
    assert points_by_task(cut_short) == {1: (4,), 2: (9, 2), 3: ()}
    assert points_by_task(submission(role=Role.FOLLOW)) == {1: (), 2: (), 3: ()}
    assert points_by_task(submission(role=Role.FIND, last=1, offset=6)) == {1: (7,)}
    driven = submission(scheduler="local", first=2, last=9, only=frozenset({9, 2, 5}))
    assert list(driven.tasks()) == [(JobTask("local", "7", index), (index,)) for index in (2, 5, 9)]
    assert submission(last=10**6).points_of(10**6) == (10**6,), "at once"


def test_all_that_a_journal_tells_of_a_submission_and_what_the_first_did_not(tmp_path: Path) -> None:
    journal = read_journal(tmp_path)
    assert (journal.submissions, journal.unanswered, journal.rounds, journal.notes) == ((), None, 0, ())
    write_event(tmp_path, "submitting", scheduler="slurm", first=1, last=3)
    assert read_journal(tmp_path).rounds == 1
    write_submitted(tmp_path, "slurm", "7", first=1, last=3)
    (one,) = read_journal(tmp_path).submissions
    assert (one.role, one.round, one.lines, one.only) == (Role.POINTS, 1, (), frozenset())
    (tmp_path / "tasks-2.txt").write_text("4 5\n9\n", encoding="utf-8")
    span = {"first": 1, "last": 2, "offset": 0, "list": "tasks-2.txt", "round": 2, "role": "points"}
    write_event(tmp_path, "submitted", scheduler="slurm", job_id=8, cluster="lab", **span)
    write_event(tmp_path, "submitted", scheduler="local", job_id="9", first=1, last=6, only=[1, 6], round=3)
    write_event(tmp_path, "submitted", scheduler="local", job_id="10", first=7, last=7, on_path=["slurm"])
    _, listed, driven, on_login_node = read_journal(tmp_path).submissions
    assert (listed.on_path, on_login_node.on_path) == (None, ("slurm",))
    assert (listed.job, listed.at, points_by_task(listed)) == (JobId("8", "lab"), AT, {1: (4, 5), 2: (9,)})
    assert points_by_task(driven) == {1: (1,), 6: (6,)}
    assert read_journal(tmp_path).rounds == 3


@pytest.mark.parametrize(
    "fault",
    [
        {"list": "missing.txt"},
        {"list": "words.txt"},
        {"first": None},
        {"role": "boss"},
        {"only": 5},
        {"first": float("nan")},
        {"last": 10**6 + 1},
        {"scheduler": "slurm", "round": [2]},
    ],
)
def test_a_submission_that_does_not_stand_is_named_and_the_rest_is_read(
    tmp_path: Path, fault: dict[str, object]
) -> None:
    (tmp_path / "words.txt").write_text("1 two\n", encoding="utf-8")
    good: dict[str, object] = {"scheduler": "slurm", "job_id": "7", "first": 1, "last": 1}
    write_event(tmp_path, "submitted", **(good | fault))
    write_event(tmp_path, "submitted", **(good | {"job_id": "8"}))
    journal = read_journal(tmp_path)
    assert [one.job.id for one in journal.submissions] == ["8"]
    assert f"{tmp_path / JOURNAL_FILE}:1: not " in journal.notes[0]


def test_an_event_that_is_no_word_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    write_event(tmp_path, "submitted", scheduler="slurm", job_id="8", first=1, last=1)
    append_line(tmp_path / JOURNAL_FILE, '{"event": [], "round": 2}')
    journal = read_journal(tmp_path)
    assert ([one.job.id for one in journal.submissions], journal.rounds) == (["8"], 1)
    assert f"{tmp_path / JOURNAL_FILE}:2: not an event" in journal.notes[0]


def test_an_intent_stays_unanswered_and_points_stay_left_until_an_answer_follows(tmp_path: Path) -> None:
    span: dict[str, object] = {"scheduler": "slurm", "first": 1, "last": 3, "offset": 0}
    write_event(tmp_path, "submitting", **span, round=2)
    write_event(tmp_path, "throttled", job_id="7")
    unanswered = read_journal(tmp_path).unanswered
    assert unanswered is not None
    assert (unanswered["round"], read_journal(tmp_path).rounds) == (2, 2)
    write_event(tmp_path, "refused", **span, round=2)
    assert (read_journal(tmp_path).unanswered, read_journal(tmp_path).rounds) == (None, 2)
    write_event(tmp_path, "submitting", **span, round=3)
    write_event(tmp_path, "submitted", **span, job_id="9", round=3)
    assert read_journal(tmp_path).unanswered is None
    write_event(tmp_path, "left", points=[1], why="no submit host")
    write_submitted(tmp_path, "slurm", "79", first=1, last=1, role=Role.FOLLOW)
    left = read_journal(tmp_path).left
    assert left is not None
    assert (left["points"], left["why"]) == ([1], "no submit host")
    write_submitted(tmp_path, "slurm", "80", first=1, last=1)
    assert read_journal(tmp_path).left is None, "what was left has been submitted"


@pytest.mark.parametrize(
    ("said", "tasks"),
    [
        ({"status": 0, "tasks": [2, 9]}, {2}),
        ({"status": 1}, set()),
        ({"status": 1, "refused": "", "tasks": [3]}, {3}),
        ({"status": 1, "refused": "denied"}, set()),
        ({}, {1, 2, 3}),
    ],
)
def test_what_was_taken_back(tmp_path: Path, said: dict[str, object], tasks: set[int]) -> None:
    write_event(tmp_path, "cancelled", job_id="7", status=0)  # of an earlier job of this number
    write_submitted(tmp_path, "slurm", "7", first=1, last=3)
    assert not read_journal(tmp_path).cancelled
    write_event(tmp_path, "cancelled", at="2026-01-02T11:00:00+00:00", job_id="7", **said)
    write_event(tmp_path, "cancelled", job_id="8", status=0)
    cancelled = read_journal(tmp_path).cancelled
    assert {task.task for task in cancelled} == tasks
    assert set(cancelled.values()) <= {"2026-01-02T11:00:00+00:00"}
