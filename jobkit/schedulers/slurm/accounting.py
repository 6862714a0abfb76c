"""sacct: what Slurm remembers of tasks, those that left the queue too.

sacct(1); "measured" is Slurm 22.05.8, the answers stand in tests/data/slurm/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jobkit.core.records import Outcome
from jobkit.core.shell import Completed
from jobkit.core.units import format_memory
from jobkit.schedulers.parsing import bytes_of, expand_tasks
from jobkit.schedulers.types import Accounted, JobId

COLUMNS = (
    *("JobID", "State", "ExitCode", "ElapsedRaw", "MaxRSS", "ReqMem", "AllocCPUS", "NodeList", "Reason"),
    "JobName",
)
"""The name is the last column, because it may contain a bar; `END` follows it."""
END, UNKNOWN = "End", "Unknown"
FORMAT = f"--format={','.join((*COLUMNS, END))}"
_FEWEST = 3
"""Columns of the shortest row that is one."""
_TASK = re.compile(r"(?P<job>\d+)_(?P<tasks>\d+|\[[^.|]*(?:\.\.\.[^.|]*)?)(?:\.(?P<step>\w+))?")

# https://slurm.schedmd.com/sacct.html#SECTION_JOB-STATE-CODES: states that are an end. COMPLETED
# and FAILED carry the exit status of the script: the record or the exit file knows what it means.
END_STATES: Mapping[str, Outcome | None] = {
    **dict.fromkeys(("COMPLETED", "FAILED")),
    **dict.fromkeys(("BOOT_FAIL", "NODE_FAIL"), Outcome.NODE_FAIL),
    **dict.fromkeys(("CANCELLED", "REVOKED"), Outcome.CANCELLED),
    **dict.fromkeys(("DEADLINE", "TIMEOUT"), Outcome.TIMEOUT),
    "OUT_OF_MEMORY": Outcome.RAM_OOM,
    "PREEMPTED": Outcome.PREEMPTED,
}


def clusters(jobs: tuple[JobId, ...]) -> tuple[str, ...]:
    """Return the option that names the clusters of the jobs; none if all are on the default cluster."""
    names = sorted({job.cluster for job in jobs if job.cluster})
    return ("-M", ",".join(names)) if names else ()


def rows_of_tasks(text: str, columns: int) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield ``job id, tasks, step, the other columns`` of the rows about array tasks.

    The columns that an answer of jobkit 0.1 lacks, kept in old run folders, are empty.
    """
    for line in text.splitlines():
        name, *rest = line.strip().split("|", columns - 1)
        found = _TASK.fullmatch(name)
        if found and len(rest) >= _FEWEST - 1:
            missing = [""] * (columns - 1 - len(rest))
            yield found["job"], found["tasks"], found["step"] or "", [*rest, *missing]


def accounting_argv(
    jobs: tuple[JobId, ...], since: str, name: str, users: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the one command that asks the accounting.

    ``-S`` because sacct otherwise begins at midnight (sacct(1), DEFAULT TIME WINDOW), ``-P``
    because columns are cut otherwise; with the steps (no ``-X``), because they hold the memory; with
    ``-D``, because a task that was requeued has a row for each time it ran.
    """
    ids = ",".join(job.id for job in jobs)
    return ("sacct", "-n", "-P", "-D", *clusters(jobs), "-S", since, "-j", ids, FORMAT)


@dataclass(slots=True)
class _Rows:
    """What sacct reports of one task: its own row, and what matters of its steps."""

    own: dict[str, str]
    max_rss_bytes: int | None = None
    out_of_memory: bool = False

    def add_step(self, row: Mapping[str, str]) -> None:
        rss = bytes_of(row["MaxRSS"])
        self.max_rss_bytes = max(filter(None, (rss, self.max_rss_bytes)), default=None)
        self.out_of_memory = self.out_of_memory or row["State"].startswith("OUT_OF_ME")


def parse_accounting(answer: Completed) -> tuple[Accounted, ...] | None:
    """Return the tasks in the accounting, ``None`` if it did not answer.

    A task that is missing is not known *yet*: rows come up to 4.5 s late (measured). So is one that
    has ended at an unknown time: what began and ended while slurmdbd was away is reported in two parts,
    and for 4 to 6 s is ``FAILED`` with status 0, whatever it ended with (measured). Of a task
    that was requeued there is one account for each time it ran, the oldest first.

    Tasks that have not begun share a row, ``12_[3-5]``, and if they are cancelled it goes on
    naming those that began just before: a row of a task's own counts more (measured). It comes some
    seconds later.
    """
    if not answer.ok:
        return None
    found: dict[tuple[str, int], list[_Rows]] = {}
    shared: dict[tuple[str, int], _Rows] = {}
    for job, listed, step, rest in rows_of_tasks(answer.stdout, len(COLUMNS)):
        row = _row(rest)
        if not listed.isdecimal():
            shared |= {(job, task): _Rows(own=row) for task in expand_tasks(listed)}
            continue
        runs = found.setdefault((job, int(listed)), [])
        if not step:
            runs.append(_Rows(own=row))
        elif runs:
            runs[-1].add_step(row)
    own = [_accounted(job, task, rows) for (job, task), runs in found.items() for rows in runs]
    waited = [_accounted(*key, rows, began=False) for key, rows in shared.items() if not found.get(key)]
    return (*own, *waited)


def _row(rest: list[str]) -> dict[str, str]:
    """Return a row's columns by their names; answers kept by an older jobkit do not have `END`."""
    *others, last = rest
    name, bar, end = last.rpartition("|")
    return dict(zip((*COLUMNS[1:], END), (*others, *((name, end) if bar else (last, ""))), strict=True))


def _accounted(job: str, task: int, rows: _Rows, *, began: bool = True) -> Accounted:
    row = rows.own
    word = _whole_word(row["State"].partition(" ")[0])  # "CANCELLED by 1234"
    ended = word in END_STATES and row[END] != UNKNOWN
    status, _, signal = row["ExitCode"].partition(":")
    outcome, evidence = _outcome(word, rows)
    return Accounted(
        job_id=job,
        task=task,
        ended=ended,
        outcome=outcome if ended else None,
        exit_status=(128 + int(signal) if signal.strip("0") else int(status)) if ended and status else None,
        evidence=evidence
        if ended or word not in END_STATES
        else f"sacct: {row['State']}, but not yet when and how",
        name=row["JobName"],
        node="" if row["NodeList"] == "None assigned" else row["NodeList"],
        max_rss_bytes=rows.max_rss_bytes,
        elapsed_s=float(row["ElapsedRaw"]) if ended and row["ElapsedRaw"] else None,
        never_began=ended and not began,
    )


def _outcome(word: str, rows: _Rows) -> tuple[Outcome | None, str]:
    """Return why a task ended, if its rows show it, and the words that show it."""
    row, outcome = rows.own, END_STATES.get(word)
    evidence = f"sacct: {row['State']}, ExitCode {row['ExitCode']}"
    if _over_memory(rows):
        evidence = f"sacct: {_memory(rows)}{row['State']}, ExitCode {row['ExitCode']}"
        return (Outcome.RAM_OOM if word == "FAILED" else outcome), evidence
    if row["State"] == "FAILED" and row["ExitCode"] == "0:53":  # measured
        return Outcome.STAGE_OUT, f"{evidence}: the node could not open the job's log, or its working folder"
    return outcome, evidence


def _memory(rows: _Rows) -> str:
    """Return the memory that a killed task used of its request: first, for a table cuts the end of a line."""
    if rows.max_rss_bytes is None:
        return ""
    required = _required_bytes(rows.own)
    asked = rows.own["ReqMem"] if required is None else format_memory(required)
    return f"MaxRSS {format_memory(rows.max_rss_bytes)} of ReqMem {asked}, "


def _whole_word(word: str) -> str:
    """Return the end state that ``OUT_OF_ME+`` is the beginning of; other words as they are."""
    if not word.endswith("+"):
        return word
    return next((state for state in END_STATES if state.startswith(word[:-1])), word)


def _over_memory(rows: _Rows) -> bool:
    """Return whether a failed task was killed for its memory.

    Only the step may report OUT_OF_MEMORY (autosubmit#382); with ``OverMemoryKill`` no row does:
    the task is FAILED with 0:9 and only MaxRSS above ReqMem shows it (measured).
    """
    required = _required_bytes(rows.own)
    killed = rows.own["ExitCode"].endswith(":9")
    over = required is not None and (rows.max_rss_bytes or 0) > required
    return rows.out_of_memory or (killed and over)


def _required_bytes(row: Mapping[str, str]) -> int | None:
    """Return ReqMem in bytes: before Slurm 21.08 ``4Gn`` is per node, ``2Gc`` per CPU (sacct(1))."""
    size = bytes_of(row["ReqMem"].rstrip("nc"))
    if size is None or not row["ReqMem"].endswith("c"):
        return size
    return size * int(row["AllocCPUS"] or 1)
