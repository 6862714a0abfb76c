"""What the worker's process and node look like. Standard library only."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from jobkit.run.measure import sampler

RECORDED = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "HOSTNAME",  # the scheduler's name for the node, which need not be the node's own
)
"""Environment variables that change what is measured, or where."""
RECORDED_TOO = "JOBKIT_RECORD"
"""The variable by which a job script names more of them, those of its scheduler."""


def own_pid() -> int:
    """Return this process's id, as its own namespace numbers it."""
    return os.getpid()


def visible() -> str | None:
    """Return CUDA_VISIBLE_DEVICES."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def variables() -> dict[str, str]:
    """Return the variables of `RECORDED`, and of `RECORDED_TOO`, that are set."""
    names = (*RECORDED, *os.environ.get(RECORDED_TOO, "").split())
    return {name: os.environ[name] for name in names if name in os.environ}


def rss_now() -> int | None:
    """Return this process's resident memory in bytes."""
    return sampler.rss_bytes(os.getpid())


def cgroup_peak() -> int | None:
    """Return ``memory.peak`` of this process's cgroup v2 in bytes, page cache included.

    ``None`` with cgroup v1, and for the root group, which has no such file (kernel
    documentation, cgroup-v2).
    """
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
        group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
        if group is not None:
            return int((Path("/sys/fs/cgroup") / group / "memory.peak").read_text(encoding="ascii"))
    return None
