from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from jobkit.commands.status import status
from jobkit.core.errors import JobkitError
from jobkit.core.records import JobFacts
from tests.support.builders import grid, record, write_points, write_record, write_submitted
from tests.support.commands import JOBKIT, called
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

EARLIER, LATER = "demo-20260102-101530-3f9a", "demo-20260103-101530-3f9a"


@pytest.fixture
def runs(tmp_path: Path, queue: Programs, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of two runs: the earlier is done, of the later a point waits."""
    monkeypatch.chdir(tmp_path)
    for name in (EARLIER, LATER):
        points = [replace(point, run_id=name) for point in grid([50, 100])]
        run = write_points(tmp_path / "runs" / name, points)
        write_submitted(run, "slurm", name[11:13], first=1, last=2)
        for point in points if name == EARLIER else points[:1]:
            job = JobFacts(scheduler="slurm", job_id=name[11:13], task_id=str(point.index))
            write_record(run, replace(record(point), job=job))
    queue.holds("03_2|PENDING|Resources|||N/A", name=LATER)
    return tmp_path / "runs"


run = partial(called, status)


def test_without_a_run_it_is_the_latest_and_a_list_of_the_others(
    runs: Path, capsys: pytest.CaptureFixture[str], queue: Programs
) -> None:
    assert run() == 5
    told = capsys.readouterr().out
    assert f"{LATER}: 2 points: 1 done, 1 waiting" in told
    assert "Resources: what it needs is in use" in told
    assert told.endswith(f"other runs\n  runs/{EARLIER}  2 points, all begun\n")
    assert queue.asked == {"squeue": 1}
    assert run(runs) == 5
    assert capsys.readouterr().out.endswith(f"{runs / EARLIER}  2 points, all begun\n")


def test_several_runs_are_reported_in_a_line_each_first(
    runs: Path, capsys: pytest.CaptureFixture[str], queue: Programs
) -> None:
    assert run(runs / EARLIER, runs / LATER) == 5
    told = capsys.readouterr().out
    assert told.startswith(f"{EARLIER}: 2 points: 2 done\n{LATER}: 2 points: 1 done, 1 waiting\n\n")
    assert told.count(f"{EARLIER}: 2 points") == 2
    assert queue.asked == {"squeue": 1}


def test_a_point_behind_a_run_is_reported_whole(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(runs / LATER, "p001", "2") == 5
    told = capsys.readouterr().out
    assert told.startswith(f"p001: point 1 of 2 of {LATER}\n")
    assert "\n\np002: point 2 of 2" in told
    with pytest.raises(JobkitError, match="no point 'p009'"):
        run(runs / LATER, "p009")


def test_programs_get_all_of_it_in_one_document(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 5
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert [one["standing"] for one in told["runs"][0]["points"]] == ["done", "waiting"]
    assert told["others"] == [{"run": EARLIER, "folder": f"runs/{EARLIER}", "points": 2, "begun": 2}]
    assert run(runs / LATER, "1", "--json") == 5
    told = json.loads(capsys.readouterr().out)
    assert (told["run"], len(told["points"][0]["all_tries"])) == (LATER, 1)


def test_all_points_are_listed_where_asked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = [replace(point, run_id="long") for point in grid(range(1, 61))]
    long = write_points(runs / "long", points)
    for point in points:
        write_record(long, record(point))
    run(long)
    assert "60 points  ok" in capsys.readouterr().out
    run(long, "--all")
    assert capsys.readouterr().out.count(" ok ") == 60


def test_a_watch_of_what_is_done_ends_at_once(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(runs / EARLIER, "--watch") == 0
    told = capsys.readouterr().out
    assert "2 points: 2 done" in told
    assert "\x1b" not in told
    assert run(runs / EARLIER, "--watch", "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["exit_code"] == 0


def test_a_watch_that_is_interrupted_says_so(runs: Path) -> None:
    watching = subprocess.Popen(
        [JOBKIT, "status", "--watch", runs / LATER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    assert any("1 waiting" in line for line in watching.stdout)
    watching.send_signal(2)
    _, err = watching.communicate(timeout=120)
    assert watching.returncode == 130, err
    assert "Traceback" not in err


def test_a_long_list_of_other_runs_is_cut(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in range(1, 14):
        write_points(runs / f"older-202512{day:02}-101530-3f9a", grid([50]))
    run()
    told = capsys.readouterr().out.splitlines()
    assert told[-3:] == [
        "  runs/older-20251206-101530-3f9a  1 point, 0 begun",
        "  runs/older-20251205-101530-3f9a  1 point, 0 begun",
        "  and 4 older",
    ]
