from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.records import JobFacts
from tests.support.builders import grid, record, write_points, write_record, write_records, write_submitted
from tests.support.commands import jobkit
from tests.support.programs import Programs
from tests.support.programs import queue as queue  # noqa: PLC0414 - a fixture is found by its name here

EARLIER, LATER = "demo-20260102-101530-3f9a", "demo-20260103-101530-3f9a"


@pytest.fixture
def runs(here: Path, queue: Programs) -> Path:
    """Return a folder of two runs: the earlier is done, of the later a point waits."""
    for name in (EARLIER, LATER):
        points = [replace(point, run_id=name) for point in grid([50, 100])]
        run = write_points(here / "runs" / name, points)
        write_submitted(run, "slurm", name[11:13], first=1, last=2)
        for point in points if name == EARLIER else points[:1]:
            job = JobFacts(scheduler="slurm", job_id=name[11:13], task_id=str(point.index))
            write_record(run, replace(record(point), job=job))
    queue.holds("03_2|PENDING|Resources|||N/A", name=LATER)
    return here / "runs"


@pytest.mark.slow
def test_without_a_run_it_is_the_latest_next_to_the_others(runs: Path, queue: Programs) -> None:
    done = jobkit("status")
    assert done.returncode == 5
    assert f"{LATER}: 2 points: 1 done, 1 waiting" in done.stdout
    assert "Resources: what it needs is in use" in done.stdout
    assert done.stdout.endswith(f"other runs\n  runs/{EARLIER}  2 points, all begun\n")
    assert queue.asked == {"squeue": 1}
    assert jobkit("status", runs).stdout.endswith(f"{runs / EARLIER}  2 points, all begun\n")
    queue.calls()
    done = jobkit("status", runs / EARLIER, runs / LATER)  # a line each first
    assert done.stdout.startswith(f"{EARLIER}: 2 points: 2 done\n{LATER}: 2 points: 1 done, 1 waiting\n\n")
    assert done.stdout.count(f"{EARLIER}: 2 points") == 2
    assert queue.asked == {"squeue": 1}
    told = json.loads(jobkit("status", "--json").stdout)
    assert told["schema"] == 1
    assert [one["standing"] for one in told["runs"][0]["points"]] == ["done", "waiting"]
    assert told["others"] == [{"run": EARLIER, "folder": f"runs/{EARLIER}", "points": 2, "begun": 2}]
    told = json.loads(jobkit("status", runs / LATER, "1", "--json").stdout)
    assert (told["run"], len(told["points"][0]["all_tries"])) == (LATER, 1)


@pytest.mark.slow
def test_a_point_behind_a_run_is_reported_whole(runs: Path, queue: Programs) -> None:
    done = jobkit("status", runs / LATER, "p001", "2")
    assert (done.returncode, "\n\np002: point 2 of 2" in done.stdout) == (5, True)
    assert done.stdout.startswith(f"p001: point 1 of 2 of {LATER}\n")
    done = jobkit("status", runs / LATER, "p009")
    assert (done.returncode, "no point 'p009'" in done.stderr) == (2, True)
    words = "no job of the number 99999 is in the queue"
    queue.says("sbatch")
    for status, also in ((0, True), (1, False)):
        queue.says("squeue", status=status, error="down" * status)
        done = jobkit("status", "99999")
        assert (done.returncode, words in done.stderr, "'99999'" in done.stderr) == (2, also, True)


def test_all_points_are_listed_where_asked(tmp_path: Path) -> None:
    run = write_records(tmp_path / "long", map(record, grid(range(1, 61))))
    assert "60 points  ok" in jobkit("status", run).stdout
    assert jobkit("status", run, "--all").stdout.count(" ok ") == 60


def test_a_watch_of_what_is_done_ends_at_once(runs: Path) -> None:
    done = jobkit("status", runs / EARLIER, "--watch")
    assert (done.returncode, "2 points: 2 done" in done.stdout, "\x1b" in done.stdout) == (0, True, False)
    done = jobkit("status", runs / EARLIER, "--watch", "--json")
    assert (done.returncode, json.loads(done.stdout)["runs"][0]["exit_code"]) == (0, 0)


@pytest.mark.slow
def test_a_long_list_of_other_runs_is_cut(runs: Path) -> None:
    for day in range(1, 14):
        write_points(runs / f"older-202512{day:02}-101530-3f9a", grid([50]))
    *_, first, second, last = jobkit("status").stdout.splitlines()
    assert (first, last) == ("  runs/older-20251206-101530-3f9a  1 point, 0 begun", "  and 4 older runs")
    assert "20251205" in second
