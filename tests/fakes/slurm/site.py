"""The cluster that the fake plays: the practice cluster."""

from __future__ import annotations

PARTITIONS = ("cpu", "gpu", "low", "high")
"""The first is the default one."""
NODES = ("n1", "n2")
CPUS, MEMORY_MB, GPUS, GPU_TYPE = 8, 8000, 2, "v100"
"""Of each node."""
MAX_TIME_MIN = 60
"""Of each partition."""
ACCOUNTS, QOS = ("root",), ("normal",)
