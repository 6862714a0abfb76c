"""Past jobs that are alike: what they used, and what the next one should request."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from statistics import NormalDist, median

from jobkit.core.frozen import keyed
from jobkit.core.records import Outcome
from jobkit.core.units import GIB, format_memory, format_walltime
from jobkit.runs.request import LEAST_ROOM_BYTES, round_up_memory, round_up_walltime, walltime_request
from jobkit.schedulers.protocol import PAGE_CACHE, PastJob
from jobkit.spec.policy import RamOom, Timeout

HOUR_S = 3600.0
LEAST_HOURS = 0.01
PERCENT, MOST_NAMED = 100, 5
MOST_KEPT, LEAST_KEPT = 40_000, 64
"""Jobs of which all is kept, of all groups and of one."""


@keyed
class JobNeed:
    """One resource of jobs that are alike: what was requested, what was used, what to request."""

    name: str
    requested: float | None  # bytes, seconds, CPUs or GPUs; ``None`` if the request does not name it
    used: tuple[float, ...] = ()  # by each job in which it is known, in ascending order
    exceeded: int = 0  # how many jobs ended because they had too little: their use is a lower limit
    next: int | None = None  # what to request; ``None`` if that is not known
    held: float | None = None  # by the job that used most: more CPUs on whole nodes and with hyperthreads
    by_default: bool = False  # whether the request is the default of the partition

    @property
    def most(self) -> float | None:
        """The most that a job used."""
        return self.used[-1] if self.used else None

    @property
    def changes(self) -> bool:
        """Whether the next request differs."""
        return self.next is not None and self.next != self.requested


@keyed
class JudgedResource:
    """How a resource of a past job is read, and how much more than its use is requested."""

    name: str
    read: Callable[[PastJob], tuple[float | None, float | None]]  # returns what a job requested and used
    # `lack`, `more`: the outcome of a job that had too little of it, and the factor by which the next
    # one gets more: that of a spec's policy by default
    lack: Outcome | None = None
    more: float = 1.0
    least: int = 2  # how many jobs must have ended before a job can go by them without a person
    enough: Callable[[float], int]  # returns what to request for the most that was used
    round_up: Callable[[float], int]  # returns a request in the steps that people use
    words: Callable[[float], str]

    def needed(self, job: PastJob) -> float | None:
        """Return what a job used, or what it gets next if it had too little; ``None`` if not known."""
        used = self.read(job)[1]
        return used if used is None or job.outcome is not self.lack else used * self.more


def _busy_cpus(job: PastJob) -> tuple[float | None, float | None]:
    """More than the requested CPUs only if that holds for a run that was a second longer: it is rounded."""
    if job.cpu_s is None or not job.elapsed_s:
        return job.cpus, None
    return job.cpus, min(job.cpu_s / job.elapsed_s, max(job.cpus, job.cpu_s / (job.elapsed_s + 1)))


def _whole_cpus(busy: float) -> int:
    return max(1, math.ceil(busy))


MEMORY_FACTOR, SPREAD, TIME_FACTOR = 1.1, 2.0, 2.0
"""The room above the largest: a tenth of the memory, or two standard deviations; as much time again, because
a kill costs hours and a long limit none. Chosen on public traces (benchmarks/past_jobs_public.py)."""
MEMORY = JudgedResource(
    name="memory",
    read=lambda job: (job.memory_bytes, job.held_bytes),
    lack=Outcome.RAM_OOM,
    more=RamOom().memory,
    enough=lambda most: round_up_memory(max(MEMORY_FACTOR * most, most + LEAST_ROOM_BYTES)),
    round_up=round_up_memory,
    words=format_memory,
)
WALLTIME = JudgedResource(
    name="walltime",
    read=lambda job: (job.walltime_s, job.elapsed_s),
    lack=Outcome.TIMEOUT,
    more=Timeout().walltime,
    least=10,
    enough=lambda most: max(walltime_request(most), round_up_walltime(TIME_FACTOR * most)),
    round_up=round_up_walltime,
    words=format_walltime,
)
CPUS = JudgedResource(
    name="CPUs busy",  # on average: a job may have needed more of them at times
    read=_busy_cpus,
    enough=_whole_cpus,
    round_up=_whole_cpus,
    words=lambda value: f"{value:.0f}" if value == int(value) else f"{value:.1f}",
)
RESOURCES = (MEMORY, WALLTIME, CPUS)
LIMITED = (MEMORY, WALLTIME)
"""What a scheduler may end a job for: it used more than it requested."""

LEAST_ORDERED = 8
"""Of fewer jobs, the order says nothing."""
LEAST_SAME = 10
"""Fewer jobs may be the same by chance."""


class Used:
    """What jobs used of one resource, one after another."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.largest: list[float] = []  # of the first, of the first two, ...
        self.mean = self._squares = 0.0
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        self.largest.append(max(value, self.largest[-1]) if self.largest else value)
        difference = value - self.mean
        self.mean += difference / len(self.largest)
        self._squares += difference * (value - self.mean)

    def request(self, resource: JudgedResource) -> int:
        """Return what the next job requests: more than the largest, by how much they differ.

        If the later half is larger than the earlier, as much more as it grew: inputs may grow on.
        """
        number, most = len(self.largest), self.largest[-1]
        spread = math.sqrt(self._squares / (number - 1)) if number > 1 else 0.0
        grew = most - self.largest[number // 2 - 1] if number >= LEAST_ORDERED else 0.0
        return max(resource.enough(most), resource.round_up(most + max(SPREAD * spread, grew)))


def later_use_more(values: Sequence[float]) -> bool | None:
    """Return whether the later half is larger; ``None`` if the order shows no more than runs, else nothing.

    Both tests have 5 %: Mann and Whitney (1947) on the halves, Wald and Wolfowitz (1940) on the runs above
    and below the median.
    """
    number, half = len(values), len(values) // 2
    if number < LEAST_ORDERED or min(values) == max(values):
        return False
    early = sorted(values[:half])
    above = sum(bisect_left(early, value) + bisect_right(early, value) for value in values[half:]) / 2
    pairs = half * (number - half)
    ordered = NormalDist().inv_cdf(0.975)
    if above - pairs / 2 > ordered * math.sqrt(pairs * (number + 1) / 12):
        return True
    middle = median(values)
    signs = [value > middle for value in values]
    high, low = sum(signs), number - sum(signs)
    if not high:
        return False
    runs = 1 + sum(one is not other for one, other in pairwise(signs))
    expected = 1 + 2 * high * low / number
    spread = math.sqrt(max(0.0, (expected - 1) * (expected - 2) / (number - 1)))
    return None if runs - expected < -ordered * spread else False


def replay(jobs: Iterable[PastJob]) -> tuple[int, int, Counter[str]]:
    """Ask for each job, when it was submitted, by those that had ended.

    Return for how many enough had ended, how many of these would have had too little, and of which resource.
    """
    asked, lacking, short, running = 0, 0, Counter[str](), list[tuple[str, int, PastJob]]()
    seen = {resource.name: Used() for resource in LIMITED}
    for number, job in enumerate(sorted(jobs, key=_submitted)):
        while running and running[0][0] <= _submitted(job):
            ended = heappop(running)[2]
            for resource in LIMITED:
                if (used := resource.needed(ended)) is not None:
                    seen[resource.name].add(used)
        heappush(running, (job.over or "~", number, job))
        lacks = _lacks(job, seen)
        asked += bool(lacks)
        lacking += any(lacks.values())
        short.update(name for name, too_little in lacks.items() if too_little)
    return asked, lacking, short


def _lacks(job: PastJob, seen: Mapping[str, Used]) -> dict[str, bool]:
    """Return whether a job would have had too little of each resource that enough jobs show."""
    lacks: dict[str, bool] = {}
    for resource in LIMITED:
        past, needed, requested = seen[resource.name], resource.needed(job), resource.read(job)[0]
        if len(past.largest) >= resource.least and needed is not None and requested is not None:
            lacks[resource.name] = needed > min(past.request(resource), int(requested)) < requested
    return lacks


def _submitted(job: PastJob) -> str:
    return job.submitted or job.began


def barely_sampled(jobs: Sequence[PastJob]) -> bool:
    """Return whether fewer than ten samples of memory exist of most jobs: one may have held much more."""
    return 2 * sum(job.elapsed_s < 10 * job.sampled_s for job in jobs) > len(jobs)


class AlikeJobs:
    """Past jobs of one user, name and request, and what the next one needs.

    Of very many it keeps a part, evenly over time, and all figures of the largest.
    """

    def __init__(self, jobs: Iterable[PastJob] = (), measured: Container[str] = ()) -> None:
        self.jobs: list[PastJob] = []
        self.number, self.well, self.tasks = 0, 0, 0
        # what they held and did not use, as far as the accounting has it
        self.unused_gpu = self.unused_gib = self.unused_cpu = self.gpu_hours = self.cpu_hours = 0.0
        self.ends: Counter[Outcome] = Counter()
        self._unjudged, self._unjudged_hours = Counter[str](), 0.0  # jobs by the reason; their CPU-hours
        self._every, self._last = 1, ""
        self._most = dict.fromkeys((resource.name for resource in RESOURCES), 0.0)  # that any job used
        self.zeros, self._measured = True, measured  # zeros: of the use of a GPU in each job
        for job in jobs:
            self.add(job)

    def add(self, job: PastJob) -> bool:
        """Count a job; return whether it is kept."""
        for resource in RESOURCES:
            self._most[resource.name] = max(self._most[resource.name], resource.read(job)[1] or 0.0)
        if job.outcome:
            self.ends[job.outcome] += 1
        if not job.again and (reason := _why_not_judged(job)):
            self._unjudged[reason] += 1
            self._unjudged_hours += _cpu_hours(job)
        self._count_unused(job)
        self.zeros = self.zeros and job.gpu_percent == 0 and not job.gpu_bytes
        self.well += job.well
        self.tasks += job.job_id != self._last
        self._last = job.job_id
        kept = self.number % self._every == 0
        self.number += 1
        if kept:
            self.jobs.append(job)
        return kept

    def _count_unused(self, job: PastJob) -> None:
        hours, cpu_hours = job.elapsed_s / HOUR_S, _cpu_hours(job)
        self.cpu_hours += cpu_hours
        if job.memory_bytes and job.held_bytes is not None:
            self.unused_gib += hours * job.nodes * max(0, job.memory_bytes - job.held_bytes) / GIB
        if job.cpu_s is not None:
            self.unused_cpu += max(0.0, cpu_hours - job.cpu_s / HOUR_S)
        if gpus := max(job.gpus, job.held_gpus):
            self.gpu_hours += hours * gpus
            self.unused_gpu += hours * max(0.0, gpus - (job.gpu_percent or 0) / PERCENT)

    def thin(self) -> int:
        """Forget every second job that is kept, and return how many; none of a few."""
        before = len(self.jobs)
        if before > LEAST_KEPT:
            self.jobs = self.jobs[::2]
            self._every *= 2
        return before - len(self.jobs)

    @property
    def idle(self) -> bool | None:
        """Whether no job used its GPU; ``None`` if that is not known.

        Zeros say so only where another job on such a GPU has more: a site may be unable to measure it.
        """
        if any(job.gpu_percent is None for job in self.jobs):
            return None
        return self.zeros and (True if self.jobs[0].gpu_type in self._measured else None)

    @property
    def unused(self) -> dict[str, float | None]:
        """The GPU-hours, GiB-hours and CPU-hours that they held and did not use; ``None`` if not known."""
        jobs = self.jobs
        memory = any(job.memory_bytes and job.held_bytes is not None for job in jobs)
        memory = memory and not (self.constant or barely_sampled(jobs))
        return {
            "gpu": None if self.idle is None and jobs[0].gpus else self.unused_gpu,
            "gib": self.unused_gib if memory else None,
            "cpu": None if all(job.cpu_s is None for job in jobs) else self.unused_cpu,
        }

    @property
    def name(self) -> str:
        """The name of the jobs; a pattern if they have several."""
        names = {job.name for job in self.jobs}
        return self.jobs[0].name if len(names) == 1 else pattern_of(self.jobs[0].name)

    @property
    def user(self) -> str:
        return self.jobs[0].user

    def ordered(self) -> list[PastJob]:
        return sorted(self.jobs, key=_submitted)

    def needs(self) -> list[JobNeed]:
        return [self.need(resource) for resource in RESOURCES]

    def need(self, resource: JudgedResource) -> JobNeed:
        """Return what the next job needs of a resource.

        A job that failed, or that something else ended, counts with what it used until then.
        """
        pairs = [resource.read(job) for job in self.ordered()]
        requested, values = pairs[0][0], [value for _, value in pairs if value is not None]
        if values and (most := self._most[resource.name]) > max(values):
            values.append(most)
        exceeded = self.ends[resource.lack] if resource.lack else 0
        return JobNeed(
            name=resource.name,
            requested=requested,
            used=tuple(sorted(values)),
            exceeded=exceeded,
            next=None if requested is None else self._wanted(resource, requested, values, exceeded),
            held=self._held(resource, requested),
            by_default=all(resource.name in job.by_default for job in self.jobs),
        )

    def _wanted(
        self, resource: JudgedResource, requested: float, used: Sequence[float], exceeded: int
    ) -> int | None:
        """Return what to request, if the jobs show it.

        If no job ended by itself, less than before is never advised. More is only if a job had too little or
        used more.
        """
        if resource is CPUS and any(job.nodes > 1 or job.processes > 1 for job in self.jobs):
            return None
        if exceeded:
            return resource.round_up(resource.more * max((requested, *used)))
        if not (used and self.well):
            return None
        if resource is MEMORY and (self.constant or barely_sampled(self.jobs)):
            return None
        most = max(used)
        wanted = Used(used).request(resource) if resource.lack else resource.enough(most)
        return wanted if most > requested else min(int(requested), wanted)

    def _held(self, resource: JudgedResource, requested: float | None) -> float | None:
        """Return what the job that used most held."""
        if resource is CPUS:
            return max((_busy_cpus(job)[1] or 0, max(job.cpus, job.held_cpus)) for job in self.jobs)[1]
        return requested

    @property
    def constant(self) -> bool:
        """Whether the figures of memory are the same for many jobs: a measurement has no such figures."""
        sizes = {job.held_bytes for job in self.jobs}
        return len(self.jobs) >= LEAST_SAME and len(sizes) == 1 and None not in sizes

    @property
    def not_judged(self) -> tuple[Counter[str], float]:
        """The jobs of which a figure says nothing, each once, by the reason; the CPU-hours that they held."""
        same = "the same MaxRSS in each" if self.constant else ""
        short = barely_sampled(self.jobs) and not self.ends[Outcome.RAM_OOM]
        zeros = self.jobs[0].gpus and self.zeros and self.idle is None
        few = "ran for too few samples of their memory" if short else ""
        if reason := same or few or ("0 for each GPU of the type" if zeros else ""):
            return Counter({reason: self.tasks}), self.cpu_hours
        return self._unjudged, self._unjudged_hours

    def reserved_memory(self) -> tuple[float, float] | None:
        """Return the byte-seconds that these jobs reserved, and would have reserved with the next request.

        ``None`` if it is not known what they requested.
        """
        need = self.need(MEMORY)
        if need.requested is None:
            return None
        node_s = math.fsum(job.elapsed_s * job.nodes for job in self.jobs) * self.number / len(self.jobs)
        return node_s * need.requested, node_s * (need.requested if need.next is None else need.next)


def _cpu_hours(job: PastJob) -> float:
    """Return the CPU-hours that a job held."""
    return job.elapsed_s / HOUR_S * max(job.cpus, job.held_cpus)


def _why_not_judged(job: PastJob) -> str:
    if job.doubts:
        return PAGE_CACHE if PAGE_CACHE in job.doubts else "figures that cannot be"
    if job.well and job.held_bytes is None:
        return "no MaxRSS"
    return "no figure of the GPU" if job.gpus and job.gpu_percent is None else ""


@lru_cache(4096)
def pattern_of(name: str) -> str:
    """Return a name without what may be each job's own: numbers, hashes, what stands in parentheses."""
    return re.sub(
        r"\(.*\)|(?<![A-Za-z0-9])(?=[0-9a-f]*\d)[0-9a-f]{3,}(?![A-Za-z0-9])|\d+",
        lambda found: "(*)" if found[0].startswith("(") else "*",
        name,
    )


class History:
    """What an accounting answered: past jobs by user, name and request."""

    def __init__(self, scheduler: str, jobs: Iterable[PastJob] = ()) -> None:
        self.scheduler, self.named = scheduler, ""  # named: the pattern, if jobs were asked for by name
        self.running: list[str] = []  # the ids of those that have not ended
        self.unknown: list[str] = []  # the ids that were asked for and that it does not know
        self.doubted: list[str] = []  # the first jobs with figures that cannot be
        self._measured = set[str]()  # the types of GPUs of which a job has a figure above 0
        self.notes: tuple[str, ...] = ()  # how the site measures memory
        self._found: dict[tuple[object, ...], AlikeJobs] = {}
        self._kept, self._room = 0, MOST_KEPT
        for job in jobs:
            self.add(job)

    def saw_gpu(self, job: PastJob) -> None:
        """Note that the site measures GPUs of the type, if any job, asked for or not, shows it."""
        if (job.gpu_percent or 0) > 0 or job.gpu_bytes:
            self._measured.add(job.gpu_type)

    def add(self, job: PastJob) -> None:
        """Take a job that has ended."""
        if job.doubts and PAGE_CACHE not in job.doubts and len(self.doubted) <= MOST_NAMED:
            self.doubted.append(f"{job.job_id}: {', '.join(job.doubts)}")
        request = (job.memory_bytes, job.walltime_s, job.cpus, job.gpus, job.gpu_type, job.nodes)
        key = (job.user, pattern_of(job.name), *request)
        if (group := self._found.get(key)) is None:
            group = self._found[key] = AlikeJobs((), self._measured)
        self._kept += group.add(job)
        if self._kept > self._room:
            self._kept -= sum(group.thin() for group in self._found.values())
            self._room = max(MOST_KEPT, 2 * self._kept)

    @property
    def jobs(self) -> list[PastJob]:
        return [job for group in self._found.values() for job in group.jobs]

    def groups(self) -> list[AlikeJobs]:
        """Return those of each name apart, but together if the names are each job's own."""
        groups = []
        for group in self._found.values():
            names = dict.fromkeys(job.name for job in group.jobs)
            # So many names are each job's own, if fewer jobs than that have each, on average.
            own = "(*)" in group.name or (len(names) >= 4 and len(names) * 4 > len(group.jobs))
            if len(names) == 1 or own or len(group.jobs) < group.number:
                groups.append(group)
            else:
                apart = ((job for job in group.jobs if job.name == name) for name in names)
                groups += [AlikeJobs(jobs, self._measured) for jobs in apart]
        return groups


def few_hours(hours: float, under: str = "under ") -> str:
    return f"{hours:,.3g}" if hours >= LEAST_HOURS or not hours else f"{under}{LEAST_HOURS}"
