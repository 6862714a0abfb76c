from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from jobkit import cli
from jobkit.commands import corpus
from jobkit.core.errors import JobkitError
from jobkit.runs.status_text import read_list
from jobkit.runs.which_run import (
    RunAndPoints,
    find_run,
    how_to_begin,
    remember,
    remembered,
    resolve_words,
    run_and_point,
    run_named,
    run_or_latest,
    runs_in,
    usual,
)
from tests.support.builders import grid, record, write_points, write_record

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(autouse=True)
def without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def a_run(name: str) -> Path:
    return write_points(Path(name), grid([50, 100]))


def test_runs_are_named_by_folder_or_by_name_and_then_points(here: Path) -> None:
    first, second = a_run("runs/demo-1"), a_run("runs/demo-2")
    assert resolve_words(["runs/demo-1", "demo-2"]) == RunAndPoints((first, second))
    (here / "7").mkdir()
    assert resolve_words(["runs/demo-1", "7", "p001"]) == RunAndPoints((first,), ("7", "p001"))
    with pytest.raises(JobkitError, match="7: not a run folder"):
        resolve_words(["demo-1", "demo-2", "7"])
    a_run("elsewhere/demo")
    assert resolve_words(["elsewhere"]) == RunAndPoints(folder=Path("elsewhere"))


def test_without_a_run_a_point_is_of_the_latest_run() -> None:
    latest = a_run("runs/new-20260103-101530-3f9a")
    older = a_run("runs/old-20260102-101530-3f9a")
    assert resolve_words(["2", "1"]) == RunAndPoints((latest,), ("2", "1"))
    assert run_or_latest(None) == latest
    assert run_or_latest(older) == older
    assert run_and_point(["2"]) == (latest, "2")
    assert run_and_point([str(older), "p001"]) == (older, "p001")
    for words, fault in (
        ([str(older)], "a run, and no POINT is named"),
        (["a", "b", "c"], "one POINT at a time"),
    ):
        with pytest.raises(JobkitError, match=fault):
            run_and_point(words)


def test_a_run_that_is_not_there_is_refused_with_its_nearest() -> None:
    with pytest.raises(JobkitError, match="4711: not a run folder") as caught:
        run_named("4711")
    assert "a job: jobkit waste 4711" in caught.value.hint
    with pytest.raises(JobkitError, match="nope: not a run folder") as caught:
        resolve_words(["nope"])
    assert caught.value.hint == "jobkit status --list lists all your runs"
    a_run("runs/demo-20260102-101530-3f9a")
    with pytest.raises(JobkitError) as caught:
        resolve_words(["runs/demo-20260102-101530-3f9b"])
    assert caught.value.hint == "did you mean 'demo-20260102-101530-3f9a'?"


@pytest.fixture
def elsewhere(here: Path) -> Path:
    """Return where the site says that runs go."""
    sites, folder = here / "config", here / "work" / "runs"
    sites.mkdir()
    (sites / "site.yaml").write_text(f"name: mine\nscheduler: local\nruns_dir: {folder}\n", encoding="utf-8")
    return folder


def test_where_the_site_says_that_runs_go_they_are_looked_for(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = a_run("runs/old-20250102-101530-3f9a")
    assert usual() == resolve_words([]).folder == Path("runs"), "nothing went there yet"
    new = a_run(f"{elsewhere}/new-20260102-101530-3f9a")
    assert usual() == Path("work/runs")
    assert find_run(new.name) == Path("work/runs") / new.name
    assert run_named(old.name) == old
    assert cli._exit_code(["status", new.name]) == 5
    assert cli._exit_code(["collect"]) == 5
    told = capsys.readouterr().out
    assert f"work/runs/{new.name}" in told
    assert old.name not in told
    with pytest.raises(JobkitError) as caught:
        run_named("new-20260102-101530-3f9b")
    assert caught.value.hint == f"did you mean {new.name!r}?"
    Path("config/site.yaml").write_text("name: [", encoding="utf-8")
    assert resolve_words([]).folder == Path("runs"), "a fault in it is no reason to show nothing"


def test_what_to_begin_with_is_there_wherever_one_stands(here: Path) -> None:
    words = shlex.split(how_to_begin().partition(";")[0])
    assert words[3:5] == ["jobkit", "sweep"]
    assert (here / words[5]).is_file()


def test_the_latest_run_is_the_first(here: Path) -> None:
    names = ["b-20260102-101530-3f9a", "a-20260103-101530-0000", "c-20250101-000000-ffff"]
    runs = {name: a_run(f"runs/{name}") for name in names}
    renamed = a_run("runs/mine")
    os.utime(renamed / "points.jsonl", (0, 0))
    (here / "runs" / "stray").mkdir()
    order = [runs[names[1]], runs[names[0]], runs[names[2]], renamed]
    assert runs_in(Path("runs")) == order


OLD, NEW = "old-20260102-101530-3f9a", "new-20260103-101530-3f9a"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with two runs, which jobkit remembers; the working directory is another folder."""
    monkeypatch.setenv("JOBKIT_RUNS", str(tmp_path / "data" / "runs.txt"))
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


def test_all_runs_are_listed_from_anywhere_the_latest_first(project: Path) -> None:
    lines = printed("--list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [NEW, OLD]
    assert all("1 done" in line for line in lines[1:])
    (first, second) = json.loads(printed("--list", "--json"))["runs"]
    assert (first["run"], second["folder"]) == (NEW, str(project / OLD))
    assert first["age_s"] < second["age_s"]
    listed = read_list(1)
    assert ([run["run"] for run in listed["runs"]], listed["older"]) == ([NEW], 1)
    assert "and 1 older" not in printed("--list", "--all")


def test_without_a_run_it_is_the_latest_of_all_and_merge_proposes_a_corpus(project: Path) -> None:
    a_run(f"runs/{OLD}")
    a_run(f"runs/{NEW.replace('0103', '0104')}")
    (project / NEW / "corpus.json").touch()
    assert json.loads(printed("--json"))["runs"][0]["folder"].endswith(NEW.replace("0103", "0104"))
    remember(a_run(f"{project}/later-20260105-101530-3f9a"))
    assert json.loads(printed("--json"))["runs"][0]["folder"].endswith("later-20260105-101530-3f9a")
    assert run_and_point(["2"])[0].absolute() == project / "later-20260105-101530-3f9a"
    with pytest.raises(click.UsageError, match=f"for the latest: jobkit merge .*{NEW}$"):
        corpus.merge.main(args=[], prog_name="merge", standalone_mode=False)


def test_every_name_in_the_list_names_its_run(project: Path) -> None:
    twin = write_points(project.parent / "other" / OLD, grid([50]))
    remember(twin)
    names = [run["run"] for run in read_list(9)["runs"]]
    assert [find_run(name) for name in names] == [Path(run["folder"]) for run in read_list(9)["runs"]]
    assert names[0] == NEW
    assert sorted(names[1:]) == sorted(map(str, (project / OLD, twin)))
    with pytest.raises(JobkitError, match="2 runs have this name") as caught:
        find_run(OLD)
    assert str(twin) in caught.value.hint
    remember(write_points(project / "7", grid([50])))
    assert find_run("7") is None, "a number names a point"


def test_a_folder_without_a_run_is_left_out_and_the_others_stay(project: Path) -> None:
    shutil.rmtree(project / NEW)
    lines = printed("--list").splitlines()
    assert lines[1].startswith(OLD)
    assert lines[2].startswith(f"left out: {project / NEW}: ")
    (project / OLD / "points.jsonl").write_text("what is this?\n", encoding="utf-8")
    first, *left_out = printed("--list").splitlines()
    assert first == "no runs yet"
    assert len(left_out) == 2


def test_a_run_is_remembered_once_and_a_list_that_cannot_be_written_stops_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(project / OLD)
    assert remembered() == [project / NEW, project / OLD]
    monkeypatch.setenv("JOBKIT_RUNS", str(project / OLD / "points.jsonl" / "runs.txt"))
    remember(project / NEW)
    assert remembered() == []


@pytest.mark.parametrize(
    "words", ["cancel", "collect", "logs . 1", "recommend", "resume", "status", "verify"]
)
def test_every_command_takes_the_name_of_a_run_and_says_what_is_none(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, *more = words.replace(". ", "").split()
    run = a_run("my runs/demo")
    for word, hint in {
        "my runs": "status 'my runs' lists them",
        "runs/nope": "jobkit status --list lists all your runs",
    }.items():
        if command not in {"collect", "status"}:
            assert cli._exit_code([command, word, *more]) == 2
            told = capsys.readouterr().err
            assert f"{word}: not a run folder" in told
            assert hint in told
    a_run("runs/demo-20260102-101530-3f9a")
    cli._exit_code([command, "demo-20260102-101530-3f9a", *more])
    told = capsys.readouterr().err
    assert "not a run folder" not in told
    assert "no such file or folder" not in told
    monkeypatch.chdir(run)
    assert cli._exit_code([command, "", *more]) == 2
    out, err = capsys.readouterr()
    assert ("is empty" in err, out) == (True, ""), "it is not the working directory"


@pytest.mark.parametrize("words", [["cancel"], ["cancel", "--except"], ["logs"]])
def test_a_second_run_is_no_point(
    elsewhere: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (f"{name}-20260102-101530-0000" for name in "ab")
    command, *option = words
    for folder in ("runs", elsewhere):
        a_run(f"{folder}/{a}")
        for second in (str(a_run(f"{folder}/{b}")), b):
            assert cli._exit_code([command, f"{folder}/{a}", *option, second]) == 2
            assert f"{second}: a second run\n  hint: one run at a time" in capsys.readouterr().err
        shutil.rmtree(folder)
