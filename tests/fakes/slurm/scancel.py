"""scancel: it is silent, with status 0, about jobs that it does not know (seen)."""

from __future__ import annotations

import os

from tests.fakes.common.entry import Answer
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import numbers
from tests.fakes.slurm.options import parse_anywhere, table
from tests.fakes.slurm.rows import clusters
from tests.fakes.slurm.rules import cancel, not_begun

SHORT = table("M:clusters")


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of scancel."""
    asked = parse_anywhere("scancel", arguments, ("clusters",), (), SHORT)
    names = clusters(store, "scancel", asked.get("clusters", ""))
    for job in store.state.jobs:
        if job.cluster in names and not job.replaced:
            _cancel(store, asked.rest, job)
    return Answer()


def _cancel(store: Store, words: list[str], job: Job) -> None:
    waiting = not_begun(job)
    for task in _tasks(words, job):
        cancel(store, job, task, os.getuid())
    if not_begun(job):
        for task in waiting:
            task.gone = task.over


def _tasks(words: list[str], job: Job) -> list[Task]:
    mine = [word.partition("_")[2] for word in words if word.partition("_")[0] == str(job.id)]
    if "" in mine:
        return job.tasks
    asked = {number for text in mine for number in numbers(text.strip("[]"))}
    return [task for task in job.tasks if task.number in asked]
