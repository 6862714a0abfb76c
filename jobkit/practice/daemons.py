"""The daemons of a practice cluster: start them, and end only what is proved to be one of them.

A daemon is proved by its pid file: the process id, the time at which that process started, and the boot of
this machine in which it did (proc(5), field 22 of ``/proc/PID/stat``). A process id is used again, but not
with the same start time. What daemons start themselves inherits the variable `MARK` from them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.shell import check, run

MARK = "JOBKIT_PRACTICE_DAEMON"
"""A variable in the environment of every daemon: the folder of its cluster, a colon, and its name."""
KEPT = "HOME", "LANG", "LOGNAME", "TZ", "USER"
"""What else a daemon gets of this environment: it would hand the rest to jobs."""
END_WITHIN_S = 20.0
LOOK_EVERY_S = 0.05
BOOT = Path("/proc/sys/kernel/random/boot_id")
_START = r"""
pidfile=$1 log=$2; shift 2
cd "${log%/*}" || exit
exec </dev/null >>"$log" 2>&1
read -r boot </proc/sys/kernel/random/boot_id
read -r stat </proc/$$/stat; stat=${stat##*) }
set -f; i=0; for field in $stat; do i=$((i + 1)); [ $i -ne 20 ] || born=$field; done
echo "$$ $born $boot" >"$pidfile.part"; mv "$pidfile.part" "$pidfile"
exec "$@"
"""
"""Writes the pid file itself and becomes the daemon: nothing can come in between."""


@dataclass(frozen=True)
class Daemon:
    """A daemon that stays in the foreground.

    Attributes
    ----------
    name
        Names its pid file and its log.
    argv
        The command.
    folder
        The folder of its cluster, with ``run/`` and ``log/``.
    variables
        Its environment, beyond what names the user.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path
    variables: Mapping[str, str]

    @property
    def pid_file(self) -> Path:
        """The file with process id, start time and boot."""
        return self.folder / "run" / f"{self.name}.pid"

    @property
    def log(self) -> Path:
        """The file that its two streams are appended to."""
        return self.folder / "log" / f"{self.name}.out"

    def pid(self) -> int | None:
        """Return its process id if it runs; ``None`` too if another process has that id now."""
        return proved(self.pid_file)

    def start(self) -> None:
        """Start it unless it runs.

        Raises
        ------
        JobkitError
            If it cannot be started.
        """
        if self.pid() is not None:
            return
        self.pid_file.unlink(missing_ok=True)
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment = {**kept, **self.variables, MARK: f"{self.folder}:{self.name}"}
        words = ("setsid", "--fork", "sh", "-c", _START, "sh", str(self.pid_file), str(self.log), *self.argv)
        check(run(words, env=environment), f"{self.name} does not start")
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
    same = state[19] == born and boot == BOOT.read_text(encoding="ascii").strip()
    return int(pid) if same and state[0] != "Z" else None


def _state(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the third, the state, on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()


def started(folder: Path, name: str = "") -> set[int]:
    """Return the processes that daemons of a cluster, or one of them, have started; daemons included.

    These are the processes with the mark, Slurm's job steps, and all their descendants: Slurm gives a job
    the environment of its submission, and not the mark.
    """
    parents = dict(_processes())
    found = {pid for pid in parents if _is_marked(pid, folder, name) or _is_step(pid, folder, name)}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _processes() -> Iterator[tuple[int, int]]:
    """Yield every process that is no zombie, with its parent."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state = _state(int(entry.name))
                if state[0] != "Z":
                    yield int(entry.name), int(state[1])


def _is_marked(pid: int, folder: Path, name: str) -> bool:
    mark = f"{MARK}={folder}:{name}".encode()
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return mark in words if name else any(word.startswith(mark) for word in words)
    return False


def _is_step(pid: int, folder: Path, name: str) -> bool:
    """Return whether a process is a job step of slurmd: it has no mark, and writes to slurmd's log."""
    process = Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        if (process / "exe").readlink().name.startswith("slurmstepd"):
            files = {entry.readlink() for entry in (process / "fd").iterdir()}
            return any(file.parent == folder / "log" and file.stem.startswith(name) for file in files)
    return False


def _send_to(handle: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, number)


def end_started(folder: Path, name: str = "") -> None:
    """Kill what daemons of a cluster, or one of them, have started and left behind.

    All are stopped before the first is killed: once a job step is gone, its children are not found.
    """

    def none_left() -> bool:
        with contextlib.ExitStack() as stack:
            handles: dict[int, int] = {}
            while new := started(folder, name) - handles.keys():
                for pid in new:
                    with contextlib.suppress(ProcessLookupError):
                        handles[pid] = os.pidfd_open(pid)
                        stack.callback(os.close, handles[pid])
                gone = handles.keys() - started(folder, name)  # their ids may be those of other processes
                handles = {pid: handle for pid, handle in handles.items() if pid not in gone}
                for handle in handles.values():
                    _send_to(handle, signal.SIGSTOP)
            for handle in handles.values():
                _send_to(handle, signal.SIGKILL)
        return not started(folder, name)

    wait_for(none_left, f"the processes of {folder} end")


def wait_for(condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    """Ask until it is true.

    Raises
    ------
    JobkitError
        If it is not true in time.
    """
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise JobkitError(
                f"not within {within_s:g} s: {what}",
                hint="jobkit practice reset starts again with an empty folder",
                exit_code=ExitCode.REFUSED,
            )
        time.sleep(LOOK_EVERY_S)
