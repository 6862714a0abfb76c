"""scancel: it is silent, with status 0, about jobs that it does not know (seen)."""

from __future__ import annotations

import os
import re

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import numbers
from tests.fakes.slurm.options import parse_anywhere, table
from tests.fakes.slurm.rows import clusters
from tests.fakes.slurm.rules import cancel, not_begun

SHORT = table("M:clusters V:version")


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of scancel."""
    asked = parse_anywhere("scancel", arguments, ("clusters",), ("version",), SHORT)
    if "version" in asked:
        return Answer("slurm-wlm 22.05.8\n")
    if not asked.rest:
        raise Refused("scancel: error: No job identification provided\n")
    names = clusters(store, "scancel", asked.get("clusters", ""))
    for word in asked.rest:
        bad = re.fullmatch(r"\d+_\[(?:.*,)?([^,]*:[^,]*)(?:,.*)?\]", word)
        if bad:
            said = f"scancel: error: _parse_single_range: Invalid range: `{bad[1]}'\n"
            raise Refused(f"{said}scancel: error: Invalid job id {word}\n")
    for job in store.state.jobs:
        if job.cluster in names and not job.replaced:
            _cancel(store, asked.rest, job)
    return Answer()


def _cancel(store: Store, words: list[str], job: Job) -> None:
    listed, waiting = job.listed, not_begun(job)
    for task in _tasks(words, job):
        cancel(store, job, task, os.getuid())
    if not_begun(job):
        for task in waiting:
            task.gone = task.over
    else:
        job.listed = listed  # all at once: the list stays as it was (seen)


def _tasks(words: list[str], job: Job) -> list[Task]:
    mine = [word.partition("_")[2] for word in words if word.partition("_")[0] == str(job.id)]
    if "" in mine:
        return job.tasks
    asked = {number for text in mine for number in numbers(text.strip("[]"))}
    return [task for task in job.tasks if task.number in asked]
