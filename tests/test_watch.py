from __future__ import annotations

from pathlib import Path

import pytest

from jobkit import records, watch
from jobkit.plan import Inputs, plan
from jobkit.records import Batch, Point, TextRef
from jobkit.schedulers.base import Queued, State
from jobkit.spec import SweepSpec

BATCH = Batch(index=0, first_item=0, items=3, characters=9, load=9, seconds=1.0)


@pytest.fixture
def points(tmp_path: Path) -> tuple[Point, ...]:
    path = tmp_path / "text"
    path.write_text("One.\n\nTwo.\n", encoding="utf-8")
    text = TextRef(path=str(path), sha256="0" * 64, size_bytes=11, name="text")
    spec = SweepSpec.model_validate(
        {"name": "t", "workload": "count", "repeats": 2, "sweep": {"batch_size": [1]}}
    )
    return plan(spec, Inputs(run_id="t-1", text=text, model=None, device="cpu"))


def tried(run: Path, point: Point, *lines: str) -> Path:
    folder = run / "results" / point.point_id / "try-1"
    folder.mkdir(parents=True)
    (folder / "batches.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_a_point_is_finished_when_its_exit_file_is_home(tmp_path: Path, points: tuple[Point, ...]) -> None:
    with watch.Progress(tmp_path, points) as progress:
        assert progress.refresh() == {1, 2}
        folder = tried(tmp_path, points[0], records.to_json(BATCH), '{"index": 1, "first')
        assert progress.refresh() == {1, 2}
        (folder / "exit").write_text("status=0\n", encoding="utf-8")
        assert progress.refresh() == {2}


def test_a_finished_point_is_told_in_a_line_where_there_is_no_terminal(
    tmp_path: Path, points: tuple[Point, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with watch.Progress(tmp_path, points) as progress:
        for point in points:
            (tried(tmp_path, point) / "exit").write_text("status=0\n", encoding="utf-8")
        waiting = Queued(job_id="1", task=1, state=State.PENDING, reason="Resources")
        assert progress.refresh((waiting,)) == set()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["batch_size-1-r1", "1/2", "points,"],
        ["batch_size-1-r2", "2/2", "points"],
    ]


def test_a_text_that_cannot_be_read_leaves_the_total_open(tmp_path: Path, points: tuple[Point, ...]) -> None:
    Path(points[0].text.path).unlink()
    with watch.Progress(tmp_path, points) as progress:
        assert progress.refresh() == {1, 2}
