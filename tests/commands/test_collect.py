from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from jobkit.commands.collect import collect
from jobkit.core.errors import JobkitError
from jobkit.core.layout import Exit
from tests.support.builders import grid, record, write_exit, write_points, write_record
from tests.support.commands import called

OLD_LOG = Path(__file__).parents[1] / "data" / "predecessors" / "gpu-stanza-tagging.o2650"


run = partial(called, collect)


def test_a_log_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(OLD_LOG, "--gpu-memory", "30GiB") == 0
    assert "near 1,425" in capsys.readouterr().out


def test_without_paths_it_is_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobkitError, match=r"there is no runs/ here") as caught:
        run()
    assert caught.value.exit_code == 2
    points = grid([50, 100])
    write_record(write_points(tmp_path / "runs" / "demo", points), record(points[0]))
    assert run() == 5
    assert "1 still to come, of 2" in capsys.readouterr().out
    write_exit(tmp_path / "runs" / "demo", points[1], Exit(status=1, stage="run"))
    assert run() == 4


def test_an_empty_folder_is_nothing_to_collect(tmp_path: Path) -> None:
    (tmp_path / "stray").touch()
    with pytest.raises(JobkitError, match="nothing to collect") as caught:
        run(tmp_path)
    assert "stray: empty: skipped" in caught.value.message


def test_output_goes_to_the_file_whole_and_a_dash_is_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(OLD_LOG, "--format", "csv", "--output", "points.csv") == 0
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["points.csv"]
    assert run(OLD_LOG, "--format", "csv", "--output", "-") == 0
    said = capsys.readouterr().out
    assert (said.count("\n"), said) == (3, Path("points.csv").read_text())
    with pytest.raises(JobkitError, match="--output"):
        run(OLD_LOG, "--output", Path("nowhere", "table.txt"))
    assert [path.name for path in tmp_path.iterdir()] == ["points.csv"]
