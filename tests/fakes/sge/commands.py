"""Grid Engine's commands, as far as jobkit asks for them."""

from __future__ import annotations

import os
import pwd
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fakes.common.entry import Answer, Refused
from tests.fakes.common.life import spool
from tests.fakes.common.model import ENDED, ENDING, ERROR, PENDING, RUNNING, Job, Task, TaskRun
from tests.fakes.common.store import Store
from tests.fakes.common.text import captured, iso, numbers
from tests.fakes.sge.options import header, merged, parse
from tests.fakes.sge.rules import FAILED, ahead, named, stop


def qsub(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qsub."""
    told, rest = parse(arguments)
    text = Path(rest[0]).read_text(encoding="utf-8", errors="surrogateescape")
    options = merged(header(text), told)
    options.setdefault("N", Path(rest[0]).name)
    number = store.state.next_id
    store.state.next_id += 1
    if options.get("w") == "v":
        return Answer("verification: found suitable queue(s)\n")
    _take(store, number, options, text, rest)
    return Answer(f"{number}.{_span(options['t'])}\n")


def _span(asked: str) -> str:
    first, _, rest = asked.partition("-")
    last, _, step = rest.partition(":")
    return f"{first}-{last or first}:{step or 1}"


def _take(store: Store, number: int, options: dict[str, str], text: str, rest: list[str]) -> None:
    where = options.get("wd") or (os.getcwd() if "cwd" in options else str(Path.home()))  # noqa: PTH109 - its text
    job = Job(
        id=number,
        name=options["N"],
        user=pwd.getpwuid(os.getuid()).pw_name,
        script=spool(store, str(number), text),
        directory=where,
        submitted=store.clock(),
        throttle=int(options.get("tc", 0)),
        arguments=rest[1:],
        options=options,
        tasks=[Task(number=number) for number in numbers(options["t"])],
    )
    store.state.jobs.append(job)


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


def qstat(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qstat."""
    asked = _questions(arguments)
    if "-help" in asked:
        return Answer(captured("sge", "lab-version"))
    if "-F" in asked:
        return Answer(captured("sge", "lab-instances"))
    found = [] if store.use("queue_empty") else _chosen(store, asked)
    assert "-xml" in asked or not found, "the fake prints no table"
    return Answer(_xml(found) if "-xml" in asked else "")


def _questions(arguments: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        found[word] = left.pop(0) if word in {"-s", "-u"} else ""
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
    rows = [row for job in jobs for row in _listed(store, job)]
    return sorted(rows, key=lambda row: not row.live)


def _listed(store: Store, job: Job) -> Iterator[Listed]:
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
    job, task = row.job, row.tasks[0]
    where, when, at = "", "JB_submission_time", task.submitted or job.submitted
    if row.live:
        where, when, at = f"{task.queue}@{task.node}", "JAT_start_time", task.runs[-1].start
    fields = [
        ("JB_job_number", str(job.id)),
        ("JAT_prio", "0.00000" if "h" in row.flags else "0.50000"),
        ("JB_name", job.name),
        ("JB_owner", job.user),
        ("state", row.flags),
        (when, iso(at)),
        ("queue_name", where),
        ("slots", _slots(job)),
        ("tasks", ranges([task.number for task in row.tasks])),
    ]
    lines = "".join(f"      <{key}>{escape(value)}</{key}>\n" for key, value in fields)
    return f'    <job_list state="{"running" if row.live else "pending"}">\n{lines}    </job_list>\n'


def _slots(job: Job) -> str:
    return job.options.get("pe", "- 1").split()[1]


RULE = "=" * 62


def qacct(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qacct."""
    option, wanted = arguments
    assert option == "-j", "jobkit asks for a job here"
    found = [record for record in _records(store) if named(record[0], wanted)]
    if not found:
        raise Refused(f"error: job {'id' if wanted.isdecimal() else 'name'} {wanted} not found\n")
    return Answer("".join(_printed(*record) for record in found))


def _records(store: Store) -> list[tuple[Job, Task, TaskRun]]:
    """Return the runs of tasks that are in the file, in the order of their ends."""
    lag = int(store.fault("accounting_lags") or 0)
    found = [
        (job, task, run)
        for job in store.state.jobs
        for task in job.tasks
        for run in task.runs
        if run.end
        and (run is not task.runs[-1] or store.state.calls["qacct"] > task.changed + lag)
    ]  # fmt: skip
    return sorted(found, key=lambda record: record[2].end)


def _at(at: float) -> str:
    return time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(at)) if at else "-/-"


def _category(job: Job) -> str:
    limits = ",".join(sorted(job.options.get("l", "").split(",")))
    parts = [f"-q {job.options['q']}" if "q" in job.options else "", f"-l {limits}" if limits else ""]
    parts.append(f"-pe {job.options['pe']}" if "pe" in job.options else "")
    return " ".join(filter(None, parts)) or "NONE"


def _printed(job: Job, task: Task, run: TaskRun) -> str:
    """Return a record that the real qacct printed, with the values of this one in it."""
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
        "slots": _slots(job),
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


def qdel(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qdel."""
    out, status = "", 0
    for identifier in arguments:
        said, refused = _delete(store, identifier)
        out, status = out + said, status or refused
    return Answer(out, "", status)


def _delete(store: Store, one: str) -> tuple[str, int]:
    number, _, span = one.partition(".")
    job = store.state.job(int(number)) if number.isdecimal() else None
    left = [task for task in job.tasks if not task.over] if job else []
    if not job or not left:
        return f'denied: job "{number}" does not exist\n', 1
    chosen = [task for task in left if not span or task.number in numbers(span)]
    if not chosen:
        return f'job "{number}" task "{span}" does not exist\n', 1
    return _done(store, job, chosen, whole=len(chosen) == len(left) and not span), 0


def _done(store: Store, job: Job, tasks: list[Task], *, whole: bool) -> str:
    me = pwd.getpwuid(os.getuid()).pw_name
    said = ""
    waiting: list[Task] = []
    for task in tasks:
        name = f"job-array task {job.id}.{task.number}"
        if task.live and task.cause == "deleted":
            said += f"job {job.id} is already in deletion\n"
        elif task.live:
            stop(store, job, task, "deleted")
            said += f"{me} has registered the {name} for deletion\n"
        else:
            waiting.append(task)
            task.state, task.word, task.cause_at = ENDED, "deleted", store.clock()
    if not waiting:
        return said
    if whole:
        return f"{said}{me} has deleted job {job.id}\n"
    if len(waiting) == 1:
        return f"{said}{me} has deleted job-array task {job.id}.{waiting[0].number}\n"
    listed = ranges([task.number for task in waiting])
    return f"{said}{me} has deleted job-array tasks {listed} of job {job.id}\n"


def qconf(store: Store, arguments: list[str]) -> Answer:
    """Answer a command line of qconf."""
    del store
    verb, name = arguments[0], (arguments[1] if len(arguments) > 1 else "")
    if verb == "-sconf":
        return Answer(_lines(captured("sge", "config")))
    if verb == "-sc":
        return Answer(captured("sge", "complexes"))
    if verb == "-sq":
        return Answer(_lines(captured("sge", "lab-queues")))
    if (verb, name) == ("-sp", "smp"):
        return Answer(captured("sge", "lab-pe-smp"))
    raise Refused(f'error: invalid option argument "{verb}"\n')


def _lines(text: str) -> str:
    """Join what is continued on a next line, where the caller asks for that: qconf(1)."""
    return re.sub(r"\\\n\s*", "", text) if "SGE_SINGLE_LINE" in os.environ else text
