"""qacct: what Grid Engine records of tasks that have left the queue.

qacct(1), accounting(5), sge_status(5) of 8.1.9. Every attempt has a record; the last one counts.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import format_memory
from jobkit.schedulers.parsing import bytes_of, seconds_of
from jobkit.schedulers.types import Accounted, JobId

_SIGKILL = 128 + 9

# sge_status(5), "failed": the task will run again, so this record is not its end.
_TO_COME = frozenset({24, 25})
# The task was never started. 30 is an exit status of 100, which puts the task in error (Eqw): if
# it has left the queue since: a user deleted it there, and no record reports that (measured).
_QUEUE_ERRORS = frozenset({*range(1, 12), 21, *range(26, 37), 38})
_NODE_FAILURES = frozenset({18, 19})
_LIMIT = 37


def accounting_argv(
    jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the one command that asks the accounting: by the name that all arrays share.

    qacct takes one ``-j``: of ``-j 1,2`` it answers the 1 and ignores the 2, with
    status 0; for a job name it answers every job that had it (measured). For several names jobkit passes
    none and asks about all of the owner's jobs since then; qacct accepts one owner (qacct(1), ``-o``),
    so with several owners jobkit asks about the jobs of all users. ``-b`` is the time of the start: a
    start that failed has none, and only the name finds its record (measured).
    """
    if name:
        return ("qacct", "-j", name)
    start = datetime.fromisoformat(since).strftime("%Y%m%d%H%M")
    owners = users or (getpass.getuser(),)
    return ("qacct", *(("-o", owners[0]) if len(owners) == 1 else ()), "-b", start, "-j")


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
    """Return the tasks in the accounting, ``None`` if it did not answer.

    ``error: job name ... not found`` (status 1) is an answer: nothing yet; records come up to
    ``accounting_flush_time`` late (15 s by default, sge_conf(5)). A task that was deleted while
    it waited has no record, ever (measured). A task that ran again has a record for each time, the
    oldest first.
    """
    if not answer.ok:
        return () if re.search(r"error: .* not found", answer.said) else None
    return tuple(
        _accounted(record)
        for record in _records(answer.stdout)
        if record.get("taskid", "").isdigit() and record.get("jobnumber", "").isdigit()
    )


def _records(text: str) -> Iterator[dict[str, str]]:
    """Yield the records: ``key  value`` lines between rows of ``=``."""
    for block in re.split(r"^=+$", text, flags=re.MULTILINE):
        pairs = (line.strip().partition(" ") for line in block.splitlines() if line.strip())
        yield {key: " ".join(value.split()) for key, _, value in pairs}


def _accounted(record: Mapping[str, str]) -> Accounted:
    failed = _number(record.get("failed"))
    status = _number(record.get("exit_status"))
    ended = failed not in _TO_COME
    outcome, why = _outcome(record, failed, status) if ended else (None, "")
    words = f"qacct: failed {record.get('failed', '?')}, exit_status {record.get('exit_status', '?')}"
    return Accounted(
        job_id=record["jobnumber"],
        task=int(record["taskid"]),
        ended=ended,
        outcome=outcome,
        exit_status=status,
        evidence=f"{words}; {why}" if why else words,
        name=record.get("jobname", ""),
        node=record.get("hostname", ""),
        # KiB, which 8.1.9 prints as if they were bytes: 300,000,000 bytes are 293.883KB, as measured.
        max_rss_bytes=(bytes_of(record.get("ru_maxrss", "")) or 0) * 1024 or None,
        elapsed_s=_elapsed_s(record),
    )


def _outcome(record: Mapping[str, str], failed: int | None, status: int | None) -> tuple[Outcome | None, str]:
    """Return why the task ended, if the record shows it, and the figures that show it.

    137 is a SIGKILL by qdel, by h_rt or by h_vmem alike, and "the reason is only in the messages
    file" (accounting(5)): so the figures are compared with the limits. A qdel looks like a
    ``kill -9`` (both ``failed 100``, measured), so neither is called cancelled.
    """
    if failed in _QUEUE_ERRORS:
        return Outcome.QUEUE_ERROR, ""
    if failed in _NODE_FAILURES:
        return Outcome.NODE_FAIL, ""
    if status != _SIGKILL and failed != _LIMIT:
        return None, ""
    limits = _limits(record.get("category", ""))
    used_s, limit_s = _elapsed_s(record), seconds_of(limits.get("h_rt", ""))
    if used_s is not None and limit_s is not None and used_s >= limit_s:
        return Outcome.TIMEOUT, f"ran {used_s:g} s of h_rt {limit_s:g} s"
    used, limit = bytes_of(record.get("maxvmem", "")), bytes_of(limits.get("h_vmem", ""))
    slots = _number(record.get("slots")) or 1  # h_vmem is a slot's (consumable YES, complex(5))
    if used is not None and limit is not None and used >= limit * slots:
        asked = f"h_vmem {format_memory(limit)}{f' x {slots} slots' if slots > 1 else ''}"
        return Outcome.RAM_OOM, f"maxvmem {format_memory(used)} of {asked}"
    return (Outcome.TIMEOUT, "") if failed == _LIMIT else (None, "")


def _limits(category: str) -> dict[str, str]:
    """Return the resources of a category, ``-q x -l h_rt=60,h_vmem=2G`` (accounting(5))."""
    found = re.findall(r"(?:^|\s)-l\s+(\S+)", category)
    return dict(re.findall(r"([^,=]+)=([^,]*)", ",".join(found)))


def _number(text: str | None) -> int | None:
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else None


def _elapsed_s(record: Mapping[str, str]) -> float | None:
    """Return the wall time; ru_wallclock may be 0 if ``failed`` is not (accounting(5))."""
    wall = seconds_of(record.get("ru_wallclock", ""))
    if wall:
        return wall
    try:
        begin, end = (
            datetime.strptime(record[key], "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
            for key in ("start_time", "end_time")
        )
    except (KeyError, ValueError):
        return wall
    return (end - begin).total_seconds()
