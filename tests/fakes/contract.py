"""The contract between the fakes and the real daemons: one scenario, and what was seen in it.

``observe`` submits, looks, cancels, waits and accounts by jobkit's own commands and parsers, and
returns what it saw without what differs from run to run (ids, times, nodes). What the real daemons
showed stands in tests/data/{slurm,sge}/contract.json; tests hold the fakes (tests/fakes) and the
daemons themselves (tests/cluster) to it. To write it again, with the daemons up:

    python -m tests.fakes.contract slurm
"""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
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
from jobkit.schedulers.parsing import find_job_id
from jobkit.schedulers.protocol import Scheduler
from jobkit.schedulers.registry import by_name
from jobkit.schedulers.types import Accounted, Array, JobId, Queued

DATA = Path(__file__).parents[1] / "data"
DEADLINE_S = 240.0
HEADERS = {
    "slurm": "#SBATCH --job-name={name} --mem=50M --cpus-per-task=1 --chdir={folder} --output=/dev/null",
    "sge": "#$ -N {name} -S /bin/bash -wd {folder} -o /dev/null -j y",
}
SHOW = {"slurm": ("squeue", "--all", "--array"), "sge": ("qstat", "-f", "-u", "*")}
"""What a failure shows: the jobs of all users, and where they are."""
# Task K waits until a file says how it ends.
BODY = """\
k=${SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID}
until [[ -s end.$k ]]; do sleep 0.1; done
exit "$(<"end.$k")"
"""


@dataclass(frozen=True)
class ScenarioLab:
    """A script in a folder, and the scheduler that it is given to."""

    scheduler: Scheduler
    folder: Path
    name: str
    since: str

    def run(self, *argv: str) -> shell.Completed:
        """Run a command in the folder."""
        here = ("env", "-C", str(self.folder), *argv)
        return shell.run(here, env={**os.environ, **self.scheduler.ENVIRONMENT})

    def submit(self, argv: tuple[str, ...]) -> JobId:
        """Submit, and read the id."""
        return find_job_id(self.run(*argv).stdout, self.scheduler.JOB_ID_PATTERNS, argv[0])

    def queue(self, *jobs: JobId) -> list[Queued]:
        """Return what the queue holds of these jobs."""
        told = self.scheduler.parse_queue(self.run(*self.scheduler.queue_argv(jobs)))
        assert told is not None
        ids = {job.id for job in jobs}
        return sorted(
            (task for task in told if task.job_id in ids), key=lambda task: (task.job_id, task.task)
        )

    def accounts(self, *jobs: JobId) -> list[Accounted]:
        """Return what the accounting knows of these jobs."""
        answer = self.run(*self.scheduler.accounting_argv(jobs, self.since, self.name))
        told = self.scheduler.parse_accounting(answer)
        assert told is not None
        if more := self.scheduler.status_argv(jobs, told):
            answer = replace(answer, stdout=f"{self.run(*more).stdout}\n{answer.stdout}")
            told = self.scheduler.parse_accounting(answer)
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
            raise AssertionError(f"{error}\n{self.run(*SHOW[self.scheduler.NAME]).said}") from error


def observe(scheduler: str, folder: Path) -> dict[str, Any]:
    """Return what is seen of the scenario, comparable from run to run."""
    name = f"contract-{uuid4().hex[:6]}"
    header = HEADERS[scheduler].format(name=name, folder=folder)
    (folder / "job.sh").write_text(f"#!/bin/bash\n{header}\n{BODY}")
    since = datetime.now().astimezone() - timedelta(seconds=5)
    lab = ScenarioLab(by_name(scheduler), folder, name, since.strftime("%Y-%m-%dT%H:%M:%S"))
    seen: dict[str, Any] = {}
    _life(lab, seen)
    seen["answers"] = {line: shape(lab.run(*line.split()), folder) for line in expected(scheduler)["answers"]}
    return json.loads(json.dumps(seen))  # type: ignore[no-any-return]  # tuples become lists, as in the file


def _life(lab: ScenarioLab, seen: dict[str, Any]) -> None:
    """Watch an array of six, three at a time, each task with an end of its own; a job waits for it."""
    job = lab.submit(lab.scheduler.submit_argv("job.sh", Array(first=1, last=6, offset=0, throttle=3)))
    after = lab.submit(
        lab.scheduler.submit_argv("job.sh", Array(first=1, last=1, offset=0, throttle=None), (job,))
    )
    states = ["running"] * 3 + ["pending"] * 3
    lab.until(lambda: [task.state for task in lab.queue(job)] == states, "three run and three wait")
    _settle(lab, job, after)
    seen["queue"] = _queued(lab.queue(job))
    seen["waiting for it"] = _queued(lab.queue(after))
    seen["cancel one that waits"] = shape(lab.run(*lab.scheduler.cancel_argv(job, (6,))), lab.folder)
    seen["cancel one that runs"] = shape(lab.run(*lab.scheduler.cancel_argv(job, (3,))), lab.folder)
    lab.end(2, 7)
    lab.until(lambda: [task.task for task in lab.queue(job)] == [1, 4, 5], f"2, 3 and 6 of {job} end")
    _ends(lab, seen, job, after)


def _ends(lab: ScenarioLab, seen: dict[str, Any], job: JobId, after: JobId) -> None:
    lab.end(4, 100 if lab.scheduler.NAME == "sge" else 99)
    lab.end(5, 0)
    left = {1: "running", 4: "error"} if lab.scheduler.NAME == "sge" else {1: "running"}
    lab.until(
        lambda: {task.task: str(task.state) for task in lab.queue(job)} == left, f"4 and 5 of {job} start"
    )
    seen["some at their end"] = _queued(lab.queue(job))
    lab.end(1, 0)
    if lab.scheduler.NAME == "sge":
        lab.until(lambda: [task.task for task in lab.queue(job)] == [4], f"1 of {job} ends")
        seen["delete one in error"] = shape(lab.run("qdel", f"{job.id}.4"), lab.folder)
    lab.until(lambda: not lab.queue(job, after), f"{after} ends")
    lab.until(lambda: sum(task.ended for task in lab.accounts(job, after)) >= 5 + 1, "six are accounted for")
    seen["queue at the end"] = _queued(lab.queue(job, after))
    seen["accounts"] = _accounted(lab.accounts(job))
    seen["accounts of what waited"] = _accounted(lab.accounts(after))


def _settle(lab: ScenarioLab, job: JobId, after: JobId) -> None:
    """Wait until those that wait say for what."""
    if lab.scheduler.NAME == "slurm":
        lab.until(
            lambda: (
                all(task.reason == "JobArrayTaskLimit" for task in lab.queue(job)[3:])
                and all(task.reason for task in lab.queue(after))
            ),
            "those that wait say for what",
        )


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
        (r"(?i)\b(job|job-array task|job-array) (?!9999)\d+", r"\1 ID"),
        (r"^\d+(?=[_.;]|$)", "ID"),
        (r"on nodes n\d", "on nodes N"),
        (r"Slurmctld\(primary\) at \S+", "Slurmctld(primary) at HOST"),
    ):
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.splitlines()]


def expected(scheduler: str) -> dict[str, Any]:
    """Return what the real daemons showed."""
    found: dict[str, Any] = json.loads((DATA / scheduler / "contract.json").read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        told = observe(sys.argv[1], Path(temporary))
    (DATA / sys.argv[1] / "contract.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
