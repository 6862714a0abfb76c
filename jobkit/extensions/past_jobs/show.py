"""Past jobs for a person, and as JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
    alike,
    chance_of_next,
    covered_share,
)
from jobkit.extensions.past_jobs.ask import MOST_NAMED, History, past_of
from jobkit.schedulers.past import PastJob
from jobkit.schedulers.registry import by_name

HOUR_S = 3600.0
PERCENT = 100
MOST_GROUPS = 10
PIECE = 1000
"""Jobs that are printed at once as JSON."""
_FIELDS = tuple(field.name for field in fields(PastJob))
_ENDS = {Outcome.RAM_OOM: "ran out of memory", Outcome.TIMEOUT: "ran out of walltime"}


def blocks(history: History) -> Iterator[Block]:
    """Yield a block for the jobs of each name and request, the most urgent first, and one for all."""
    groups = sorted(alike(history.jobs), key=lambda group: (not group.lacked, -group.saved_memory))
    for group in groups[:MOST_GROUPS]:
        yield Block.of(_title(group), _columns(group), _after(group))
    yield Block(after=tuple(_closing(history, groups[MOST_GROUPS:])))


def _title(group: AlikeJobs) -> Iterator[str]:
    first, last = group.jobs[0], group.jobs[-1]
    names = list(dict.fromkeys(job.job_id for job in group.jobs))
    ids, number = format_list(names, MOST_NAMED), format_count(len(names), "job")
    when = " to ".join(dict.fromkeys((first.began[:10], last.began[:10])))
    yield f"{first.name}: {number} on {by_name(first.scheduler).TITLE}, {when}"
    yield f"{ids}, by {first.user}, in {first.queue}"


def _columns(group: AlikeJobs) -> tuple[Column, ...]:
    rows = [*map(_row, ((group.need(MEMORY), format_memory), (group.need(WALLTIME), format_walltime)))]
    rows += [_row((group.need(CPUS), _cpus))]
    if group.jobs[0].gpus:
        rows.append(("GPUs", str(group.jobs[0].gpus), *_gpu(group)))
    names, requested, middle, most, following = zip(*rows, strict=True)
    return (
        Column("", names, left=True),
        Column("requested", requested),
        Column("used, median", middle),
        Column("used" if len(group.jobs) == 1 else "used, most", most),
        Column("next job", following),
    )


def _cpus(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _row(of: tuple[JobNeed, Callable[[float], str]]) -> tuple[str, str, str, str, str]:
    need, words = of
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


def _after(group: AlikeJobs) -> Iterator[str]:
    yield from _ends(group)
    yield from _confidence(group)
    if idle_s := group.idle_gpu_s:
        yield f"No job used its GPU: leave out its line. They held {idle_s / HOUR_S:,.3g} GPU-hours."
    needs = [group.need(resource) for resource in (MEMORY, WALLTIME, CPUS)]
    if more := [need.name for need in needs if need.overused]:
        yield f"More was used than requested ({', '.join(more)}): under a limit such jobs end, or are slower."
    lines = _lines(group)
    if not lines:
        if group.ended_well and not idle_s:
            unknown = [need.name for need in needs if need.most is None]
            yield f"Not known: {', '.join(unknown)}." if unknown else "The request fits: change nothing."
        return
    other = " (--mem also in place of --mem-per-cpu)" if any("--mem=" in line for line in lines) else ""
    yield f"For the next job like these, in place of its own lines{other}:"
    yield from (NoWrap(line, "  ") for line in lines)
    before, after = group.reserved_memory() or (0.0, 0.0)
    if after < before:
        less = PERCENT * (1 - after / before)
        yield f"With them these jobs would have reserved {less:.0f} % less memory over time."


def _ends(group: AlikeJobs) -> Iterator[str]:
    """Yield how many of the jobs did not complete."""
    ends = Counter(_end(job) for job in group.jobs if not job.well)
    for words, number in ends.most_common():
        yield f"{format_count(number, 'job')} {words}: a whole run may use more."
    if not group.ended_well:
        yield "No job completed, so jobkit does not advise less."


def _end(job: PastJob) -> str:
    if job.again:
        return "ran again"
    return _ENDS.get(job.outcome, f"ended as {job.outcome}") if job.outcome else f"failed ({job.state})"


def _confidence(group: AlikeJobs) -> Iterator[str]:
    """Yield what the number of the jobs says about the next one."""
    number, first = group.ended_well, group.jobs[0]
    if not number:
        return
    if group.lacked:
        yield "Some had too little, so how often the next one has enough cannot be said."
    elif number == 1:
        yield f"One job says little: every second one uses more. Try --name {shlex.quote(first.name)}."
    else:
        more = PERCENT * (1 - covered_share(number))
        most = f"{more:.0f}" if more >= 1 else f"{more:.1g}"
        yield (
            f"By the {number:,} jobs that completed, about 1 in {number + 1:,} of the next uses more than "
            f"any of them; at most {most} %, with {PERCENT * CONFIDENCE:.0f} % confidence."
        )


def _lines(group: AlikeJobs) -> list[str]:
    """Return the header lines of the next job: of what changes."""
    memory, walltime, cpus = (group.need(resource) for resource in (MEMORY, WALLTIME, CPUS))
    first = group.jobs[0]
    fewer = cpus.next if cpus.changes and first.nodes == 1 and first.processes == 1 else None
    return past_of(first.scheduler).lines(
        first,
        memory=memory.next if memory.changes else None,
        walltime=walltime.next if walltime.changes else None,
        cpus=fewer,
    )


def _closing(history: History, others: Sequence[AlikeJobs]) -> Iterator[str]:
    """Yield what is not shown, what the lines add, and what the figures cannot show."""
    if others:
        names = format_list(list(dict.fromkeys(group.jobs[0].name for group in others)), MOST_NAMED)
        yield f"Less to gain, and not shown: {names}. To see one: --name NAME."
    if any(_lines(group) for group in alike(history.jobs)):
        yield (
            "The lines leave room: a fifth more memory, at least 256 MiB, up to the next 100 MiB or GiB, "
            "and two minutes and a quarter more time, up to the next 5 minutes."
        )
    yield from _doubts(history)


def _doubts(history: History) -> Iterator[str]:
    """Yield what the figures cannot show."""
    if history.running:
        yield f"Not ended yet, so not counted: {format_list(list(history.running), MOST_NAMED)}."
    if history.unknown:
        yield f"Not in the accounting: {format_list(list(history.unknown), MOST_NAMED)}."
    if doubted := [f"{job.job_id}: {', '.join(job.doubts)}" for job in history.jobs if job.doubts]:
        yield f"Cannot be, so it is not used: {format_list(doubted, MOST_NAMED)}."
    if history.sampling_s:
        yield (
            f"Memory is sampled every {history.sampling_s:g} s: the accounting does not see a peak that is "
            "shorter."
        )
    elif any(job.held_bytes for job in history.jobs):
        yield "Memory is sampled: the accounting does not see a short peak."
    if any(job.processes > 1 for job in history.jobs):
        yield (
            "Memory of several processes is added up, each at its own peak: together they may have held less."
        )
    if any(job.gpus and job.gpu_percent is None for job in history.jobs):
        yield (
            "This site does not record the use of GPUs. In a job, this measures it once: "
            "nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv -l 5"
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
