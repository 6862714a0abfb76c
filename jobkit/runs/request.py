"""The memory and the walltime that a job requests by what was measured, for all who advise. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobkit.core.measurements import largest
from jobkit.core.records import Outcome, Record
from jobkit.core.units import GIB, MIB
from jobkit.runs.tries import Try
from jobkit.schedulers.registry import SCHEDULERS

if TYPE_CHECKING:
    from jobkit.spec.sweep_spec import Resources

MEMORY_FACTOR = 1.2
LEAST_ROOM_BYTES = 256 * MIB
"""A first load held 192 MiB more than a later one, and the shell of a job 34 MiB (benchmarks/records)."""
TEXT_BYTES = 128 * MIB  # a shard's text beyond this is added to its request
SMALL_STEP_BYTES, SMALL_STEPS = 100 * MIB, 10
WALLTIME_FACTOR = 1.25
WALLTIME_STEP_S = 300
STAGING_S = 60  # for what a node does to its jobs beyond the measured work
WARNING_S = 60  # the default of ``warning_s`` in a site file


def memory_request(held_bytes: float, text_bytes: float = 0) -> int:
    """Return the memory to request for a job that held this much, and has a text of this size."""
    room_bytes = max(LEAST_ROOM_BYTES, (MEMORY_FACTOR - 1) * held_bytes)
    return round_up_memory(held_bytes + room_bytes + max(0, text_bytes - TEXT_BYTES))


def walltime_request(longest_s: float, warning_s: float = WARNING_S) -> int:
    """Return the walltime for work of at most ``longest_s``, with a warning before the end."""
    return round_up_walltime(WALLTIME_FACTOR * (longest_s + STAGING_S + warning_s))


def round_up_memory(size: float) -> int:
    """Return a request in steps that people use: whole GiB, and up to 900 MiB steps of 100 MiB."""
    small = math.ceil(size / SMALL_STEP_BYTES)
    return small * SMALL_STEP_BYTES if small < SMALL_STEPS else math.ceil(size / GIB) * GIB


def round_up_walltime(seconds: float) -> int:
    """Return a request in whole steps."""
    return math.ceil(seconds / WALLTIME_STEP_S) * WALLTIME_STEP_S


def enough(
    asked: Resources,
    *,
    held_bytes: float | None = None,
    longest_s: float | None = None,
    warning_s: float = WARNING_S,
    text_bytes: float = 0,
) -> Resources:
    """Return what suffices: memory and walltime as measured, and as asked if nothing was measured."""
    changes = {}
    if held_bytes is not None:
        changes["memory"] = memory_request(held_bytes, text_bytes)
    if longest_s is not None:
        changes["walltime"] = walltime_request(longest_s, warning_s)
    return asked.model_copy(update=changes)


def used_ram(record: Record) -> int | None:
    """Return the most RAM that a try is charged with: that of its cgroup, if any, with the page cache."""
    memory, scheduler = record.memory, SCHEDULERS.get(record.job.scheduler)
    cgroup = memory.cgroup_peak_bytes if scheduler and scheduler.CHARGES_PAGE_CACHE else None
    checked = record.check.rss_peak_bytes if record.check else None
    known = (memory.ram_peak_bytes, cgroup, checked, record.accounted_rss_bytes)
    return largest(known)


def held_in(tried: Try) -> int | None:
    """Return the most RAM of a try, by its record or by the accounting of a job that ran it alone."""
    own = used_ram(tried.record) if tried.record else None
    accounted = tried.account.max_rss_bytes if tried.account and tried.alone else None
    return largest((own, accounted)) or None


def held_by(records: Iterable[Record], like: Record) -> int | None:
    """Return the most RAM of tries that count for the setting of one; ``None`` if unknown.

    They have the same number of processes, and no larger load: memory grows with the load, so what a smaller
    load held in addition is what a first load, or chance, may add to any.
    """
    load = _load(like)
    return max(
        (
            used
            for record in records
            if record.outcome is Outcome.OK
            and (record.point.workers, record.point.gpus) == (like.point.workers, like.point.gpus)
            and (not load or _load(record) <= load or record.params == like.params)
            and (used := used_ram(record)) is not None
        ),
        default=None,
    )


def _load(record: Record) -> int:
    """Return the largest load of a try; 0 if it is not known."""
    return record.summary.load_max or 0 if record.summary else 0
