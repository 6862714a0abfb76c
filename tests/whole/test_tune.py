"""`jobkit tune` on this machine, by the commands that a user types."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.layout import SETTING_FILE, read_points
from jobkit.core.units import format_setting
from jobkit.extensions.tune.steps import FINAL
from jobkit.extensions.tune.tuning import Tuning
from tests.support.commands import JOBKIT, jobkit
from tests.whole.specs import ran, write_spec
from tests.whole.test_job_script import wait_until


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
    assert "at most 3 settings in 10 points" in (home / "said").read_text()
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
    assert "3 points: 1 setting, 3 repeats" in swept.stdout


def test_a_dry_run_prints_the_job_and_writes_nothing(home: Path) -> None:
    words = ("--scheduler", "slurm", "--site", "slurm-default", "--set", "tune.workers=4", "--dry-run")
    done = ran("tune", "tune.yaml", *words, cwd=home)
    assert "-m jobkit.extensions.tune.search" in done.stdout
    assert "#SBATCH --cpus-per-task=4" in done.stdout
    assert "#SBATCH --time=00:06:00" in done.stdout
    assert "afterany:JOB1" in done.stdout
    assert not (home / "runs").exists()
    done = jobkit("tune", home, cwd=home)
    assert (done.returncode, "jobkit tune SPEC makes such a run" in done.stderr) == (2, True)
