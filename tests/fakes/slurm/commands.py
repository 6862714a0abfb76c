"""Slurm's commands, as far as jobkit asks for them."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.fakes.slurm.life import spool
from tests.fakes.slurm.model import ENDED, ENDING, PENDING, RUNNING, Job, Task, TaskRun
from tests.fakes.slurm.options import Options, header, parse, sbatch_words, table
from tests.fakes.slurm.rules import (
    ACCOUNTS,
    CPUS,
    GPU_TYPE,
    GPUS,
    MEMORY_MB,
    NODES,
    PARTITIONS,
    cancel,
    limit_min,
    memory,
    not_begun,
)
from tests.fakes.slurm.store import Store
from tests.fakes.slurm.text import Answer, Refused, captured, clock_words, iso, numbers, size_bytes

MIN_JOB_AGE_S = 300
NO_MEMORY = "sbatch: error: Memory specification can not be satisfied\n"


def sbatch(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sbatch."""
    asked = sbatch_words(arguments)
    path = Path(asked.rest[0])
    script = path.read_text(encoding="utf-8", errors="surrogateescape")
    options = Options(header(script) | asked)
    options.setdefault("job-name", path.name)
    _refuse(options)
    number = store.state.next_id
    if "test-only" in options:
        store.state.next_id += 1
        at, where = iso(store.clock()), options.get("partition", PARTITIONS[0]).partition(",")[0]
        return Answer(
            "", f"sbatch: Job {number} to start at {at} using 1 processors on nodes n1 in partition {where}\n"
        )
    cluster = str(store.fault("other_cluster") or "")
    _take(store, options, script, asked.rest[1:], cluster)
    return Answer(f"{number};{cluster}\n" if cluster else f"{number}\n")


def _refuse(options: Options) -> None:
    """Refuse what the cluster cannot do, in the words of 22.05.8."""
    bad = [name for name in options.get("partition", PARTITIONS[0]).split(",") if name not in PARTITIONS]
    if bad:
        said = f"sbatch: error: invalid partition specified: {bad[0]}\n"
        raise Refused(said + _fails(options, "Invalid partition name specified"))
    gpus = re.fullmatch(r"(?:gres/)?gpu(?::([a-z]\w*))?(?::(\d+))?", options.get("gres", "gpu:0"))
    assert gpus
    if _too_much(options, gpus):
        memory = "" if "test-only" in options or _memory_mb(options) <= MEMORY_MB else NO_MEMORY
        raise Refused(memory + _fails(options, "Requested node configuration is not available"))
    if "constraint" in options:
        raise Refused(_fails(options, "Invalid feature specification"))


def _fails(options: Options, words: str) -> str:
    if "test-only" in options:
        return f"allocation failure: {words}\n"
    return f"sbatch: error: Batch job submission failed: {words}\n"


def _too_much(options: Options, gpus: re.Match[str]) -> bool:
    kind, count = gpus[1], int(gpus[2] or 1)
    return any(
        (
            count > GPUS or kind not in {None, GPU_TYPE},
            int(options.get("cpus-per-task", 1)) > CPUS,
            _memory_mb(options) > MEMORY_MB,
            int(options.get("nodes", "1").partition("-")[0]) > len(NODES),
        )
    )


def _memory_mb(options: Options) -> float:
    return size_bytes(options.get("mem", "0")) / 2**20


def _take(store: Store, options: Options, script: str, arguments: list[str], cluster: str) -> None:
    state, now = store.state, store.clock()
    throttle = options["array"].partition("%")[2]
    job = Job(
        id=state.next_id,
        name=options["job-name"],
        user=pwd.getpwuid(os.getuid()).pw_name,
        script=spool(store, "slurm_script", script),
        directory=str(Path.cwd() / options.get("chdir", ".")),
        submitted=now,
        throttle=int(throttle or 0),
        cluster=cluster,
        arguments=arguments,
        options=dict(options),
        tasks=[Task(number=number) for number in numbers(options["array"].partition("%")[0])],
    )
    for task in job.tasks:
        store.changed(task)
    state.next_id += 1
    state.jobs.append(job)


def clusters(store: Store, asked: str) -> list[str]:
    """Return the clusters that are asked, by ``-M``; the one that is always asked is called ````."""
    return ["" if name == store.settings["cluster"] else name for name in asked.split(",")]


class Row:
    """One line about ``tasks`` of a job; several only while none of them has begun."""

    def __init__(self, job: Job, tasks: list[Task]) -> None:
        self.job = job
        self.tasks = tasks
        self.task = tasks[0]


def account_rows(job: Job) -> Iterator[Row]:
    """Yield the rows of a job in the accounting.

    An array has a record of its own for the tasks that have not begun; a task that is cancelled alone
    before it began has no row ever after (seen).
    """
    record = not_begun(job) or _never_begun(job)
    yield from (Row(job, [task]) for task in job.tasks if task.single)
    if record:
        yield Row(job, record)


def _never_begun(job: Job) -> list[Task]:
    """Return the tasks that were cancelled with the array's own record."""
    if not_begun(job) or any(task.raw == job.id for task in job.tasks):
        return []
    return [task for task in job.tasks if task.state == ENDED and not task.single and not task.gone]


def account_id(row: Row) -> str:
    """Return sacct's JobID."""
    if row.task.single:
        return f"{row.job.id}_{row.task.number}"
    throttle = f"%{row.job.throttle}" if row.job.throttle else ""
    return f"{row.job.id}_[{listed([task.number for task in row.tasks])}{throttle}]"


def listed(found: list[int]) -> str:
    """Return numbers of tasks, sorted, as Slurm lists them: ``1-3,7``."""
    cuts = [0, *(index for index, (one, two) in enumerate(pairwise(found), 1) if two != one + 1), len(found)]
    spans = [(found[first], found[last - 1]) for first, last in pairwise(cuts)]
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)


SQUEUE = table("h:noheader r:array", "o:format O:Format j:jobs t:states M:clusters name")


class Seen(NamedTuple):
    """A task, and what its fields are read from."""

    store: Store
    job: Job
    task: Task

    @property
    def word(self) -> str:
        """The state, in squeue's words."""
        ended = self.task.word.partition(" ")[0]
        return {PENDING: "PENDING", RUNNING: "RUNNING", ENDING: "COMPLETING"}.get(self.task.state, ended)

    @property
    def elapsed_s(self) -> float:
        """How long it has run, or ran."""
        if self.task.state == PENDING or not self.task.runs:
            return 0.0
        run = self.task.runs[-1]
        return (run.end or self.store.clock()) - run.start

    @property
    def start(self) -> float:
        """When it began; of one that waits for a time or for room, when it may begin; else 0."""
        if self.task.state != PENDING:
            return self.task.runs[-1].start if self.task.runs else 0.0
        if self.task.reason == "Resources":
            return self.store.clock() + 60 * limit_min(self.job)
        return self.task.begin


QUEUE_FIELDS: Mapping[str, Callable[[Seen], object]] = {
    "i": lambda seen: f"{seen.job.id}_{seen.task.number}",
    "T": lambda seen: seen.word,
    "r": lambda seen: seen.task.reason,
    "N": lambda seen: seen.task.node,
    "M": lambda seen: clock_words(seen.elapsed_s),
    "S": lambda seen: iso(seen.start, "N/A"),
    "j": lambda seen: seen.job.name,
    "P": lambda seen: seen.job.options.get("partition", PARTITIONS[0]),
    "u": lambda seen: seen.job.user,
    "V": lambda seen: iso(seen.job.submitted),
}


LONG_FIELDS: Mapping[str, Callable[[Seen], object]] = {
    "ArrayJobID": lambda seen: seen.job.id,
    "ArrayTaskID": lambda seen: seen.task.number,
    "exit_code": lambda seen: (
        seen.task.runs[-1].status << 8 | seen.task.runs[-1].signal if seen.task.runs else 0
    ),
    "EndTime": lambda seen: iso(seen.task.runs[-1].end, "N/A") if seen.task.runs else "N/A",
}
"""Of ``--Format``: a column of 20 characters each; the status is that of wait(2)."""


def squeue(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of squeue."""
    asked = parse(arguments, SQUEUE)
    names = clusters(store, asked.get("clusters", ""))
    if store.use("queue_empty"):
        return Answer()
    layout, found = (
        asked.get("format", "%i"),
        (seen for name in names for seen in _chosen(store, asked, name)),
    )
    if columns := asked.get("Format", "").split(",") if "Format" in asked else []:
        rows = ([str(LONG_FIELDS[column](seen)) for column in columns] for seen in found)
        return Answer("".join(f"{''.join(map('{:<20}'.format, row))}\n" for row in rows))
    lines = (re.sub("%(.)", lambda field: str(QUEUE_FIELDS[field[1]](seen)), layout) for seen in found)  # noqa: B023
    return Answer("".join(f"{line}\n" for line in lines))


def _chosen(store: Store, asked: Options, cluster: str) -> list[Seen]:
    jobs = [job for job in store.state.jobs if job.cluster == cluster and not job.replaced]
    ids = asked.get("jobs", "")
    if ids:
        jobs = _by_id(store, jobs, ids.split(","))
    names = asked["name"].split(",") if "name" in asked else [job.name for job in jobs]
    found = [Seen(store, job, task) for job in jobs if job.name in names for task in job.tasks]
    over = asked.get("states") == "all"
    found = [seen for seen in found if not seen.task.over or (over and _remembered(store, seen.task))]
    chosen = [seen for seen in found if _asked_task(ids, seen)]
    return sorted(chosen, key=lambda seen: seen.task.state != PENDING)


def _by_id(store: Store, jobs: list[Job], ids: list[str]) -> list[Job]:
    """Return the jobs of these ids; one alone that the controller does not know is an error."""
    found = [job for job in jobs if str(job.id) in {identifier.partition("_")[0] for identifier in ids}]
    alive = any(_remembered(store, task) for job in found for task in job.tasks)
    if len(ids) == 1 and not alive:
        raise Refused("slurm_load_jobs error: Invalid job id specified\n")
    return found


def _remembered(store: Store, task: Task) -> bool:
    if not task.over:
        return True
    ended = task.runs[-1].end if task.runs else task.cause_at
    return store.clock() - max(ended, task.cause_at) < MIN_JOB_AGE_S


def _asked_task(ids: str, seen: Seen) -> bool:
    mine = [one.partition("_")[2] for one in ids.split(",") if one.partition("_")[0] == str(seen.job.id)]
    return not ids or "" in mine or str(seen.task.number) in mine


SACCT = table(
    "n:noheader P:parsable2 X:allocations D:duplicates",
    "S:starttime j:jobs o:format M:clusters job cluster name",
)
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
        return f"{one.run.step_status % 128}:{one.run.step_signal}"
    return f"{one.run.status % 128}:{one.run.signal}" if one.run else "0:0"


def _rss(one: Account) -> str:
    return f"{one.run.rss_kib}K" if one.step and one.run and one.run.rss_kib else ""


def _own(read: Callable[[Account], object]) -> Callable[[Account], object]:
    """Return a column that the row of the batch script leaves empty."""
    return lambda one: "" if one.step else read(one)


ACCOUNT_FIELDS: Mapping[str, Callable[[Account], object]] = {
    "JobID": lambda one: account_id(one.row) + ".batch" * one.step,
    "JobName": lambda one: "batch" if one.step else one.row.job.name,
    "AllocCPUS": lambda one: one.row.job.options.get("cpus-per-task", "1"),
    "ElapsedRaw": lambda one: one.elapsed_s,
    "End": lambda one: iso(one.ended),
    "ExitCode": _exit,
    "MaxRSS": _rss,
    "NodeList": lambda one: one.run.node if one.run else "None assigned",
    "Reason": _own(lambda one: (one.run or one.row.task).reason),
    "ReqMem": _own(lambda one: memory(one.row.job)),
    "State": lambda one: one.word,
    "Submit": lambda one: iso(one.row.job.submitted),
    "User": _own(lambda one: one.row.job.user),
}


def sacct(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sacct."""
    asked = parse(arguments, SACCT)
    names = asked.get("format", DEFAULT).split(",")
    found = [one for one in _accounts(store, asked) if _matches(store, asked, one)]
    lines = [[str(ACCOUNT_FIELDS[name](one)) for name in names] for one in found]
    return Answer("".join("|".join(line) + "\n" for line in lines))


def _accounts(store: Store, asked: Options) -> Iterator[Account]:
    names = clusters(store, asked.get("clusters", asked.get("cluster", "")))
    for job in store.state.jobs:
        if job.cluster in names:
            rows = [each for row in account_rows(job) for each in _of_row(store, row)]
            yield from (each for each in rows if not each.step or "allocations" not in asked)


def _of_row(store: Store, row: Row) -> Iterator[Account]:
    task, runs = row.task, list(row.task.runs)
    fresh = store.state.calls["sacct"] > task.changed + int(store.fault("accounting_lags") or 0)
    if not fresh:
        if not runs:
            return
        if task.over:  # it is still reported as it was before
            before = {"end": 0.0, "word": "RUNNING", "step_word": "RUNNING", "status": 0, "signal": 0}
            runs[-1] = TaskRun(**{**vars(runs[-1]), **before})
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
    mine = {str(job.id), f"{job.id}_{one.row.task.number}", str(one.row.task.raw or "")}
    if ids is not None and not mine & set(ids.split(",")):
        return False
    if "name" in asked and job.name not in asked["name"].split(","):
        return False
    since = asked["starttime"]
    begin = store.clock() if since == "now" else datetime.fromisoformat(since).timestamp()
    return not one.ended or one.ended >= begin


CLUSTERS = table("o:oneliner a:all", "M:clusters cluster")


def scancel(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of scancel."""
    asked = parse(arguments, CLUSTERS)
    names = clusters(store, asked.get("clusters", ""))
    for job in store.state.jobs:
        if job.cluster in names and not job.replaced:
            _cancel_of(store, asked.rest, job)
    return Answer()


def _cancel_of(store: Store, words: list[str], job: Job) -> None:
    waiting = not_begun(job)
    for task in _tasks(words, job):
        cancel(store, job, task, os.getuid())
    if not_begun(job):
        for task in waiting:
            task.gone = task.over


def _tasks(words: list[str], job: Job) -> list[Task]:
    mine = [word.partition("_")[2] for word in words if word.partition("_")[0] == str(job.id)]
    if "" in mine:
        return job.tasks
    asked = {number for text in mine for number in numbers(text.strip("[]"))}
    return [task for task in job.tasks if task.number in asked]


def scontrol(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of scontrol."""
    del store
    asked = parse(arguments, CLUSTERS)
    words = asked.rest or [""]
    if words == ["ping"]:
        return Answer("Slurmctld(primary) at login is UP\n")
    if words == ["show", "config"]:
        return Answer(captured("config"))
    if words == ["show", "partition"]:
        return Answer(captured("lab-partitions"))
    raise Refused(f"the fake has no scontrol {words}\n")


def sinfo(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sinfo; its nodes are always idle, whatever runs."""
    del store
    if "--version" in arguments:
        return Answer("slurm-wlm 22.05.8\n")
    if "%G" in arguments[-1]:
        return Answer(captured("lab-nodes"))
    assert arguments[-1] == "%P|%D|%T|%N|%E", "jobkit asks for kinds of nodes, or for states"
    return Answer(captured("sinfo-down").replace("drained", "idle").replace("fan broken", "none"))


def sacctmgr(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of sacctmgr: a row for each account."""
    del store
    names = arguments[-1].removeprefix("format=").split(",")
    known = {"User": pwd.getpwuid(os.getuid()).pw_name, "DefaultAccount": ACCOUNTS[0]}
    known |= {"DefaultQOS": "", "QOS": "normal", "ParentName": ""}
    rows = [{**known, "Account": name} for name in ACCOUNTS]
    return Answer("".join("|".join(row[name] for name in names) + "\n" for row in rows))
