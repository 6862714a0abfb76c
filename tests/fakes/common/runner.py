"""The process that runs the tasks: started by a command that leaves something to do, ends when idle.

It ends as well, and its tasks with it, once the process that set the cluster up has gone.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
from pathlib import Path

from tests.fakes.common.life import Children, advance, born
from tests.fakes.common.store import Store

TICK_S = 0.02
BUSY_PATTERN = 4
"""It sleeps at least so many times as long as it worked: with a thousand tasks a turn takes 20 ms."""


def ensure(store: Store) -> None:
    """Start the process that runs the tasks if there are any and it does not run; call it under the lock."""
    left = any(not task.over for job in store.state.jobs if not job.foreign for task in job.tasks)
    if store.state.runner or store.fault("frozen") or not left:
        return
    root = str(Path(__file__).parents[3])
    code = "import sys; sys.path.insert(0, sys.argv[1]); from tests.fakes.common.runner import main; main()"
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
    rules = importlib.import_module(f"tests.fakes.{store.settings['scheduler']}.rules")
    children: Children = {}
    while _owned(store):
        began = time.monotonic()
        with store.locked() as state:
            if not advance(store, rules, children):
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
