"""scancel: it is silent, with status 0, about jobs that it does not know (seen)."""

from __future__ import annotations

import os
import re
import signal

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.life import tell
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import numbers
from tests.fakes.slurm.options import Options, parse_anywhere, table
from tests.fakes.slurm.rows import clusters
from tests.fakes.slurm.rules import cancel, not_begun
from tests.fakes.slurm.squeue import CODES

SHORT = table(
    "n:name u:user t:state M:clusters s:signal b:batch f:full Q:quiet v:verbose V:version p:partition"
)
FLAGS = ("batch", "full", "quiet", "verbose", "me", "version")
VALUES = ("name", "jobname", "user", "state", "clusters", "cluster", "signal", "partition")


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of scancel."""
    asked = parse_anywhere("scancel", arguments, VALUES, FLAGS, SHORT)
    if "version" in asked:
        return Answer("slurm-wlm 22.05.8\n")
    if not asked.rest and not asked:
        raise Refused("scancel: error: No job identification provided\n")
    names = clusters(store, "scancel", asked.get("clusters", asked.get("cluster", "")))
    for word in asked.rest:
        bad = re.fullmatch(r"\d+_\[(?:.*,)?([^,]*:[^,]*)(?:,.*)?\]", word)
        if bad:
            said = f"scancel: error: _parse_single_range: Invalid range: `{bad[1]}'\n"
            raise Refused(f"{said}scancel: error: Invalid job id {word}\n")
    for job in store.state.jobs:
        if job.cluster in names and not job.replaced and _meant(asked, job):
            _cancel(store, asked, job)
    return Answer()


def _cancel(store: Store, asked: Options, job: Job) -> None:
    listed, waiting = job.listed, not_begun(job)
    for task in _tasks(asked.rest, job):
        if _in_state(asked, task):
            _act(store, asked, job, task)
    if not_begun(job):
        for task in waiting:
            task.gone = task.over
    else:
        job.listed = listed  # all at once: the list stays as it was (seen)


def _meant(asked: Options, job: Job) -> bool:
    name, user = asked.get("name", asked.get("jobname")), asked.get("user")
    return name in {None, job.name} and user in {None, job.user}


def _tasks(words: list[str], job: Job) -> list[Task]:
    if not words:
        return job.tasks
    mine = [word.partition("_")[2] for word in words if word.partition("_")[0] == str(job.id)]
    if "" in mine:
        return job.tasks
    asked = {number for text in mine for number in numbers(text.strip("[]"))}
    return [task for task in job.tasks if task.number in asked]


def _in_state(asked: Options, task: Task) -> bool:
    state = asked.get("state", "").upper()
    return not state or state in {task.state, CODES.get(task.state, "")}


def _act(store: Store, asked: Options, job: Job, task: Task) -> None:
    if "signal" not in asked:
        cancel(store, job, task, os.getuid())
    elif {"batch", "full"} & set(asked):  # without either it goes to steps, of which there are none (seen)
        number = signal.Signals[f"SIG{asked['signal'].upper().removeprefix('SIG')}"]
        tell(task, number, group="full" in asked)
