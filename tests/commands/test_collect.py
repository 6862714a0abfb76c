from __future__ import annotations

import csv
from pathlib import Path

import pytest

from jobkit.core.layout import Exit
from tests.support.builders import grid, record, write_exit, write_points, write_record
from tests.support.commands import jobkit

OLD_LOG = Path(__file__).parents[1] / "data" / "predecessors" / "gpu-stanza-tagging.o2650"


pytestmark = pytest.mark.usefixtures("here")


def test_without_paths_it_is_runs(here: Path) -> None:
    done = jobkit("collect")
    assert (done.returncode, "there is no runs/ here" in done.stderr) == (2, True)
    (here / "stray").touch()
    done = jobkit("collect", here)
    assert (done.returncode, "nothing to collect\n  " in done.stderr) == (2, True)
    points = grid([50, 100])
    run = write_points(here / "runs" / "demo", points)
    write_record(run, record(points[0]))
    write_points(here / "runs" / "shell" / "demo", points)  # of `jobkit shell` of an earlier version
    done = jobkit("collect")
    assert "skipped" not in done.stderr
    assert (done.returncode, "1 still to come, of 2" in done.stdout) == (5, True)
    write_exit(run, points[1], Exit(status=1, stage="run"))
    assert jobkit("collect").returncode == 4


def test_output_goes_to_the_file_whole_and_a_dash_is_standard_output(here: Path) -> None:
    assert jobkit("collect", OLD_LOG, "--format", "csv", "--output", "points.csv").stdout == ""
    said = jobkit("collect", OLD_LOG, "--format", "csv", "--output", "-").stdout
    assert (said.count("\n"), said) == (3, Path("points.csv").read_text())
    tabs = jobkit("collect", OLD_LOG, "--format", "tsv").stdout
    assert [*csv.reader(tabs.splitlines(), "excel-tab")] == [*csv.reader(said.splitlines())]
    done = jobkit("collect", OLD_LOG, "--output", Path("nowhere", "table.txt"))
    assert (done.returncode, "--output" in done.stderr) == (2, True)
    assert [path.name for path in here.iterdir()] == ["points.csv"]
