"""Processes of a try as /proc shows them, how they end, and the worker's own. Standard library only."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The variable of PyTorch's allocator: its name today, and in torch before 2.9."""
MORE_VARIABLES = "JOBKIT_RECORD"
"""The variable in which the job script names further variables to record: those of its scheduler."""
LOADED_VARIABLE, MODULES_VARIABLE = "LOADEDMODULES", "JOBKIT_MODULES"
"""What Modules and Lmod have loaded, and what the spec loads, set by the job script: names with colons."""
GPU_COUNT_VARIABLE = "JOBKIT_GPUS"
"""Set by the job script to the number of GPUs that the job requests."""
GPUS_BY_VARIABLE, CHOOSE = "JOBKIT_DEVICES", "choose"
"""Set by the job script if the scheduler does not name the GPUs of a job: `CHOOSE` if the worker chooses."""
GRACE_VARIABLE = "JOBKIT_GRACE"
"""Variable with the seconds that the worker has after a signal; a command of the user's has half of them."""

QUARANTINE_VARIABLE = "JOBKIT_QUARANTINE"
"""Set by the job script of a shard: which share of a corpus, or how many paragraphs, may be in quarantine."""
MEMORY_VARIABLE = "JOBKIT_MEMORY"
"""Set by the job script to the bytes of memory that the job requests."""

BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that child processes never get: a scheduler may send them to all processes of a job."""

DRIVER_FILES = ("/dev/nvidia", "/proc/driver/nvidia")
"""How the file names of NVIDIA's driver begin."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""From ``<sys/prctl.h>``."""


# -- processes


def end_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends (prctl(2)); return whether the parent lives."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def adopt_orphans() -> None:
    """Have processes whose parent ends, below this one, become its children (prctl(2))."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    import ctypes  # what a client of a parent does without

    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value))


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> list[tuple[int, int, int]]:
    """Wait for the children that have ended; return the id, the exit status and the peak of each in bytes."""
    ended = []
    with contextlib.suppress(ChildProcessError):
        while (answer := os.wait4(-1, os.WNOHANG))[0]:
            pid, status, usage = answer
            ended.append((pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024))
    return ended


def end_descendants(kill_s: float, grace_s: float = 0.0) -> int:
    """End all descendants of this process, after ``grace_s`` with KILL; return how many there were.

    ``kill_s``: the time in which a killed process must end.
    """
    reap()
    number, began_s, asked = len(process_tree(os.getpid())) - 1, time.monotonic(), False
    while left := process_tree(os.getpid())[1:]:
        passed_s = time.monotonic() - began_s
        if passed_s >= grace_s + kill_s:
            break
        if passed_s >= grace_s:
            kill(left)
        elif not asked:
            asked = True
            kill(left, signal.SIGTERM)
        time.sleep(0.01)
        reap()
    return number


@dataclass(slots=True)
class Forked:
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """``None`` while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline_s is not None and timeout is not None and time.monotonic() >= deadline_s:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.01)
        return status


ChildProcess = subprocess.Popen[bytes] | Forked


def ends(child: ChildProcess, within_s: float) -> bool:
    """Wait for a child; return whether it ends within a time."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(within_s)
    return child.poll() is not None


def fork(work: Callable[[], object]) -> Forked:
    """Start a child that does its work and ends, whatever happens: nothing else goes on in it."""
    sys.stdout.flush()  # else the child would write it too
    if pid := os.fork():
        return Forked(pid)
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(status)


def keep(work: Callable[[], object], kill_s: float) -> NoReturn:
    """Do work in a child, and end as it does; kill what it leaves behind, such as the engine of an LLM.

    ``kill_s``: as for `end_descendants`.
    """
    adopt_orphans()
    here = os.getpid()
    status: int | None = None
    child = fork(lambda: end_with(here) and work())
    while status is None:
        pid, ended = os.wait()
        status = os.waitstatus_to_exitcode(ended) if pid == child.pid else None
    end_descendants(kill_s)
    if status < 0:
        kill([here], -status)
    os._exit(status)


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on (proc(5), stat); no field if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    state, *words = stat.rpartition(")")[2].split()
    return [] if state == "Z" else [state, *words]


def started_at(pid: int) -> int | None:
    """Return a process's start in clock ticks since the boot; ``None`` if it has ended."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def stack_start(pid: int) -> int | None:
    """Return where a process's stack is, which a fork shares and exec changes; ``None`` if gone."""
    stat = _stat(pid)
    return int(stat[25]) or None if stat else None


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; ``None`` if it has exited (proc(5), statm)."""
    try:
        # Not through Path, and unbuffered: this runs a hundred times a second next to the work.
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as stream:  # noqa: PTH123 - see above
            return int(stream.read(256).split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


def anonymous_bytes(pid: int) -> int:
    """Return the resident memory of a process that is of no file; 0 if it has exited (proc(5), statm)."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES


def pss_bytes(pid: int) -> int | None:
    """Return the proportional resident memory of a process: of a page shared by n processes one n-th.

    ``None`` if it has exited, or if the kernel has no ``smaps_rollup`` (before Linux 4.14; proc(5)).
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants (proc(5), task/tid/children)."""
    tree = [pid]
    for process in tree:  # grows in the loop
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                tree += [int(child) for child in path.read_text(encoding="ascii").split()]
    return tree


# -- this process


def age_s() -> float | None:
    """Return the seconds since this process started, or was forked, to a clock tick of 10 ms."""
    ticks = started_at(os.getpid())
    if ticks is None:
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def cpu_s() -> float:
    """Return the CPU seconds of this process, of its children that have ended, and of its descendants.

    The last are by getrusage(2) of the others, by clock ticks of 10 ms (proc(5), stat).
    """
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ended_s = sum(usage.ru_utime + usage.ru_stime for usage in used)
    ticks = (sum(map(int, _stat(pid)[11:15])) for pid in process_tree(os.getpid())[1:])
    return ended_s + sum(ticks) / os.sysconf("SC_CLK_TCK")


def release_output() -> None:
    """Let the standard files go, with those who wait for their end."""
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def take_output(pid: int) -> None:
    """Write to the standard output and error of another process of this user from now on."""
    for number in (1, 2):
        with contextlib.suppress(OSError):  # a socket cannot be opened again
            there = os.open(f"/proc/{pid}/fd/{number}", os.O_WRONLY | os.O_APPEND)
            os.dup2(there, number)
            os.close(there)


def close_files(*kept: int) -> None:
    """Close all files but the standard ones, ``kept`` and the driver's; standard input becomes empty.

    torch opens NVML and never closes it, and after a fork the library still relies on the files that it has
    open: without them a worker finds no driver (seen on an H200).
    """
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names only
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the list has the file by which it was read
                if not str(Path(f"/proc/self/fd/{name}").readlink()).startswith(DRIVER_FILES):
                    os.close(int(name))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def report(what: str) -> None:
    """Write a line to the log, which may be on a full disk."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"jobkit: {what}\n")


def replace_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


@contextlib.contextmanager
def ends_of_children() -> Iterator[socket.socket]:
    """Yield a socket that is ready whenever a child process has ended (signal.set_wakeup_fd)."""
    ready, wakes = socket.socketpair()
    with ready, wakes:
        os.set_blocking(wakes.fileno(), False)
        before = signal.set_wakeup_fd(wakes.fileno())
        handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            yield ready
        finally:
            signal.signal(signal.SIGCHLD, handler)
            signal.set_wakeup_fd(before)


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def variables() -> dict[str, str]:
    """Return the variables that change what is measured, or name the place where it was measured."""
    names = (
        *("CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING", *ALLOCATOR_VARIABLES, "NVIDIA_TF32_OVERRIDE"),
        *("OMP_NUM_THREADS", "OMP_WAIT_POLICY"),
        "HOSTNAME",  # the scheduler's name for the node, which may differ from the node's own
        *os.environ.get(MORE_VARIABLES, "").split(),
    )
    return {name: os.environ[name] for name in names if name in os.environ}


def unseen_modules() -> Iterator[str]:
    """Yield a line for each module of the spec that is not loaded by this name."""
    loaded, wanted = (os.environ.get(name, "") for name in (LOADED_VARIABLE, MODULES_VARIABLE))
    for name in filter(None, wanted.split(":")):
        if not any(one == name or one.startswith(f"{name}/") for one in loaded.split(":")):
            yield f"module {name} is not in {LOADED_VARIABLE} ({loaded}): loaded by another name, or not"


def cgroup_peak() -> int | None:
    """Return ``memory.peak`` of this process's cgroup v2 in bytes, page cache included.

    ``None`` with cgroup v1, and for the root group, which has no such file (kernel documentation, cgroup-v2).
    """
    with contextlib.suppress(OSError, ValueError):
        if group := _cgroup():
            return int((group / "memory.peak").read_text(encoding="ascii"))
    return None


def oom_kills() -> int | None:
    """Return how many processes of this cgroup the kernel killed for lack of memory; ``None`` if unknown.

    The nearest group that counts them is read: groups above it also hold other jobs.
    """
    with contextlib.suppress(OSError, ValueError, KeyError):
        group = _cgroup()
        for folder in (group, *group.parents) if group else ():
            for name in ("memory.events", "memory.oom_control"):  # of cgroup v2 and v1
                if (events := folder / name).is_file():
                    counts = dict(line.split() for line in events.read_text(encoding="ascii").splitlines())
                    return int(counts["oom_kill"])
    return None


def _cgroup() -> Path | None:
    """Return the folder of the group that counts memory, of cgroup v1 or v2: cgroups(7)."""
    lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    groups = {kind: group for _, kind, group in (line.split(":", 2) for line in lines)}
    kind = "memory" if "memory" in groups else ""
    return Path(f"/sys/fs/cgroup/{kind}/{groups[kind]}") if kind in groups else None
