"""An NVML with one card, ``FAKE_CARD``, for jobs on machines that have none: first on a job's PYTHONPATH."""

from __future__ import annotations

import os
from types import SimpleNamespace

GIB = 2**30
NVML_FEATURE_ENABLED = 1


class NVMLError(Exception):
    """As pynvml's."""


def _card() -> str:
    name = os.environ.get("FAKE_CARD")
    if not name:
        raise NVMLError
    return name


def nvmlInit() -> None:  # noqa: N802 - NVML's names, here and below
    """Begin."""
    _card()


def nvmlShutdown() -> None:  # noqa: N802
    """End."""


def nvmlDeviceGetCount() -> int:  # noqa: N802
    """Return one."""
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> str:  # noqa: N802
    """Return the card."""
    return nvmlDeviceGetHandleByUUID(f"GPU-{index}")


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:  # noqa: N802
    """Return the card."""
    if uuid != "GPU-0":
        raise NVMLError
    return _card()


def nvmlDeviceGetUUID(handle: str) -> str:  # noqa: N802
    """Return its UUID."""
    del handle
    return "GPU-0"


def nvmlDeviceGetName(handle: str) -> str:  # noqa: N802
    """Return its name."""
    return handle


def nvmlDeviceGetMemoryInfo(handle: str, version: object = None) -> SimpleNamespace:  # noqa: N802
    """Return 16 GiB, empty."""
    del handle, version
    return SimpleNamespace(total=16 * GIB, used=GIB // 2, free=15 * GIB)


def nvmlDeviceGetComputeRunningProcesses(handle: str) -> list[SimpleNamespace]:  # noqa: N802
    """Return nobody."""
    del handle
    return []


def nvmlDeviceGetUtilizationRates(handle: str) -> SimpleNamespace:  # noqa: N802
    """Return none."""
    raise NVMLError(handle)


def nvmlDeviceGetPowerUsage(handle: str) -> int:  # noqa: N802
    """Return none."""
    raise NVMLError(handle)


def nvmlDeviceGetAccountingMode(handle: str) -> int:  # noqa: N802
    """Return that it is off."""
    del handle
    return 0


def nvmlSystemGetCudaDriverVersion() -> int:  # noqa: N802
    """Return 12.4."""
    return 12040


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    """Return a driver's."""
    return "550.1"
