"""What the next job like some past ones should request, with the confidence that their number gives. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from jobkit.core.records import Outcome
from jobkit.runs.request import memory_request, round_up_memory, round_up_walltime, walltime_request
from jobkit.schedulers.protocol import PastJob
from jobkit.spec.policy import RamOom, Timeout

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNeed:
    """One resource of jobs that are alike: what was requested, what was used, what to request."""

    name: str
    requested: float | None  # bytes, seconds, CPUs or GPUs; ``None`` if the request does not name it
    used: tuple[float, ...] = ()  # by each job in which it is known, in ascending order
    exceeded: int = 0  # how many jobs ended because they had too little: their use is a lower limit
    next: int | None = None  # what to request; ``None`` if that is not known

    @property
    def most(self) -> float | None:
        """The most that a job used."""
        return self.used[-1] if self.used else None

    @property
    def middle(self) -> float | None:
        """The median."""
        return median(self.used) if self.used else None

    @property
    def overused(self) -> bool:
        """Whether a job used more than it requested, and no limit ended it."""
        return not self.exceeded and self.requested is not None and (self.most or 0) > self.requested

    @property
    def changes(self) -> bool:
        """Whether the next request differs."""
        return self.next is not None and self.next != self.requested


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResource:
    """How a resource of a past job is read, and how much more than its use is requested."""

    name: str
    read: Callable[[PastJob], tuple[float | None, float | None]]  # returns what a job requested and used
    # `lack`, `more`: the outcome of a job that had too little of it, and the factor by which the next
    # one gets more: that of a spec's policy by default
    lack: Outcome | None = None
    more: float = 1.0
    enough: Callable[[float], int]  # returns what to request for the most that was used
    round_up: Callable[[float], int]  # returns a request in the steps that people use


def _busy_cpus(job: PastJob) -> tuple[float | None, float | None]:
    """More than the requested CPUs only if that holds for a run that was a second longer: it is rounded."""
    if job.cpu_s is None or not job.elapsed_s:
        return job.cpus, None
    return job.cpus, min(job.cpu_s / job.elapsed_s, max(job.cpus, job.cpu_s / (job.elapsed_s + 1)))


def _whole_cpus(busy: float) -> int:
    return max(1, math.ceil(busy))


MEMORY = JudgedResource(
    name="memory",
    read=lambda job: (job.memory_bytes, job.held_bytes),
    lack=Outcome.RAM_OOM,
    more=RamOom().memory,
    enough=memory_request,
    round_up=round_up_memory,
)
WALLTIME = JudgedResource(
    name="walltime",
    read=lambda job: (job.walltime_s, job.elapsed_s),
    lack=Outcome.TIMEOUT,
    more=Timeout().walltime,
    enough=walltime_request,
    round_up=round_up_walltime,
)
CPUS = JudgedResource(name="CPUs busy", read=_busy_cpus, enough=_whole_cpus, round_up=_whole_cpus)
"""The CPUs that were busy on average: a job may have needed more of them at times."""


@dataclass(frozen=True, slots=True)
class AlikeJobs:
    """Past jobs of one name and one request, oldest first, and what the next one needs."""

    jobs: tuple[PastJob, ...]

    @property
    def ended_well(self) -> int:
        """How many of them ended by themselves, with status 0: only these say what the next one needs."""
        return sum(job.well for job in self.jobs)

    def need(self, resource: JudgedResource) -> JobNeed:
        """Return what the next job needs of a resource.

        A job that failed, or that something else ended, counts with what it used until then; if no job ended
        by itself, less than before is never advised. More is only if a job had too little or used more.
        """
        pairs = [resource.read(job) for job in self.jobs]
        requested, used = pairs[0][0], tuple(sorted(value for _, value in pairs if value is not None))
        exceeded = sum(job.outcome is resource.lack for job in self.jobs if resource.lack)
        wanted: int | None = None
        if exceeded and requested is not None:
            wanted = resource.round_up(resource.more * max((requested, *used)))
        elif used and requested is not None and self.ended_well:
            wanted = resource.enough(used[-1])
            wanted = wanted if used[-1] > requested else min(int(requested), wanted)
        return JobNeed(name=resource.name, requested=requested, used=used, exceeded=exceeded, next=wanted)

    @property
    def idle_gpu_s(self) -> float | None:
        """The GPU-seconds of jobs of which none used its GPU; 0 if one did, ``None`` if not recorded."""
        if any(job.gpu_percent is None for job in self.jobs):
            return None
        idle = all(job.gpu_percent == 0 and not job.gpu_bytes for job in self.jobs)
        return math.fsum(job.gpus * job.elapsed_s for job in self.jobs) if idle else 0.0

    @property
    def lacked(self) -> bool:
        """Whether a job ended because it had too little."""
        return any(self.need(resource).exceeded for resource in (MEMORY, WALLTIME))

    @property
    def saved_memory(self) -> float:
        """The byte-seconds of memory that the next request does not reserve."""
        before, after = self.reserved_memory() or (0.0, 0.0)
        return before - after

    def reserved_memory(self) -> tuple[float, float] | None:
        """Return the byte-seconds that these jobs reserved, and would have reserved with the next request.

        ``None`` if it is not known what they requested.
        """
        need = self.need(MEMORY)
        if need.requested is None:
            return None
        node_s = math.fsum(job.elapsed_s * job.nodes for job in self.jobs)
        return node_s * need.requested, node_s * (need.requested if need.next is None else need.next)


def alike(jobs: Iterable[PastJob]) -> Iterator[AlikeJobs]:
    """Yield the jobs that have a name and a request in common, in the order of their first."""
    groups: dict[tuple[object, ...], list[PastJob]] = {}
    for job in jobs:
        request = (job.memory_bytes, job.walltime_s, job.cpus, job.gpus, job.nodes)
        groups.setdefault((job.scheduler, job.name, *request), []).append(job)
    for group in groups.values():
        yield AlikeJobs(tuple(sorted(group, key=lambda job: job.began)))


def chance_of_next(number: int) -> float:
    """Return the probability that the next value is at most the largest of so many like it.

    Each of the ``number + 1`` is the largest with the same probability, whatever their distribution.
    """
    return number / (number + 1)


def covered_share(number: int) -> float:
    """Return the share of all such values that the largest of so many covers, with `CONFIDENCE`.

    All of ``number`` values stay below the quantile of a share with the probability share ** number (Wilks,
    Annals of Mathematical Statistics 12, 1941): from 59 values on it is 95 %.
    """
    return (1 - CONFIDENCE) ** (1 / number) if number else 0.0
