"""What the worker knows of its own process: environment variables, cgroup. Standard library only."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RECORDED_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "HOSTNAME",  # the scheduler's name for the node, which may differ from the node's own
)
"""Environment variables that change what is measured, or name the place where it was measured."""
MORE_VARIABLES = "JOBKIT_RECORD"
"""In this variable the job script names more of them: those of its scheduler."""


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
