from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobkit.errors import JobkitError
from jobkit.runs_here import Glance, Named, glance, named, runs_in
from tests.builders import grid, record, write_points, write_record


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path


def a_run(name: str) -> Path:
    return write_points(Path(name), grid([50, 100]))


def test_runs_are_named_by_folder_or_by_name(here: Path) -> None:
    first, second = a_run("runs/demo-1"), a_run("runs/demo-2")
    assert named(["runs/demo-1", "demo-2"]) == Named((first, second))
    assert here.is_dir()


def test_what_follows_a_run_and_is_none_is_a_point(here: Path) -> None:
    run = a_run("runs/demo")
    (here / "7").mkdir()
    assert named(["runs/demo", "7", "p001"]) == Named((run,), ("7", "p001"))


def test_points_of_several_runs_cannot_be_told_apart(here: Path) -> None:
    a_run("runs/demo-1")
    a_run("runs/demo-2")
    with pytest.raises(JobkitError, match="7: not a run folder") as caught:
        named(["demo-1", "demo-2", "7"])
    assert caught.value.hint == "jobkit status RUN POINT"
    with pytest.raises(JobkitError, match="7: not"):
        named(["demo-1", "7", "demo-2"])
    assert here.is_dir()


def test_a_run_that_is_not_there_is_refused_with_its_nearest(here: Path) -> None:
    with pytest.raises(JobkitError, match="nope: not a run folder") as caught:
        named(["nope"])
    assert caught.value.hint == "jobkit status, alone, lists the runs of runs/"
    a_run("runs/demo-20260102-101530-3f9a")
    with pytest.raises(JobkitError) as caught:
        named(["runs/demo-20260102-101530-3f9b"])
    assert caught.value.hint == "did you mean 'demo-20260102-101530-3f9a'?"
    assert here.is_dir()


def test_nothing_is_the_latest_of_the_usual_folder(here: Path) -> None:
    assert named([]) == Named(folder=Path("runs"))
    assert here.is_dir()


def test_the_site_says_where_runs_go_where_there_are_none_here(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORK", "/work/me")
    sites = here / "config"
    sites.mkdir()
    (sites / "site.yaml").write_text("name: mine\nscheduler: local\nruns_dir: $WORK/runs\n", encoding="utf-8")
    assert named([]).folder == Path("/work/me/runs")
    (sites / "site.yaml").write_text("name: [", encoding="utf-8")
    assert named([]).folder == Path("runs"), "a site file with a fault is no reason to show nothing"
    (here / "runs").mkdir()
    assert named([]).folder == Path("runs")


def test_one_folder_of_runs_stands_for_its_latest(here: Path) -> None:
    a_run("elsewhere/demo")
    assert named(["elsewhere"]) == Named(folder=Path("elsewhere"))
    assert here.is_dir()


def test_the_latest_run_is_the_first(here: Path) -> None:
    names = ["b-20260102-101530-3f9a", "a-20260103-101530-0000", "c-20250101-000000-ffff"]
    runs = {name: a_run(f"runs/{name}") for name in names}
    renamed = a_run("runs/mine")
    os.utime(renamed / "points.jsonl", (0, 0))
    (here / "runs" / "stray").mkdir()
    order = [runs[names[1]], runs[names[0]], runs[names[2]], renamed]
    assert runs_in(Path("runs")) == order


def test_a_folder_without_runs_says_how_to_make_one(here: Path) -> None:
    for folder in (Path("runs"), here):
        with pytest.raises(JobkitError, match="no runs in") as caught:
            runs_in(folder)
        assert "jobkit sweep" in caught.value.hint


def test_a_glance_reads_no_record(here: Path) -> None:
    run = a_run("runs/demo")
    assert glance(run) == Glance(run, 2, 0)
    write_record(run, record(grid([50])[0]))
    assert glance(run) == Glance(run, 2, 1)
    (run / "results" / "p001").rename(here / "p001")
    (run / "results").rmdir()
    assert glance(run) == Glance(run, 2, 0)
