"""squeue -r: what the controller holds, a row for each task, in the columns that jobkit asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.model import ENDING, PENDING, RUNNING, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import clock_words, iso
from tests.fakes.slurm.options import Options, parse_anywhere, table
from tests.fakes.slurm.rows import clusters
from tests.fakes.slurm.sbatch import limit_min

SHORT = table("h:noheader r:array o:format j:jobs M:clusters")


class Seen(NamedTuple):
    """A task, and what its fields are read from."""

    store: Store
    job: Job
    task: Task

    @property
    def word(self) -> str:
        """The state, in squeue's words."""
        ended = self.task.word.partition(" ")[0]
        return {PENDING: "PENDING", RUNNING: "RUNNING", ENDING: "COMPLETING"}.get(self.task.state, ended)

    @property
    def elapsed_s(self) -> float:
        """How long it has run, or ran."""
        if self.task.state == PENDING or not self.task.runs:
            return 0.0
        run = self.task.runs[-1]
        return (run.end or self.store.clock()) - run.start

    @property
    def start(self) -> float:
        """When it began; of one that waits for a time or for room, when it may begin; else 0."""
        if self.task.state != PENDING:
            return self.task.runs[-1].start if self.task.runs else 0.0
        if self.task.reason == "Resources":
            return self.store.clock() + 60 * limit_min(self.job)
        return self.task.begin


FIELDS: Mapping[str, Callable[[Seen], object]] = {
    "i": lambda seen: f"{seen.job.id}_{seen.task.number}",
    "T": lambda seen: seen.word,
    "r": lambda seen: seen.task.reason,
    "N": lambda seen: seen.task.node,
    "M": lambda seen: clock_words(seen.elapsed_s),
    "S": lambda seen: iso(seen.start, "N/A"),
    "j": lambda seen: seen.job.name,
}


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of squeue."""
    values = ("format", "jobs", "name", "clusters")
    asked = parse_anywhere("squeue", arguments, values, ("noheader", "array"), SHORT)
    names = clusters(store, "squeue", asked.get("clusters", ""))
    if store.use("queue_empty"):
        return Answer()
    listed = [seen for name in names for seen in _chosen(store, asked, name)]
    return Answer("".join(_line(asked.get("format", "%i"), seen) for seen in listed))


def _line(layout: str, seen: Seen) -> str:
    return re.sub("%(.)", lambda field: str(FIELDS[field[1]](seen)), layout) + "\n"


def _chosen(store: Store, asked: Options, cluster: str) -> list[Seen]:
    jobs = [job for job in store.state.jobs if job.cluster == cluster and not job.replaced]
    ids = asked.get("jobs", "")
    if ids:
        jobs = _by_id(store, jobs, ids.split(","))
    found = [Seen(store, job, task) for job in jobs for task in job.tasks]
    chosen = [
        seen
        for seen in found
        if not seen.task.over
        and ("name" not in asked or seen.job.name in asked["name"].split(","))
        and _asked_task(ids, seen)
    ]
    return sorted(chosen, key=lambda seen: seen.task.state != PENDING)


def _by_id(store: Store, jobs: list[Job], ids: list[str]) -> list[Job]:
    """Return the jobs of these ids; one alone that the controller does not know is an error."""
    found = [job for job in jobs if str(job.id) in {identifier.partition("_")[0] for identifier in ids}]
    alive = any(_remembered(store, task) for job in found for task in job.tasks)
    if len(ids) == 1 and not alive:
        raise Refused("slurm_load_jobs error: Invalid job id specified\n")
    return found


def _remembered(store: Store, task: Task) -> bool:
    if not task.over:
        return True
    age_s = 0 if store.fault("queue_purged") else store.settings["min_job_age_s"]
    ended = task.runs[-1].end if task.runs else task.cause_at
    return store.clock() - max(ended, task.cause_at) < age_s


def _asked_task(ids: str, seen: Seen) -> bool:
    mine = [one.partition("_")[2] for one in ids.split(",") if one.partition("_")[0] == str(seen.job.id)]
    return not ids or "" in mine or str(seen.task.number) in mine
