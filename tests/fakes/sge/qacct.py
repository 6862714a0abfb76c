"""qacct: the records of the tasks that ran; one that never started after all has none (seen)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.model import Job, Task, TaskRun
from tests.fakes.common.store import Store
from tests.fakes.common.text import captured
from tests.fakes.sge.rules import FAILED

RULE = "=" * 62


class Record(NamedTuple):
    """One time that a task ran."""

    job: Job
    task: Task
    run: TaskRun


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qacct."""
    option, wanted = arguments
    assert option == "-j", "jobkit asks for a job here"
    found = [record for record in _records(store) if _named(record.job, wanted)]
    if not found:
        raise Refused(f"error: job {'id' if wanted.isdecimal() else 'name'} {wanted} not found\n")
    return Answer("".join(_printed(record) for record in found))


def _records(store: Store) -> Iterator[Record]:
    """Yield the records that are in the file, in the order in which the tasks ended."""
    lag = int(store.fault("accounting_lags") or 0)
    found = [
        Record(job, task, run)
        for job in store.state.jobs
        for task in job.tasks
        for run in task.runs
        if run.end
        and (run is not task.runs[-1] or store.state.calls["qacct"] > task.changed + lag)
    ]  # fmt: skip
    yield from sorted(found, key=lambda record: record.run.end)


def _named(job: Job, wanted: str) -> bool:
    return str(job.id) == wanted if wanted.isdecimal() else fnmatchcase(job.name, wanted)


def _at(at: float) -> str:
    return time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(at)) if at else "-/-"


def _category(job: Job) -> str:
    limits = ",".join(sorted(job.options.get("l", "").split(",")))
    parts = [f"-q {job.options['q']}" if "q" in job.options else "", f"-l {limits}" if limits else ""]
    parts.append(f"-pe {job.options['pe']}" if "pe" in job.options else "")
    return " ".join(filter(None, parts)) or "NONE"


def _printed(record: Record) -> str:
    """Return a record that the real qacct printed, with the values of this one in it."""
    job, task, run = record
    failed = int(run.word)
    values = {
        "qname": run.queue,
        "hostname": run.node,
        "owner": job.user,
        "jobname": job.name,
        "jobnumber": str(job.id),
        "taskid": str(task.number),
        "qsub_time": _at(job.submitted),
        "start_time": _at(run.start),
        "end_time": _at(run.end if run.start else 0),
        "granted_pe": job.options.get("pe", "NONE").split()[0],
        "slots": job.options.get("pe", "- 1").split()[1],
        "failed": f"{failed:<3} : {FAILED[failed]}" if failed else "0    ",
        "exit_status": f"{run.status:<19}{' (Killed)' if run.signal == signal.SIGKILL else ''}",
        "ru_wallclock": f"{int(run.end - run.start) if run.start else 0}s",
        "ru_maxrss": f"{run.rss_kib / 1024:.3f}KB",
        "category": _category(job),
    }
    lines = captured("sge", "qacct").split(f"{RULE}\n")[1].splitlines()
    keys = [line.split()[0] for line in lines]
    told = [
        f"{key:12} {values[key]:19}" if key in values else line for key, line in zip(keys, lines, strict=True)
    ]
    return "\n".join([RULE, *told, ""])
