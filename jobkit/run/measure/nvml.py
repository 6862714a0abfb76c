"""Ask NVML about a card, by UUID. Standard library and pynvml.

NVML's index is not CUDA's: CUDA orders devices by speed unless told otherwise and sees only
those in CUDA_VISIBLE_DEVICES, so a card is known here by its UUID alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pynvml

from jobkit.core.measurements import Gpu
from jobkit.run.failure import NO_DRIVER, NO_GPU_ASSIGNED, NO_GPU_REQUESTED


@contextlib.contextmanager
def nvml() -> Iterator[bool]:
    """Open NVML for a while; yields whether there is one on this machine."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


@dataclass(frozen=True, slots=True)
class GpuHandle:
    """An open NVML handle; every question answers ``None`` where the card does not tell."""

    handle: Any
    uuid: str

    def used_bytes(self) -> tuple[int | None, str | None]:
        """Return the device's used memory and the call that told it, ``v2`` or ``v1``.

        v1 counts the driver's reserve as used since driver 510 (0.6 GiB on an idle H200), so v2
        is asked first.
        """
        for version, name in ((getattr(pynvml, "nvmlMemory_v2", None), "v2"), (None, "v1")):
            with contextlib.suppress(pynvml.NVMLError, TypeError):
                info = (
                    pynvml.nvmlDeviceGetMemoryInfo(self.handle, version=version)
                    if version
                    else pynvml.nvmlDeviceGetMemoryInfo(self.handle)
                )
                return int(info.used), name
        return None, None

    def total_bytes(self) -> int | None:
        """Return what the card, or the MIG instance, holds."""
        with contextlib.suppress(pynvml.NVMLError):
            return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).total)
        return None

    def processes(self) -> dict[int, int | None] | None:
        """Return compute process id to its memory in bytes, as NVML numbers processes.

        Inside a container these may be the host's ids, and the memory may read 0: a 0 is no
        measurement and becomes ``None``.
        """
        try:
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        except pynvml.NVMLError:
            return None
        return {int(one.pid): int(one.usedGpuMemory) if one.usedGpuMemory else None for one in running}

    def utilisation_percent(self) -> float | None:
        """Return the share of the last sample period in which a kernel ran."""
        with contextlib.suppress(pynvml.NVMLError):
            return float(pynvml.nvmlDeviceGetUtilizationRates(self.handle).gpu)
        return None

    def power_w(self) -> float | None:
        """Return the power draw of the whole card."""
        with contextlib.suppress(pynvml.NVMLError):
            return float(pynvml.nvmlDeviceGetPowerUsage(self.handle)) / 1000
        return None

    def accounting(self) -> bool | None:
        """Return whether the driver keeps account of processes that have ended.

        Only root can switch it (nvidia-smi(1), ``-am``); a MIG instance has none.
        """
        with contextlib.suppress(pynvml.NVMLError):
            return bool(pynvml.nvmlDeviceGetAccountingMode(self.handle) == pynvml.NVML_FEATURE_ENABLED)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """A card as it is now; ``None`` where it does not tell.

    Attributes
    ----------
    used_bytes
        Of the device, by whomever.
    processes
        How many compute on it.
    accounting
        See `Card.accounting`.
    """

    name: str
    uuid: str
    driver: str
    total_bytes: int | None
    used_bytes: int | None
    processes: int | None
    accounting: bool | None


def list_gpus() -> tuple[GpuState, ...]:
    """Return every card that NVML lists; none where there is no NVML."""
    with nvml() as there:
        if not there:
            return ()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        found = [GpuHandle(handle, str(pynvml.nvmlDeviceGetUUID(handle))) for handle in handles]
        return tuple(
            GpuState(
                name=str(pynvml.nvmlDeviceGetName(card.handle)),
                uuid=card.uuid,
                driver=str(pynvml.nvmlSystemGetDriverVersion()),
                total_bytes=card.total_bytes(),
                used_bytes=card.used_bytes()[0],
                processes=None if (running := card.processes()) is None else len(running),
                accounting=card.accounting(),
            )
            for card in found
        )


GPU_COUNT_VARIABLE = "JOBKIT_GPUS"
"""How many GPUs the job asks for, as its script says."""


def missing_gpu_reason() -> str:
    """Return why there is no card to work on, as far as NVML knows; empty if one is there."""
    if os.environ.get(GPU_COUNT_VARIABLE) == "0":
        return f"{NO_GPU_REQUESTED} (resources.gpus: 0)"
    with nvml() as there:
        if not there:
            return f"{NO_DRIVER} on this node"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        given = pynvml.nvmlDeviceGetCount() and (visible is None or visible.split(",")[0].strip())
    return "" if given else f"{NO_GPU_ASSIGNED} (CUDA_VISIBLE_DEVICES={visible!r})"


def driver_version() -> str:
    """Return the version of the driver; NVML must be there."""
    with nvml():
        return str(pynvml.nvmlSystemGetDriverVersion())


def open_gpu(uuid: str) -> GpuHandle | None:
    """Return the card or MIG instance of this UUID; NVML must be open."""
    try:
        return GpuHandle(pynvml.nvmlDeviceGetHandleByUUID(uuid), uuid)
    except pynvml.NVMLError:
        return None


def idle_bytes() -> dict[str, int | None]:
    """Return UUID to used memory of every card that NVML lists."""
    with nvml() as there:
        if not there:
            return {}
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        cards = [GpuHandle(handle, str(pynvml.nvmlDeviceGetUUID(handle))) for handle in handles]
        return {card.uuid: card.used_bytes()[0] for card in cards}


def read_gpu(uuid: str, own_pid: int) -> Gpu | None:
    """Return what stands in the record about the card; ``None`` without NVML or such a card."""
    with nvml() as there:
        card = open_gpu(uuid) if there else None
        if card is None:
            return None
        running = card.processes()
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        return Gpu(
            name=str(pynvml.nvmlDeviceGetName(card.handle)),
            uuid=uuid,
            total_bytes=card.total_bytes(),
            driver=str(pynvml.nvmlSystemGetDriverVersion()),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            foreign_processes=None if running is None else len(set(running) - {own_pid}),
        )


def visible_uuid(cuda_uuid: str | None) -> str | None:
    """Return the UUID by which NVML knows the first visible device.

    Parameters
    ----------
    cuda_uuid
        What the framework says of device 0, where it says anything.

    Notes
    -----
    A MIG instance has a UUID of its own that CUDA does not tell; there the entry of
    CUDA_VISIBLE_DEVICES is the name. A bare index is resolved only where there is one card:
    otherwise it may name another card in NVML's order.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if first.startswith("MIG-"):
        return first
    if cuda_uuid:
        return cuda_uuid if cuda_uuid.startswith("GPU-") else f"GPU-{cuda_uuid}"
    known = list(idle_bytes())
    if first.startswith("GPU-"):
        return next((uuid for uuid in known if uuid.startswith(first)), None)
    return known[0] if len(known) == 1 else None
