from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobkit import cli
from jobkit.core.errors import JobkitError
from jobkit.core.paths import RUNS_VARIABLE
from jobkit.runs.run_list import read_list
from jobkit.runs.which_run import find_run, remember, remembered
from tests.support.builders import grid, record, write_points, write_record

OLD, NEW = "old-20260102-101530-3f9a", "new-20260103-101530-3f9a"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with two runs, which jobkit remembers; the working directory is another folder."""
    monkeypatch.setenv("JOBKIT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(RUNS_VARIABLE, str(tmp_path / "data" / "runs.txt"))
    for name in (NEW, OLD):
        points = grid([50, 100])
        run = write_points(tmp_path / "project" / name, points)
        write_record(run, record(points[0]))
        remember(run)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "project"


def printed(*words: str) -> str:
    done = CliRunner().invoke(cli.app, ["status", *words], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def test_all_runs_are_listed_from_anywhere_the_latest_first(elsewhere: Path) -> None:
    lines = printed("--list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [NEW, OLD]
    assert all("1 done" in line for line in lines[1:])
    (first, second) = json.loads(printed("--list", "--json"))["runs"]
    assert (first["run"], second["folder"]) == (NEW, str(elsewhere / OLD))
    assert first["age_s"] < second["age_s"]


def test_every_name_in_the_list_names_its_run(elsewhere: Path) -> None:
    twin = write_points(elsewhere.parent / "other" / OLD, grid([50]))
    remember(twin)
    names = [run.name for run in read_list(9).runs]
    assert [find_run(name) for name in names] == [run.standing.folder for run in read_list(9).runs]
    assert names[0] == NEW
    assert sorted(names[1:]) == sorted(map(str, (elsewhere / OLD, twin)))
    with pytest.raises(JobkitError, match="2 runs have this name") as caught:
        find_run(OLD)
    assert str(twin) in caught.value.hint


def test_a_folder_without_a_run_is_left_out_and_the_others_stay(elsewhere: Path) -> None:
    shutil.rmtree(elsewhere / NEW)
    lines = printed("--list").splitlines()
    assert lines[1].startswith(OLD)
    assert lines[2].startswith(f"left out: {elsewhere / NEW}: ")
    (elsewhere / OLD / "points.jsonl").write_text("what is this?\n", encoding="utf-8")
    first, *left_out = printed("--list").splitlines()
    assert first == "no runs yet"
    assert len(left_out) == 2


def test_older_runs_are_counted(elsewhere: Path) -> None:
    listed = read_list(1)
    assert ([run.name for run in listed.runs], listed.older) == ([NEW], 1)
    assert "and 1 older" not in printed("--list", "--all")
    assert elsewhere.is_dir()


def test_a_run_is_remembered_once_and_a_list_that_cannot_be_written_stops_nothing(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(elsewhere / OLD)
    assert remembered() == [elsewhere / NEW, elsewhere / OLD]
    monkeypatch.setenv(RUNS_VARIABLE, str(elsewhere / OLD / "points.jsonl" / "runs.txt"))
    remember(elsewhere / NEW)
    assert remembered() == []


def test_a_number_names_a_point_and_no_run_elsewhere(elsewhere: Path) -> None:
    remember(write_points(elsewhere / "7", grid([50])))
    assert find_run("7") is None
    assert find_run(OLD) == elsewhere / OLD


@pytest.mark.parametrize("words", [("--list", OLD), ("--list", "--watch")])
def test_the_list_is_of_all_runs(elsewhere: Path, words: tuple[str, ...]) -> None:
    assert elsewhere.is_dir()
    with pytest.raises(Exception, match="--list lists all runs"):
        printed(*words)
