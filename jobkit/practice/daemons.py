"""The daemons of a practice cluster: start them, and end only what is proved to be one of them.

The proof is in the pid file: process id, start time of the process, and the boot in which it started
(proc(5), field 22 of ``/proc/PID/stat``). A process id is used again, but not with the same start time. The
parent of a daemon is a guard (guard.py), below which everything stays that the daemon starts, whichever
process of it ends first; the guard has such a file too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.errors import JobkitError, RefusedError
from jobkit.core.shell import check, run

END_WITHIN_S = 20.0


@dataclass(frozen=True)
class Daemon:
    name: str  # names its pid file and its log
    argv: tuple[str, ...]  # the command
    folder: Path  # the folder of its cluster, with ``run/`` and ``log/``
    variables: Mapping[str, str]  # its environment, beyond what names the user

    @property
    def pid_file(self) -> Path:
        """The file with process id, start time and boot."""
        return self.folder / "run" / f"{self.name}.pid"

    @property
    def log(self) -> Path:
        return self.folder / "log" / f"{self.name}.out"

    def pid(self) -> int | None:
        """Return its process id if it runs; ``None`` too if another process has that id now."""
        return proved(self.pid_file)

    def start(self) -> None:
        if self.pid() is not None:
            return
        self.pid_file.unlink(missing_ok=True)
        usual = ("HOME", "LANG", "LOGNAME", "TZ", "USER")  # no more: it hands its environment to jobs
        kept = {name: os.environ[name] for name in usual if name in os.environ}
        program = str(Path(__file__).with_name("guard.py"))
        guard = (sys.executable, "-I", "-S", program, str(self.folder), self.name)
        words = ("setsid", "--fork", *guard, *self.argv)
        check(run(words, env={**kept, **self.variables}), f"{self.name} does not start")
        wait_for(self.pid_file.exists, f"{self.name} starts; its log is {self.log}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it if it runs, and return when it has ended; kill it if it takes too long."""
        for one in dict.fromkeys((number, signal.SIGKILL)):
            send(self.pid, one)
            with contextlib.suppress(JobkitError):
                wait_for(lambda: self.pid() is None, f"{self.name} ends", END_WITHIN_S)
                break
        self.pid_file.unlink(missing_ok=True)


def send(pid_of: Callable[[], int | None], number: signal.Signals) -> None:
    """Send a signal to a process that is proved, through a handle that no other process can get.

    The handle comes first: if the process ends and its id is used again, the proof fails
    (https://man7.org/linux/man-pages/man2/pidfd_open.2.html).
    """
    with contextlib.suppress(ProcessLookupError):
        if (pid := pid_of()) is not None:
            handle = os.pidfd_open(pid)
            try:
                if pid_of() == pid:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


def proved(pid_file: Path) -> int | None:
    """Return the process that a pid file names, if it is the one that wrote it and is no zombie."""
    try:
        pid, born, boot = pid_file.read_text(encoding="ascii").split()
        state = _state(int(pid))
    except (OSError, ValueError):
        return None
    this_boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    same = state[19] == born and boot == this_boot
    return int(pid) if same and state[0] != "Z" else None


def _state(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the third, the state, on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()


def guards(folder: Path, name: str = "") -> set[int]:
    """Return the guards of a cluster's daemons, or of one daemon: one lives as long as anything below it."""
    files = (folder / "run").glob(f"{name or '*'}.*.guard")
    return {pid for pid in map(proved, files) if pid is not None}


def started(folder: Path, name: str = "") -> set[int]:
    """Return the processes that daemons of a cluster, or one of them, have started; daemons included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state = _state(int(entry.name))
                if state[0] != "Z":
                    parents[int(entry.name)] = int(state[1])
    found = above = guards(folder, name)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found = found | more
    return found - above


def end_started(folder: Path, name: str = "") -> None:
    """Kill the daemons of a cluster, or one of them, with all that they have started and left behind.

    A list of processes can miss one that moves to the guard while the list is read. So the guards decide: a
    guard ends when the kernel says that it has no child any more.
    """

    def none_left() -> bool:
        with contextlib.ExitStack() as stack:
            handles = {}
            for pid in started(folder, name):
                with contextlib.suppress(ProcessLookupError):
                    handles[pid] = os.pidfd_open(pid)
                    stack.callback(os.close, handles[pid])
            for pid in handles.keys() & started(folder, name):  # others may have the id by now
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
        return not guards(folder, name)

    wait_for(none_left, f"the processes of {folder} end")


def wait_for(condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise RefusedError(
                f"not within {within_s:g} s: {what}",
                hint="jobkit practice reset, with the same --dir, starts again with an empty folder",
            )
        time.sleep(0.05)
