"""Split memory into context, weights, activations and the rest, from several instruments. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from jobkit.core.measurements import Memory
from jobkit.core.units import MIB
from jobkit.run.measure.sampler import Peaks

TOLERANCE = 0.02
"""Two instruments that differ by more than this share disagree."""


@dataclass(slots=True)
class Readings:
    """Readings of one process at fixed moments, as `Memory` names them; ``None`` if a reading failed."""

    context_bytes: int | None = None
    weights_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    rss_before_bytes: int | None = None
    rss_model_bytes: int | None = None
    maxrss_bytes: int | None = None


def split_memory(
    processes: Sequence[Readings],
    peaks: Peaks | None,
    *,
    device_idle_bytes: int | None = None,
    device_baseline_bytes: int | None = None,
    cgroup_peak_bytes: int | None = None,
) -> Memory:
    """Split the memory of a try by instrument.

    Parameters
    ----------
    processes
        Readings of torch, the kernel and NVML, of each process that works.
    peaks
        Of the sampler process, over the whole try.
    device_idle_bytes, device_baseline_bytes, cgroup_peak_bytes
        As `Memory` has them.
    """
    largest, sums = _over(processes, _largest), _over(processes, total)
    process_peak_bytes = process_peak(peaks, device_idle_bytes)
    return Memory(
        **asdict(largest),
        activations_bytes=_largest([_activations(readings) for readings in processes]),
        other_bytes=subtract(process_peak_bytes, sums.context_bytes, sums.allocated_peak_bytes),
        process_peak_bytes=process_peak_bytes,
        device_peak_bytes=peaks.device_bytes if peaks else None,
        device_idle_bytes=device_idle_bytes,
        device_baseline_bytes=device_baseline_bytes,
        rss_peak_bytes=peaks.rss_bytes if peaks else None,
        cgroup_peak_bytes=cgroup_peak_bytes,
        disagreement=disagreement(sums, process_peak_bytes),
    )


def _over(processes: Sequence[Readings], one: Callable[[Sequence[int | None]], int | None]) -> Readings:
    """Return one value for each reading of several processes."""
    names = [field.name for field in fields(Readings)]
    return Readings(**{name: one([getattr(readings, name) for readings in processes]) for name in names})


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def total(values: Iterable[int | None]) -> int | None:
    """Return the sum; ``None`` if a value is unknown."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _activations(readings: Readings) -> int | None:
    return subtract(readings.allocated_peak_bytes, readings.weights_bytes)


def process_peak(peaks: Peaks | None, device_idle_bytes: int | None) -> int | None:
    """Return NVML's peak of the processes; if NVML reports none, the devices' rise above idle."""
    if peaks is None:
        return None
    return peaks.process_bytes or subtract(peaks.device_bytes, device_idle_bytes)


def subtract(whole: int | None, *parts: int | None) -> int | None:
    """Return what is left of a whole; ``None`` if a value is unknown."""
    taken = total(parts)
    return None if whole is None or taken is None else whole - taken


def disagreement(readings: Readings, peak_bytes: int | None) -> str:
    """Return a sentence if the instruments contradict each other, else an empty string.

    NVML's peak of the processes must cover their contexts and what torch reserved, and must not exceed
    them by more than the tolerance: the rest would be memory without an owner.

    Parameters
    ----------
    readings
        The sums over the processes.
    peak_bytes
        NVML's.
    """
    if peak_bytes is None or readings.context_bytes is None or readings.reserved_peak_bytes is None:
        return ""
    accounted = readings.context_bytes + readings.reserved_peak_bytes
    if abs(peak_bytes - accounted) <= TOLERANCE * peak_bytes:
        return ""
    return (
        f"NVML saw {peak_bytes / MIB:,.0f} MiB at the peak, "
        f"context and torch's reserve come to {accounted / MIB:,.0f} MiB"
    )
