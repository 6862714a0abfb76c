"""The rows that sacct prints: a task, or the tasks of an array that have not begun."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.fakes.common.entry import Refused
from tests.fakes.common.model import ENDED, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.slurm.rules import not_begun

NO_CLUSTER = (
    "{0}: error: No cluster '{1}' known by database.\n"
    "{0}: error: '{1}' can't be reached now, or it is an invalid entry for --cluster.  "
    "Use 'sacctmgr list clusters' to see available clusters.\n"
)


def clusters(store: Store, command: str, asked: str) -> list[str]:
    """Return the clusters that are asked, by ``-M``; the one that is always asked is called ````."""
    own, other = store.settings["cluster"], store.fault("other_cluster")
    known = {own: "", **({other: other} if other else {})}
    if asked == "all":
        return list(known.values())
    for name in filter(None, asked.split(",")):
        if name not in known:
            raise Refused(NO_CLUSTER.format(command, name))
    return [known[name] for name in asked.split(",")] if asked else [""]


class Row:
    """One line about ``tasks`` of a job; several only while none of them has begun."""

    def __init__(self, job: Job, tasks: list[Task]) -> None:
        self.job = job
        self.tasks = tasks
        self.task = tasks[0]


def account_rows(job: Job) -> Iterator[Row]:
    """Yield the rows of a job in the accounting.

    An array has a record of its own for the tasks that have not begun; a task that is cancelled alone
    before it began has no row ever after (seen).
    """
    record = not_begun(job) or _never_begun(job)
    yield from (Row(job, [task]) for task in job.tasks if task.single)
    if record:
        yield Row(job, record)


def _never_begun(job: Job) -> list[Task]:
    """Return the tasks that were cancelled with the array's own record."""
    if not_begun(job) or any(task.raw == job.id for task in job.tasks):
        return []
    return [task for task in job.tasks if task.state == ENDED and not task.single and not task.gone]


def account_id(row: Row) -> str:
    """Return sacct's JobID."""
    if row.task.single:
        return f"{row.job.id}_{row.task.number}"
    throttle = f"%{row.job.throttle}" if row.job.throttle else ""
    return f"{row.job.id}_[{listed([task.number for task in row.tasks])}{throttle}]"


def listed(found: list[int]) -> str:
    """Return numbers of tasks, sorted, as Slurm lists them: ``1-3,7``."""
    cuts = [0, *(index for index, (one, two) in enumerate(pairwise(found), 1) if two != one + 1), len(found)]
    spans = [(found[first], found[last - 1]) for first, last in pairwise(cuts)]
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)
