"""The device that a try works on, and torch's counters of its memory.

torch is imported here only if the point requests CUDA. Then a CUDA device must be available: a try never
falls back to the CPU in silence.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jobkit.core.records import Outcome
from jobkit.worker.failure import OLD_DRIVER, TryFailed
from jobkit.worker.measure import nvml

CUDA_SUCCESS = 0


@dataclass(frozen=True, slots=True)
class Device:
    """A CPU (``torch`` is ``None``) or the first visible CUDA device."""

    name: str
    torch: Any = None

    @property
    def cuda_uuid(self) -> str | None:
        """``None`` if torch is too old to report it."""
        if self.torch is None:
            return None
        uuid = getattr(self.torch.cuda.get_device_properties(0), "uuid", None)
        return str(uuid) if uuid else None

    def synchronise(self) -> None:
        if self.torch:
            self.torch.cuda.synchronize()

    def cap(self, size_bytes: int | None) -> None:
        """Limit what torch's allocator may reserve, the CUDA context on top; ``None`` lifts the limit.

        torch takes a share of the GPU's memory and rounds down, hence the kilobyte more.
        """
        if self.torch:
            total = int(self.torch.cuda.get_device_properties(0).total_memory)
            share = 1.0 if size_bytes is None else min(1.0, (size_bytes + 1024) / total)
            self.torch.cuda.set_per_process_memory_fraction(share)

    def empty_cache(self) -> None:
        """Return all memory that no tensor holds to the driver."""
        if self.torch:
            self.torch.cuda.empty_cache()

    def reset_peaks(self) -> None:
        if self.torch:
            self.torch.cuda.reset_peak_memory_stats()

    def allocated_bytes(self) -> int | None:
        return int(self.torch.cuda.memory_allocated()) if self.torch else None

    def reserved_bytes(self) -> int | None:
        return int(self.torch.cuda.memory_reserved()) if self.torch else None

    def peaks(self) -> tuple[int | None, int | None]:
        if not self.torch:
            return None, None
        stats = self._stats()
        return int(stats["allocated_bytes"]["all"]["peak"]), int(stats["reserved_bytes"]["all"]["peak"])

    def retries(self) -> int | None:
        return int(self._stats()["num_alloc_retries"]) if self.torch else None

    def _stats(self) -> Any:  # noqa: ANN401 - torch is untyped here
        """Return torch's counters; ``memory_stats`` would flatten and sort them, 55 instead of 10 µs."""
        return self.torch.cuda.memory_stats_as_nested_dict()


NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""With it ``torch.cuda.is_available()`` asks NVML and does not touch CUDA (PyTorch, CUDA semantics)."""


@contextlib.contextmanager
def cuda_untouched() -> Iterator[None]:
    """Keep modules that ask whether CUDA is available from touching it inside the block."""
    before = os.environ.get(NVML_CHECK)
    os.environ[NVML_CHECK] = "1"
    try:
        yield
    finally:
        os.environ.pop(NVML_CHECK)
        if before is not None:
            os.environ[NVML_CHECK] = before


def touched_cuda() -> bool:
    """Return whether this process has touched CUDA, so that its children cannot use it.

    torch knows this only in a child (``torch/cuda/__init__.py``, ``_lazy_init``), so a child is asked. Other
    libraries initialise the driver without torch, as cupy does while spaCy is imported.
    """
    with contextlib.suppress(OSError):  # no library has loaded the driver
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        # Before ``cuInit`` every function of the driver fails
        # (https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__INITIALIZE.html).
        if driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == CUDA_SUCCESS:
            return True
    torch = sys.modules.get("torch")
    in_bad_fork = getattr(getattr(torch, "cuda", None), "_is_in_bad_fork", lambda: False)
    if (pid := os.fork()) == 0:
        os._exit(bool(in_bad_fork()))
    return os.waitpid(pid, 0)[1] != 0


def uses_torch() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def open_device(name: str) -> Device:
    if name != "cuda":
        return Device(name)
    torch = import_torch()
    if not torch.cuda.is_available():
        raise TryFailed(Outcome.NO_GPU, f"the point requests CUDA, but {_unavailable_reason(torch)}")
    torch.zeros(1, device="cuda")
    return Device(name, torch)


def import_torch() -> Any:  # noqa: ANN401 - torch is untyped here
    """Return torch, whose import opens no device."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise TryFailed(Outcome.ENVIRONMENT, f"device cuda needs torch: {error}") from error


def _unavailable_reason(torch: Any) -> str:  # noqa: ANN401 - torch is untyped here
    built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
    if not built:
        return f"torch {torch.__version__} in {sys.executable} is a CPU build"
    return (
        nvml.missing_gpu_reason()
        or f"torch {torch.__version__} for CUDA {built} {OLD_DRIVER} {nvml.driver_version()}"
    )
