from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobkit.core.job_files import Exit
from jobkit.core.records import Outcome
from jobkit.status.progress import SkippedTime, skipped_time
from jobkit.status.standing import read_standings
from tests.support.builders import grid, record, write_exit, write_points, write_record, write_submitted


def left_out(outcome: Outcome, message: str) -> Exit:
    return Exit(status=0, stage="gate", outcome=outcome, message=message)


def found(run: Path) -> SkippedTime | None:
    (seen,) = read_standings([run], ask=False)
    return skipped_time(seen.points)


def test_nothing_left_out_saves_nothing(tmp_path: Path) -> None:
    points = grid([50])
    run = write_points(tmp_path / "run", points)
    write_record(run, record(points[0]))
    assert found(run) is None


def test_a_pruned_point_saves_what_the_one_that_ran_out_took(tmp_path: Path) -> None:
    points = grid([50, 100, 200, 300])
    run = write_points(tmp_path / "run", points)
    write_record(run, record(points[0]))
    write_record(run, replace(record(points[1]), outcome=Outcome.GPU_OOM))  # a minute
    for point in points[2:]:
        write_exit(
            run, point, left_out(Outcome.PRUNED, "p002 ran out of memory on NVIDIA H200, with a smaller load")
        )
    assert found(run) == SkippedTime(2, 120.0)


def test_a_stopped_point_saves_the_mean_of_those_that_failed_the_same_way(tmp_path: Path) -> None:
    points = grid([50, 100, 200])
    run = write_points(tmp_path / "run", points)
    began = "2026-01-02T10:15:30+00:00"
    for one, end in zip(points, ("10:16:00", "10:17:00"), strict=False):
        ended = f"2026-01-02T{end}+00:00"
        write_record(
            run, replace(record(one), outcome=Outcome.BUG, message="broken", started_at=began, ended_at=ended)
        )
    write_exit(
        run, points[2], left_out(Outcome.STOPPED, "2 points failed the same way: bug: ValueError: broken")
    )
    assert found(run) == SkippedTime(1, 60.0)


def test_what_nobody_can_tell_is_not_counted(tmp_path: Path) -> None:
    points = grid([50, 100, 200, 300])
    run = write_points(tmp_path / "run", points)
    write_submitted(run, "slurm", "77", first=1, last=4)
    write_exit(run, points[0], Exit(status=1, stage="environment", message="no conda"))
    write_exit(run, points[1], left_out(Outcome.STOPPED, "2 points failed the same way: environment: x"))
    write_exit(run, points[2], left_out(Outcome.PRUNED, "p001 ran out of memory on NVIDIA H200"))
    write_exit(run, points[3], left_out(Outcome.STOPPED, "somebody stopped it"))
    assert found(run) is None, "how long the environment took to fail, no record tells"
