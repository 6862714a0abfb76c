"""A scheduler may come in a package of its own: PBS, with commands that play a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.runs.tries import is_fault, reported_outcome
from jobkit.schedulers.lint import lint
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import SCHEDULERS, submission_environment
from jobkit.schedulers.types import Array, JobId, State
from tests.schedulers.pbs import jobkit_pbs as pbs
from tests.support import commands

PBS = Path(__file__).parent / "pbs"
CHECKED: Scheduler = pbs  # by mypy
SPEC = """\
name: count
workload: count
text: sample:30
sweep: {batch_size: [1, 10]}
repeats: 1
resources: {gpus: 0, cpus: 1, memory: 200MiB, walltime: "00:02:00"}
policy: {follow_up: false}
"""
Jobkit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def jobkit(tmp_path: Path, kept_cache: Path) -> Jobkit:
    """Return a way to type `jobkit ...` where the package is installed and its commands are on PATH."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    places = {
        "JOBKIT_CONFIG": tmp_path / "config",
        "JOBKIT_CACHE": kept_cache,
        "PBS_CONF_FILE": tmp_path / "jobs",
    }
    paths = {"PATH": f"{PBS / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": f"{PBS}:{Path.cwd()}"}
    variables = {**os.environ, **places, **paths, "TMPDIR": tmp_path}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "jobkit", *words]
        env = {name: str(value) for name, value in variables.items()}
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    return run


@pytest.mark.slow
def test_its_script_passes_shellcheck(jobkit: Jobkit) -> None:
    done = jobkit("sweep", "spec.yaml", "--scheduler", "pbs", "--script")
    assert done.returncode == 0, done.stderr
    header = [line for line in done.stdout.splitlines() if line.startswith("#PBS ")]
    assert header[0] == "#PBS -S /bin/bash"
    assert header[-3:] == ["#PBS -l ncpus=1", "#PBS -l mem=200Mb", "#PBS -l walltime=00:02:00"]
    subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), "-"], input=done.stdout, text=True, check=True
    )


@pytest.mark.slow
def test_auto_finds_it_and_a_sweep_comes_home(jobkit: Jobkit, tmp_path: Path) -> None:
    done = jobkit("sweep", "spec.yaml", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1[].fake" in done.stdout + done.stderr
    run = str(next((tmp_path / "runs").iterdir()))
    done = jobkit("collect", run, "--json")
    assert [row["outcome"] for row in json.loads(done.stdout)["points"]] == ["ok", "ok"]
    for path in tmp_path.glob("runs/*/results/*/try-1/record.json"):
        record = json.loads(path.read_text())
        assert (record["job"]["scheduler"], record["environment"]["PBS_QUEUE"]) == ("pbs", "workq")
    assert len([*tmp_path.glob("runs/*/logs/*.fake.OU")]) == 2
    assert "#PBS -l mem=" in jobkit("recommend", run).stdout
    findings = json.loads(jobkit("doctor", "spec.yaml", "--json").stdout)["findings"]
    of_site = {one["name"]: one for one in findings if one["where"] == pbs.TITLE}
    assert "at most 500 tasks in one" in of_site["array jobs"]["said"]
    assert "pbs-default" in of_site["site file"]["said"]


def test_what_it_declares_counts_in_every_room(
    tmp_path: Path, kept_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cast("dict[str, Scheduler]", SCHEDULERS), "pbs", pbs)
    monkeypatch.setenv("JOBKIT_CACHE", str(kept_cache))
    monkeypatch.setenv("PBS_DPREFIX", "#OTHER")
    assert "PBS_DPREFIX" not in submission_environment()
    killed = "=>> PBS: job killed: walltime 49 exceeded limit 30"
    assert reported_outcome(killed) == ("timeout", killed)
    assert is_fault("=>> PBS: no such job")
    monkeypatch.setattr(pbs, "lint", lambda _: ())
    assert [*lint("#!/bin/bash\n#PBS -N x\n").found] == ["pbs"]
    (tmp_path / "spec.yaml").write_text(f"{SPEC}scheduler: pbs\n", encoding="utf-8")
    for words, reason in (
        (("--set", "resources.options={pbs: [-N x]}"), "change name"),
        (("--dry-run", "--runs-dir", "a,b"), "with ,"),
    ):
        refused = commands.jobkit("sweep", "spec.yaml", *words, cwd=tmp_path)
        assert (refused.returncode, reason in refused.stderr) == (2, True), refused.stderr


def test_an_array_has_its_range_and_its_words() -> None:
    several = Array(first=1, last=9, offset=500, throttle=3)
    words = ("-J", "1-9%3", "-v", "JOBKIT_WORDS=--offset:500", "job.sh")
    assert pbs.submit_argv("job.sh", several) == ("qsub", *words)
    one = Array(first=7, last=7, offset=0, throttle=None)  # qsub: illegal -J value, of 7-7
    after = [JobId("3[].pbs"), JobId("4[].pbs")]
    waits = ("-W", "depend=afterany:3[].pbs:4[].pbs")
    assert pbs.submit_argv("job.sh", one, after) == ("qsub", "-J", "7-8:2", *waits, "job.sh")
    assert pbs.cancel_argv(JobId("3[].pbs"), (1, 2, 3, 9)) == ("qdel", "3[1-3].pbs", "3[9].pbs")


# What qstat -x -f printed of a job that PBS killed at its walltime (PBS Professional, June 2020: a lesson of
# the Software Carpentry kind by Griffith University, "Running and querying your job"), with other names, and
# as a task: no public answer of `qstat -x -t -f` was found, but a subjob has the attributes of a job.
KILLED = """\
Job Id: 49223[2].pbs1
    Job_Name = sleep
    Job_Owner = ann@login1.example.org
    resources_used.cput = 00:00:00
    resources_used.mem = 3548kb
    resources_used.walltime = 00:00:49
    job_state = F
    queue = workq
    ctime = Wed Jun 24 15:33:18 2020
    exec_host = node1/3
    Resource_List.walltime = 00:00:30
    stime = Wed Jun 24 15:33:18 2020
    substate = 93
    Variable_List = PBS_O_SYSTEM=Linux,PBS_O_SHELL=/bin/bash,
\tPBS_O_HOME=/home/ann,PBS_O_LOGNAME=ann,
\tPBS_O_HOST=login1.example.org
    comment = Job run at Wed Jun 24 at 15:33 on (node1:ncpus=1) and fa
\tiled
    run_count = 1
    Exit_status = 271
"""
# A line of standard error as qstat.c and pbs_messages.c write it.
UNKNOWN = "qstat: Unknown Job Id 256[].pbs1"


def test_a_task_killed_at_its_walltime_ran_out_of_time() -> None:
    answer = Completed(("qstat",), 153, KILLED, UNKNOWN)
    (ended,) = pbs.parse_accounting(answer) or ()
    assert (ended.job_id, ended.task, ended.name, ended.user) == ("49223[].pbs1", 2, "sleep", "ann")
    assert (ended.outcome, ended.exit_status, ended.node) == (Outcome.TIMEOUT, 128 + 15, "node1")
    assert (ended.elapsed_s, ended.max_rss_bytes) == (49, 3548 * 1024)
    assert ended.evidence.endswith("(node1:ncpus=1) and failed")
    assert pbs.parse_queue(answer) == ()
    assert pbs.parse_queue(Completed(("qstat",), 255, "", "cannot connect to server")) is None


def tasks(*attributes: str) -> Completed:
    """Return an answer of tasks 1, 2 and so on, below the array that they are of."""
    rows = [f"Job Id: 1[{n}].pbs1\n    job_state = {of}\n" for n, of in enumerate(attributes, 1)]
    return Completed(("qstat",), 0, "\n".join(["Job Id: 1[].pbs1\n    job_state = B\n", *rows]), "")


def test_an_exit_status_may_be_what_pbs_did_and_a_letter_is_a_state() -> None:
    outcomes = {
        "1": None,
        "265": None,  # less than the walltime
        "-29": Outcome.TIMEOUT,
        "-27": Outcome.RAM_OOM,
        "-1": Outcome.QUEUE_ERROR,
        "271\n    substate = 91": Outcome.CANCELLED,
    }
    ended = pbs.parse_accounting(tasks(*(f"X\n    Exit_status = {status}" for status in outcomes))) or ()
    assert [one.outcome for one in ended] == [*outcomes.values()]
    states = [State.PENDING, State.RUNNING, State.HELD, State.ENDING, State.UNKNOWN]
    assert [one.state for one in pbs.parse_queue(tasks(*"QRHEZ")) or ()] == states
