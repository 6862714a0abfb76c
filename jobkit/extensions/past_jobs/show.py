"""Past jobs for a person, and as JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from jobkit.core import terminal
from jobkit.core.blocks import Block, Column
from jobkit.core.records import Outcome
from jobkit.core.terminal import NoWrap
from jobkit.core.units import GIB, format_count, format_list, format_memory, format_walltime
from jobkit.extensions.past_jobs.advice import (
    CONFIDENCE,
    CPUS,
    MEMORY,
    WALLTIME,
    AlikeJobs,
    JobNeed,
    JudgedResource,
    alike,
    chance_of_next,
    covered_share,
)
from jobkit.extensions.past_jobs.ask import MOST_NAMED, History, past_of
from jobkit.schedulers.protocol import PastJob
from jobkit.schedulers.registry import by_name

HOUR_S = 3600.0
PERCENT = 100
MOST_GROUPS, MOST_ROWS = 10, 20
PIECE = 1000
"""Jobs that are printed at once as JSON."""
_FIELDS = tuple(field.name for field in fields(PastJob))
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
    more, unknown = [need.name for need in needs if need.overused], [n.name for n in needs if n.most is None]
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
        **{NoWrap(line, "  "): True for line in lines},
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
            rows = (terminal.as_json({name: getattr(job, name) for name in _FIELDS}) for job in jobs)
            yield ("," if first else "") + "\n " + ",\n ".join(rows)
        yield "],\n " + terminal.as_json(_group_data(group))[1:]
    yield "]}\n"


def _group_data(group: AlikeJobs) -> dict[str, Any]:
    number, reserved = group.ended_well, group.reserved_memory()
    return {
        "needs": [asdict(group.need(resource)) for resource in (MEMORY, WALLTIME, CPUS)],
        "ended_well": number,
        "chance_of_next": chance_of_next(number),
        "covered_share": covered_share(number),
        "lines": _lines(group),
        "idle_gpu_hours": None if group.idle_gpu_s is None else group.idle_gpu_s / HOUR_S,
        "reserved_gib_hours": reserved and [size / GIB / HOUR_S for size in reserved],
    }
