"""The device that a try works on, its memory by instrument, its baseline, and what a batch needs.

torch is imported here only if the point requests CUDA. Then a CUDA device must be available: a try never
falls back to the CPU in silence.

The driver may free the memory of a process only after its end. The next try would count what is left as
idle, and see it disappear from its own figures. The baseline of a GPU is the least memory that any try of
the run has seen in use on it before it opened it: a file in the run folder, named after the GPU.

The least memory with which a batch passes is measured by capping the allocator. There are two figures. The
*reserve* is what the allocator takes for the batch alone, starting from an empty cache: the batch passes
under that cap. Near a limit the allocator empties its cache and tries again, which saves a batch under a
still smaller cap. With expandable segments that smallest cap, the *need*, follows the load in a line, 2 to
4 % below the reserve. Without them it does not: whether emptying the cache helps changes from load to load
(on an H200 batches of 1 GiB were saved down to 0.85 of the reserve, larger batches not at all). So without
them only the reserve is reliable, and jobkit searches nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobkit.core import files
from jobkit.core.frozen import frozen
from jobkit.core.measurements import BASELINE_SLACK_BYTES, Need, total
from jobkit.core.records import Batch, Outcome, Point
from jobkit.core.units import MIB
from jobkit.worker.failure import Cause, Stopped, TryFailed, outcome_of
from jobkit.worker.measure import nvml
from jobkit.worker.measure.sampler import Peaks
from jobkit.worker.paragraphs import Call
from jobkit.worker.workloads.base import Heavy, Workload


@frozen
class Device:
    """A CPU (``torch`` is ``None``) or the first visible CUDA device."""

    name: str
    torch: Any = None

    @property
    def cuda_uuid(self) -> str | None:
        """``None`` if torch is too old to report it."""
        uuid = self.torch and getattr(self.torch.cuda.get_device_properties(0), "uuid", None)
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

    def counters(self) -> tuple[int | None, int | None, int | None]:
        """Return the peaks of allocated and of reserved bytes, and the retries of the allocator.

        ``memory_stats`` would flatten and sort torch's counters, in 55 instead of 10 µs.
        """
        if not self.torch:
            return None, None, None
        stats = self.torch.cuda.memory_stats_as_nested_dict()
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return int(allocated["peak"]), int(reserved["peak"]), int(stats["num_alloc_retries"])


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
        if not driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())):
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
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")
        return Device(name, torch)
    why = f"torch {torch.__version__} in {sys.executable} is a CPU build"
    if built := getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None):
        old = f"torch {torch.__version__} for CUDA {built} {Cause.OLD_DRIVER}"
        why = nvml.missing_gpu_reason() or f"{old} {nvml.driver_version()}"
    raise TryFailed(Outcome.NO_GPU, f"the point requests CUDA, but {why}")


def import_torch() -> Any:  # noqa: ANN401 - torch is untyped here
    """Return torch, whose import opens no device."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise TryFailed(Outcome.ENVIRONMENT, f"device cuda needs torch: {error}") from error


# -- memory by instrument


def process_peak(peaks: Peaks, device_idle_bytes: int | None) -> int | None:
    """Return NVML's peak of the processes; if NVML reports none, how much the devices rose above idle."""
    return peaks.process_bytes or subtract(peaks.device_bytes, device_idle_bytes)


def subtract(whole: int | None, *parts: int | None) -> int | None:
    """Return the whole less its parts; ``None`` if a value is unknown."""
    taken = total(parts)
    return None if whole is None or taken is None else whole - taken


def disagreement(peak_bytes: int | None, *parts: int | None) -> str:
    """Return a sentence if the instruments contradict each other, else an empty string.

    NVML's peak must cover the contexts of the processes and what torch reserved, and must not exceed them by
    more than 2 %: the rest would be memory without an owner. ``parts`` are these two, of all processes.
    """
    accounted = total(parts)
    if peak_bytes is None or accounted is None or abs(peak_bytes - accounted) <= 0.02 * peak_bytes:
        return ""
    return (
        f"NVML saw {peak_bytes / MIB:,.0f} MiB at the peak, "
        f"context and torch's reserve come to {accounted / MIB:,.0f} MiB"
    )


# -- the baseline

DEADLINE_S = 10.0
STEADY_S = 2.0
"""Memory that does not change for so long belongs to another process: nothing is being freed."""
POLL_S = 0.05


@frozen
class Wait:
    seconds: float | None = None  # ``None`` if the try has no GPU, or NVML cannot tell which
    baseline_bytes: int | None = None  # the sum over the GPUs; ``None`` if one is unknown


def wait(folder: Path, uuids: Sequence[str]) -> Wait:
    """Wait until the memory in use on each GPU is back at its baseline.

    Without a baseline, two readings must agree. The wait ends at `DEADLINE_S`, or if nothing has changed for
    `STEADY_S`. ``folder`` has the baselines of the run; no process of the try has opened the GPUs yet.
    """
    if not uuids:
        return Wait()
    lowest = {uuid: _read(folder / uuid) for uuid in uuids}
    before: Mapping[str, int | None] | None = None
    began_s = changed_s = time.monotonic()
    with nvml.nvml():  # open throughout: without another user of the driver, each start of it takes long
        while True:
            used, now_s = nvml.used_bytes(uuids), time.monotonic()
            if used != before:
                changed_s = now_s
            over = [subtract(used[uuid], lowest[uuid]) for uuid in lowest]
            high = any(excess is not None and excess > BASELINE_SLACK_BYTES for excess in over)
            if not high and (used == before or None not in lowest.values()):
                break
            if now_s - changed_s > STEADY_S or now_s - began_s > DEADLINE_S:
                break
            before = used
            time.sleep(POLL_S)
    for uuid in uuids:
        known = [size for size in (lowest[uuid], used[uuid]) if size is not None]
        if known and min(known) != lowest[uuid]:
            lowest[uuid] = min(known)
            with contextlib.suppress(OSError):  # without a baseline the next try has none to wait for
                folder.mkdir(exist_ok=True)
                files.write_atomically(folder / uuid, f"{min(known)}\n")
    return Wait(now_s - began_s, total(lowest.values()))


def _read(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(files.read_text(path))
    return None


# -- the need of a batch

STEP_BYTES = 8 * 2**20
"""The search ends within this: the allocator takes 2 to 20 MiB at a time (CUDACachingAllocator.cpp), and
neighbouring loads scatter by 15 MiB about their line (measured)."""
FINEST_SHARE = 0.002
"""Nor is the search finer than this share of the memory."""
GRAIN_SHOWS_BYTES = 1.5 * 2**30
"""Below this the scatter is more than 1 % of the need, so parts of the batch are measured too."""
SEARCHED = "expandable_segments:True"
"""The allocator setting with which the need follows the load."""


def bracket(passes: Callable[[int], bool], low_bytes: int, high_bytes: int) -> tuple[int, int, int]:
    """Search the edge between the caps that fail (``low_bytes``) and those that pass (``high_bytes``).

    Return the smallest cap that passed, the largest that failed, and the number of tries.

    It starts just below the upper end, because small batches need all that was reserved.
    """
    tries, finest = 0, max(STEP_BYTES, int(FINEST_SHARE * high_bytes))
    cap_bytes = high_bytes - finest
    while high_bytes - low_bytes > finest:
        tries += 1
        if passes(cap_bytes):
            high_bytes = cap_bytes
        else:
            low_bytes = cap_bytes
        cap_bytes = (low_bytes + high_bytes) // 2
    return high_bytes, low_bytes, tries


def heaviest(workload: Workload, batch: Batch, call: Call) -> Iterator[Heavy]:
    """Yield the heaviest batches that the workload reports, else its heaviest call.

    As a generator it runs inside `measure_needs`, which handles failures of the workload.
    """
    if hasattr(workload, "heaviest"):
        yield from workload.heaviest()
    else:
        yield Heavy(batch.load, lambda: workload.process(call.paragraphs))


def measure_needs(device: Device, heavy_batches: Iterable[Heavy], point: Point) -> tuple[Need, ...]:
    """Return the need of each batch; fewer if a measurement fails. It restores the cap of ``point``.

    A signal ends the measurement and not the try, whose batches are done. In text order nothing is measured,
    because there the need of a pass is not the need of its heaviest batch; nor for a kind of point without
    `measures_need`.
    """
    needs: list[Need] = []
    wanted = point.order != "text" and point.kind.measures_need and device.torch
    try:
        for heavy in heavy_batches if wanted else ():
            needs.append(_need(device, heavy, point))
            if needs[0].reserved_bytes > GRAIN_SHOWS_BYTES:
                break
    except Stopped:
        pass
    except Exception:  # noqa: BLE001 - a failed measurement must not lose the work
        traceback.print_exc()
    device.cap(point.cap_bytes)
    return tuple(needs)


def _need(device: Device, heavy: Heavy, point: Point) -> Need:
    start = time.perf_counter()
    device.cap(point.cap_bytes)
    device.empty_cache()
    device.reset_peaks()
    heavy.again()
    allocated, reserved = (size or 0 for size in device.counters()[:2])

    def passes(cap_bytes: int) -> bool:
        device.empty_cache()
        device.cap(cap_bytes)
        try:
            heavy.again()
            device.synchronise()
        except Exception as error:
            if outcome_of(error)[0] is not Outcome.GPU_OOM:
                raise
            return False
        return True

    passed, failed, tries = reserved, allocated - 1, 0
    if SEARCHED in (point.allocator or ""):
        passed, failed, tries = bracket(passes, failed, passed)
    return Need(
        load=heavy.load,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        passed_bytes=passed,
        failed_bytes=failed,
        tries=tries + 1,
        seconds=time.perf_counter() - start,
    )
