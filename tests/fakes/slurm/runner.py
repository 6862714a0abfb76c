"""The process that runs the tasks: started by a command that leaves something to do, ends when idle.

It ends as well, and its tasks with it, once the process that set the cluster up has gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.fakes.slurm import rules
from tests.fakes.slurm.life import born
from tests.fakes.slurm.model import PENDING, RUNNING, Job, Task, TaskRun
from tests.fakes.slurm.store import Store

TICK_S = 0.02
BUSY_PATTERN = 4
"""It sleeps at least so many times as long as it worked: with a thousand tasks a turn takes 20 ms."""


Children = dict[int, "subprocess.Popen[bytes]"]


def advance(store: Store, children: Children) -> bool:
    """Bring the cluster up to date; tell whether there is still anything that may happen by itself."""
    _reap(store, children)
    if not store.fault("controller_away"):
        _start_what_may(store, children)
    tasks = [task for job in store.state.jobs if not job.foreign for task in job.tasks]
    return any(task.live or task.state == PENDING for task in tasks)


def _reap(store: Store, children: Children) -> None:
    for job in store.state.jobs:
        for task in job.tasks:
            if not task.live or job.foreign:
                continue
            child = children.get(task.pid)
            status = child.poll() if child else None
            if status is not None and not store.fault("controller_away"):
                task.pid = 0
                rules.ended(store, job, task, status)
                store.changed(task)


def _start_what_may(store: Store, children: Children) -> None:
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
                start(store, job, task, children)
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


def start(store: Store, job: Job, task: Task, children: Children) -> None:
    """Start the script of a task, in a process group of its own."""
    now = store.clock()
    rules.place(store, job, task)
    task.runs.append(
        TaskRun(submitted=task.submitted or job.submitted, start=now, node=task.node, queue=task.queue)
    )
    task.state, task.cause, task.single = RUNNING, "", True
    store.changed(task)
    child = _spawn(store, job, task)
    task.pid = child.pid
    children[child.pid] = child


def _spawn(store: Store, job: Job, task: Task) -> subprocess.Popen[bytes]:
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


def ensure(store: Store) -> None:
    """Start the process that runs the tasks if there are any and it does not run; call it under the lock."""
    left = any(not task.over for job in store.state.jobs if not job.foreign for task in job.tasks)
    if store.state.runner or store.fault("frozen") or not left:
        return
    root = str(Path(__file__).parents[3])
    code = "import sys; sys.path.insert(0, sys.argv[1]); from tests.fakes.slurm.runner import main; main()"
    log = str(store.folder / "runner.log")
    store.state.runner = os.posix_spawn(
        sys.executable,
        [sys.executable, "-ISc", code, root, str(store.folder)],
        {**os.environ, "PATH": os.environ.get("NODE_PATH", "/usr/local/bin:/usr/bin:/bin")},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def main() -> None:
    """Run until nothing is left that happens by itself."""
    store = Store(sys.argv[2])
    children: Children = {}
    while _owned(store):
        began = time.monotonic()
        with store.locked() as state:
            if not advance(store, children):
                state.runner = 0
                return
        time.sleep(max(TICK_S, BUSY_PATTERN * (time.monotonic() - began)))
    clear_up(store.folder)


def _owned(store: Store) -> bool:
    try:
        os.kill(store.settings["owner"], 0)
    except ProcessLookupError:
        return False
    return True


def clear_up(folder: Path) -> None:
    """Kill every process group that was started for a task and still has members.

    An id may belong to another process by now: of 32,768 ids a run of all tests needs more in two minutes.
    """
    path = folder / "processes"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        pid, _, began = line.partition(" ")
        if born(int(pid)) in {began, ""}:  # while a group has members, no process gets the id of its leader
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(pid), signal.SIGKILL)
