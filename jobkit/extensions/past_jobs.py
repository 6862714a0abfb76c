"""What past jobs requested and did not use, whoever submitted them, and what the next should request."""

from __future__ import annotations

import importlib
import math
import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median
from typing import cast

from jobkit.core import shell, terminal
from jobkit.core.blocks import Block, Column
from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.paths import user_name
from jobkit.core.records import Outcome
from jobkit.core.units import GIB, format_count, format_list, format_memory, format_walltime
from jobkit.runs.request import memory_request, round_up_memory, round_up_walltime, walltime_request
from jobkit.schedulers.protocol import PastJob, PastJobs, without_impossible
from jobkit.schedulers.registry import by_name, choose_scheduler, query_environment, runs_here
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


JOB_ID = re.compile(
    r"\d+(?:[_.+]\d+|[_.]?\[[\d,:%-]*\]|[_.]\d+-[\d:-]+)?(?:\.(?:\d+|batch|extern|interactive))?"
)
"""How people type a job: ``4711`` or ``4711_[1-3]``, a task ``4711_3`` or ``4711.3``, a part ``4711+1``, and
a step, ``4711.batch``."""
_TASKS = re.compile(r"[_.]?\[|[_.]\d+-")
MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the accounting answered."""

    scheduler: str  # its name
    jobs: tuple[PastJob, ...]  # those that have ended
    running: tuple[str, ...]  # the ids of those that have not
    unknown: tuple[str, ...]  # the ids that were asked for and that it does not know
    sampling_s: float | None  # seconds between two samples of memory; ``None`` if that is not known


def ask(ids: Sequence[str], *, days: int, name: str = "*", scheduler: str = "auto") -> History:
    """Return past jobs: those of the ids, or my own of the last days.

    ``ids``: as a person types them.
    ``days``: how far back to look without ids.
    ``name``: A pattern that their names match.
    ``scheduler``: whose accounting; ``auto`` for the first that is here.
    """
    scheduler, why = choose_scheduler(scheduler)
    if runs_here(by_name(scheduler).NAME):
        raise JobkitError(
            f"no accounting to ask about jobs: {why}", hint="type it on a login node of the cluster"
        )
    past, ids = past_of(scheduler), [_TASKS.split(id_)[0] for id_ in ids]
    environment = query_environment(by_name(scheduler))
    asking = past.site_argvs(tuple(ids), user_name())
    site = "".join(shell.run(argv, env=environment).stdout for argv in asking)
    every = [
        job
        for argv in past.argvs(tuple(ids), user_name(), days)
        for job in _read(past, argv, site, environment)
    ]
    asked = [
        job
        for job in every
        if (job.name == name or fnmatchcase(job.name, name))
        and (not ids or any(_is(job, id_) for id_ in ids))
    ]
    over = {job.job_id for job in asked if job.ended}
    found = History(
        scheduler=scheduler,
        jobs=tuple(job for job in asked if (job.ended or (job.again and job.job_id in over)) and job.began),
        running=tuple(dict.fromkeys(job.job_id for job in asked if not job.ended and job.job_id not in over)),
        unknown=tuple(id_ for id_ in ids if not any(_is(job, id_) for job in every)),
        sampling_s=past.sampling_s(site),
    )
    if not found.jobs:
        message, hint = _nothing(found, past, ids, days, name)
        raise JobkitError(message, hint=hint)
    return found


def past_of(scheduler: str) -> PastJobs:
    """Return how the accounting of a scheduler is asked."""
    try:
        return cast("PastJobs", importlib.import_module(f"jobkit.schedulers.{scheduler}_past"))
    except ModuleNotFoundError:
        title = by_name(scheduler).TITLE
        message = f"jobkit reads past jobs in the accounting of Slurm and Grid Engine, not of {title}"
        raise JobkitError(message, hint="a run of jobkit has records of its own: jobkit waste RUN") from None


def _is(job: PastJob, word: str) -> bool:
    """Return whether a word names a job, or the array or the heterogeneous job that it is part of."""
    return word in {job.job_id, re.split(r"[_.+]", job.job_id)[0]}


def _read(
    past: PastJobs, argv: tuple[str, ...], site: str, environment: Mapping[str, str]
) -> Iterator[PastJob]:
    """Yield the jobs of an answer, which waits in a file: it may be larger than the memory."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stream:
        answer = shell.run_streaming(argv, stream.write, text="", env=environment)
        if refusal := past.refusal(answer):
            message = f"{past.ACCOUNTING} does not answer: {' '.join(refusal.split())}"
            hint = "--scheduler NAME asks another scheduler; jobkit waste RUN reads the records of a run"
            raise JobkitError(message, hint=hint, exit_code=ExitCode.REFUSED)
        stream.seek(0)
        yield from map(without_impossible, past.read(stream, site))


def _nothing(found: History, past: PastJobs, ids: Sequence[str], days: int, name: str) -> tuple[str, str]:
    if found.running:
        what = format_list(list(found.running), MOST_NAMED)
        more = f"; not in the accounting: {', '.join(found.unknown)}" if found.unknown else ""
        return (
            f"{what}: not ended yet, so what it used is not known{more}",
            "type the command again when the job has ended",
        )
    if ids:
        what, mine = format_list(list(ids), MOST_NAMED), "jobkit waste --mine --days 30 lists yours"
        if whole := [id_ for id_ in found.unknown if not id_.isdecimal()]:
            hint = f"of the whole job: jobkit waste {' '.join(re.split(r'[_.+]', id_)[0] for id_ in whole)}"
            return f"{what}: {past.ACCOUNTING} has no job or task of this name", hint
        if found.unknown:
            return f"{what}: {past.ACCOUNTING} has no such job", f"was the job on this cluster? {mine}"
        return f"{what}: it never began, so it used nothing", mine
    which = "" if name == "*" else f" called {name!r}"
    message = f"no job of yours{which} ended in the last {format_count(days, 'day')}"
    return message, f"look further back: --days {4 * days}; upper and lower case differ in a name"


HOUR_S = 3600.0
PERCENT = 100
MOST_GROUPS, MOST_ROWS = 10, 20
PIECE = 1000
"""Jobs that are printed at once as JSON."""
_ENDS = {Outcome.RAM_OOM: "ran out of memory", Outcome.TIMEOUT: "ran out of walltime"}
_WORDS: dict[str, Callable[[float], str]] = {
    MEMORY.name: format_memory,
    WALLTIME.name: format_walltime,
    CPUS.name: lambda value: f"{value:.0f}" if value == int(value) else f"{value:.1f}",
}


def worst_first(jobs: Iterable[PastJob]) -> list[AlikeJobs]:
    """Return the jobs by name and request: first those that had too little, then those that wasted most."""
    return sorted(
        alike(jobs), key=lambda group: (not group.lacked, -(group.idle_gpu_s or 0), -group.saved_memory)
    )


def blocks(history: History, groups: Sequence[AlikeJobs], *, table: bool = False) -> Iterator[Block]:
    """Yield a table with a line for each group, or a block for each; and what the figures cannot show."""
    most = MOST_ROWS if table else MOST_GROUPS
    if table:
        names = format_count(len({group.jobs[0].name for group in groups}), "name")
        where = f"on {by_name(history.scheduler).TITLE}, the most urgent first"
        title = f"{format_count(len(history.jobs), 'job')} of {names} {where}"
        yield Block(title=title, columns=_overview(groups[:most]))
    else:
        yield from map(_details, groups[:most])
    others = list(dict.fromkeys(group.jobs[0].name for group in groups[most:]))
    doubted = [f"{job.job_id}: {', '.join(job.doubts)}" for job in history.jobs if job.doubts]
    every, jobs = history.sampling_s or 0, history.jobs
    lines: dict[str, object] = {
        f"Less to gain, and not shown: {format_list(others, MOST_NAMED)}. To see one: --name NAME.": others,
        "The lines leave room: a fifth more memory, at least 256 MiB, up to the next 100 MiB or GiB, "
        "and two minutes and a quarter more time, up to the next 5 minutes.": not table
        and any(map(_lines, groups)),
        f"Not ended yet, so not counted: {format_list(history.running, MOST_NAMED)}.": history.running,
        f"Not in the accounting: {format_list(history.unknown, MOST_NAMED)}.": history.unknown,
        f"Impossible, so jobkit does not use it: {format_list(doubted, MOST_NAMED)}.": doubted,
        f"Memory is sampled every {every:g} s: the accounting does not see a peak that is shorter.": every,
        "Memory is sampled: the accounting does not see a short peak.": not every
        and any(job.held_bytes for job in jobs),
        "The accounting adds up the peaks of the processes of a job, which together may have held less.": any(
            job.processes > 1 for job in jobs
        ),
        "This site does not record the use of GPUs. In a job, this measures it once: "
        "nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv -l 5": any(
            job.gpus and job.gpu_percent is None for job in jobs
        ),
    }
    yield Block(after=tuple(line for line, holds in lines.items() if holds))


def _overview(groups: Sequence[AlikeJobs]) -> tuple[Column, ...]:
    """Return a row for each group: the part of its request that the job which used most has used."""

    def used(group: AlikeJobs, resource: JudgedResource) -> str:
        need, words = group.need(resource), _WORDS[resource.name]
        if need.most is None or not need.requested:
            return "not known" if need.most is None else words(need.most)
        part = "too little:" if need.exceeded else f"{PERCENT * need.most / need.requested:,.0f} % of"
        return f"{part} {words(need.requested)}"

    rows = (
        (
            group.jobs[0].name,
            f"{len({job.job_id for job in group.jobs}):,}",
            *(used(group, resource) for resource in (MEMORY, WALLTIME, CPUS)),
            f"{group.jobs[0].gpus}: {_gpu(group)[1]}" if group.jobs[0].gpus else "",
            f"{group.saved_memory / GIB / HOUR_S:,.3g}" if group.saved_memory > 0 else "",
        )
        for group in groups
    )
    note = (
        "%: share of the request that the largest job used; too little: jobs ended for lack of the resource"
    )
    heads = ("name", "jobs", "memory", "walltime", "CPUs busy", "GPUs", "GiB-hours\nto save")
    return tuple(
        Column(head, cells, rank=max(0, number - 3), left=not number, notes=() if number else (note,))
        for number, (head, cells) in enumerate(zip(heads, zip(*rows, strict=True), strict=True))
    )


def _details(group: AlikeJobs) -> Block:
    first, last = group.jobs[0], group.jobs[-1]
    ids = list(dict.fromkeys(job.job_id for job in group.jobs))
    when = " to ".join(dict.fromkeys((first.began[:10], last.began[:10])))
    needs = [group.need(resource) for resource in (MEMORY, WALLTIME, CPUS)]
    rows = [*map(_row, needs), *([("GPUs", str(first.gpus), *_gpu(group))] if first.gpus else [])]
    heads = ("", "requested", "used, median", "used" if len(group.jobs) == 1 else "used, most", "next job")
    ends = Counter(_end(job) for job in group.jobs if not job.well)
    unlimited = (need for need in needs if not need.exceeded and need.requested is not None)
    more = [need.name for need in unlimited if (need.most or 0) > (need.requested or 0)]
    unknown = [need.name for need in needs if need.most is None]
    idle_s, lines = group.idle_gpu_s or 0, _lines(group)
    before, after = group.reserved_memory() or (0.0, 0.0)
    fits = not lines and group.ended_well and not idle_s
    other = " (--mem also in place of --mem-per-cpu)" if any("--mem=" in line for line in lines) else ""
    less = PERCENT * (1 - after / before) if before else 0
    sentences: dict[str, object] = {
        **{f"{format_count(n, 'job')} {end}: a whole run may use more.": n for end, n in ends.most_common()},
        _confidence(group): True,
        f"No job used its GPU: leave out its line. The jobs held {idle_s / HOUR_S:,.3g} GPU-hours.": idle_s,
        f"Jobs used more than requested ({', '.join(more)}): with a limit such jobs end or are slower.": more,
        f"Not known: {', '.join(unknown)}.": fits and unknown,
        "The request fits: change nothing.": fits and not unknown,
        f"For the next job like these, in place of its own lines{other}:": lines,
        **{terminal.NoWrap(line, "  "): True for line in lines},
        f"With these lines the jobs would have reserved {less:.0f} % fewer GiB-hours of memory.": less > 0,
    }
    return Block(
        title=f"{first.name}: {format_count(len(ids), 'job')} on {by_name(first.scheduler).TITLE}, {when}",
        before=(f"{format_list(ids, MOST_NAMED)}, by {first.user}, in {first.queue}",),
        columns=tuple(
            Column(head, cells, left=not head)
            for head, cells in zip(heads, zip(*rows, strict=True), strict=True)
        ),
        after=tuple(sentence for sentence, holds in sentences.items() if holds),
    )


def _row(need: JobNeed) -> tuple[str, ...]:
    words = _WORDS[need.name]
    requested = "not known" if need.requested is None else words(need.requested)
    if need.most is None or need.middle is None:
        return need.name, requested, "", "not known", ""
    mark = "more than " if need.exceeded else ""
    following = words(need.next) if need.next is not None and need.changes else "as it is"
    middle = words(need.middle) if len(need.used) > 1 else ""
    return need.name, requested, middle, f"{mark}{words(need.most)}", following


def _gpu(group: AlikeJobs) -> tuple[str, str, str]:
    """Return what is known of the use of GPUs, by the job that used most, and the next request."""
    known = [job for job in group.jobs if job.gpu_percent is not None or job.gpu_bytes is not None]
    if not known:
        return "", "not recorded", ""
    percents = [job.gpu_percent for job in known if job.gpu_percent is not None]
    sizes = [job.gpu_bytes for job in known if job.gpu_bytes is not None]
    used = [f"{max(percents):.0f} % busy"] if percents else []
    used += [format_memory(max(sizes))] if sizes else []
    return "", ", ".join(used), "0" if group.idle_gpu_s else "as it is"


def _end(job: PastJob) -> str:
    if job.again:
        return "ran again"
    return _ENDS.get(job.outcome, f"ended as {job.outcome}") if job.outcome else f"failed ({job.state})"


def _confidence(group: AlikeJobs) -> str:
    """Return what the number of the jobs says about the next one."""
    number = group.ended_well
    if not number:
        return "No job completed, so jobkit does not advise less."
    if group.lacked:
        return "Some jobs had too little, so jobkit cannot know how often the next job has enough."
    if number == 1:
        name = shlex.quote(group.jobs[0].name)
        return f"One job is little evidence: about 1 in 2 of the next jobs uses more. Try --name {name}."
    more = PERCENT * (1 - covered_share(number))
    return (
        f"By the {number:,} jobs that completed, about 1 in {number + 1:,} of the next jobs uses more than "
        f"all of these; at most {f'{more:.0f}' if more >= 1 else f'{more:.1g}'} %, "
        f"with {PERCENT * CONFIDENCE:.0f} % confidence."
    )


def _lines(group: AlikeJobs) -> list[str]:
    memory, walltime, cpus = (group.need(resource) for resource in (MEMORY, WALLTIME, CPUS))
    first = group.jobs[0]
    fewer = cpus.next if cpus.changes and first.nodes == 1 and first.processes == 1 else None
    return past_of(first.scheduler).lines(
        first,
        memory=memory.next if memory.changes else None,
        walltime=walltime.next if walltime.changes else None,
        cpus=fewer,
    )


def as_json(history: History) -> Iterator[str]:
    """Yield JSON in pieces, so that many jobs need little memory; docs/waste.md lists the keys."""
    keys = ("scheduler", "sampling_s", "running", "unknown")
    yield terminal.as_json({key: getattr(history, key) for key in keys})[:-1] + ', "groups": ['
    for number, group in enumerate(alike(history.jobs)):
        yield f'{"," if number else ""}\n{{"name": {terminal.as_json(group.jobs[0].name)}, "jobs": ['
        for first in range(0, len(group.jobs), PIECE):
            jobs = group.jobs[first : first + PIECE]
            yield ("," if first else "") + "\n " + ",\n ".join(map(terminal.as_json, jobs))
        well, reserved = group.ended_well, group.reserved_memory()
        data = {
            "needs": [group.need(resource) for resource in (MEMORY, WALLTIME, CPUS)],
            "ended_well": well,
            "chance_of_next": chance_of_next(well),
            "covered_share": covered_share(well),
            "lines": _lines(group),
            "idle_gpu_hours": None if group.idle_gpu_s is None else group.idle_gpu_s / HOUR_S,
            "reserved_gib_hours": reserved and [size / GIB / HOUR_S for size in reserved],
        }
        yield "],\n " + terminal.as_json(data)[1:]
    yield "]}\n"
