"""qacct: the records of the tasks that ran; one that never started after all has none (seen)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.model import Job, Run, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import captured, numbers
from tests.fakes.sge.rules import FAILED

RULE = "=" * 62
_TAKE_ONE = {"-o", "-b", "-e", "-d", "-f", "-g", "-h", "-l", "-P", "-pe", "-q", "-t", "-A"}
_SUMMARY = (
    "WALLCLOCK         UTIME         STIME           CPU             MEMORY                 IO"
    "                IOW"
)


class Record(NamedTuple):
    """One time that a task ran."""

    job: Job
    task: Task
    run: Run


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qacct."""
    asked = _asked(arguments)
    if "-help" in asked:
        return Answer("SGE 8.1.9\nusage: qacct [options]\n")
    wanted = asked.get("-j", "")
    found = [record for record in _records(store) if _matches(asked, wanted, record)]
    if not found and wanted:
        tasks = asked.get("-t", "")
        if tasks:
            span = tasks if "-" in tasks else f"{tasks}-{tasks}"
            raise Refused(f"error: Job-array tasks {wanted}.{span}:1 not found\n")
        raise Refused(f"error: job {'id' if wanted.isdecimal() else 'name'} {wanted} not found\n")
    if "-j" not in asked or not found:
        return Answer(_totals(asked, found))
    return Answer("".join(_printed(record) for record in found))


def _asked(arguments: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        takes = word in _TAKE_ONE or (word == "-j" and bool(left) and not left[0].startswith("-"))
        found[word] = left.pop(0) if takes else ""
    return found


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


def _matches(asked: dict[str, str], wanted: str, record: Record) -> bool:
    job, run = record.job, record.run
    named = str(job.id) == wanted if wanted.isdecimal() else fnmatchcase(job.name, wanted)
    if wanted and not named:
        return False
    if "-o" in asked and job.user != asked["-o"]:
        return False
    if "-t" in asked and record.task.number not in numbers(asked["-t"]):
        return False
    # A task that never started has no start, so it is after no time (seen).
    return "-b" not in asked or (run.start >= _time(asked["-b"]) and run.start > 0)


def _time(text: str) -> float:
    """Return ``[[CC]YY]MMDDhhmm[.SS]`` as seconds: qacct(1), -b; the year as the century has it."""
    digits, _, seconds = text.partition(".")
    digits = (
        digits
        if len(digits) == 12
        else f"20{digits}"
        if len(digits) == 10
        else f"{time.localtime().tm_year}{digits}"
    )
    return time.mktime(time.strptime(digits + (seconds or "00"), "%Y%m%d%H%M%S"))


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
        "taskid": str(task.number) if job.array else "undefined",
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


def _totals(asked: dict[str, str], found: list[Record]) -> str:
    """Return what qacct prints where it lists no records: a sum, for an owner with the name (seen)."""
    owner = asked.get("-o", "")
    width = max(len(owner), 5) + 5 if owner else 0
    head = f"{'OWNER':{width}}{_SUMMARY}" if owner else _SUMMARY
    wall = sum(record.run.end - record.run.start for record in found)
    line = f"{owner:{width}}{wall:9.0f}\n" if found else ""
    return f"{head}\n{'=' * len(head)}\n{line}"
