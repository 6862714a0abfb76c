"""qdel: what runs is registered for deletion, what waits is deleted at once; all of it on stdout."""

from __future__ import annotations

import os
import pwd

from tests.fakes.common.entry import Answer
from tests.fakes.common.model import ENDED, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import numbers
from tests.fakes.sge.qstat import ranges
from tests.fakes.sge.rules import stop


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qdel."""
    out, status = "", 0
    for identifier in arguments:
        said, refused = _delete(store, identifier)
        out, status = out + said, status or refused
    return Answer(out, "", status)


def _delete(store: Store, one: str) -> tuple[str, int]:
    number, _, span = one.partition(".")
    job = store.state.job(int(number)) if number.isdecimal() else None
    left = [task for task in job.tasks if not task.over] if job else []
    if not job or not left:
        return f'denied: job "{number}" does not exist\n', 1
    chosen = [task for task in left if not span or task.number in numbers(span)]
    if not chosen:
        return f'job "{number}" task "{span}" does not exist\n', 1
    return _done(store, job, chosen, whole=len(chosen) == len(left) and not span), 0


def _done(store: Store, job: Job, tasks: list[Task], *, whole: bool) -> str:
    me = pwd.getpwuid(os.getuid()).pw_name
    said = ""
    waiting: list[Task] = []
    for task in tasks:
        name = f"job-array task {job.id}.{task.number}"
        if task.live and task.cause == "deleted":
            said += f"job {job.id} is already in deletion\n"
        elif task.live:
            stop(store, job, task, "deleted")
            said += f"{me} has registered the {name} for deletion\n"
        else:
            waiting.append(task)
            task.state, task.word, task.cause_at = ENDED, "deleted", store.clock()
    if not waiting:
        return said
    if whole:
        return f"{said}{me} has deleted job {job.id}\n"
    if len(waiting) == 1:
        return f"{said}{me} has deleted job-array task {job.id}.{waiting[0].number}\n"
    listed = ranges([task.number for task in waiting])
    return f"{said}{me} has deleted job-array tasks {listed} of job {job.id}\n"
