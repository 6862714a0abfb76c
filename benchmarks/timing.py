"""Run whole processes and say how long they took; medians, for a shared machine is never quiet."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

JOBKIT = (sys.executable, "-c", "from jobkit.cli import main; main()")
"""What the script ``jobkit`` in the same environment does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One process, once.

    Attributes
    ----------
    wall_s
        From its start to its end.
    cpu_s
        User and system, its children included.
    maxrss_bytes
        Its largest resident memory.
    """

    wall_s: float
    cpu_s: float
    maxrss_bytes: int
    stdout: str


def once(argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Timing:
    """Run a command to its end.

    Raises
    ------
    RuntimeError
        Where it ends with another status than 0: its time would mean nothing.
    """
    start = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - our own commands, an argv list
        argv, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        stdout = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{argv}: status {process.returncode}")
    cpu_s = used.ru_utime + used.ru_stime
    return Timing(wall_s=wall_s, cpu_s=cpu_s, maxrss_bytes=used.ru_maxrss * 1024, stdout=stdout)


def middle(timings: Sequence[Timing]) -> dict[str, float]:
    """Return the medians, and the least and largest wall time."""
    walls = [timing.wall_s for timing in timings]
    return {
        "runs": len(timings),
        "wall_s": median(walls),
        "wall_least_s": min(walls),
        "wall_largest_s": max(walls),
        "cpu_s": median(timing.cpu_s for timing in timings),
        "maxrss_bytes": max(timing.maxrss_bytes for timing in timings),
    }
