"""An NVML for jobs on machines that have no GPU: first on a job's PYTHONPATH.

``FAKE_CARD`` is the name of its GPUs, ``FAKE_CARDS`` their number (1), ``FAKE_WATTS`` what each of them draws
(200); with ``FAKE_OLD`` they have no energy counter. In the folder ``FAKE_HELD`` a process
may tell what it holds of a GPU, in a file ``UUID.PID`` (see `tests/workloads/card`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

GIB = 2**30
NVML_FEATURE_ENABLED = 1
NVML_DEVICE_MIG_ENABLE = 1
NVML_COMPUTEMODE_PROHIBITED = 2


class NVMLError(Exception):
    """As pynvml's."""


def _card() -> str:
    name = os.environ.get("FAKE_CARD")
    if not name:
        raise NVMLError
    return name


def _held(uuid: str) -> dict[int, int]:
    """Return the processes that live and hold memory of a GPU, and how much."""
    folder = os.environ.get("FAKE_HELD")
    held = {}
    for path in Path(folder).glob(f"{uuid}.*") if folder else ():
        pid = path.suffix.removeprefix(".")
        if pid.isdigit() and Path("/proc", pid).exists():
            held[int(pid)] = int(path.read_text(encoding="ascii"))
    return held


def nvmlInit() -> None:  # noqa: N802 - NVML's names, here and below
    """Begin."""
    _card()


def nvmlShutdown() -> None:  # noqa: N802
    """End."""


def nvmlDeviceGetCount() -> int:  # noqa: N802
    """Return how many."""
    return int(os.environ.get("FAKE_CARDS", "1"))


def nvmlDeviceGetHandleByIndex(index: int) -> str:  # noqa: N802
    """Return the card."""
    return nvmlDeviceGetHandleByUUID(f"GPU-{index}")


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:  # noqa: N802
    """Return the card."""
    _card()
    if uuid not in {f"GPU-{index}" for index in range(nvmlDeviceGetCount())}:
        raise NVMLError
    return uuid


def nvmlDeviceGetUUID(handle: str) -> str:  # noqa: N802
    """Return its UUID."""
    return handle


def nvmlDeviceGetName(handle: str) -> str:  # noqa: N802
    """Return its name."""
    del handle
    return _card()


def nvmlDeviceGetMemoryInfo(handle: str, version: object = None) -> SimpleNamespace:  # noqa: N802
    """Return 16 GiB, empty but for what processes hold."""
    del version
    used = GIB // 2 + sum(_held(handle).values())
    return SimpleNamespace(total=16 * GIB, used=used, free=16 * GIB - used)


def nvmlDeviceGetComputeRunningProcesses(handle: str) -> list[SimpleNamespace]:  # noqa: N802
    """Return those that hold memory."""
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in _held(handle).items()]


def nvmlDeviceGetUtilizationRates(handle: str) -> SimpleNamespace:  # noqa: N802
    """Return none."""
    raise NVMLError(handle)


def nvmlDeviceGetTotalEnergyConsumption(handle: str) -> int:  # noqa: N802
    """Return the energy in mJ since the machine was started."""
    if "FAKE_OLD" in os.environ:
        raise NVMLError(handle)
    return int(1000 * int(os.environ.get("FAKE_WATTS", "200")) * time.monotonic())


def nvmlDeviceGetAccountingMode(handle: str) -> int:  # noqa: N802
    """Return that it is off."""
    del handle
    return 0


def nvmlDeviceGetMigMode(handle: str) -> list[int]:  # noqa: N802
    """Return the mode now and after a reset; ``FAKE_MIG`` names the cards in MIG mode."""
    on = int(handle in os.environ.get("FAKE_MIG", "").split())
    return [on, on]


def nvmlDeviceGetComputeMode(handle: str) -> int:  # noqa: N802
    """Return the mode; ``FAKE_PROHIBITED`` names the cards that allow no process."""
    return NVML_COMPUTEMODE_PROHIBITED * (handle in os.environ.get("FAKE_PROHIBITED", "").split())


def nvmlSystemGetCudaDriverVersion() -> int:  # noqa: N802
    """Return 12.4."""
    return 12040


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    """Return a driver's."""
    return "550.1"
