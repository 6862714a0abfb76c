"""The fake cluster in the hands of a test: set it up, break it, look at it, clear it away."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.fakes.slurm import life
from tests.fakes.slurm.model import RUNNING, Job, State, Task, TaskRun
from tests.fakes.slurm.runner import clear_up, ensure
from tests.fakes.slurm.store import Store
from tests.support.processes import gone

ROOT = Path(__file__).parents[2]
COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr")
ENTRY = """\
#!/bin/sh
exec {python} -ISc 'import sys; sys.path.insert(0, sys.argv[1])
from tests.fakes.slurm.entry import main; main()' {root} {folder} {command} "$@"
"""


class FakeCluster:
    """A cluster in a folder of its own; its commands are in ``bin``.

    Parameters
    ----------
    folder
        Where it lives; made here.
    settings
        What differs from `store.DEFAULTS`, in seconds of the cluster.
    """

    def __init__(self, folder: Path, **settings: float) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        known = {"owner": os.getpid(), **settings}
        (folder / "settings.json").write_text(json.dumps(known), encoding="utf-8")
        words = {"python": sys.executable, "root": str(ROOT), "folder": str(folder)}
        quoted = {key: shlex.quote(word) for key, word in words.items()}
        for command in COMMANDS:
            path = self.bin / command
            path.write_text(ENTRY.format(command=command, **quoted), encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @contextmanager
    def _state(self) -> Iterator[tuple[Store, State]]:
        store = Store(self.folder)
        with store.locked() as state:
            yield store, state
            ensure(store)

    def set(self, **settings: float) -> None:
        """Change settings; call it before the first command."""
        path = self.folder / "settings.json"
        known = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(known | settings), encoding="utf-8")

    def fault(self, name: str, value: object = True) -> None:  # noqa: FBT002 - most faults are on or off
        """Switch a fault on: the README lists them."""
        with self._state() as (store, _):
            store.faults[name] = value

    def fix(self, *names: str) -> None:
        """Switch faults off; without names, all."""
        with self._state() as (store, _):
            for name in names or tuple(store.faults):
                store.faults.pop(name, None)

    def calls(self, command: str = "") -> list[list[str]]:
        """Return the commands that were called since the last `forget`, each with its arguments."""
        path = self.folder / "calls.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [words for words in map(json.loads, lines) if command in {"", words[0]}]

    def forget(self) -> None:
        """Forget the commands that were called."""
        (self.folder / "calls.jsonl").unlink(missing_ok=True)

    def job(self, job_id: int | str) -> Job:
        """Return a job as the cluster knows it now."""
        with self._state() as (_, state):
            found = state.job(int(job_id))
        assert found, f"no job {job_id}"
        return found

    def words(self, job_id: int | str) -> dict[int, str]:
        """Return what each task of a job is doing, or how it ended, in the cluster's own words."""
        return {
            task.number: task.word.partition(" ")[0] if task.over else task.state
            for task in self.job(job_id).tasks
        }

    def jobs(self) -> list[Job]:
        """Return all jobs, in the order of their submission."""
        with self._state() as (_, state):
            return state.jobs

    def _change(self, job_id: int | str, task: int, change: Callable[[Store, Job, Task], object]) -> None:
        with self._state() as (store, state):
            job = state.job(int(job_id))
            found = job.task(task) if job else None
            assert job, f"no job {job_id}"
            assert found, f"no task {task} in job {job_id}"
            change(store, job, found)

    def node_fails(self, job_id: int | str, task: int) -> None:
        """Have the node of a task go down: no signal, no trap."""

        def change(store: Store, _: Job, found: Task) -> None:
            life.end(store, found, "node_fail")
            life.tell(found, signal.SIGKILL)

        self._change(job_id, task, change)

    def kill(self, job_id: int | str, task: int, *, whole: bool = False) -> None:
        """Kill -9 the script of a task, and nothing else; ``whole``: and all that it started."""
        self._change(job_id, task, lambda _, __, found: life.tell(found, signal.SIGKILL, group=whole))

    def recycle(self, job_id: int | str, name: str = "someone-elses", user: str = "eve") -> None:
        """Have somebody else's job get the same id: it runs, with tasks of the same numbers."""
        with self._state() as (store, state):
            old = state.job(int(job_id))
            assert old, f"no job {job_id}"
            old.replaced = True
            state.jobs.append(_foreign(store, old, name, user))

    def close(self) -> None:
        """Kill what still runs, by its process id, and return when it is gone."""
        store = Store(self.folder)
        with store.locked() as state:
            runner, state.runner = state.runner, 0
            store.faults["frozen"] = True
            if runner:
                with suppress(ProcessLookupError):
                    os.kill(runner, signal.SIGKILL)
            clear_up(self.folder)
        deadline = time.monotonic() + 10
        while runner and not gone(runner) and time.monotonic() < deadline:
            time.sleep(0.01)
        log = self.folder / "runner.log"
        said = log.read_text(encoding="utf-8") if log.exists() else ""
        assert "Traceback" not in said, said


def _foreign(store: Store, old: Job, name: str, user: str) -> Job:
    """Return a job of somebody else's that runs, with the id and the task numbers of an old one."""
    now, where = store.clock(), {"node": "n1", "queue": "gpu"}
    known = {key: vars(old).get(key, getattr(old, key)) for key in ("id", "script", "directory", "cluster")}
    tasks = [
        Task(
            number=task.number,
            raw=task.raw,
            state=RUNNING,
            single=True,
            runs=[TaskRun(submitted=now, start=now, **where)],
            **where,
        )
        for task in old.tasks
    ]
    return Job(name=name, user=user, submitted=now, foreign=True, tasks=tasks, options=old.options, **known)
