"""Ask NVML about a GPU, by UUID. Standard library and pynvml.

NVML's index is not CUDA's: CUDA orders devices by speed by default and sees only those in
CUDA_VISIBLE_DEVICES. So jobkit identifies a GPU by its UUID alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pynvml

from jobkit.core.frozen import frozen, keyed
from jobkit.core.measurements import Gpu
from jobkit.worker.failure import Cause
from jobkit.worker.process import GPU_COUNT_VARIABLE

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"

T = TypeVar("T")


@contextlib.contextmanager
def nvml() -> Iterator[bool]:
    """Open NVML for the block; yield whether this machine has it."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def answer(query: Callable[[], T]) -> T | None:
    """``None`` if NVML does not answer this query."""
    with contextlib.suppress(pynvml.NVMLError):
        return query()
    return None


@frozen
class GpuHandle:
    """An open NVML handle; a query returns ``None`` if the GPU does not answer it."""

    handle: Any
    uuid: str

    def name(self) -> str:
        return str(pynvml.nvmlDeviceGetName(self.handle))

    def used_bytes(self) -> tuple[int | None, str | None]:
        """Return the device's used memory and the call that answered, ``v2`` or ``v1``.

        v2 comes first: since driver 510, v1 counts the driver's reserve as used (0.6 GiB on an
        idle H200).
        """
        for version, name in ((getattr(pynvml, "nvmlMemory_v2", None), "v2"), (None, "v1")):
            with contextlib.suppress(pynvml.NVMLError, TypeError):
                more = {"version": version} if version else {}
                return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle, **more).used), name
        return None, None

    def total_bytes(self) -> int | None:
        return answer(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).total))

    def processes(self) -> dict[int, int | None] | None:
        """Return the memory in bytes of each compute process, by the process id that NVML reports.

        Inside a container these may be the host's ids, and the memory may read 0: that is no measurement and
        becomes ``None``.
        """
        running = answer(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle))
        if running is None:
            return None
        return {int(process.pid): int(process.usedGpuMemory or 0) or None for process in running}

    def utilisation_percent(self) -> float | None:
        """Return the share of the last sample period in which a kernel ran."""
        return answer(lambda: float(pynvml.nvmlDeviceGetUtilizationRates(self.handle).gpu))

    def energy_j(self) -> float | None:
        """Return the energy of the whole GPU since the driver was loaded; ``None`` before Volta."""
        return answer(lambda: float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000)

    def has_mig(self) -> bool:
        """Return whether it is a MIG instance, or a GPU in MIG mode."""
        mig = answer(lambda: pynvml.nvmlDeviceGetMigMode(self.handle)[0])
        return self.uuid.startswith("MIG-") or bool(mig == pynvml.NVML_DEVICE_MIG_ENABLE)

    def accounting(self) -> bool | None:
        """Return whether the driver keeps accounting of processes that have ended.

        Only root can switch it on (nvidia-smi(1), ``-am``); a MIG instance has none.
        """
        mode = answer(lambda: pynvml.nvmlDeviceGetAccountingMode(self.handle))
        return None if mode is None else bool(mode == pynvml.NVML_FEATURE_ENABLED)

    def forbids_mps(self) -> str:
        """Return the mode of the GPU that forbids MPS, in words; empty if none does."""
        if self.has_mig():
            return f"{self.uuid} is in MIG mode"
        mode = answer(lambda: pynvml.nvmlDeviceGetComputeMode(self.handle))
        prohibited = mode == pynvml.NVML_COMPUTEMODE_PROHIBITED
        return f"{self.uuid} is in compute mode PROHIBITED" if prohibited else ""


@keyed
class GpuState:
    """A GPU as it is now; ``None`` for a value that it does not report."""

    name: str
    uuid: str
    driver: str
    total_bytes: int | None
    used_bytes: int | None  # memory in use by all processes
    processes: int | None  # the number of compute processes
    accounting: bool | None  # see `GpuHandle.accounting`
    forbids_mps: str  # see `GpuHandle.forbids_mps`


def list_gpus() -> tuple[GpuState, ...]:
    """Return every GPU that NVML lists; none without NVML."""
    with nvml() as available:
        return tuple(
            GpuState(
                name=gpu.name(),
                uuid=gpu.uuid,
                driver=str(pynvml.nvmlSystemGetDriverVersion()),
                total_bytes=gpu.total_bytes(),
                used_bytes=gpu.used_bytes()[0],
                processes=None if (running := gpu.processes()) is None else len(running),
                accounting=gpu.accounting(),
                forbids_mps=gpu.forbids_mps(),
            )
            for gpu in (list_handles() if available else ())
        )


def list_handles() -> list[GpuHandle]:
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return [GpuHandle(handle, str(pynvml.nvmlDeviceGetUUID(handle))) for handle in handles]


def used_bytes(uuids: Iterable[str]) -> dict[str, int | None]:
    with nvml() as available:
        gpus = {uuid: open_gpu(uuid) if available else None for uuid in uuids}
        return {uuid: gpu.used_bytes()[0] if gpu else None for uuid, gpu in gpus.items()}


def missing_gpu_reason() -> str:
    """Return why there is no GPU to work on, as far as NVML can tell; empty if there is one."""
    if os.environ.get(GPU_COUNT_VARIABLE) == "0":
        return f"{Cause.NO_GPU_REQUESTED} (resources.gpus: 0)"
    with nvml() as available:
        if not available:
            return f"{Cause.NO_DRIVER} on this node"
        visible = os.environ.get(VISIBLE_VARIABLE)
        given = pynvml.nvmlDeviceGetCount() and (visible is None or visible.split(",")[0].strip())
    return "" if given else f"{Cause.NO_GPU_ASSIGNED} ({VISIBLE_VARIABLE}={visible!r})"


def driver_version() -> str:
    with nvml():
        return str(pynvml.nvmlSystemGetDriverVersion())


def open_gpu(uuid: str) -> GpuHandle | None:
    return answer(lambda: GpuHandle(pynvml.nvmlDeviceGetHandleByUUID(uuid), uuid))


def read_gpu(uuid: str) -> Gpu | None:
    with nvml() as available:
        gpu = open_gpu(uuid) if available else None
        if gpu is None:
            return None
        running = gpu.processes()
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        return Gpu(
            name=gpu.name(),
            uuid=uuid,
            total_bytes=gpu.total_bytes(),
            driver=str(pynvml.nvmlSystemGetDriverVersion()),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            foreign_processes=None if running is None else len(set(running) - {os.getpid()}),
        )


def visible_uuid(cuda_uuid: str | None) -> str | None:
    """Return the UUID by which NVML knows the first visible device, whose UUID the framework reports.

    CUDA does not report the UUID of a MIG instance; then the entry of CUDA_VISIBLE_DEVICES is the name.
    """
    first = visible_names()[0]
    if cuda_uuid and not first.startswith("MIG-"):
        return cuda_uuid if cuda_uuid.startswith("GPU-") else f"GPU-{cuda_uuid}"
    return next(iter(visible_uuids(1)), None)


def visible_uuids(number: int) -> list[str]:
    """Return the UUIDs by which NVML knows the first visible devices; empty if that is not known.

    A bare index in CUDA_VISIBLE_DEVICES is resolved only if there are no more GPUs than asked for: otherwise
    it may name another GPU in NVML's order.
    """
    names, listed = visible_names()[:number], [gpu.uuid for gpu in list_gpus()]
    if not all(name.startswith(("GPU-", "MIG-")) for name in names):
        return listed if len(listed) == number else []
    migs = [name for name in names if name.startswith("MIG-")]
    known = [next((uuid for uuid in (*migs, *listed) if uuid.startswith(name)), "") for name in names]
    return known if all(known) else []


def visible_names() -> list[str]:
    """Return the entries of CUDA_VISIBLE_DEVICES; a single empty entry if it is not set."""
    return [name.strip() for name in os.environ.get(VISIBLE_VARIABLE, "").split(",")]
