"""The energy of GPUs over the work, by two instruments, and whether other processes used some of it.

The counter is NVML's, in mJ since the driver was loaded (``nvmlDeviceGetTotalEnergyConsumption``). It moves
about every 100 ms (docs/what-is-measured.md has the sources). The integral of the sampled power is the second
instrument, and the only one before Volta.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.measurements import Attribution, Energy, total
from jobkit.worker.measure.nvml import GpuHandle, list_handles, nvml

IDLE_LEAST_S = 1.0
"""Ten steps of the counter: over less time the idle power would be a guess."""
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""The inode of the host's pid namespace (``PROC_PID_INIT_INO`` in the kernel's include/linux/proc_ns.h)."""

MIG = "the GPU is in MIG mode, and the counter is of all its instances"
FOREIGN = "another process was on the GPU during the work"
UNLISTED = "NVML lists no process of the job on the GPU, as in a container"
NAMESPACE = "the job is in a process namespace of its own, in which NVML may hide other processes"


def in_initial_namespace(link: Path = Path("/proc/self/ns/pid")) -> bool:
    """Return whether this process can see the ids of all processes of the host (pid_namespaces(7))."""
    try:
        return link.stat().st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False


class Meter:
    """Measures the energy of GPUs from its construction on; its times are those of a monotonic clock."""

    def __init__(self, gpus: Sequence[GpuHandle], now_s: float) -> None:
        self._gpus = gpus
        self._began_s = self._sampled_s = now_s
        self._power_w: float | None = None
        self._power_j = 0.0
        self._samples = 0
        self.power_max_w: float | None = None
        self._began_j = [gpu.energy_j() for gpu in gpus]
        self.sample_power(now_s)

    def sample_power(self, now_s: float) -> None:
        """Add the energy since the last sample, by the mean of both powers; skip a GPU that fails."""
        power_w = total(gpu.power_w() for gpu in self._gpus)
        if power_w is None:
            return
        if self._power_w is not None:
            self._power_j += (now_s - self._sampled_s) * (self._power_w + power_w) / 2
        self._power_w, self._sampled_s = power_w, now_s
        self._samples += 1
        self.power_max_w = max(self.power_max_w or 0.0, power_w)

    def energy(self, now_s: float, attribution: Attribution, reason: str) -> Energy:
        counters = [gpu.energy_j() for gpu in self._gpus]
        self.sample_power(now_s)
        spent = [
            None if first is None or last is None or last < first else last - first
            for first, last in zip(self._began_j, counters, strict=True)
        ]
        return Energy(
            span_s=now_s - self._began_s,
            counter_j=total(spent),
            power_j=self._power_j if self._samples > 1 else None,
            power_samples=self._samples,
            attribution=attribution,
            reason=reason,
        )


class Owners:
    """Finds out whether all processes that NVML lists on GPUs belong to the job.

    ``sees_all``: whether NVML lists the processes of the whole host, with the ids that this process sees.
    """

    def __init__(self, gpus: Sequence[GpuHandle], *, sees_all: bool) -> None:
        self._gpus = gpus
        self._sees_all = sees_all
        self._own = [False] * len(gpus)
        self._foreign = [False] * len(gpus)

    def strangers(self, listed: Sequence[Collection[int]], own: Collection[int]) -> bool:
        """Note the job's processes on each GPU; return whether a GPU has others."""
        known = set(own)
        self._own = [seen or not known.isdisjoint(pids) for seen, pids in zip(self._own, listed, strict=True)]
        return any(
            not found and not known.issuperset(pids)
            for found, pids in zip(self._foreign, listed, strict=True)
        )

    def confirm(self, listed: Sequence[Collection[int]], own: Collection[int]) -> None:
        """Keep the strangers that are still there.

        A process that began after ``own`` was read may belong to the job; one that was listed before, and is
        still there, does not.
        """
        for number, (gpu, pids) in enumerate(zip(self._gpus, listed, strict=True)):
            self._foreign[number] |= bool(set(pids) & set(gpu.processes() or ()) - set(own))

    def attribution(self) -> tuple[Attribution, str]:
        order = list(Attribution)
        each = (self._of(*one) for one in zip(self._gpus, self._own, self._foreign, strict=True))
        return max(each, key=lambda found: order.index(found[0]))

    def _of(self, gpu: GpuHandle, own: bool, foreign: bool) -> tuple[Attribution, str]:  # noqa: FBT001 - of zip
        if gpu.has_mig():
            return Attribution.NOT_ATTRIBUTABLE, MIG
        if not own:
            return Attribution.UNKNOWN, UNLISTED
        if foreign:
            return Attribution.NOT_ATTRIBUTABLE, FOREIGN
        return (Attribution.OWN, "") if self._sees_all else (Attribution.UNKNOWN, NAMESPACE)


# -- idle power


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """The counter of a GPU at a moment, in seconds of the host's monotonic clock."""

    at_s: float
    joules: float


def idle_readings() -> dict[str, EnergyReading]:
    """Return by UUID the counter of each GPU that has one and on which NVML lists no process."""
    with nvml() as available:
        gpus = [gpu for gpu in list_handles() if not gpu.processes()] if available else []
        joules = {gpu.uuid: (time.monotonic(), gpu.energy_j()) for gpu in gpus}
    return {
        uuid: EnergyReading(at_s, energy) for uuid, (at_s, energy) in joules.items() if energy is not None
    }


def idle_power(
    uuids: Collection[str], first: Mapping[str, EnergyReading], last: Iterable[Mapping[str, EnergyReading]]
) -> tuple[float, float] | None:
    """Return the idle power of GPUs in watts, and the seconds over which it was measured.

    ``uuids``: all of these GPUs must have readings.
    ``first``: before any process of the job was about to open a GPU.
    ``last``: of each process just before it opened its GPU; the earliest reading of a GPU counts.
    """
    opened: dict[str, EnergyReading] = {}
    for readings in last:
        for uuid, reading in readings.items():
            opened[uuid] = min(reading, opened.get(uuid, reading), key=lambda found: found.at_s)
    if not uuids or not set(uuids) <= first.keys() & opened.keys():
        return None
    pairs = [(first[uuid], opened[uuid]) for uuid in uuids]
    spans = [end.at_s - begin.at_s for begin, end in pairs]
    if min(spans) < IDLE_LEAST_S:
        return None
    watts = [(end.joules - begin.joules) / span for (begin, end), span in zip(pairs, spans, strict=True)]
    return sum(watts), min(spans)
