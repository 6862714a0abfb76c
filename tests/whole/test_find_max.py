"""Searches by what a user types, on this machine: the largest batch, by find.sh too, and `jobkit tune`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.answers import search
from jobkit.core.files import read_lines, write_atomically
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.layout import SEARCH_GOAL_FILE, SETTING_FILE, read_points
from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Outcome, Point
from jobkit.core.units import GIB, format_setting
from jobkit.extensions.tune.measured import FINAL
from jobkit.extensions.tune.search import Tuning
from jobkit.planning.job_script import render_find
from jobkit.runs.results import read_run
from jobkit.runs.search_loop import next_point
from jobkit.runs.trials import SearchGoal, trials
from jobkit.spec.site import load_site
from jobkit.spec.sweep_spec import SweepSpec
from tests.support.builders import record, write_record
from tests.support.commands import JOBKIT, ended_well, jobkit, ran
from tests.whole.specs import write_spec
from tests.whole.test_job_script import DEADLINE_S, WORKLOADS, ScriptRun, wait_until


class Here:
    """A user's folder on a machine without a scheduler."""

    def __init__(self, folder: Path, **find_max: object) -> None:
        self.folder = folder
        text = "\n\n".join(["w" * 99 + "."] * 120) + "\n"
        sizes = {"batch_size": [5, 10, 15, 20]}
        write_spec(folder, content=text, workload="hungry:Hungry", sweep=sizes, find_max=find_max)

    def jobkit(self, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        around = {"PYTHONPATH": str(WORKLOADS)}
        return jobkit(*words, cwd=self.folder, env={"COLUMNS": "200", **around, **env})

    def sweep(self, **env: str) -> subprocess.CompletedProcess[str]:
        return self.jobkit("sweep", "spec.yaml", **env)

    @property
    def run(self) -> Path:
        (found,) = (self.folder / "runs").iterdir()
        return found


def test_where_it_fails_a_smaller_one_holds(tmp_path: Path) -> None:
    here = Here(tmp_path, memory="150MiB")
    done = ended_well(here.sweep(HUNGRY_LIMIT_BYTES="60000000", HUNGRY_ONCE=str(tmp_path / "once")))
    first, second = trials(here.run)
    assert (first.outcome, second.held) == (Outcome.RAM_OOM, True)
    sizes = [point.point.numbers["batch_size"] for point in read_run(here.run).points]
    assert sizes == [5, 10, 15, 20, first.batch_size, second.batch_size]
    assert second.load <= 0.95 * first.load
    tried = f"batch_size {first.batch_size} was tested for 150.0 MiB of process memory"
    assert f"{tried} and ended as ram_oom" in (done.stdout)
    assert "how much memory it needs" not in done.stdout, "it is an answer, and nothing to fix"


class Following(ScriptRun):
    """A run whose points are measured, and whose next batch never ends: 2 of 3 paragraphs a call."""

    def __init__(self, folder: Path) -> None:
        sweep = {"batch_size": [1, 3, 4, 5]}  # 2, which is the largest, has not been measured
        super().__init__(folder, workload="odd:Slow", sweep=sweep)
        points = [from_json(Point, line, where="points") for _, line in read_lines(self.dir / "points.jsonl")]
        for point in points:
            size = point.numbers["batch_size"]
            write_record(self.dir, replace(record(point), memory=MemoryReadings(maxrss_bytes=size * GIB)))
        wanted = SearchGoal(memory_bytes=round(2.1 * GIB), ram_bytes=0)
        write_atomically(self.dir / SEARCH_GOAL_FILE, to_json(wanted))
        spec = SweepSpec.model_validate({"name": "t", "workload": "odd:Slow", "sweep": sweep})
        script = render_find(spec, load_site("local-default", "local"), points[0], self.dir)
        (self.dir / "find.sh").write_text(script, encoding="utf-8")


def test_a_signal_reaches_the_point_and_is_the_last(tmp_path: Path) -> None:
    run = Following(tmp_path)
    told = tmp_path / "told"
    process = run.start(script="find.sh", ODD_TOLD=str(told))
    wait_until(told.exists)
    process.send_signal(signal.SIGUSR1)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143, said
    *_, tried = read_run(run.dir).points
    assert (tried.point.point_id, tried.outcome) == ("batch_size-2-verify", "timeout")
    assert tried.record is not None
    assert tried.record.summary is not None
    assert tried.record.summary.batches == 1, "what was done is home"
    assert len(trials(run.dir)) == 1
    assert next_point(run.dir, search.propose_trial) is None
    assert trials(run.dir)[0].outcome == "timeout"
    assert run.left_on_scratch() == []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    wishes = {"workers": 1, "repeats": 1, "budget": "5m"}
    request = {"gpus": 0, "cpus": 1, "memory": "400MiB", "walltime": "00:01:00"}
    without = {"sweep": None, "repeats": None}
    keys: dict[str, Any] = {"text": "sample:24", "tune": wishes, "resources": request, **without}
    return write_spec(tmp_path, "tune.yaml", **keys).parent


@pytest.mark.fault
def test_a_search_that_is_killed_goes_on_where_it_stood(home: Path) -> None:
    """FAULT: the process of `jobkit tune` on this machine is killed.

    HOW: kill -9 of its process group, once the second point was chosen; then `jobkit resume RUN`.
    REPORTED: `jobkit tune RUN` shows how far the search is.
    LOST: the time of the point that was running.
    """
    argv = [str(JOBKIT), "tune", "tune.yaml"]
    with (
        (home / "said").open("w") as said,
        subprocess.Popen(argv, cwd=home, stdout=said, stderr=said, start_new_session=True) as process,
    ):
        wait_until(lambda: any(len(read_points(run)[0]) > 1 for run in (home / "runs").glob("*")))
        os.killpg(process.pid, signal.SIGKILL)
    assert "at most 4 settings in 12 points" in (home / "said").read_text()
    (run,) = (home / "runs").iterdir()
    shown = jobkit("tune", run, cwd=home)
    assert (shown.returncode, "The search has not ended" in shown.stdout) == (5, True)
    ran("resume", run, cwd=home)
    assert (run / SETTING_FILE).is_file()
    tuning = Tuning.read(run)
    assert [one.phase for one, _ in tuning.results][-3:] == [FINAL] * 3
    assert "the search has ended: jobkit tune" in jobkit("resume", run, cwd=home).stderr
    again = jobkit("tune", "tune.yaml", cwd=home)
    assert (again.returncode, "has a run already" in again.stderr) == (2, True)
    assert f"The setting: {format_setting(tuning.setting)}" in jobkit("tune", run, cwd=home).stdout
    assert json.loads(jobkit("tune", run, "--json", cwd=home).stdout)["setting"] == tuning.setting
    swept = ran("sweep", "tune.yaml", "--setting", run, "--dry-run", cwd=home)
    assert "3 points (1 setting x 3)" in swept.stdout
