"""qmod: clears the error state of a task; its status is 1 even where it has done so (seen)."""

from __future__ import annotations

import os
import pwd

from tests.fakes.common.entry import Answer
from tests.fakes.common.model import ERROR, PENDING, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.sge.qalter import named
from tests.fakes.sge.site import HOST


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qmod; only ``-cj`` changes anything."""
    out = ""
    for argument in arguments[1:]:
        job, tasks = named(store, argument)
        if not job:
            out += f'invalid queue or job "{argument}"\n'
        for task in tasks if job and arguments[0] == "-cj" else ():
            out += _cleared(store, job, task)
    return Answer(out, "", 1)


def _cleared(store: Store, job: Job | None, task: Task) -> str:
    number = f"-array task {job.id}.{task.number}" if job and job.array else f" {job.id if job else ''}"
    if task.state != ERROR:
        return f"Job{number} is not in error state\n"
    task.state, task.error, task.begin = PENDING, "", store.clock()
    return f"{pwd.getpwuid(os.getuid()).pw_name}@{HOST} cleared error state of job{number}\n"
