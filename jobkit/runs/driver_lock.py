"""The lock of the process that runs the points of a run here, and whether that process lives.

Process ids are reused: in a container jobkit is process 1 each time. So a driver has a job id, and holds a
lock for as long as it lives; on a file system without locks, its start time decides.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from jobkit.core import shell
from jobkit.core.errors import BusyError, JobkitError, UnknownError, name_file_in_errors
from jobkit.core.files import filesystem_type, likely_shared, open_regular, read_text, try_lock
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import to_json
from jobkit.core.layout import DRIVER_LOCK
from jobkit.core.terminal import shell_path
from jobkit.schedulers.types import JobId

PATIENCE_S, POLL_S = 2.0, 0.05  # a process that checks the lock holds it for a moment


class Life(StrEnum):
    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@keyed
class Driver:
    """A process that runs points here: what the lock file holds."""

    job_id: str  # its process id and a random word: no other driver ever has it
    host: str
    pid: int
    start: str  # of the process; empty if unknown
    boot: str  # id of the boot in which it started; empty if unknown
    space: str  # its space of process ids: a container has its own
    locked: bool  # whether its file system has locks

    @property
    def here(self) -> bool:
        """Whether it was started on this machine, since its last boot."""
        return self.boot == _boot() if self.boot and _boot() else self.host == platform.node()

    @property
    def reachable(self) -> bool:
        """Whether its process id means the same process here: not so outside of its container."""
        return self.here and self.space == _space()


@contextmanager
def driving(run_dir: Path) -> Iterator[str]:
    """Hold the driver's lock of a run for the time of the block; yield the job id."""
    path = run_dir / DRIVER_LOCK
    handle = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        with name_file_in_errors(path):
            deadline = time.monotonic() + PATIENCE_S
            while (locked := try_lock(handle)) is False and time.monotonic() < deadline:
                time.sleep(POLL_S)
        before = last_driver(run_dir)
        alive = before is not None and before.job_id != "" and _by_process(before) is Life.ALIVE
        if locked is False or (locked is None and alive):
            who = f"process {before.pid} on {before.host}" if before else "another process"
            follow = f"jobkit status {shell_path(run_dir)} --watch"
            raise BusyError(
                f"{who} works on this run, and locks {run_dir / DRIVER_LOCK}",
                hint=f"that process does the work; {follow} follows it to its end, and names what is left",
            )
        pid = os.getpid()
        me = Driver(
            job_id=f"{pid}-{secrets.token_hex(3)}",
            host=platform.node(),
            pid=pid,
            start=_start_of(pid) or "",
            boot=_boot(),
            space=_space(),
            locked=bool(locked),
        )
        with name_file_in_errors(path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, to_json(me).encode(), 0)
            os.fsync(handle)
        yield me.job_id
    finally:
        os.close(handle)


def last_driver(run_dir: Path) -> Driver | None:
    """Return the last driver of a run; ``None`` if there was none, or its file is damaged."""
    with suppress(OSError, ValueError, TypeError):
        return Driver(**json.loads(read_text(run_dir / DRIVER_LOCK)))
    return None


def is_held(run_dir: Path) -> bool | None:
    """Return whether a driver holds the lock of a run; ``None`` if the file system has no locks."""
    try:
        handle = open_regular(run_dir / DRIVER_LOCK)
        try:
            free = try_lock(handle, shared=True)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return None if free is None else not free


def life(run_dir: Path, job: JobId) -> Life:
    """Return what is known of a driver; nothing if its lock file is missing or damaged, and free."""
    known, held = last_driver(run_dir), is_held(run_dir)
    if held and (known is None or known.job_id == job.id):
        return Life.ALIVE
    if known is not None and known.job_id != job.id:
        return Life.DEAD  # one at a time: another has driven the run since
    if known is None:
        return Life.UNKNOWN
    if known.locked and held is False:
        sees_all = known.here or known.host == platform.node() or _own_disk(run_dir)
        return Life.DEAD if sees_all else Life.UNKNOWN
    return _by_process(known)


def _own_disk(run_dir: Path) -> bool:
    """Return whether a folder is on a disk of this machine: then no other machine can hold its lock."""
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        return likely_shared(filesystem_type(str(run_dir.resolve()), mounts)) is False
    return False


def _by_process(known: Driver) -> Life:
    """Return what is known of a driver by the process table, without a lock."""
    if known.reachable:
        start = _start_of(known.pid)
        return Life.ALIVE if start is not None and start in {known.start, _HIDDEN} else Life.DEAD
    rebooted = not known.here and known.host == platform.node()
    return Life.DEAD if rebooted else Life.UNKNOWN


_HIDDEN = "hidden"


def _start_of(pid: int) -> str | None:
    """Return when a process started; ``None`` if there is none, or it is a zombie.

    Without ``/proc``, ps(1) reports it; `_HIDDEN` if this user may not see it.
    """
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        words = text.rpartition(")")[2].split()
        # the start time, in ticks since the boot (proc(5))
        return None if words[0] == "Z" else words[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return _HIDDEN
    return shell.run(("ps", "-o", "lstart=", "-p", str(pid))).stdout.strip() or _HIDDEN


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _space() -> str:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def elsewhere(run_dir: Path, machine: str) -> JobkitError:
    run = shell_path(run_dir)
    return UnknownError(
        f"this run was started on {machine}; jobkit cannot see from here whether it still runs",
        hint=f"run the same command on {machine}; if that machine or container is gone for good: "
        f"jobkit resume {run} --machine-gone {machine}",
    )
