from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobkit.core.job_files import Exit
from jobkit.core.records import Outcome
from jobkit.status.summary import RunStatus, TryStatus, status, tries_of
from tests.support.builders import (
    batch,
    grid,
    record,
    write_batches,
    write_exit,
    write_points,
    write_record,
    write_submitted,
)
from tests.support.queues import Queue, write_begin
from tests.support.queues import queue as queue  # noqa: PLC0414 - a fixture is found by its name here


def of(run: RunStatus, index: int = 1) -> tuple[TryStatus, ...]:
    return tries_of(run, run.points[index - 1])


def test_all_that_is_home_of_every_try_is_found(tmp_path: Path, queue: Queue) -> None:
    (one,) = points = grid([50])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "slurm", "77", first=1, last=1)
    write_begin(run, one)
    write_batches(run, one, [batch(0), batch(1)])
    write_exit(run, one, Exit(status=1, stage="run"))
    write_record(run, replace(record(one), try_number=2))
    (run / "logs").mkdir()
    (run / "logs" / "77_1.out").touch()
    (found,) = status([run])
    second, first = of(found)
    assert (second.tried.files.number, second.files, second.elapsed_s) == (2, ("record.json",), 60)
    assert (first.files, first.elapsed_s) == (("batches.jsonl", "begin", "exit"), None)
    assert first.progress is not None
    assert first.progress.batches == 2
    assert first.folder == f"{run}/results/p001/try-1"
    assert {first.log, second.log} == {f"{run}/logs/77_1.out"}
    assert queue.asked == {}


def test_a_task_that_has_not_begun_stands_before_the_tries_of_earlier_ones(
    tmp_path: Path, queue: Queue
) -> None:
    (one,) = points = grid([50])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "slurm", "77", first=1, last=1)
    write_begin(run, one)
    write_exit(run, one, Exit(status=1, stage="stage_in"))
    write_submitted(run, "slurm", "80", first=1, last=1)
    queue.holds("80_1|PENDING|Priority|||N/A")
    (found,) = status([run])
    assert [each.tried.files.number for each in of(found)] == [0, 1]
    waits = of(found)[0]
    assert (waits.folder, waits.files, waits.log, waits.progress) == ("", (), "", None)


def test_a_task_that_left_no_try_is_not_forgotten(tmp_path: Path, queue: Queue) -> None:
    (one,) = points = grid([50])
    run = write_points(tmp_path / "run", points)
    for job in ("77", "80"):
        write_submitted(run, "slurm", job, first=1, last=1)
    begin = "scheduler=slurm\njob=80\ntask=1\nrestart=0\nround=1\nhost=n1\npid=1\nat=\n"
    write_begin(run, one)
    (run / "results" / "p001" / "try-1" / "begin").write_text(begin, encoding="utf-8")
    write_exit(run, one, Exit(status=1, stage="stage_in"))
    queue.says("sacct", "77_1|NODE_FAIL|0:0|3||1G|1|n1|None|demo-20260102-101530-3f9a")
    (found,) = status([run])
    last, vanished = of(found)
    assert last.tried.verdict.outcome is Outcome.STAGE_IN
    assert (vanished.tried.files.number, vanished.tried.task and vanished.tried.task.job_id) == (0, "77")


def test_a_point_that_was_never_submitted_has_neither_task_nor_log(tmp_path: Path, queue: Queue) -> None:
    run = write_points(tmp_path / "run", grid([50]))
    (found,) = status([run])
    (none,) = of(found)
    assert (none.tried.task, none.log, queue.asked) == (None, "", {})
