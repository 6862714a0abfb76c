"""`jobkit tune` on this machine, by the commands that a user types."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from jobkit.core.layout import SETTING_FILE, read_points
from jobkit.core.units import format_setting
from jobkit.extensions.tune.steps import FINAL
from jobkit.extensions.tune.tuning import Tuning
from tests.support.commands import JOBKIT, jobkit
from tests.whole.test_job_script import wait_until

pytestmark = pytest.mark.xdist_group("whole-tune")
SPEC = """\
name: quick
workload: count
text: sample:24
tune: {workers: 1, repeats: 1, budget: 5m}
resources: {gpus: 0, cpus: 1, memory: 400MiB, walltime: "00:01:00"}
scheduler: local
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOBKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tune.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def run_of(home: Path) -> Path:
    (run,) = (home / "runs").iterdir()
    return run


def test_one_command_finds_the_setting_and_another_search_is_refused(home: Path) -> None:
    done = jobkit("tune", "tune.yaml", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "at most 3 settings in 10 points" in done.stderr
    run = run_of(home)
    tuning = Tuning.read(run)
    assert [one.phase for one, _ in tuning.results][-3:] == [FINAL] * 3
    assert f"The setting: {format_setting(tuning.setting)}" in done.stdout
    again = jobkit("tune", "tune.yaml", cwd=home)
    assert (again.returncode, "has a run already" in again.stderr) == (2, True)
    shown = jobkit("tune", run, "--json", cwd=home)
    assert json.loads(shown.stdout)["setting"] == tuning.setting
    swept = jobkit("sweep", "tune.yaml", "--setting", run, "--dry-run", cwd=home)
    assert swept.returncode == 0, swept.stderr
    assert "3 points: 1 setting, 3 repeats" in swept.stdout


@pytest.mark.fault
def test_a_search_that_is_killed_goes_on_where_it_stood(home: Path) -> None:
    """FAULT: the process of `jobkit tune` on this machine is killed.

    HOW: kill -9 of its process group, once the second point was chosen; then `jobkit resume RUN`.
    REPORTED: `jobkit tune RUN` shows how far the search is.
    LOST: the time of the point that was running.
    """
    argv = [str(JOBKIT), "tune", "tune.yaml"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, cwd=home, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        wait_until(lambda: any(len(read_points(run)[0]) > 1 for run in (home / "runs").glob("*")))
        os.killpg(process.pid, signal.SIGKILL)
    run = run_of(home)
    shown = jobkit("tune", run, cwd=home)
    assert (shown.returncode, "The search has not ended" in shown.stdout) == (5, True)
    done = jobkit("resume", run, cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run / SETTING_FILE).is_file()
    assert Tuning.read(run).winner
    again = jobkit("resume", run, cwd=home)
    assert "the search has ended: jobkit tune" in again.stderr


def test_a_dry_run_prints_the_job_and_writes_nothing(home: Path) -> None:
    words = ("--scheduler", "slurm", "--site", "slurm-default", "--set", "tune.workers=4", "--dry-run")
    done = jobkit("tune", "tune.yaml", *words, cwd=home)
    assert done.returncode == 0, done.stderr
    assert "-m jobkit.extensions.tune.search" in done.stdout
    assert "#SBATCH --cpus-per-task=4" in done.stdout
    assert "#SBATCH --time=00:06:00" in done.stdout
    assert "afterany:JOB1" in done.stdout
    assert not (home / "runs").exists()


def test_a_folder_that_no_search_made_is_refused(home: Path) -> None:
    done = jobkit("tune", home, cwd=home)
    assert (done.returncode, "jobkit tune SPEC makes such a run" in done.stderr) == (2, True)
