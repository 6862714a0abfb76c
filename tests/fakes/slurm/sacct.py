"""sacct -P: what the accounting remembers, by the names of the columns that jobkit asks for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.model import ENDED, PENDING, Job, Run, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import iso
from tests.fakes.slurm.options import Options, parse_anywhere, table
from tests.fakes.slurm.rows import Row, account_id, account_rows, clusters
from tests.fakes.slurm.rules import memory

SHORT = table("n:noheader P:parsable2 X:allocations D:duplicates S:starttime j:jobs o:format M:clusters")
FLAGS = ("noheader", "parsable2", "allocations", "duplicates")
VALUES = ("starttime", "jobs", "job", "format", "clusters", "cluster", "name")
DEFAULT = "JobID,JobName,AllocCPUS,State,ExitCode"


class Told(NamedTuple):
    """A row of the accounting: an allocation, or with ``step`` the batch script in it."""

    store: Store
    row: Row
    run: Run | None
    step: bool = False

    @property
    def word(self) -> str:
        """The state."""
        if self.run:
            return self.run.step_word if self.step else self.run.word
        return self.row.task.word if self.row.task.state == ENDED else "PENDING"

    @property
    def submitted(self) -> float:
        if self.run:
            return self.run.start if self.step else self.run.submitted
        return self.row.task.submitted or self.row.job.submitted

    @property
    def ended(self) -> float:
        """When it ended; 0 where it has not."""
        if self.run:
            return self.run.end
        return self.row.task.cause_at if self.row.task.state == ENDED else 0.0

    @property
    def elapsed_s(self) -> int:
        return int((self.run.end or self.store.clock()) - self.run.start) if self.run else 0


def _exit(told: Told) -> str:
    if told.run and told.step and told.run.word == "NODE_FAIL":
        return ""
    if told.run and told.step:
        return f"{told.run.step_status}:{told.run.step_signal}"
    return f"{told.run.status}:{told.run.signal}" if told.run else "0:0"


def _rss(told: Told) -> str:
    return f"{told.run.rss_kib}K" if told.step and told.run and told.run.rss_kib else ""


def _reason(told: Told) -> str:
    return told.run.reason if told.run else told.row.task.reason


def _own(read: Callable[[Told], object]) -> Callable[[Told], object]:
    """Return a column that the row of the batch script leaves empty."""
    return lambda told: "" if told.step else read(told)


FIELDS: Mapping[str, Callable[[Told], object]] = {
    "JobID": lambda told: account_id(told.row) + ".batch" * told.step,
    "JobIDRaw": lambda told: f"{told.row.task.raw or told.row.job.id}" + ".batch" * told.step,
    "JobName": lambda told: "batch" if told.step else told.row.job.name,
    "AllocCPUS": lambda told: told.row.job.options.get("cpus-per-task", "1"),
    "ElapsedRaw": lambda told: told.elapsed_s,
    "End": lambda told: iso(told.ended),
    "ExitCode": _exit,
    "MaxRSS": _rss,
    "NodeList": lambda told: told.run.node if told.run else "None assigned",
    "Reason": _own(_reason),
    "ReqMem": _own(lambda told: memory(told.row.job)),
    "State": lambda told: told.word,
}
_BY_LOWER = {name.lower(): name for name in FIELDS}


def main(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sacct."""
    asked = parse_anywhere("sacct", arguments, VALUES, FLAGS, SHORT)
    names = [_column(word) for word in asked.get("format", DEFAULT).split(",")]
    found = [told for told in _all(store, asked) if _matches(store, asked, told)]
    if "duplicates" not in asked:
        found = _latest(found)
    lines = [[str(FIELDS[name](told)) for name in names] for told in found]
    if "noheader" not in asked:
        lines = [names, *lines]
    return Answer("".join("|".join(line) + "\n" for line in lines))


def _latest(found: list[Told]) -> list[Told]:
    """Return of each job id, of the tasks' own ones, what was submitted last."""
    ids = [(told.row.job.cluster, str(FIELDS["JobIDRaw"](told))) for told in found]
    last = {one: told.submitted for one, told in zip(ids, found, strict=True)}
    return [told for one, told in zip(ids, found, strict=True) if told.submitted == last[one]]


def _column(word: str) -> str:
    name = word.partition("%")[0]
    if name.lower() not in _BY_LOWER:
        raise Refused(f'sacct: error: Invalid field requested: "{name}"\n')
    return _BY_LOWER[name.lower()]


def _all(store: Store, asked: Options) -> Iterator[Told]:
    names = clusters(store, "sacct", asked.get("clusters", asked.get("cluster", "")))
    for job in store.state.jobs:
        if job.cluster in names:
            told = [one for row in account_rows(job) for one in _of(store, row)]
            yield from (one for one in told if not one.step or "allocations" not in asked)


def _of(store: Store, row: Row) -> Iterator[Told]:
    task, runs = row.task, list(row.task.runs)
    fresh = store.state.calls["sacct"] > task.changed + int(store.fault("accounting_lags") or 0)
    if not fresh:
        if not runs:
            return
        if task.over:  # it is still reported as it was before
            runs[-1] = Run(
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
        yield Told(store, row, run)
        yield Told(store, row, run, step=True)
    if task.state == PENDING or (task.over and _last_is_old(task)):
        yield Told(store, row, None)


def _last_is_old(task: Task) -> bool:
    """Tell whether a task was ended after its last run, while it waited to run again."""
    return not task.runs or (bool(task.runs[-1].end) and task.cause_at > task.runs[-1].end)


def _matches(store: Store, asked: Options, told: Told) -> bool:
    job = told.row.job
    ids = asked.get("jobs", asked.get("job"))
    if ids is not None and not _asked_for(ids.split(","), job, told.row.task):
        return False
    if "name" in asked and job.name not in asked["name"].split(","):
        return False
    return not told.ended or told.ended >= _since(store, asked)


def _asked_for(ids: list[str], job: Job, task: Task) -> bool:
    mine = {str(job.id), f"{job.id}_{task.number}", str(task.raw or "")}
    return bool(mine & set(ids))


def _since(store: Store, asked: Options) -> float:
    """Return from when on: as asked, else midnight, or without end where jobs are named: sacct(1)."""
    text = asked.get("starttime", "")
    if text == "now":
        return store.clock()
    if text:
        return datetime.fromisoformat(text).timestamp()
    today = time.strftime("%Y-%m-%d", time.localtime(store.clock()))
    return 0.0 if {"jobs", "job"} & set(asked) else datetime.fromisoformat(today).timestamp()
