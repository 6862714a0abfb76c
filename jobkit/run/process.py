"""What the worker knows of its own process: variables, cgroup, signals. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

RECORDED_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "HOSTNAME",  # the scheduler's name for the node, which may differ from the node's own
)
"""Environment variables that change what is measured, or name the place where it was measured."""
MORE_VARIABLES = "JOBKIT_RECORD"
"""In this variable the job script names more of them: those of its scheduler."""

BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that child processes never get: a scheduler may send them to all processes of a job."""

PR_SET_PDEATHSIG = 1
"""Of ``<sys/prctl.h>``."""


def end_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends (prctl(2)); return whether that still lives."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    return os.getppid() == parent


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block `BLOCKED` for the block, so also in the processes that start in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def variables() -> dict[str, str]:
    """Return the variables of `RECORDED_VARIABLES`, and those that `MORE_VARIABLES` names, that are set."""
    names = (*RECORDED_VARIABLES, *os.environ.get(MORE_VARIABLES, "").split())
    return {name: os.environ[name] for name in names if name in os.environ}


def cgroup_peak() -> int | None:
    """Return ``memory.peak`` of this process's cgroup v2 in bytes, page cache included.

    ``None`` with cgroup v1, and for the root group, which has no such file (kernel
    documentation, cgroup-v2).
    """
    with contextlib.suppress(OSError, ValueError):
        if group := _cgroup():
            return int((group / "memory.peak").read_text(encoding="ascii"))
    return None


def oom_kills() -> int | None:
    """Return how many processes of this process's cgroup v2 the kernel has killed for lack of memory.

    The nearest group that counts them is read: groups above it also hold other jobs. ``None`` as for
    `cgroup_peak`.
    """
    with contextlib.suppress(OSError, ValueError, KeyError):
        group = _cgroup()
        for folder in (group, *group.parents) if group else ():
            events = folder / "memory.events"
            if events.is_file():
                counts = dict(line.split() for line in events.read_text(encoding="ascii").splitlines())
                return int(counts["oom_kill"])
    return None


def _cgroup() -> Path | None:
    """Return the folder of this process's cgroup v2, if it has one."""
    lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    return None if group is None else Path("/sys/fs/cgroup") / group
