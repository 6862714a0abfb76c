"""How Grid Engine runs a task: environment, logs, signals, and how it ends. "Seen": SGE 8.1.9."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
from fnmatch import fnmatchcase
from pathlib import Path

from tests.fakes.common.life import again, end, in_error, once, tell
from tests.fakes.common.model import ENDED, Job, Task
from tests.fakes.common.store import Store
from tests.fakes.common.text import duration_s, iso
from tests.fakes.sge.environment import environment
from tests.fakes.sge.options import resources
from tests.fakes.sge.paths import logs, temporary_folder
from tests.fakes.sge.qsub import allowed
from tests.fakes.sge.site import HOST, SLOTS

__all__ = [
    "ACCOUNTING",
    "FAILED",
    "ahead",
    "ended",
    "environment",
    "logs",
    "look",
    "not_started",
    "overtaken",
    "place",
    "stop",
]

ACCOUNTING = "qacct"
FAILED = {
    0: "",
    19: "before writing exit_status",
    25: "rescheduling",
    26: "opening input/output file",
    28: "changing into working directory",
    30: "application error returned",
    37: "qmaster enforced h_rt, h_cpu, or h_vmem limit",
    100: "assumedly after job",
}
"""sge_status(5)."""
_AGAIN, _ERROR = 99, 100
"""Exit statuses that are orders: qsub(1)."""


def ahead(store: Store, job: Job) -> str:
    """Return why no task may start: a job that ``-hold_jid`` names, by id or by name, has not ended."""
    for word in filter(None, job.options.get("hold_jid", "").split(",")):
        before = [one for one in store.state.jobs if one is not job and _named(one, word)]
        if any(not task.over for one in before for task in one.tasks):
            return "Dependency"
    return ""


def _named(job: Job, word: str) -> bool:
    return str(job.id) == word if word.isdecimal() else fnmatchcase(job.name, word)


def place(store: Store, job: Job, task: Task) -> None:
    """Give a task a queue, the first with a free slot."""
    used = [other.queue for job in store.state.jobs for other in job.tasks if other.live]
    queues = allowed(job.options)
    task.queue = next((queue for queue in queues if used.count(queue) < SLOTS), queues[0])
    task.node = HOST


def overtaken(store: Store, job: Job, task: Task) -> bool:
    """Put a task into Eqw in place of starting it (fault ``eqw``: its tasks)."""
    del job
    if task.number not in (store.fault("eqw") or ()):
        return False
    store.faults["eqw"].remove(task.number)
    _into_error(store, task, f'can\'t get password entry for user "{pwd.getpwuid(os.getuid()).pw_name}"')
    return True


def _into_error(store: Store, task: Task, words: str) -> None:
    at = iso(store.clock()).replace("T", " ")
    in_error(task, f"{at[5:7]}/{at[8:10]}/{at[:4]} {at[11:]} [0:{os.getpid()}]: {words}")


def not_started(store: Store, job: Job, task: Task, error: OSError) -> None:
    """Put a task whose folder or log is not there into Eqw (seen)."""
    run = task.runs[-1]
    folder = not Path(job.directory).is_dir()
    run.word, run.end, run.start = "28" if folder else "26", store.clock(), 0.0
    told = (
        f"error: can't chdir to {job.directory}"
        if folder
        else f'error: can\'t open output file "{error.filename}"'
    )
    _into_error(store, task, f"{told}: {error.strerror}")


def look(store: Store, job: Job, task: Task) -> None:
    """Send the warning of ``s_rt``, and what ends a task whose time is over or that is deleted."""
    now, began, asked = store.clock(), task.runs[-1].start, resources(job.options)
    if not task.cause:
        if "s_rt" in asked:
            once(task, "soft", began + duration_s(asked["s_rt"]), now, lambda: tell(task, signal.SIGUSR1))
        if "h_rt" in asked:
            once(
                task,
                "hard",
                began + duration_s(asked["h_rt"]),
                now,
                lambda: stop(store, job, task, "timeout"),
            )
    if task.cause:
        due = task.cause_at + store.settings["notify_s"]
        once(task, "kill", due, now, lambda: tell(task, signal.SIGKILL))


def stop(store: Store, job: Job, task: Task, cause: str) -> None:
    """End a live task: at once, or with ``-notify`` after a USR2 (seen)."""
    end(store, task, cause)
    tell(task, signal.SIGUSR2 if "notify" in job.options else signal.SIGKILL)


def ended(store: Store, job: Job, task: Task, status: int) -> None:
    """Note how a script ended, and what that means: sge_status(5)."""
    run = task.runs[-1]
    run.end, run.rss_kib = store.clock(), run.rss_kib or 4398
    run.status, run.signal = (status if status >= 0 else 128 - status), max(-status, 0)
    run.word = str(_failed(task, status))
    shutil.rmtree(temporary_folder(store, job, task), ignore_errors=True)
    if run.word == "25" or (task.cause == "node_fail" and job.options.get("r", "n").startswith("y")):
        again(store, task, store.settings["reschedule_delay_s"])
    elif run.word == "30":
        _into_error(store, task, f"exit_status of job start = {_ERROR}")
    else:
        task.state, task.word = ENDED, run.word


def _failed(task: Task, status: int) -> int:
    if task.cause == "node_fail":
        return 19
    if task.cause == "timeout" and status < 0:
        return 37
    if not task.cause and status in {_AGAIN, _ERROR}:
        return 25 if status == _AGAIN else 30
    return 100 if status < 0 else 0
