"""What to ask a scheduler for, from what was measured, in the lines that jobkit itself would write. Pure."""

from __future__ import annotations

import math

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import CPU
from jobkit.core.records import Outcome, Record
from jobkit.core.units import GIB
from jobkit.fit.speed import Duration
from jobkit.report.recommend.types import Lines, Request, RunData
from jobkit.schedulers.registry import SCHEDULERS, by_name
from jobkit.spec.directives import directives
from jobkit.spec.site import Site
from jobkit.spec.sweep_spec import Resources

MEMORY_FACTOR = 1.2
WALLTIME_FACTOR = 1.25
WALLTIME_STEP_S = 300
PORTABLE = ("gpus", "cpus", "memory", "walltime")
"""What of a spec means the same at every site."""


def enough(asked: Resources, *, peak_bytes: int | None, longest_s: float | None, gpus: int) -> Resources:
    """Return what suffices: as asked, but memory and walltime by what was measured, with a margin.

    Parameters
    ----------
    asked
        By the spec.
    peak_bytes
        The most memory that a try held; as asked if unknown.
    longest_s
        The longest that the work may take; as asked if unknown.
    gpus
        How many GPUs the work uses.
    """
    changes: dict[str, object] = {"gpus": gpus}
    if peak_bytes is not None:
        changes["memory"] = math.ceil(MEMORY_FACTOR * peak_bytes / GIB) * GIB
    if longest_s is not None:
        changes["walltime"] = math.ceil(WALLTIME_FACTOR * longest_s / WALLTIME_STEP_S) * WALLTIME_STEP_S
    return asked.model_copy(update=changes)


def lines(resources: Resources, site: Site, *, own: bool) -> Lines:
    """Return the header lines by which a site is asked for resources.

    Parameters
    ----------
    resources
        What is wanted.
    site
        Of a scheduler that reads header lines.
    own
        Whether it is the site of the run.
    """
    portable = {name: getattr(resources, name) for name in PORTABLE}
    wanted = resources if own else Resources().model_copy(update=portable)
    prefix = by_name(site.scheduler).DIRECTIVE
    try:
        header = tuple(f"{prefix} {line}" for line in directives(wanted, site))
    except JobkitError as error:
        return Lines(scheduler=site.scheduler, site=site.name, own=own, reason=error.message)
    return Lines(scheduler=site.scheduler, site=site.name, own=own, lines=header)


def used_ram(record: Record) -> int | None:
    """Return the most RAM that a try is charged with: if it had a cgroup, that one's with its page cache."""
    memory, scheduler = record.memory, SCHEDULERS.get(record.job.scheduler)
    cgroup = memory.cgroup_peak_bytes if scheduler and scheduler.CHARGES_PAGE_CACHE else None
    checked = record.check.rss_peak_bytes if record.check else None
    return max((peak for peak in (memory.ram_peak_bytes, cgroup, checked) if peak is not None), default=None)


def _alike(record: Record, chosen: Record, *, exactly: bool) -> bool:
    """Return whether a try counts for the RAM of a setting: it has as many processes, or that setting."""
    if exactly:
        return record.params == chosen.params
    point, other = record.point, chosen.point
    return (point.workers, point.gpus) == (other.workers, other.gpus)


def request(material: RunData, chosen: Record, time: Duration) -> Request | None:
    """Return what to ask for, next to what was asked for and used; ``None`` if the spec is not known.

    Parameters
    ----------
    material
        The data of the run folder.
    chosen
        A record of the recommended setting.
    time
        Of the work to come: its upper end counts, if there is one.
    """
    asked = material.resources
    if asked is None:
        return None
    point = chosen.point
    well = [record for record in material.records if record.outcome is Outcome.OK]
    alike = [record for record in well if _alike(record, chosen, exactly=material.search is not None)]
    peak = max((used for record in alike if (used := used_ram(record))), default=None)
    gpus = 0 if point.device == CPU else point.gpus
    wanted = enough(asked.of(point), peak_bytes=peak, longest_s=time.high_s or time.expected_s, gpus=gpus)
    own = material.site
    sites = [(own, True)] if own else [(site, False) for site in material.plain_sites]
    return Request(
        gpus=wanted.gpus,
        gpu_type=wanted.gpu_type,
        cpus=wanted.cpus,
        memory_bytes=wanted.memory,
        walltime_s=wanted.walltime,
        asked_memory_bytes=asked.memory,
        asked_walltime_s=asked.walltime,
        used_memory_bytes=peak,
        used_s=max((s for s in material.seconds if s is not None), default=None),
        lines=tuple(lines(wanted, site, own=mine) for site, mine in sites),
    )
