"""qalter: the throttle, the hold and the resources of a job; all of it on stdout."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.model import Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import numbers
from tests.fakes.sge.options import parse


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qalter."""
    asked, ids = parse("qalter", arguments)
    if not asked.get("tc", "0").isdecimal():
        why = f'invalid task concurrency number "{asked["tc"]}". Must be an integer greater or equal to 0.'
        raise Refused(f"qalter: {why}\n", 7)
    out, status = "", 0
    for one in " ".join(ids).replace(",", " ").split():
        job, tasks = named(store, one)
        if not job:
            out, status = f'{out}denied: job "{one.partition(".")[0]}" does not exist\n', 1
            continue
        out += "".join(_altered(asked, job, tasks))
    return Answer(out, "", status)


def named(store: Store, one: str) -> tuple[Job | None, list[Task]]:
    """Return the job of ``7`` or ``7.3`` and its tasks that are still there."""
    number, _, span = one.partition(".")
    job = store.state.job(int(number)) if number.isdecimal() else None
    left = [task for task in job.tasks if not task.over] if job else []
    chosen = [task for task in left if not span or task.number in numbers(span)]
    return (job, chosen) if left else (None, [])


def _altered(asked: dict[str, str], job: Job, tasks: list[Task]) -> Iterator[str]:
    if "tc" in asked:
        job.throttle = int(asked["tc"])
        yield f"modified task concurrency of job {job.id}\n"
    for task in tasks if "h" in asked else ():
        task.held = "" if "n" in asked["h"] or asked["h"].isupper() else "user"
        number = f"-array task {job.id}.{task.number}" if job.array else f" {job.id}"
        yield f"modified hold of job{number}\n"
    if "l" in asked:
        job.options["l"] = asked["l"]
        yield f"modified hard resource list of job {job.id}\n"
