"""What the figures were taken on, in neutral words."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> dict[str, object]:
    """Return processor, cores, memory, load and Python: no names of hosts or people."""
    return {
        "processor": _value("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int((_value("/proc/meminfo", "MemTotal") or "0").split()[0]) / 2**20),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.system(),
    }


def _value(file: str, key: str) -> str | None:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)
