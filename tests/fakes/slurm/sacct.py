"""sacct -P: what the accounting remembers, by the names of the columns that jobkit asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from tests.fakes.common.entry import Answer
from tests.fakes.common.model import ENDED, PENDING, Job, Task, TaskRun
from tests.fakes.common.store import Store
from tests.fakes.common.text import iso
from tests.fakes.slurm.options import Options, parse_anywhere, table
from tests.fakes.slurm.rows import Row, account_id, account_rows, clusters
from tests.fakes.slurm.rules import memory

SHORT = table("n:noheader P:parsable2 X:allocations D:duplicates S:starttime j:jobs o:format M:clusters")
FLAGS = ("noheader", "parsable2", "allocations", "duplicates")
VALUES = ("starttime", "jobs", "job", "format", "clusters", "cluster", "name")
DEFAULT = "JobID,JobName,AllocCPUS,State,ExitCode"


class Account(NamedTuple):
    """A row of the accounting: an allocation, or with ``step`` the batch script in it."""

    store: Store
    row: Row
    run: TaskRun | None
    step: bool = False

    @property
    def word(self) -> str:
        """The state."""
        if self.run:
            return self.run.step_word if self.step else self.run.word
        return self.row.task.word if self.row.task.state == ENDED else "PENDING"

    @property
    def ended(self) -> float:
        """When it ended; 0 where it has not."""
        if self.run:
            return self.run.end
        return self.row.task.cause_at if self.row.task.state == ENDED else 0.0

    @property
    def elapsed_s(self) -> int:
        return int((self.run.end or self.store.clock()) - self.run.start) if self.run else 0


def _exit(one: Account) -> str:
    if one.run and one.step and one.run.word == "NODE_FAIL":
        return ""
    if one.run and one.step:
        return f"{one.run.step_status}:{one.run.step_signal}"
    return f"{one.run.status}:{one.run.signal}" if one.run else "0:0"


def _rss(one: Account) -> str:
    return f"{one.run.rss_kib}K" if one.step and one.run and one.run.rss_kib else ""


def _reason(one: Account) -> str:
    return one.run.reason if one.run else one.row.task.reason


def _own(read: Callable[[Account], object]) -> Callable[[Account], object]:
    """Return a column that the row of the batch script leaves empty."""
    return lambda one: "" if one.step else read(one)


FIELDS: Mapping[str, Callable[[Account], object]] = {
    "JobID": lambda one: account_id(one.row) + ".batch" * one.step,
    "JobName": lambda one: "batch" if one.step else one.row.job.name,
    "AllocCPUS": lambda one: one.row.job.options.get("cpus-per-task", "1"),
    "ElapsedRaw": lambda one: one.elapsed_s,
    "End": lambda one: iso(one.ended),
    "ExitCode": _exit,
    "MaxRSS": _rss,
    "NodeList": lambda one: one.run.node if one.run else "None assigned",
    "Reason": _own(_reason),
    "ReqMem": _own(lambda one: memory(one.row.job)),
    "State": lambda one: one.word,
}


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sacct."""
    asked = parse_anywhere("sacct", arguments, VALUES, FLAGS, SHORT)
    names = asked.get("format", DEFAULT).split(",")
    found = [one for one in _all(store, asked) if _matches(store, asked, one)]
    lines = [[str(FIELDS[name](one)) for name in names] for one in found]
    return Answer("".join("|".join(line) + "\n" for line in lines))


def _all(store: Store, asked: Options) -> Iterator[Account]:
    names = clusters(store, "sacct", asked.get("clusters", asked.get("cluster", "")))
    for job in store.state.jobs:
        if job.cluster in names:
            one = [one for row in account_rows(job) for one in _of(store, row)]
            yield from (one for one in one if not one.step or "allocations" not in asked)


def _of(store: Store, row: Row) -> Iterator[Account]:
    task, runs = row.task, list(row.task.runs)
    fresh = store.state.calls["sacct"] > task.changed + int(store.fault("accounting_lags") or 0)
    if not fresh:
        if not runs:
            return
        if task.over:  # it is still reported as it was before
            runs[-1] = TaskRun(
                **{
                    **vars(runs[-1]),
                    "end": 0.0,
                    "word": "RUNNING",
                    "step_word": "RUNNING",
                    "status": 0,
                    "signal": 0,
                }
            )
        elif not runs[-1].end:
            runs.pop()
    for run in runs:
        yield Account(store, row, run)
        yield Account(store, row, run, step=True)
    if task.state == PENDING or (task.over and _last_is_old(task)):
        yield Account(store, row, None)


def _last_is_old(task: Task) -> bool:
    """Tell whether a task was ended after its last run, while it waited to run again."""
    return not task.runs or (bool(task.runs[-1].end) and task.cause_at > task.runs[-1].end)


def _matches(store: Store, asked: Options, one: Account) -> bool:
    job = one.row.job
    ids = asked.get("jobs", asked.get("job"))
    if ids is not None and not _asked_for(ids.split(","), job, one.row.task):
        return False
    if "name" in asked and job.name not in asked["name"].split(","):
        return False
    return not one.ended or one.ended >= _since(store, asked)


def _asked_for(ids: list[str], job: Job, task: Task) -> bool:
    mine = {str(job.id), f"{job.id}_{task.number}", str(task.raw or "")}
    return bool(mine & set(ids))


def _since(store: Store, asked: Options) -> float:
    """Return from when on."""
    text = asked["starttime"]
    return store.clock() if text == "now" else datetime.fromisoformat(text).timestamp()
