"""What past jobs did not use, for a person, as CSV and as JSON."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median

from jobkit.core import terminal
from jobkit.core.blocks import UNKNOWN, Block, Column, columns_of
from jobkit.core.errors import JobkitError
from jobkit.core.records import Outcome
from jobkit.core.units import GIB, format_count, format_list, format_memory
from jobkit.extensions.past_jobs.groups import (
    HOUR_S,
    LEAST_HOURS,
    LEAST_SAME,
    LIMITED,
    PERCENT,
    RESOURCES,
    AlikeJobs,
    History,
    JobNeed,
    barely_sampled,
    few_hours,
    later_use_more,
    pattern_of,
    replay,
)
from jobkit.runs.which_run import find_run
from jobkit.schedulers.protocol import RUN_NAME, PastJob
from jobkit.schedulers.registry import by_name, past_of

MOST_GROUPS, MOST_ROWS = 10, 20
_WORDS = {resource.name: resource.words for resource in RESOURCES}


def worst_first(history: History, least_hours: float = 0.0) -> list[AlikeJobs]:
    """Return the jobs by their largest share of what the worst leave unused, so no largest figure is late.

    ``least_hours``: leave out what leaves less unused, of each resource.
    """
    found = [(group, [value or 0.0 for value in group.unused.values()]) for group in history.groups()]
    largest = [max(LEAST_HOURS, *column) for column in zip(*(hours for _, hours in found), strict=True)]
    found = [(group, hours) for group, hours in found if max(hours) >= least_hours]
    found.sort(key=lambda one: sorted((-a / b for a, b in zip(one[1], largest, strict=True))))
    return [group for group, _ in found]


def blocks(history: History, groups: Sequence[AlikeJobs], *, table: bool = False) -> Iterator[Block]:
    """Yield a table with a line for each group, or a block for each; and what the figures cannot show."""
    most, shown = MOST_ROWS if table else MOST_GROUPS, groups[: MOST_ROWS if table else MOST_GROUPS]
    if table:
        names, users = {group.name for group in groups}, {group.user for group in groups}
        of = format_count(len(users), "user") if len(users) > 1 else format_count(len(names), "name")
        jobs = format_count(sum(group.tasks for group in groups), "job")
        of += f" of {groups[0].user}" if len(users) == 1 else ""
        title = f"{jobs} of {of} on {by_name(history.scheduler).TITLE}, the worst first"
        yield Block(title=title, before=_not_judged(groups), columns=_overview(shown))
    else:
        yield from (_details(history, group) for group in shown)
    others = list(dict.fromkeys(group.name for group in groups[most:]))
    yield Block(after=(*_cautions(history, shown, others, table=table),))


def _reasons(groups: Sequence[AlikeJobs]) -> Counter[str]:
    return sum((group.not_judged[0] for group in groups), Counter[str]())


def _not_judged(groups: Sequence[AlikeJobs]) -> tuple[str, ...]:
    """Return a line on the jobs of which a figure says nothing; nothing if there are none."""
    reasons, hours = _reasons(groups), math.fsum(group.not_judged[1] for group in groups)
    why = ", ".join(f"{reason} ({number:,})" for reason, number in reasons.most_common())
    jobs = f"{format_count(reasons.total(), 'job')}, {few_hours(hours)} CPU-hours"
    return (f"{jobs} could not be judged in full: {why}.",) if reasons else ()


def _cautions(
    history: History, shown: Sequence[AlikeJobs], others: list[str], *, table: bool
) -> Iterator[str]:
    jobs = [job for group in shown for job in group.jobs]
    if others:
        yield f"Less to gain, and not shown: {format_list(others)}. To see one: --name NAME."
    if not table and any(lines_for(group) for group in shown):
        yield (
            "The lines leave room: a tenth more memory, at least 256 MiB, twice the standard deviation, and "
            "what the later half used more than the earlier; as much time again, at least four minutes."
        )
    for words, ids in (
        ("Not ended yet, so not counted", history.running),
        ("Not in the accounting", history.unknown),
        ("Impossible, so not used", history.doubted),
    ):
        if ids:
            yield f"{words}: {format_list(ids)}."
    if any(job.held_bytes for job in jobs):
        yield from history.notes
    if any(job.processes > 1 for job in jobs):
        yield "The accounting adds up the peaks of the processes of a job, which together may have held less."
    if any(job.gpus and job.gpu_percent is None for job in jobs):
        yield (
            "This site does not record the use of GPUs. In a job, this measures it once: "
            "nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv -l 5"
        )


def _overview(groups: Sequence[AlikeJobs]) -> tuple[Column, ...]:
    """Return a row for each group: its unused hours, and the largest part of its request in use."""

    def used(need: JobNeed) -> str:
        words = _WORDS[need.name]
        if need.most is None or not need.held:
            return "not known" if need.most is None else words(need.most)
        part = "too little:" if need.exceeded else f"{PERCENT * need.most / need.held:,.0f} % of"
        return f"{part} {words(need.held)}{_default(need)}"

    def hours(group: AlikeJobs, name: str) -> str:
        value = group.unused[name]
        if name not in unused or (name == "gpu" and not group.gpu_hours):
            return ""
        return UNKNOWN if value is None else few_hours(value, "<")

    several = len({group.user for group in groups}) > 1
    unused = {name for group in groups for name, value in group.unused.items() if value}
    rows = (
        (
            *(group.user if several else "", group.name, f"{group.tasks:,}"),
            *(hours(group, name) for name in ("gpu", "gib", "cpu")),
            *map(used, group.needs()),
            f"{group.jobs[0].gpus}: {_gpu(group)[1]}" if group.jobs[0].gpus else "",
        )
        for group in groups
    )
    notes = (
        "order: by the hours, each as a share of the largest in its column",
        "hours: of the GPUs, memory and CPUs that the jobs held and did not use, however they ended",
        "%: share of the request, or of the CPUs held, that the largest job used",
        "too little: jobs ended for lack of the resource; ?: not known",
    )
    heads = {"user": 0, "name": 0, "jobs": 0, "GPU-\nhours": 1, "GiB-\nhours": 1, "CPU-\nhours": 1}
    heads |= {"memory": 0, "walltime": 2, "CPUs busy": 3, "GPUs": 4}
    return tuple(
        Column(head, cells, rank=rank, left=head in {"user", "name"}, notes=notes if rank else ())
        for (head, rank), cells in zip(heads.items(), zip(*rows, strict=True), strict=True)
    )


def _details(history: History, group: AlikeJobs) -> Block:
    first, last = group.jobs[0], group.jobs[-1]
    ids = list(dict.fromkeys(job.job_id for job in group.jobs))
    when = " to ".join(dict.fromkeys((first.began[:10], last.began[:10])))
    rows = [_row(need) for need in group.needs()]
    rows += [("GPUs", str(first.gpus), *_gpu(group))] if first.gpus else []
    heads = ("", "requested", "used, median", "used" if group.number == 1 else "used, most", "next job")
    return Block(
        title=f"{group.name}: {format_count(group.tasks, 'job')} on {by_name(first.scheduler).TITLE}, {when}",
        before=(*_not_judged([group]), f"{format_list(ids)}, by {group.user}, in {first.queue}"),
        columns=columns_of(heads, rows, {""}),
        after=tuple(_findings(history, group)),
    )


def _findings(history: History, group: AlikeJobs) -> Iterator[str]:
    """Yield how the jobs ended, what their figures show, and the lines for the next one."""
    first, needs, idle, lines = group.jobs[0], group.needs(), group.idle, lines_for(group)
    yield from _ends(group)
    yield from _confidence(group, history.named)
    yield from _figures(group, needs)
    whole = first.held_cpus > 2 * first.cpus  # two threads of a core are no whole node
    if whole:
        held = f"{first.held_cpus} CPUs" + (f" and {first.held_gpus} GPUs" if first.held_gpus else "")
        yield f"Each job held {held} and requested {format_count(first.cpus, 'CPU')}: leave out --exclusive."
    if first.tasks > 1 and (fewer := needs[2]).changes:
        ran = f"one ran at a time, on {format_count(fewer.next or 1, 'CPU')}"
        yield f"Each job asked for {first.tasks} tasks; {ran}: without srun a script runs once."
    if idle:
        yield f"No job used its GPU: leave out its line. They held {few_hours(group.gpu_hours)} GPU-hours."
    if not lines and group.well == group.number and not (idle or whole):
        unknown = [f"use of {need.name}" for need in needs if need.most is None]
        unknown += [f"requested {need.name}" for need in needs if need.requested is None]
        unknown += ["use of the GPU"] if first.gpus and idle is None else []
        if unknown:
            yield f"Not known: {', '.join(unknown)}."
        fits = [need.name for need in needs if need.next is not None]
        if not unknown and len(fits) == len(needs):
            yield "The request fits: change nothing."
        elif fits:
            yield f"These parts of the request may stay: {', '.join(fits)}."
    if lines:
        shared = f" (--mem also in place of --mem-per-cpu{' and --mem-per-gpu' if first.gpus else ''})"
        other = shared if any("--mem=" in line for line in lines) else ""
        yield f"For the next job like these, in place of its own lines{other}:"
        yield from (terminal.NoWrap(line, "  ") for line in lines)
    before, after = group.reserved_memory() or (0.0, 0.0)
    if after < before:
        less = PERCENT * (1 - after / before)
        yield f"With these lines the jobs would have reserved {less:.0f} % fewer GiB-hours of memory."


def _figures(group: AlikeJobs, needs: Sequence[JobNeed]) -> Iterator[str]:
    """Yield what is strange about the figures of the jobs."""
    if barely_sampled(group.jobs) and not needs[0].exceeded:
        ran_s, need_s = max(job.elapsed_s for job in group.jobs), 10 * group.jobs[0].sampled_s
        ran = f"jobs ran {ran_s:,.0f} s at most, and ten samples take {need_s:,.0f} s"
        yield f"Use of memory is not known: {ran}."
    whole_s = [job.elapsed_s for job in group.jobs if job.well]
    if len(whole_s) >= LEAST_SAME and (usual_s := median(whole_s)) < 60.0:
        tiny = f"Half of the jobs ran {usual_s:,.0f} s or less, and each has its wait and its start"
        yield f"{tiny}: one job that runs several costs less (jobkit help waste)."
    if group.idle is None and group.jobs[0].gpu_percent is not None:
        yield "The GPU has 0 in each job, and no other job shows that this site measures it."
    if group.constant:
        yield f"Each of {group.number:,} jobs has the same MaxRSS: that is no measurement."
    unlimited = [need for need in needs if not need.exceeded and need.requested is not None]
    if more := ", ".join(need.name for need in unlimited if (need.most or 0) > (need.held or 0)):
        yield f"Jobs used more than requested ({more}): with a limit such jobs end or are slower."


def _default(need: JobNeed) -> str:
    return " (default)" if need.by_default else ""


def _row(need: JobNeed) -> tuple[str, ...]:
    words = _WORDS[need.name]
    requested = "not known" if need.requested is None else words(need.requested) + _default(need)
    if need.held != need.requested and need.held:
        requested += f", held {words(need.held)}"
    if need.most is None:
        return need.name, requested, "", "not known", ""
    mark = "more than " if need.exceeded else ""
    following = "not known" if need.next is None else words(need.next) if need.changes else "as it is"
    middle = words(median(need.used)) if len(need.used) > 1 else ""
    return need.name, requested, middle, f"{mark}{words(need.most)}", following


def _gpu(group: AlikeJobs) -> tuple[str, str, str]:
    """Return what is known of the use of GPUs, by the job that used most, and the next request."""
    known = [job for job in group.jobs if job.gpu_percent is not None or job.gpu_bytes is not None]
    if not known or (group.zeros and group.idle is None):
        return "", "not known" if known else "not recorded", ""
    percents = [job.gpu_percent for job in known if job.gpu_percent is not None]
    sizes = [job.gpu_bytes for job in known if job.gpu_bytes is not None]
    used = [f"{max(percents):.0f} of {PERCENT * known[0].gpus} % busy"] if percents else []
    used += [format_memory(max(sizes))] if sizes else []
    return "", ", ".join(used), "0" if group.idle else "as it is"


def _ends(group: AlikeJobs) -> Iterator[str]:
    """Yield how many jobs did not end well, and what shows more of the latest run of jobkit among them."""

    def end(job: PastJob) -> str:
        if job.again:
            return "ran again"
        words = {Outcome.RAM_OOM: "ran out of memory", Outcome.TIMEOUT: "ran out of walltime"}
        return words.get(job.outcome, f"ended as {job.outcome}") if job.outcome else f"failed ({job.state})"

    for words, number in Counter(end(job) for job in group.jobs if not job.well).most_common():
        yield f"{format_count(number, 'job')} {words}: that does not show what a whole run needs."
    failed = [job for job in group.ordered() if not (job.well or job.again) and RUN_NAME.search(job.name)]
    with suppress(JobkitError):  # several runs have the name
        if failed and (run := find_run(failed[-1].name)):
            yield f"What jobkit knows of them: jobkit status {terminal.shell_path(run)}"


def _confidence(group: AlikeJobs, named: str) -> Iterator[str]:
    """Yield what the jobs say about the next one, in the order in which they were submitted."""
    if not group.well:
        unused = any(value and value >= LEAST_HOURS for value in group.unused.values())
        counts = " What they left unused counts in the table of all." if unused else ""
        yield f"No job completed, so jobkit does not advise less.{counts}"
        return
    if group.number == 1:
        similar = pattern_of(group.name)
        more = "" if named == similar else f" Try --name {shlex.quote(similar)}."
        yield f"One job is little evidence.{more}"
        return
    asked, lacking, short = replay(group.jobs)
    if asked:
        parts = " and ".join(f"{number:,} of {name}" for name, number in short.items())
        yield (
            "If each job had requested what jobkit advises from the jobs that had ended before: "
            f"{lacking:,} of {asked:,} would have had too little{parts and f' ({parts})'}."
        )
    else:
        yield "Too few had ended when the others were submitted: nothing shows how often the next has enough."
    for resource in LIMITED:
        values = [used for job in group.ordered() if (used := resource.read(job)[1]) is not None]
        half, words = len(values) // 2, resource.words
        if (order := later_use_more(values)) is not False:
            early, late = (words(median(part)) for part in (values[:half], values[half:]))
            grew = f"later jobs use more: {late} (median of the later half), {early} of the earlier"
            runs = "similar jobs follow each other"
            yield f"The jobs come in an order ({resource.name}): {grew if order else runs}."
        # of fewer jobs, a share says nothing
        if len(values) >= 20:
            ranked = sorted(values)
            sizes = {
                share: resource.round_up(ranked[math.ceil(share * len(ranked)) - 1])
                for share in (0.95, 0.99, 1.0)
            }
            shares = ", ".join(f"{PERCENT * share:.0f} % {words(size)}" for share, size in sizes.items())
            if sizes[0.95] > (resource.read(group.jobs[0])[0] or math.inf):
                continue  # the least that is ever requested says nothing
            yield f"The {resource.name} that would have served a share of them: {shares}."


def lines_for(group: AlikeJobs) -> list[str]:
    """Return the lines for the next job, which hold together: memory by CPU or GPU goes with their number."""
    memory, walltime, cpus = group.needs()
    first = group.jobs[0]
    fewer = cpus.next if cpus.changes else None
    size = memory.next if memory.next is not None else int(memory.requested or 0) or None
    without_gpu = first.memory_key == "--mem-per-gpu" and group.idle
    shared = memory.by_default or (first.memory_shares > 1 and first.memory_key != "--mem-per-gpu")
    moved = bool(without_gpu) or (fewer is not None and shared)
    if without_gpu:
        first = replace(first, memory_key="--mem", memory_shares=1)
    return past_of(first.scheduler).lines(
        first,
        memory=size if memory.changes or moved else None,
        walltime=walltime.next if walltime.changes else None,
        cpus=fewer,
    )


def as_csv(groups: Sequence[AlikeJobs]) -> Iterator[str]:
    """Yield a line for each group: bytes, seconds, CPUs, and hours that were not used."""
    heads = ["user", "account", "name", "jobs", *(f"unused_{name}_hours" for name in ("gpu", "gib", "cpu"))]
    names = ("memory_bytes", "walltime_s", "cpus")
    rows: list[list[object]] = [
        [*heads, *(f"{name}_{what}" for name in names for what in ("requested", "used_most", "next"))]
    ]
    for group in groups:
        figures = [value for need in group.needs() for value in (need.requested, need.most, need.next)]
        rounded = [None if value is None else round(value, 3) for value in group.unused.values()]
        rows.append([group.user, group.jobs[0].account, group.name, group.tasks, *rounded, *figures])
    yield terminal.as_csv(rows)


def as_json(history: History, groups: Sequence[AlikeJobs]) -> Iterator[str]:
    """Yield JSON in pieces, so that many jobs need little memory; docs/waste.md lists the keys."""
    data = {key: getattr(history, key) for key in ("scheduler", "notes", "running", "unknown")}
    data |= {"not_judged": dict(_reasons(groups))}
    yield terminal.as_json(data)[:-1] + ', "groups": ['
    # Jobs that are printed at once as JSON
    piece = 1000
    for number, group in enumerate(groups):
        yield f'{"," if number else ""}\n{{"name": {terminal.as_json(group.name)}, "jobs": ['
        for first in range(0, len(group.jobs), piece):
            jobs = group.jobs[first : first + piece]
            yield ("," if first else "") + "\n " + ",\n ".join(map(terminal.as_json, jobs))
        reserved, (asked, lacking, short) = group.reserved_memory(), replay(group.jobs)
        idle = group.idle
        more = {
            "user": group.user,
            "needs": group.needs(),
            "ended_well": group.well,
            "replayed": {"asked": asked, "too_little": lacking, "by_resource": short},
            "lines": lines_for(group),
            "idle_gpu_hours": None if idle is None else group.gpu_hours * idle,
            "unused_hours": group.unused,
            "reserved_gib_hours": reserved and [size / GIB / HOUR_S for size in reserved],
        }
        yield "],\n " + terminal.as_json(more)[1:]
    yield "]}\n"
