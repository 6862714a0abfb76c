from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.core.layout import ORDER_FILE, POINTS_FILE, Exit
from jobkit.core.records import JobFacts, Point
from jobkit.runs.journal import JobTask
from jobkit.runs.logs import Log, find_log, point_named
from tests.support.builders import (
    grid,
    point,
    record,
    write_begin,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)

POINTS = grid([50, 100, 150])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run of three points, submitted to Slurm as tasks 1 to 3 of job 77."""
    folder = write_points(tmp_path / "run", POINTS)
    write_submitted(folder, "slurm", "77", first=1, last=3)
    return folder


def test_a_corpus_that_is_not_planned_yet_has_no_point(tmp_path: Path) -> None:
    for file, text in ((POINTS_FILE, ""), (ORDER_FILE, '{"run_id": "demo-1"}')):
        (tmp_path / file).write_text(text, encoding="utf-8")
    with pytest.raises(JobkitError, match="not planned yet"):
        find_log(tmp_path, "1")


def name(log: Log) -> str | None:
    return log.path.name if log.path else None


def test_before_a_try_has_begun_the_journal_tells(run: Path) -> None:
    log = find_log(run, "2")
    assert (log.point, log.number, log.exit, log.tries) == (POINTS[1], 0, None, ())
    assert (log.task, name(log)) == (JobTask("slurm", "77", 2), "77_2.out")
    assert log.name == "p002"


def test_a_try_tells_by_itself_who_runs_it(run: Path) -> None:
    write_begin(run, POINTS[1], 1, job="76", task=9)
    assert name(find_log(run, "p002", 1)) == "76_9.out"
    assert name(find_log(run, "p002")) == "77_2.out", "the journal knows of a later task"


def test_the_record_tells_where_there_is_one(run: Path) -> None:
    write_record(run, record(POINTS[0]))
    log = find_log(run, "1")
    assert (log.number, name(log), log.tries, log.name) == (1, "77_1.out", (1,), "p001 try 1")
    assert log.exit == run / "results" / "p001" / "try-1" / "exit"


def test_one_that_was_submitted_since_is_the_latest(run: Path) -> None:
    write_begin(run, POINTS[0], 1)
    write_exit(run, POINTS[0], Exit(status=1, stage="run"))
    write_submitted(run, "slurm", "78", first=1, last=1, round=2)
    waits = find_log(run, "1")
    assert (waits.number, name(waits), waits.tries) == (0, "78_1.out", ())
    before = find_log(run, "1", 1)
    assert (before.number, name(before), before.tries) == (1, "77_1.out", (1,))


def test_a_task_that_ran_twice_has_one_log(run: Path) -> None:
    for number in (1, 2):
        write_begin(run, POINTS[0], number, restart=number - 1)
    log = find_log(run, "1")
    assert (log.number, log.tries, name(log)) == (2, (1, 2), "77_1.out")


def test_points_that_share_a_task_share_its_log(run: Path) -> None:
    (run / "tasks-2.txt").write_text("1 3\n2\n")
    write_submitted(run, "slurm", "79", first=1, last=2, list="tasks-2.txt", round=2)
    assert find_log(run, "1").others == ("p003",)
    assert find_log(run, "3").others == ("p001",)
    assert find_log(run, "2").others == ()


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [("sge", "demo-20260102-101530-3f9a.o5.1"), ("local", "5_1.out"), ("pbs", None)],
)
def test_each_scheduler_names_its_logs(scheduler: str, expected: str | None, tmp_path: Path) -> None:
    folder = write_points(tmp_path / "run", POINTS)
    write_submitted(folder, scheduler, "5", first=1, last=3)
    assert name(find_log(folder, "1")) == expected


def test_a_point_that_was_never_submitted_has_none(tmp_path: Path) -> None:
    log = find_log(write_points(tmp_path / "run", POINTS), "1")
    assert (log.task, log.path, log.by_hand) == (None, None, False)


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_person_ran_has_none(run: Path, *, whole: bool) -> None:
    if whole:
        write_record(
            run, replace(record(POINTS[0]), job=JobFacts(scheduler="hand", job_id="4711", task_id=""))
        )
    else:
        write_begin(run, POINTS[0], scheduler="hand", job="", task="")
    log = find_log(run, "1", 1)
    assert (log.by_hand, log.path) == (True, None)


def test_a_try_that_there_is_not(run: Path) -> None:
    with pytest.raises(JobkitError, match="p001 has no try 2: none has begun"):
        find_log(run, "1", 2)
    write_begin(run, POINTS[0], 1)
    write_begin(run, POINTS[0], 3)
    with pytest.raises(JobkitError, match="p001 has no try 2: there is 1, 3"):
        find_log(run, "1", 2)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="not a run folder"):
        find_log(tmp_path, "1")


def of_ids(*ids: str) -> list[Point]:
    return [replace(point(index), point_id=name) for index, name in enumerate(ids, 1)]


def test_a_beginning_names_a_point_if_it_is_the_only_one() -> None:
    points = of_ids("size-5-r1", "size-50-r1", "size-50-r2", "other-1")
    assert point_named(points, "o").point_id == "other-1"
    assert point_named(points, "size-5-").point_id == "size-5-r1"
    assert point_named(points, "2").point_id == "size-50-r1"
    with pytest.raises(JobkitError, match=r"'size-50' begins 2 points: size-50-r1, size-50-r2\n"):
        point_named(points, "size-50")
    with pytest.raises(JobkitError, match=r"no point 'sise-5-r1'; did you mean 'size-5-r1'\?"):
        point_named(points, "sise-5-r1")
    with pytest.raises(JobkitError, match=r"no point ''\n"):
        point_named(points, "")
    many = of_ids(*(f"size-{n}" for n in range(10)))
    with pytest.raises(JobkitError, match=r"begins 10 points: .*size-7 and 2 more"):
        point_named(many, "size")


IDS = st.lists(st.text("ab-", min_size=1, max_size=5), min_size=1, max_size=6, unique=True)


@given(IDS, st.text("ab-", max_size=5))
def test_a_word_never_names_another_point(ids: list[str], word: str) -> None:
    try:
        found = point_named(of_ids(*ids), word).point_id
    except JobkitError:
        assume(word not in ids)
        assert len([name for name in ids if name.startswith(word)]) != 1 or not word
    else:
        assert found == word or [name for name in ids if name.startswith(word)] == [found]
