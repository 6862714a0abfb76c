"""The contract between the fake Slurm and the real one: one scenario, and what was seen in it.

``observe`` submits, looks, cancels, waits and accounts by jobkit's own commands and parsers, and
returns what it saw without what differs from run to run (ids, times, nodes). What the real daemons
showed stands in tests/data/slurm/contract.json; tests hold the fake (tests/fakes) and the
daemons themselves (tests/cluster) to it. To write it again, with the daemons up:

    python -m tests.fakes.contract
"""

from __future__ import annotations

import getpass
import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from jobkit.core import shell
from jobkit.core.errors import JobkitError
from jobkit.practice.daemons import wait_for
from jobkit.schedulers import slurm
from jobkit.schedulers.parsing import find_job_id
from jobkit.schedulers.types import Accounted, Array, JobId, Queued

FILE = Path(__file__).parents[1] / "data" / "slurm" / "contract.json"
EXPECTED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
"""What the real daemons showed."""
DEADLINE_S = 240.0
HEADER = "#SBATCH --job-name={name} --mem=50M --cpus-per-task=1 --chdir={folder} --output=/dev/null"
# Task K waits until a file says how it ends.
BODY = """\
k=$SLURM_ARRAY_TASK_ID
until [[ -s end.$k ]]; do sleep 0.1; done
exit "$(<"end.$k")"
"""


@dataclass(frozen=True)
class ScenarioLab:
    """A script in a folder, which is given to Slurm."""

    folder: Path
    name: str
    since: str

    def run(self, *argv: str) -> shell.Completed:
        """Run a command in the folder."""
        here = ("env", "-C", str(self.folder), *argv)
        return shell.run(here, env={**os.environ, **slurm.ENVIRONMENT})

    def submit(self, argv: tuple[str, ...]) -> JobId:
        """Submit, and read the id."""
        return find_job_id(self.run(*argv).stdout, slurm.JOB_ID_PATTERNS, argv[0])

    def queue(self, *jobs: JobId) -> list[Queued]:
        """Return what the queue holds of these jobs."""
        told = slurm.parse_queue(self.run(*slurm.queue_argv(jobs)))
        assert told is not None
        ids = {job.id for job in jobs}
        return sorted(
            (task for task in told if task.job_id in ids), key=lambda task: (task.job_id, task.task)
        )

    def accounts(self, *jobs: JobId) -> list[Accounted]:
        """Return what the accounting knows of these jobs."""
        answer = self.run(*slurm.accounting_argv(jobs, self.since, self.name))
        told = slurm.parse_accounting(answer)
        assert told is not None
        if more := slurm.status_argv(jobs, told):
            answer = replace(answer, stdout=f"{self.run(*more).stdout}\n{answer.stdout}")
            told = slurm.parse_accounting(answer)
            assert told is not None
        ids = {job.id for job in jobs}
        return [task for task in told if task.job_id in ids]

    def end(self, task: int, status: int) -> None:
        """Let a task end."""
        (self.folder / f"end.{task}").write_text(f"{status}\n")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Return when a condition holds; fail at the deadline with what the queue shows."""
        try:
            wait_for(condition, what, DEADLINE_S)
        except JobkitError as error:
            raise AssertionError(f"{error}\n{self.run('squeue', '--all', '--array').said}") from error


def observe(folder: Path) -> dict[str, Any]:
    """Return what is seen of the scenario, comparable from run to run."""
    name = f"contract-{uuid4().hex[:6]}"
    header = HEADER.format(name=name, folder=folder)
    (folder / "job.sh").write_text(f"#!/bin/bash\n{header}\n{BODY}")
    since = datetime.now().astimezone() - timedelta(seconds=5)
    lab = ScenarioLab(folder, name, since.strftime("%Y-%m-%dT%H:%M:%S"))
    seen: dict[str, Any] = {}
    _life(lab, seen)
    return json.loads(json.dumps(seen))  # type: ignore[no-any-return]  # tuples become lists, as in the file


def _life(lab: ScenarioLab, seen: dict[str, Any]) -> None:
    """Watch an array of six, three at a time, each task with an end of its own; a job waits for it."""
    job = lab.submit(slurm.submit_argv("job.sh", Array(first=1, last=6, offset=0, throttle=3)))
    after = lab.submit(slurm.submit_argv("job.sh", Array(first=1, last=1, offset=0, throttle=None), (job,)))
    states = ["running"] * 3 + ["pending"] * 3
    lab.until(lambda: [task.state for task in lab.queue(job)] == states, "three run and three wait")
    lab.until(
        lambda: (
            all(task.reason == "JobArrayTaskLimit" for task in lab.queue(job)[3:])
            and all(task.reason for task in lab.queue(after))
        ),
        "those that wait say for what",
    )
    seen["queue"] = _queued(lab.queue(job))
    seen["waiting for it"] = _queued(lab.queue(after))
    seen["cancel one that waits"] = shape(lab.run(*slurm.cancel_argv(job, (6,))), lab.folder)
    seen["cancel one that runs"] = shape(lab.run(*slurm.cancel_argv(job, (3,))), lab.folder)
    lab.end(2, 7)
    lab.until(lambda: [task.task for task in lab.queue(job)] == [1, 4, 5], f"2, 3 and 6 of {job} end")
    _ends(lab, seen, job, after)


def _ends(lab: ScenarioLab, seen: dict[str, Any], job: JobId, after: JobId) -> None:
    lab.end(4, 99)
    lab.end(5, 0)
    lab.until(lambda: [task.task for task in lab.queue(job)] == [1], f"4 and 5 of {job} end")
    seen["some at their end"] = _queued(lab.queue(job))
    lab.end(1, 0)
    lab.until(lambda: not lab.queue(job, after), f"{after} ends")
    lab.until(lambda: sum(task.ended for task in lab.accounts(job, after)) >= 5 + 1, "six are accounted for")
    seen["queue at the end"] = _queued(lab.queue(job, after))
    seen["accounts"] = _accounted(lab.accounts(job))
    seen["accounts of what waited"] = _accounted(lab.accounts(after))


def _queued(tasks: list[Queued]) -> list[dict[str, Any]]:
    """Return tasks of the queue without ids, nodes and times."""
    return [
        {
            "task": task.task,
            "state": task.state,
            "reason": re.sub(rf"\b{task.job_id}\b", "ID", task.reason),
            "named": bool(task.name),
            "placed": bool(task.node),
            "timed": task.elapsed_s is not None,
            "start": bool(task.start_at),
        }
        for task in tasks
    ]


def _accounted(tasks: list[Accounted]) -> list[dict[str, Any]]:
    """Return accounts without ids, nodes, sizes and times."""
    found = [
        {
            "task": task.task,
            "ended": task.ended,
            "outcome": task.outcome,
            "exit_status": task.exit_status,
            "evidence": re.sub(r"by \d+", "by UID", task.evidence),
            "named": bool(task.name),
            "placed": bool(task.node),
            "timed": task.elapsed_s is not None,
        }
        for task in tasks
    ]
    return sorted(found, key=lambda task: int(str(task["task"])))


def shape(answer: shell.Completed, folder: Path) -> dict[str, Any]:
    """Return an answer without ids, times, ports and folders."""
    return {
        "status": answer.status,
        "stdout": _shape(answer.stdout, folder),
        "stderr": _shape(answer.stderr, folder),
    }


def _shape(text: str, folder: Path) -> list[str]:
    for pattern, word in (
        (re.escape(str(folder)), "FOLDER"),
        (rf"\b{re.escape(getpass.getuser())}\b", "USER"),
        (r"by \d+", "by UID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME"),
        (r"(?i)\b(job) (?!9999)\d+", r"\1 ID"),
        (r"^\d+(?=[_.;]|$)", "ID"),
        (r"on nodes n\d", "on nodes N"),
        (r"Slurmctld\(primary\) at \S+", "Slurmctld(primary) at HOST"),
    ):
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.splitlines()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        told = observe(Path(temporary))
    FILE.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
