"""Jobs of plain scripts, as `jobkit waste` judges them by the accounting of real schedulers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.daemons import until
from tests.support import commands

HOLD = "block = bytearray({mib} * 2**20); block[::4096] = block[::4096]; import time; time.sleep({seconds})"


@dataclass
class PlainUser:
    """A user who knows nothing of jobkit, on a cluster."""

    scheduler: str
    home: Path

    def submit(self, name: str, body: str, *options: str) -> str:
        """Submit a script, and return the job's id."""
        script = self.home / f"{name}.sh"
        script.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        argv = ["sbatch", "--parsable", "-J", name, "-o", "/dev/null", *options, str(script)]
        if self.scheduler == "sge":
            argv = ["qsub", "-terse", "-N", name, "-o", "/dev/null", "-j", "y", *options, str(script)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=self.home)
        return done.stdout.strip().partition(".")[0]

    def waste(self, *words: str) -> subprocess.CompletedProcess[str]:
        return commands.jobkit("waste", "--scheduler", self.scheduler, *words, cwd=self.home)

    def groups(self, *words: str) -> dict[str, dict[str, Any]]:
        answer = commands.ended_well(self.waste(*words, "--json"))
        return {group["name"]: group for group in json.loads(answer.stdout)["groups"]}

    def judged(self, name: str, *ids: str) -> list[dict[str, Any]]:
        """Return the jobs of a name that are judged: a row of the accounting may come in two parts."""
        answer = self.waste(*ids, "--json")
        data = json.loads(answer.stdout) if answer.returncode == 0 else {"groups": []}
        return [job for group in data["groups"] if group["name"] == name for job in group["jobs"]]

    def ended(self, *ids: str) -> None:
        """Wait until the accounting has the end of all jobs."""

        def all_over() -> bool:
            answer = self.waste(*ids, "--json")
            data = json.loads(answer.stdout) if answer.returncode == 0 else {}
            return bool(data) and not data["running"] and not data["unknown"]

        until(all_over, "the end of the jobs in the accounting", 90)

    def request(self, mib: int, minutes: int) -> tuple[str, ...]:
        clock = f"00:{minutes:02}:00"
        if self.scheduler == "slurm":
            return (f"--mem={mib}M", f"--time={clock}")
        return ("-l", f"h_vmem={mib}M,h_rt={clock}")


@pytest.fixture
def plain(scheduler: str, tmp_path: Path) -> PlainUser:
    return PlainUser(scheduler, tmp_path)


def holds(mib: int, seconds: float = 3) -> str:
    return f'{sys.executable} -c "{HOLD.format(mib=mib, seconds=seconds)}"'


@pytest.mark.usefixtures("turn")
def test_jobs_of_a_plain_script_get_the_lines_of_the_next_one(plain: PlainUser) -> None:
    size = "SIZE=$((40 * ${SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID}))\n"
    tasks = ("--array=1-3",) if plain.scheduler == "slurm" else ("-t", "1-3")
    array = plain.submit(
        "sizes", size + holds(0).replace("0 * 2", "$SIZE * 2"), *tasks, *plain.request(900, 30)
    )
    failed = plain.submit("fails", "exit 3", *plain.request(100, 5))
    plain.ended(array, failed)
    until(lambda: len(plain.judged("sizes", array)) == 3, "the three tasks in the accounting", 60)
    groups = plain.groups(array, failed)
    memory, walltime, _ = groups["sizes"]["needs"]
    assert memory["used"] == sorted(memory["used"])
    assert len(memory["used"]) == groups["sizes"]["ended_well"] == 3
    assert 120 * 2**20 < memory["used"][-1] < 200 * 2**20
    sampled = plain.scheduler == "slurm"  # too few samples of so short a job for an advice
    assert (memory["next"], walltime["next"]) == (None if sampled else 400 * 2**20, 300)
    assert groups["fails"]["lines"] == []
    export = "sacct -P --format=ALL -S now-30days" if sampled else "qacct -d 30 -j"
    answer = subprocess.run(export.split(), check=True, capture_output=True, text=True)
    (plain.home / "export").write_text(answer.stdout, encoding="utf-8")
    exported = {job["job_id"] for job in plain.judged("sizes", "--from", "export")}
    assert exported.issuperset(job["job_id"] for job in plain.judged("sizes", array))
    text = plain.waste(array).stdout
    assert ("#SBATCH --mem" in text, "#$ -l h_vmem=400M" in text) == (False, not sampled)


def test_the_status_is_that_of_the_job(plain: PlainUser) -> None:
    """Slurm's accounting prints 0, 73 and 127, its controller the real one for some minutes."""
    jobs = {plain.submit("status", f"exit {status}"): status for status in (128, 201, 255)}
    plain.ended(*jobs)
    until(lambda: len(plain.judged("status", *jobs)) == len(jobs), "the jobs in the accounting", 60)
    for judged in plain.judged("status", *jobs):
        assert f"status {jobs[judged['job_id']]}" in judged["state"]
        assert " or " not in judged["state"]
