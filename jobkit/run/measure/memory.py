"""Split memory into context, weights, activations and the rest, from several instruments. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from jobkit.core.measurements import Memory
from jobkit.core.units import MIB
from jobkit.run.measure.sampler import Peaks

TOLERANCE = 0.02
"""Two instruments that differ by more than this share disagree."""


@dataclass(slots=True)
class Readings:
    """Readings at fixed moments of a try, as `Memory` names them; ``None`` if a reading failed."""

    device_idle_bytes: int | None = None
    context_bytes: int | None = None
    weights_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    rss_before_bytes: int | None = None
    rss_model_bytes: int | None = None
    maxrss_bytes: int | None = None
    cgroup_peak_bytes: int | None = None


def split_memory(readings: Readings, peaks: Peaks | None) -> Memory:
    """Split the memory of a try by instrument.

    Parameters
    ----------
    readings
        Of torch, the kernel and NVML, at fixed moments.
    peaks
        Of the sampler process, over the whole try.
    """
    activations = _subtract(readings.allocated_peak_bytes, readings.weights_bytes)
    total = process_peak(readings, peaks)
    return Memory(
        **asdict(readings),
        activations_bytes=activations,
        other_bytes=_subtract(total, readings.context_bytes, readings.weights_bytes, activations),
        process_peak_bytes=total,
        device_peak_bytes=peaks.device_bytes if peaks else None,
        rss_peak_bytes=peaks.rss_bytes if peaks else None,
        disagreement=disagreement(readings, peaks),
    )


def process_peak(readings: Readings, peaks: Peaks | None) -> int | None:
    """Return NVML's peak of the process; if NVML reports none, the device's rise above idle."""
    if peaks is None:
        return None
    return peaks.process_bytes or _subtract(peaks.device_bytes, readings.device_idle_bytes)


def _subtract(total: int | None, *parts: int | None) -> int | None:
    if total is None or any(part is None for part in parts):
        return None
    return total - sum(part for part in parts if part is not None)


def disagreement(readings: Readings, peaks: Peaks | None) -> str:
    """Return a sentence if the instruments contradict each other, else an empty string.

    NVML's process peak must cover the context and what torch reserved, and must not exceed
    them by more than the tolerance: the rest would be memory without an owner.
    """
    total = process_peak(readings, peaks)
    if total is None or readings.context_bytes is None or readings.reserved_peak_bytes is None:
        return ""
    accounted = readings.context_bytes + readings.reserved_peak_bytes
    if abs(total - accounted) <= TOLERANCE * total:
        return ""
    return (
        f"NVML saw {total / MIB:,.0f} MiB at the peak, "
        f"context and torch's reserve come to {accounted / MIB:,.0f} MiB"
    )
