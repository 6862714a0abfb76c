"""What ends a task, and what is kept of its submission."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

from tests.fakes.slurm.model import ENDING, PENDING, Job, Task
from tests.fakes.slurm.store import Store


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
