"""The life of a task, as both fakes know it: it waits, starts, gets a signal to end, ends.

What differs between the schedulers is in their ``rules`` module.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.fakes.common.model import ENDING, ERROR, PENDING, RUNNING, Job, Task, TaskRun
from tests.fakes.common.store import Store

Children = dict[int, "subprocess.Popen[bytes]"]


Rules = Any
"""The module ``rules`` of a scheduler: what it does its own way."""


def advance(store: Store, rules: Rules, children: Children) -> bool:
    """Bring the cluster up to date; tell whether there is still anything that may happen by itself."""
    _reap(store, rules, children)
    if not store.fault("controller_away"):
        _start_what_may(store, rules, children)
    tasks = [task for job in store.state.jobs if not job.foreign for task in job.tasks]
    return any(task.live or task.state == PENDING for task in tasks)


def _reap(store: Store, rules: Rules, children: Children) -> None:
    for job in store.state.jobs:
        for task in job.tasks:
            if not task.live or job.foreign:
                continue
            child = children.get(task.pid)
            status = child.poll() if child else None
            if status is not None and not store.fault("controller_away"):
                task.pid = 0
                rules.ended(store, job, task, status)
                store.changed(task, rules.ACCOUNTING)


def _start_what_may(store: Store, rules: Rules, children: Children) -> None:
    jobs = [job for job in store.state.jobs if not job.foreign]
    free = 0 if store.fault("full") else store.settings["slots"] - sum(t.live for j in jobs for t in j.tasks)
    for job in jobs:
        waiting = [task for task in job.tasks if task.state == PENDING]
        if not waiting:
            continue
        why = rules.ahead(store, job)
        room = (job.throttle or len(job.tasks)) - sum(task.live for task in job.tasks)
        for task in waiting:
            waited_for, task.reason = task.reason, _reason(store, task, why, room, free)
            if task.reason == "None":
                start(store, rules, job, task, children)
                task.runs[-1].reason = waited_for
                room, free = room - 1, free - 1


def _reason(store: Store, task: Task, why: str, room: int, free: int) -> str:
    """Return why a task does not start now, in Slurm's words; ``None`` where it may."""
    if why:
        return why
    if task.begin > store.clock():
        return "BeginTime"
    if room <= 0:
        return "JobArrayTaskLimit"
    return "None" if free > 0 else "Resources"


def start(store: Store, rules: Rules, job: Job, task: Task, children: Children) -> None:
    """Start the script of a task, in a process group of its own."""
    now = store.clock()
    rules.place(store, job, task)
    task.runs.append(
        TaskRun(submitted=task.submitted or job.submitted, start=now, node=task.node, queue=task.queue)
    )
    task.state, task.cause, task.single = RUNNING, "", True
    store.changed(task, rules.ACCOUNTING)
    child = _spawn(store, rules, job, task)
    task.pid = child.pid
    children[child.pid] = child


def _spawn(store: Store, rules: Rules, job: Job, task: Task) -> subprocess.Popen[bytes]:
    out, err, how = rules.logs(store, job, task)
    with out.open(how) as stdout, (err or out).open("ab") as stderr:
        child = subprocess.Popen(
            ["/bin/bash", job.script, *job.arguments],
            cwd=job.directory,
            env=rules.environment(store, job, task),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr if err else subprocess.STDOUT,
            start_new_session=True,
        )
    with (store.folder / "processes").open("a", encoding="utf-8") as told:
        told.write(f"{child.pid} {born(child.pid)}\n")
    return child


def born(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty if there is none with this id."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]
    return ""


def tell(task: Task, number: signal.Signals, *, group: bool = True) -> None:
    """Send a signal to the process group of a task, or to its script alone."""
    if task.pid:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(task.pid, number)


def end(store: Store, task: Task, cause: str) -> None:
    """Note why a live task is about to be ended: the first reason counts."""
    if not task.cause:
        task.cause, task.cause_at = cause, store.clock()
    task.state = ENDING


def again(store: Store, task: Task, delay_s: float) -> None:
    """Put a task whose script has ended back into the queue."""
    task.state, task.word, task.cause, task.node, task.queue = PENDING, "", "", "", ""
    task.restarts += 1
    task.submitted = store.clock()
    task.begin = store.clock() + delay_s


def in_error(task: Task, words: str) -> None:
    """Put a task in error, where it stays until somebody clears it or deletes it."""
    task.state, task.error, task.cause, task.node, task.queue = ERROR, words, "", "", ""


def environment_of(job: Job) -> dict[str, str]:
    """Return the environment that the job was submitted from."""
    text = Path(job.script).with_name("environment.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)
    return found


def spool(store: Store, name: str, script: str) -> str:
    """Keep the script of a new job and the environment that it comes from; return its path."""
    folder = store.folder / "jobs" / f"{len(store.state.jobs) + 1:05}"
    folder.mkdir(parents=True)
    (folder / name).write_text(script, encoding="utf-8", errors="surrogateescape")
    (folder / "environment.json").write_text(json.dumps(dict(os.environ)), encoding="utf-8")
    return str(folder / name)
