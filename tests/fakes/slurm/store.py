"""The folder that the fake cluster lives in: its state, its settings, its faults, under one lock.

state.json      what the cluster remembers (`model.State`)
settings.json   how it is set up; written once
faults.json     what is wrong with it just now, see the README
calls.jsonl     every command that was called: its name and its arguments
jobs/           the scripts and the environments of the submitted jobs
processes       the process groups that were started, for whoever has to clear up
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fakes.slurm.model import State, Task, restored

DEFAULTS: dict[str, Any] = {
    "slots": 16,
    "cluster": "lab",
    "kill_wait_s": 5.0,
    "requeue_delay_s": 121.0,
}
"""As the practice cluster is set up."""


class Store:
    """A cluster's folder.

    Attributes
    ----------
    state
        Only valid, and only to be changed, inside ``locked``.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.settings: dict[str, Any] = DEFAULTS | json.loads(self._text("settings.json"))
        self.state = State()
        self.faults: dict[str, Any] = {}

    def _text(self, name: str) -> str:
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return "{}"

    def _write(self, name: str, before: str, data: object) -> None:
        """Write a file of the folder as JSON if that changes it, whole or not at all."""
        text = json.dumps(data, default=vars, separators=(",", ":"))
        if text != before:
            part = self.folder / f".{name}.{os.getpid()}"
            part.write_text(text, encoding="utf-8")
            part.replace(self.folder / name)

    @contextmanager
    def locked(self) -> Iterator[State]:
        """Have the state and the faults to oneself; what was changed is written at the end."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before, told = self._text("state.json"), self._text("faults.json")
            self.state = restored(json.loads(before)) if before != "{}" else State()
            self.faults = json.loads(told)
            try:
                yield self.state
            finally:
                self._write("state.json", before, self.state)
                self._write("faults.json", told, self.faults)

    def fault(self, name: str) -> Any:
        """Return the value of a fault, ``None`` where it is not switched on."""
        return self.faults.get(name)

    def use(self, name: str) -> bool:
        """Tell whether a fault is on; one that is a number is on for so many uses."""
        value = self.faults.get(name)
        if value is None or value is False or value == 0:
            return False
        if value is not True and isinstance(value, int):
            self.faults[name] = value - 1
        return True

    def clock(self) -> float:
        """Return the cluster's time, in seconds since the epoch."""
        return time.time()

    def changed(self, task: Task) -> None:
        """Note that a task began or ended, so that the accounting can lag behind."""
        task.changed = self.state.calls.get("sacct", 0)
