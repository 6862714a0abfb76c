"""The seven wastes that computing centres complain of, by what the points of a run used.

A waste is named by a stated limit; what was not measured is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum
from statistics import median

from jobkit.answers.gpus import GpuKind, common_gpus, usable_bytes
from jobkit.core import terminal
from jobkit.core.blocks import Block, Column
from jobkit.core.figures import GPU_MEMORY, WORK
from jobkit.core.knobs import CPU
from jobkit.core.records import Outcome
from jobkit.core.terminal import NoWrap
from jobkit.core.units import (
    format_count,
    format_list,
    format_memory,
    format_setting,
    format_size,
    format_walltime,
)
from jobkit.report.recommend.request import (
    Fix,
    PointUse,
    RunUse,
    fix_of,
    header,
    largest,
)
from jobkit.runs.request import WARNING_S, memory_request, walltime_request
from jobkit.runs.status import kind_for
from jobkit.runs.tries import worker_s
from jobkit.schedulers.registry import by_name

LIMIT = 0.5
"""A request of which less is used is waste."""
CARD_FACTOR = 1.1
"""What a GPU must hold, for each byte of the measured peak."""
TINY_S, AIM_S = 300, 600
"""A job shorter than the first is tiny; packed jobs are to last about as long as the second."""
MINUTE_S = 60
LOGIN_S = 60
"""So much work on a login node does no harm."""
MOST_WORKERS = 16
HALF = f"less than {100 * LIMIT:.0f} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """One of the seven."""

    name: str  # in a few words
    requested: str  # `requested`, `used`: in words; ``used`` is empty if it was not measured
    used: str = ""
    points: int = 0  # on how many points it is based
    share: float | None = None  # used of what was requested; ``None`` if it is no share, or not known
    limit: str  # when it is waste
    wasted: bool | None = None  # ``None`` if it was not measured
    why: str = ""  # why it was not measured, or is no waste whatever the share; else empty
    fix: Fix | None = None  # only of waste


def wastes(run: RunUse) -> tuple[Waste, ...]:
    """Return the seven wastes of a run, in the order of docs/waste.md."""
    seven = (idle_gpu, unused_memory, idle_cores, large_card, unused_walltime, tiny_jobs, login_node)
    return tuple(waste(run) for waste in seven)


def idle_gpu(run: RunUse) -> Waste:
    """Judge how busy the GPUs were over the work."""
    asking = [use for use in run.points if use.asked.gpus]
    named = _named("idle GPU", f"{HALF} busy")
    if not asking:
        return named(requested="no GPU", wasted=False, why=f"no {run.noun} requested a GPU")
    requested = _range([use.asked.gpus for use in asking], lambda n: format_count(n, "GPU"))
    if all(use.point.device == CPU for use in asking):
        none = fix_of(run, asking, "request no GPU", {"resources.gpus": 0}, gpus=0, gpu_type=None)
        used = f"none: the {run.noun}s ran on the CPU"
        return named(requested=requested, used=used, points=len(asking), share=0.0, wasted=True, fix=none)
    busy = [(use, *found) for use in asking if (found := _busy(use))]
    if not busy:
        return named(
            requested=requested, why=_no_record(run, "no record has samples of the GPU's utilisation")
        )
    share = fsum(percent * work_s for _, percent, work_s in busy) / fsum(s for *_, s in busy) / 100
    used = f"busy {_percent(share)} of the work"
    wasted = share < LIMIT
    fix = _more_workers(run, [use for use, *_ in busy], share) if wasted and run.search is None else None
    return named(requested=requested, used=used, points=len(busy), share=share, wasted=wasted, fix=fix)


def _busy(use: PointUse) -> tuple[float, float] | None:
    record = use.record
    percent = record.sampler.utilisation_mean_percent if record and record.sampler else None
    work_s = use.row.value(WORK)
    return (percent, work_s) if percent is not None and work_s else None


def _more_workers(run: RunUse, uses: Sequence[PointUse], share: float) -> Fix:
    one = [use for use in uses if use.point.workers == 1]
    capacity, peak = _capacity(uses), max((use.row.value(GPU_MEMORY) or 0 for use in one), default=0)
    room = int(capacity / (CARD_FACTOR * peak)) if capacity and peak else 1
    workers = min(MOST_WORKERS, room, int(1 / max(share, 1 / MOST_WORKERS)))
    if workers == 1 or len(one) < len(uses):
        return Fix(does="find the setting that keeps it busy", command="jobkit tune SPEC")
    cpus = workers * max(use.asked.cpus for use in one)
    ram = max((use.ram_bytes or 0 for use in one), default=0)
    asked = max(use.asked.memory for use in one)
    memory = max(asked, memory_request(workers * ram))
    keys: dict[str, str | int] = {"workers": workers, "mps": "auto"}
    if memory > asked:
        keys["resources.memory"] = format_size(memory)
    return fix_of(run, one, f"let {workers} workers share the GPU", keys, cpus=cpus, memory=memory)


def unused_memory(run: RunUse) -> Waste:
    """Judge the memory of the host by the point that came closest to its request."""
    named = _named("memory", f"{HALF} used by the {run.noun} that used most")
    requested = _range([use.asked.memory for use in run.points], format_memory)
    known = [(use, use.ram_bytes) for use in run.points if use.ram_bytes]
    if not known:
        why = _no_record(run, "neither a record nor the accounting has a peak of the memory")
        return named(requested=requested, why=why)
    use, used = max(known, key=lambda pair: pair[1] / pair[0].asked.memory)
    enough = memory_request(max(size for _, size in known))
    does, key = "request what was used, and a fifth more", {"resources.memory": format_size(enough)}
    return named(
        requested=requested,
        used=f"{format_memory(used)} at most",
        points=len(known),
        share=used / use.asked.memory,
        **_verdict(run, Outcome.RAM_OOM, used, use.asked.memory, enough, format_memory(enough)),
        fix=fix_of(run, run.points, does, key, memory=enough),
    )


def _verdict(
    run: RunUse, lack: Outcome, used: float, asked: int, enough: int, words: str
) -> Mapping[str, object]:
    if any(use.row.outcome is lack for use in run.points):
        return {"wasted": False, "why": f"a {run.noun} ran out of the resource"}
    little = used < LIMIT * asked
    why = f"with the room that a request has, the result is {words}" if little and enough >= asked else ""
    return {"wasted": little and enough < asked, "why": why}


def idle_cores(run: RunUse) -> Waste:
    """Judge the CPUs by the CPU time of the tries."""
    named = _named("cores", f"{HALF} busy, and fewer suffice")
    requested = _range([use.asked.cpus for use in run.points], lambda n: format_count(n, "CPU"))
    known = [(use, *found) for use in run.points if (found := _cpu(use))]
    if not known:
        return named(
            requested=requested,
            why=_no_record(run, "no record has the CPU time (a run of an earlier jobkit)"),
        )
    share = fsum(cpu_s for _, cpu_s, _ in known) / fsum(s * use.asked.cpus for use, _, s in known)
    cores = fsum(cpu_s for _, cpu_s, _ in known) / fsum(s for *_, s in known)
    each = max(math.ceil(cpu_s / seconds / _processes(use)) for use, cpu_s, seconds in known)
    fewer = max(each * _processes(use) for use, *_ in known)
    wasted = share < LIMIT and fewer < max(use.asked.cpus for use, *_ in known)
    keys: dict[str, str | int] = {"resources.cpus": each}
    if run.threads is not None and run.threads > each:
        keys["threads"] = each
    fix = fix_of(run, run.points, "request the CPUs that were busy", keys, cpus=fewer)
    return named(
        requested=requested,
        used=f"{cores:.1f} busy on average",
        points=len(known),
        share=share,
        wasted=wasted,
        fix=fix,
    )


def _cpu(use: PointUse) -> tuple[float, float] | None:
    seconds = worker_s(use.record) if use.record else None
    return (use.record.cpu_s, seconds) if use.record and use.record.cpu_s is not None and seconds else None


def _processes(use: PointUse) -> int:
    return use.point.workers * use.point.gpus


def large_card(run: RunUse) -> Waste:
    """Judge the GPU's memory: whether a much smaller GPU would hold the peak."""
    named = _named("too large a GPU", f"a GPU with {HALF} of its memory holds the peak and 10 % more")
    used = [use for use in run.points if use.asked.gpus and use.row.gpu]
    if not used:
        asking = any(use.asked.gpus for use in run.points)
        if not asking:
            return named(requested="no GPU", wasted=False, why=f"no {run.noun} requested a GPU")
        return named(requested="a GPU", why=_no_record(run, "no record names the GPU"))
    capacity = _capacity(used)
    cards = format_list(list(dict.fromkeys(str(use.row.gpu) for use in used)), 3)
    requested = f"{cards}, {format_memory(capacity)}" if capacity else cards
    if any(use.row.outcome is Outcome.GPU_OOM for use in used):
        why = f"a {run.noun} ran out of the memory of the GPU"
        return named(requested=requested, used="all of it", points=len(used), wasted=False, why=why)
    peaks = [peak / use.point.gpus for use in used if (peak := use.row.value(GPU_MEMORY))]
    if not peaks or not capacity:
        return named(requested=requested, why=_no_record(run, "no record has the peak of the GPU's memory"))
    smaller = smallest_card(max(peaks), capacity)
    does = (
        f"request a GPU with {format_memory(smaller.usable_bytes)}, by your cluster's name for it"
        if smaller
        else ""
    )
    fix = (
        fix_of(run, used, does, {"resources.gpu_type": smaller.name}, gpu_type=smaller.name)
        if smaller
        else None
    )
    return named(
        requested=requested,
        used=f"{format_memory(max(peaks))} at most",
        points=len(peaks),
        share=max(peaks) / capacity,
        wasted=smaller is not None,
        fix=fix,
    )


def _capacity(uses: Sequence[PointUse]) -> int | None:
    known = [(use.row.gpu, use.row.gpu_capacity_bytes) for use in uses]
    return min((usable_bytes(name, total) for name, total in known if total), default=None)


def smallest_card(peak: float, capacity: int) -> GpuKind | None:
    """Return the smallest common GPU that holds a peak, if it is much smaller than this capacity."""
    fitting = (kind for kind in common_gpus() if kind.usable_bytes >= CARD_FACTOR * peak)
    return next((kind for kind in fitting if kind.usable_bytes < LIMIT * capacity), None)


def unused_walltime(run: RunUse) -> Waste:
    """Judge the walltime by the point that came closest to it."""
    named = _named("walltime", f"{HALF} used by the {run.noun} that took longest")
    requested = f"{_range([use.asked.walltime for use in run.points], format_walltime)} a {run.noun}"
    known = [(use, use.seconds) for use in run.points if use.seconds and use.point.kind.own_task]
    if not known:
        return named(requested=requested, why=_no_times(run))
    use, seconds = max(known, key=lambda pair: pair[1] / pair[0].asked.walltime)
    enough = walltime_request(max(s for _, s in known), _warning_s(run))
    does = "request what was used, two minutes, and a quarter more"
    key = {"resources.walltime": format_walltime(enough)}
    return named(
        requested=requested,
        used=f"{_clock(seconds)} at most",
        points=len(known),
        share=seconds / use.asked.walltime,
        **_verdict(run, Outcome.TIMEOUT, seconds, use.asked.walltime, enough, format_walltime(enough)),
        fix=fix_of(run, run.points, does, key, walltime=enough),
    )


def _warning_s(run: RunUse) -> int:
    return run.sites[0].warning_s if run.own else WARNING_S


def _no_record(run: RunUse, why: str) -> str:
    """Return why a figure is not known: the reason given, if any of the points has a record."""
    if any(use.record for use in run.points):
        return why
    return f"no {run.noun} has ended" if run.unended == len(run.points) else f"no {run.noun} left a record"


def _no_times(run: RunUse) -> str:
    if not all(use.point.kind.own_task for use in run.points):
        return "a search runs all its points in one job"
    return _no_record(run, "no try has left its times")


def tiny_jobs(run: RunUse) -> Waste:
    """Judge whether the jobs are short and spend their time on starting."""
    limit = (
        f"several jobs, half of them shorter than {TINY_S // 60} minutes, and {HALF} of their time is work"
    )
    named = _named("tiny jobs", limit)
    known = [use for use in run.points if use.seconds and use.row.value(WORK) and use.point.kind.own_task]
    if not known:
        return named(requested=format_count(len(run.points), run.noun), why=_no_times(run))
    jobs: dict[object, float] = {}
    for use in known:
        key = use.point.index if run.here else use.task
        jobs[key] = jobs.get(key, 0.0) + (use.seconds or 0.0)
    share = fsum(use.row.value(WORK) or 0.0 for use in known) / fsum(use.seconds or 0.0 for use in known)
    wasted = len(jobs) > 1 and median(jobs.values()) < TINY_S and share < LIMIT
    return named(
        requested=format_count(len(jobs), "job")
        if not run.here
        else f"{format_count(len(jobs), run.noun)}, no job",
        used=f"{_clock(median(jobs.values()))} each (median), {_percent(share)} of it work",
        points=len(known),
        share=share,
        wasted=wasted,
        fix=_larger(run, known) if wasted else None,
    )


def _larger(run: RunUse, uses: Sequence[PointUse]) -> Fix:
    kind = kind_for(uses[0].point)
    if kind.fewer_points:
        return Fix(does=f"fewer, larger {kind.noun}s", command=kind.fewer_points)
    seconds = [use.seconds or 0.0 for use in uses]
    pack = min(len(uses), math.ceil(AIM_S / median(seconds)))
    whole_s = walltime_request(pack * max(seconds), _warning_s(run))
    walltime = math.ceil(whole_s / pack / MINUTE_S) * MINUTE_S
    keys: dict[str, str | int] = {"pack": pack, "resources.walltime": format_walltime(walltime)}
    return fix_of(run, uses, f"let {pack} points share a job", keys, walltime=walltime, pack=pack)


def login_node(run: RunUse) -> Waste:
    """Judge whether the points ran on a machine that submits jobs, in no job."""
    named = _named("work on the login node", f"more than {LOGIN_S} s, outside of a job")
    if not run.here:
        nodes = list(dict.fromkeys(use.row.host for use in run.points if use.row.host))
        used = f"in jobs, on {format_list(nodes, 3)}" if nodes else "in jobs"
        return named(requested="a job", used=used, points=len(run.points), wasted=False)
    known = [use for use in run.points if use.on_path is not None]
    if not known:
        why = "the run does not record whether a scheduler was there (a run of an earlier jobkit)"
        return named(requested="no job", why=why)
    on_path = dict.fromkeys(name for use in known for name in use.on_path or ())
    seconds = fsum(use.seconds or 0.0 for use in known if use.on_path)
    if not on_path:
        why = f"no scheduler was there, or the {run.noun}s ran inside a job"
        return named(requested="no job", used="none", points=len(known), wasted=False, why=why)
    if not seconds:
        return named(requested="no job", why=_no_record(run, "no try has left its times"))
    used = f"{_clock(seconds)}, with {' and '.join(by_name(name).TITLE for name in on_path)} there"
    wasted = seconds > LOGIN_S
    name = next(iter(on_path))
    sites = [site for site in run.sites if site.scheduler == name]
    asked = largest(run.points)
    fix = Fix(
        does="submit it as a job",
        keys={"scheduler": name},
        lines=tuple(header(asked, site, own=run.own) for site in sites),
    )
    return named(requested="no job", used=used, points=len(known), wasted=wasted, fix=fix)


# -- words


def _named(name: str, limit: str) -> Callable[..., Waste]:
    def waste(**fields: object) -> Waste:
        found = Waste(name=name, limit=limit, **fields)  # type: ignore[arg-type]  # as Waste has them
        return found if found.wasted else replace(found, fix=None)

    return waste


def _range(values: Sequence[int], words: Callable[[int], str]) -> str:
    low, high = min(values), max(values)
    return words(low) if low == high else f"{words(low)} to {words(high)}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _clock(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else format_walltime(seconds)  # noqa: PLR2004 - two minutes


VERDICTS = {True: "WASTE", False: "no", None: "not measured"}


def as_json(run: RunUse, found: Sequence[Waste]) -> str:
    """Return the wastes as JSON."""
    data = {
        "run": run.run,
        "scheduler": run.scheduler,
        "points": len(run.points),
        "to_come": run.to_come,
        "wastes": [asdict(waste) for waste in found],
        "notes": run.notes,
        "search": run.search.data if run.search else None,
    }
    return terminal.as_json(data, indent=2) + "\n"


def blocks(run: RunUse, found: Sequence[Waste]) -> Iterator[Block]:
    """Yield the wastes for a person: all seven, then what fixes each."""
    yield Block.of(_heading(run), _columns(found, run.noun), _summary(found))
    wasted = [waste for waste in found if waste.wasted]
    yield from (Block.of(_explained(waste, run)) for waste in wasted)
    if any(waste.fix and waste.fix.lines for waste in wasted) and not run.own:
        yield Block(after=("The header lines are for a plain site; your cluster may need others.",))
    yield Block(after=tuple(run.notes))


def _heading(run: RunUse) -> Iterator[str]:
    where = "on this machine, without a scheduler" if run.here else f"on {by_name(run.scheduler).TITLE}"
    to_come = f", {format_count(run.to_come, run.noun)} to come" if run.to_come else ""
    yield f"{run.run}: {format_count(len(run.points), run.noun)} {where}{to_come}"
    if run.unended:
        yield f"{format_count(run.unended, run.noun)} {'has' if run.unended == 1 else 'have'} not ended yet."
    yield from _of_search(run)
    if run.here:
        yield "No scheduler reserved anything for it: the lines are for a job with the same request."


def _of_search(run: RunUse) -> Iterator[str]:
    if run.search and run.search.setting:
        yield f"The answer of the search, and its points: {format_setting(run.search.setting)}"
        yield from run.search.lines


def _columns(found: Sequence[Waste], noun: str) -> tuple[Column, ...]:
    return (
        Column("kind", [waste.name for waste in found], left=True),
        Column("requested", [waste.requested for waste in found], left=True),
        Column("used", [waste.used for waste in found], left=True),
        Column(f"{noun}s", [str(waste.points or "") for waste in found]),
        Column("waste", [VERDICTS[waste.wasted] for waste in found], left=True),
    )


def _summary(found: Sequence[Waste]) -> Iterator[str]:
    verdicts = [waste.wasted for waste in found]
    unknown = f", and {verdicts.count(None)} not measured" if None in verdicts else ""
    yield f"Of the seven kinds, {verdicts.count(True)} are waste, {verdicts.count(False)} are not{unknown}."
    for waste in found:
        if waste.wasted is None:
            yield f"  Not measured: {waste.name}, because {waste.why}."
        elif waste.why:
            yield f"  No waste: {waste.name}, because {waste.why}."
    if True in verdicts:
        yield "Each fix below leaves the rest unchanged. Change the key in your spec, or add --set KEY=VALUE."


def _explained(waste: Waste, run: RunUse) -> Iterator[str]:
    yield f"{waste.name}: waste if {waste.limit}."
    if waste.fix:
        yield from _fix(waste.fix)
    elif run.search and run.search.why:
        yield f"  No fix: the search found no setting that uses more. Its limit: {run.search.why}."


def _fix(fix: Fix) -> Iterator[str]:
    yield f"  Fix: {fix.does}."
    if fix.command:
        yield NoWrap(fix.command, "  command  ")
    if fix.keys:
        words = " ".join(f"--set {key}={value}" for key, value in fix.keys.items())
        yield NoWrap(words, "  spec     ")
    for lines in fix.lines:
        if lines.reason:
            yield f"  {lines.scheduler:7}  no line: {lines.reason}."
        yield from (NoWrap(line, f"  {lines.scheduler:7}  ") for line in lines.lines)
    for lines in fix.leave_out:
        yield from (NoWrap(line, f"  {lines.scheduler:7}  leave out: ") for line in lines.lines)
