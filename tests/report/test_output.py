from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.layout import Exit
from jobkit.core.records import Outcome, Point
from jobkit.core.units import GIB
from jobkit.report.output import render
from jobkit.report.tables import collect
from tests.support.builders import (
    grid,
    record,
    write_exit,
    write_points,
    write_record,
    write_records,
    write_submitted,
)

DATA = Path(__file__).parents[1] / "data"
OLD_LOG = DATA / "predecessors" / "gpu-stanza-tagging.o2650"
REPORTS = DATA / "reports"


def finished(folder: Path, points: list[Point]) -> Path:
    records = [record(p, work_s=400 / p.numbers["batch_size"] + 2 + p.repeat / 50) for p in points]
    return write_records(folder, records)


def mixed(folder: Path) -> Path:
    """Return a run with good points, one too large for the card, two that failed and one to come."""
    points = [*grid([50, 100, 200], repeats=2), *(replace(p, index=p.index + 6) for p in grid([600] * 4))]
    points = [replace(p, point_id=f"p{p.index:03d}") for p in points]
    write_points(folder, points)
    for p in points[:6]:
        write_record(folder, record(p, work_s=400 / p.numbers["batch_size"] + 2 + p.repeat / 50))
    write_record(folder, replace(record(points[6]), outcome=Outcome.GPU_OOM, summary=None))
    write_exit(folder, points[7], Exit(status=11, stage="stage_out", scratch="/scratch/77.8", host="node1"))
    write_record(folder, replace(record(points[8]), outcome=Outcome.TIMEOUT, signal="USR1", provisional=True))
    write_submitted(folder, "slurm", "77", first=1, last=10)
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return ``runs``, empty, so that no path in a report depends on where the tests run."""
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def test_the_published_log_at_80_columns() -> None:
    report = render(collect([OLD_LOG]), width=80, limit_bytes=30 * GIB)
    assert report == (REPORTS / "old-log-80.txt").read_text()


def test_a_run_of_all_kinds(runs: Path) -> None:
    found = collect([mixed(runs / "demo")])
    for width in (80, 120):
        report = render(found, width=width)
        assert report == (REPORTS / f"mixed-{width}.txt").read_text()
        assert "\x1b[" not in report
    assert render(found, "md") == (REPORTS / "mixed.md").read_text()
    assert "\x1b[1m" in render(found, color=True)
    report = render(found, width=60)
    assert "how much walltime it needs: jobkit status runs/demo 9\n" in report, "a command is never broken"


def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(tmp_path: Path) -> None:
    found = collect([finished(tmp_path / "run", grid([50, 100], repeats=2))])
    for width in range(40, 161, 20):
        report = render(found, width=width)
        assert "…" not in report
        assert max(map(len, report.splitlines())) <= width


def test_words_from_files_are_not_taken_for_markup(tmp_path: Path) -> None:
    run = write_points(tmp_path / "run", points := grid([50]))
    write_exit(run, points[0], Exit(status=1, stage="environment", message="[bold]no[/bold] :smile: | <b>"))
    assert "[bold]no[/bold] :smile: | <b>" in render(collect([run]), width=200)
    assert "\\| &lt;b&gt;" in render(collect([run]), "md")


def test_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    points = grid(range(1, 101))
    report = render(collect([write_points(tmp_path / "to come", points)]), width=80)
    assert "to come: p001, p002, p003 and 97 more" in report
    assert len(report.splitlines()) < 5
    bugs = [replace(record(point), outcome=Outcome.BUG, message=f"line {point.index}") for point in points]
    report = render(collect([write_records(tmp_path / "failed", bugs)]), width=80)
    assert "... and 80 more points (--format csv has them all)" in report
    assert len(report.splitlines()) < 70


@pytest.mark.parametrize(("asked", "shown"), [(None, True), ("fp32", False)])
def test_a_precision_that_the_checkpoint_chose_is_shown(
    asked: str | None,
    shown: bool,  # noqa: FBT001 - by name
    tmp_path: Path,
) -> None:
    points = [replace(point, precision=asked) for point in grid([50, 100])]
    found = [replace(record(point), effective={"precision": "fp32"}) for point in points]
    assert ("precision: fp32" in render(collect([write_records(tmp_path / "run", found)]))) == shown
