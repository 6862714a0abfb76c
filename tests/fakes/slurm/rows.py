"""The rows that squeue and sacct print: a task, or the tasks of an array that have not begun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

from tests.fakes.common.entry import Refused
from tests.fakes.common.model import ENDED, PENDING, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.slurm.rules import not_begun

NO_CLUSTER = (
    "{0}: error: No cluster '{1}' known by database.\n"
    "{0}: error: '{1}' can't be reached now, or it is an invalid entry for --cluster.  "
    "Use 'sacctmgr list clusters' to see available clusters.\n"
)
_QUEUE_ID_CHARS, _ACCOUNT_LIST_CHARS = 31, 63
"""How much of a list is printed where SLURM_BITSTR_LEN does not ask for all of it (seen)."""


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


def rows(job: Job, *, each: bool) -> Iterator[Row]:
    """Yield the rows of a job in the queue: of those that have not begun one for all, but with ``each``."""
    waiting = [task for task in not_begun(job) if job.array and not task.lone]
    gone = _never_begun(job)
    for group in (waiting, gone):
        if each:
            yield from (Row(job, [task]) for task in group)
        elif group:
            yield Row(job, group)
    alone = [task for task in job.tasks if task not in waiting and (task.single or task.state == PENDING)]
    yield from (Row(job, [task]) for task in alone)


def account_rows(job: Job) -> Iterator[Row]:
    """Yield the rows of a job in the accounting.

    An array has a record of its own for the tasks that have not begun; a task that is cancelled alone
    before it began has no row ever after, and what the record lists may be old (seen): `rules.relist`.
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


def queue_id(row: Row, *, each: bool) -> str:
    """Return squeue's ``%i``."""
    if not row.job.array:
        return str(row.job.id)
    if row.task.single or row.task.lone or each:
        return f"{row.job.id}_{row.task.number}"
    whole = f"{row.job.id}_[{listed([task.number for task in row.tasks])}{_throttle(row.job)}]"
    return whole if _limit() == 0 else whole[:_QUEUE_ID_CHARS] if len(whole) > 2 * _QUEUE_ID_CHARS else whole


def account_id(row: Row) -> str:
    """Return sacct's JobID."""
    if not row.job.array:
        return str(row.job.id)
    if row.task.single or not row.job.listed:
        return f"{row.job.id}_{row.task.number}"
    text = listed(row.job.listed)
    if _limit() and len(text) > _ACCOUNT_LIST_CHARS:
        text = text[: text.rindex(",", 0, _ACCOUNT_LIST_CHARS - 2) + 1] + "..."
    return f"{row.job.id}_[{text}{_throttle(row.job)}]"


def _limit() -> int:
    return int(os.environ.get("SLURM_BITSTR_LEN", "64"))


def _throttle(job: Job) -> str:
    return f"%{job.throttle}" if job.throttle else ""


def listed(found: list[int]) -> str:
    """Return numbers of tasks, sorted, as Slurm lists them: ``1-3,7``."""
    cuts = [0, *(index for index, (one, two) in enumerate(pairwise(found), 1) if two != one + 1), len(found)]
    spans = [(found[first], found[last - 1]) for first, last in pairwise(cuts)]
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)
