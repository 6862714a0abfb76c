"""qstat: the queue as a table or as XML, and the hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.fakes.common.entry import Answer
from tests.fakes.common.model import ENDING, ERROR, PENDING, RUNNING, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import captured, iso
from tests.fakes.sge.rules import ahead

HEAD = (
    "job-ID  prior   name       user         state submit/start at     queue"
    "                          slots ja-task-ID "
)
XSD = "http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd"
_FEWEST = 3
"""So many numbers in equal steps are printed as a range (seen)."""


class Listed(NamedTuple):
    """A row: tasks of a job that are in the same state; one that runs stands alone."""

    job: Job
    tasks: list[Task]
    flags: str

    @property
    def live(self) -> bool:
        """Whether it stands among what runs."""
        return self.tasks[0].live

    @property
    def at(self) -> float:
        """When it began, or was submitted."""
        task = self.tasks[0]
        return task.runs[-1].start if self.live else task.submitted or self.job.submitted

    @property
    def queue(self) -> str:
        """Where it runs."""
        return f"{self.tasks[0].queue}@{self.tasks[0].node}" if self.live else ""

    @property
    def numbers(self) -> str:
        """The numbers of the tasks."""
        return ranges([task.number for task in self.tasks])

    @property
    def slots(self) -> str:
        """How many slots it has."""
        return self.job.options.get("pe", "- 1").split()[1]

    @property
    def prior(self) -> str:
        """Its priority; what is held has none."""
        return "0.00000" if "h" in self.flags else "0.50000"


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qstat."""
    asked = _asked(arguments)
    if "-help" in asked:
        return Answer(captured("sge", "lab-version"))
    if "-F" in asked:
        return Answer(captured("sge", "lab-instances"))
    found = [] if store.use("queue_empty") else _chosen(store, asked)
    if "-xml" in asked:
        return Answer(_xml(found))
    lines = [_line(one) for one in found]
    return Answer("".join(f"{line}\n" for line in [HEAD, "-" * 113, *lines]) if found else "")


def _asked(arguments: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        found[word] = left.pop(0) if word == "-u" else ""
    return found


def flags(store: Store, job: Job, task: Task) -> str:
    """Return the state as qstat prints it: sge_status(5)."""
    held = "h" if task.state == PENDING and ahead(store, job) else ""
    again = "R" if task.restarts else ""
    return {
        PENDING: f"{held}{again}q" if again else f"{held}qw",
        RUNNING: f"{held}{again}r",
        ENDING: "dr" if task.cause == "deleted" else "r",
        ERROR: f"E{held}qw",
    }[task.state]


def _chosen(store: Store, asked: dict[str, str]) -> list[Listed]:
    me = asked.get("-u", "*").split(",")
    jobs = [job for job in store.state.jobs if not job.replaced and ("*" in me or job.user in me)]
    rows = [row for job in jobs for row in _rows(store, job)]
    return sorted(rows, key=lambda row: not row.live)


def _rows(store: Store, job: Job) -> Iterator[Listed]:
    groups: dict[str, list[Task]] = {}
    for task in job.tasks:
        if not task.over:
            said = flags(store, job, task)
            groups.setdefault(f"{task.number} {said}" if task.live else said, []).append(task)
    for said, tasks in groups.items():
        yield Listed(job, tasks, said.rpartition(" ")[2])


def ranges(found: list[int]) -> str:
    """Return numbers as Grid Engine lists them: ``1,3-7:1,9``."""
    parts: list[str] = []
    while found:
        step = found[1] - found[0] if len(found) > 1 else 1
        last = 1
        while last < len(found) and found[last] - found[last - 1] == step:
            last += 1
        last = last if last >= _FEWEST else 1
        parts.append(f"{found[0]}-{found[last - 1]}:{step}" if last > 1 else str(found[0]))
        found = found[last:]
    return ",".join(parts)


def _line(row: Listed) -> str:
    at = time.strftime("%m/%d/%Y %H:%M:%S", time.localtime(row.at))
    name, user = row.job.name[:10], row.job.user[:12]
    who = f"{row.job.id:7d} {row.prior} {name:10} {user:12} {row.flags:5}"
    return f"{who} {at} {row.queue[:30]:30} {row.slots:>5} {row.numbers}"


def escape(text: str) -> str:
    """Return a text as XML holds it; xml.sax would cost a command 20 ms."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _xml(rows: list[Listed]) -> str:
    running, waiting = ("".join(_element(row) for row in rows if row.live is live) for live in (True, False))
    return (
        f"<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"{XSD}\">\n  <queue_info>\n{running}  </queue_info>\n"
        f"  <job_info>\n{waiting}  </job_info>\n</job_info>\n"
    )


def _element(row: Listed) -> str:
    when = "JAT_start_time" if row.live else "JB_submission_time"
    fields = [
        ("JB_job_number", str(row.job.id)),
        ("JAT_prio", row.prior),
        ("JB_name", row.job.name),
        ("JB_owner", row.job.user),
        ("state", row.flags),
        (when, iso(row.at)),
        ("queue_name", row.queue),
        ("slots", row.slots),
        ("tasks", row.numbers),
    ]
    lines = "".join(f"      <{key}>{escape(value)}</{key}>\n" for key, value in fields)
    return f'    <job_list state="{"running" if row.live else "pending"}">\n{lines}    </job_list>\n'
