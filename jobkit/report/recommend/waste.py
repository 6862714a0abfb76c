"""The seven wastes that computing centres complain of, by what the points of a run used.

A waste is named by a stated limit; what was not measured is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from math import fsum
from statistics import median

from jobkit.answers.gpus import GpuKind, common_gpus, usable_bytes
from jobkit.core import terminal
from jobkit.core.blocks import Block, columns_of
from jobkit.core.figures import GPU_MEMORY, WORK
from jobkit.core.frozen import frozen, keyed
from jobkit.core.knobs import AUTO, CPU, SHARING
from jobkit.core.records import Outcome
from jobkit.core.terminal import NoWrap
from jobkit.core.units import (
    format_count,
    format_list,
    format_memory,
    format_setting,
    format_size,
    format_took,
    format_walltime,
)
from jobkit.report.recommend.material import Lines, PointUse, RunUse, header, largest
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
HALF = f"less than {100 * LIMIT:.0f} %"


@keyed
class Fix:
    """What to change."""

    does: str  # in words
    keys: Mapping[str, str | int] = field(default_factory=dict)  # of the spec, with their new values
    lines: tuple[Lines, ...] = ()  # by scheduler, the header lines that are new or have changed
    leave_out: tuple[Lines, ...] = ()  # by scheduler, header lines that go
    command: str = ""  # to type, if no key of a spec does it; else empty


@frozen
class Waste:
    """One of the seven."""

    name: str  # in a few words
    requested: str  # `requested`, `used`: in words; ``used`` is empty if it was not measured
    used: str = ""
    points: int = 0  # on how many points it is based
    share: float | None = None  # used of what was requested; ``None`` if it is no share, or not known
    limit: str = ""  # when it is waste
    wasted: bool | None = None  # ``None`` if it was not measured
    why: str = ""  # why it was not measured, or is no waste whatever the share; else empty
    fix: Fix | None = None  # only of waste


def fix_of(
    run: RunUse,
    uses: Sequence[PointUse],
    does: str,
    keys: Mapping[str, str | int],
    pack: int | None = None,
    **changes: object,
) -> Fix:
    """Return a fix with the header lines that it changes.

    The largest of ``uses`` counts, the points whose request changes; ``pack`` points share a job then.
    """
    before, now_pack = largest(uses), max(use.pack for use in uses)
    before = before if run.own else before.model_copy(update={"gpu_type": None})
    after = before.model_copy(update=changes)
    new, gone = [], []
    for site in run.sites:
        old = header(before, site, own=run.own, pack=now_pack)
        wanted = header(after, site, own=run.own, pack=pack or now_pack)
        changed = tuple(line for line in wanted.lines if line not in old.lines)
        if changed or wanted.reason:
            new.append(replace(wanted, lines=changed))
        elif left := tuple(line for line in old.lines if line not in wanted.lines):
            gone.append(replace(wanted, lines=left))
    return Fix(does=does, keys=keys, lines=tuple(new), leave_out=tuple(gone))


def wastes(run: RunUse) -> tuple[Waste, ...]:
    """Return the seven wastes of a run, in the order of docs/waste.md."""
    seven = (idle_gpu, unused_memory, idle_cores, large_card, unused_walltime, tiny_jobs, login_node)
    return tuple(waste(run) for waste in seven)


def idle_gpu(run: RunUse) -> Waste:
    """Judge how busy the GPUs were over the work."""
    asking = [use for use in run.points if use.asked.gpus]
    named = partial(Waste, "idle GPU", limit=f"{HALF} busy")
    if not asking:
        return named("no GPU", wasted=False, why=f"no {run.noun} requested a GPU")
    requested = _range([use.asked.gpus for use in asking], lambda n: format_count(n, "GPU"))
    if all(use.point.device == CPU for use in asking):
        none = fix_of(run, asking, "request no GPU", {"resources.gpus": 0}, gpus=0, gpu_type=None)
        used = f"none: the {run.noun}s ran on the CPU"
        return named(requested, used, len(asking), 0.0, wasted=True, fix=none)
    known, busy, work = [], [], []
    for use in asking:
        sampler, work_s = use.record.sampler if use.record else None, use.row.value(WORK)
        if sampler and sampler.utilisation_mean_percent is not None and work_s:
            known.append(use)
            busy.append(sampler.utilisation_mean_percent * work_s)
            work.append(work_s)
    if not known:
        return named(requested, why=_no_record(run, "no record has samples of the GPU's utilisation"))
    share = fsum(busy) / fsum(work) / 100
    wasted = share < LIMIT
    fix = _more_workers(run, known, share) if wasted and run.search is None else None
    used = f"busy {100 * share:.0f} % of the work"
    return named(requested, used, len(known), share, wasted=wasted, fix=fix)


def _more_workers(run: RunUse, uses: Sequence[PointUse], share: float) -> Fix:
    one = [use for use in uses if use.point.workers == 1]
    capacity, peak = _capacity(uses), max((use.row.value(GPU_MEMORY) or 0 for use in one), default=0)
    room = int(capacity / (CARD_FACTOR * peak)) if capacity and peak else 1
    most_workers = 16
    workers = min(most_workers, room, int(1 / max(share, 1 / most_workers)))
    if workers == 1 or len(one) < len(uses):
        return Fix(does="find the setting that keeps it busy", command="jobkit tune SPEC")
    cpus, asked = workers * max(use.asked.cpus for use in one), max(use.asked.memory for use in one)
    memory = max(asked, memory_request(workers * max(use.ram_bytes or 0 for use in one)))
    keys: dict[str, str | int] = {"workers": workers, SHARING.name: AUTO}
    keys |= {"resources.memory": format_size(memory)} if memory > asked else {}
    return fix_of(run, one, f"let {workers} workers share the GPU", keys, cpus=cpus, memory=memory)


def unused_memory(run: RunUse) -> Waste:
    """Judge the memory of the host by the point that came closest to its request."""
    named = partial(Waste, "memory", limit=f"{HALF} used by the {run.noun} that used most")
    requested = _range([use.asked.memory for use in run.points], format_memory)
    known = [(use, use.ram_bytes, use.asked.memory) for use in run.points if use.ram_bytes]
    if not known:
        why = "neither a record nor the accounting has a peak of the memory"
        return named(requested, why=_no_record(run, why))
    enough = memory_request(max(size for _, size, _ in known))
    does, key = "request what was used, and a fifth more", {"resources.memory": format_size(enough)}
    fix = fix_of(run, run.points, does, key, memory=enough)
    return _closest(run, named, requested, known, Outcome.RAM_OOM, enough, format_memory, fix)


def unused_walltime(run: RunUse) -> Waste:
    """Judge the walltime by the point that came closest to it."""
    named = partial(Waste, "walltime", limit=f"{HALF} used by the {run.noun} that took longest")
    requested = f"{_range([use.asked.walltime for use in run.points], format_walltime)} a {run.noun}"
    own = [use for use in run.points if use.point.kind.own_task]
    known = [(use, use.seconds, use.asked.walltime) for use in own if use.seconds]
    if not known:
        return named(requested, why=_no_times(run))
    enough = walltime_request(max(seconds for _, seconds, _ in known), _warning_s(run))
    does = "request what was used, two minutes, and a quarter more"
    fix = fix_of(run, run.points, does, {"resources.walltime": format_walltime(enough)}, walltime=enough)
    return _closest(run, named, requested, known, Outcome.TIMEOUT, enough, format_took, fix)


def _closest(
    run: RunUse,
    named: Callable[..., Waste],
    requested: str,
    known: Sequence[tuple[PointUse, float, int]],
    lack: Outcome,
    enough: int,
    words: Callable[[float], str],
    fix: Fix,
) -> Waste:
    """Judge a resource by the point that came closest to its request, of those whose use is known."""
    _, used, asked = max(known, key=lambda found: found[1] / found[2])
    little, why = used < LIMIT * asked, ""
    if lacked := any(use.row.outcome is lack for use in run.points):
        why = f"a {run.noun} ran out of the resource"
    elif little and enough >= asked:
        result = format_walltime(enough) if lack is Outcome.TIMEOUT else words(enough)
        why = f"with the room that a request has, the result is {result}"
    wasted, most = little and enough < asked and not lacked, f"{words(used)} at most"
    fixed = fix if wasted else None
    return named(requested, most, len(known), used / asked, wasted=wasted, why=why, fix=fixed)


def idle_cores(run: RunUse) -> Waste:
    """Judge the CPUs by the CPU time of the tries."""
    named = partial(Waste, "cores", limit=f"{HALF} busy, and fewer suffice")
    requested = _range([use.asked.cpus for use in run.points], lambda n: format_count(n, "CPU"))
    known = [
        (use, use.record.cpu_s, seconds, use.point.workers * use.point.gpus)
        for use in run.points
        if use.record and use.record.cpu_s is not None and (seconds := worker_s(use.record))
    ]
    if not known:
        why = "no record has the CPU time (a run of an earlier jobkit)"
        return named(requested, why=_no_record(run, why))
    busy_s = fsum(cpu_s for _, cpu_s, *_ in known)
    share = busy_s / fsum(seconds * use.asked.cpus for use, _, seconds, _ in known)
    cores = busy_s / fsum(seconds for _, _, seconds, _ in known)
    each = max(math.ceil(cpu_s / seconds / processes) for _, cpu_s, seconds, processes in known)
    fewer = max(each * processes for *_, processes in known)
    wasted = share < LIMIT and fewer < max(use.asked.cpus for use, *_ in known)
    keys: dict[str, str | int] = {"resources.cpus": each}
    keys |= {"threads": each} if run.threads is not None and run.threads > each else {}
    does = "request the CPUs that were busy"
    fix = fix_of(run, run.points, does, keys, cpus=fewer) if wasted else None
    return named(requested, f"{cores:.1f} busy on average", len(known), share, wasted=wasted, fix=fix)


def large_card(run: RunUse) -> Waste:
    """Judge the GPU's memory: whether a much smaller GPU would hold the peak."""
    limit = f"a GPU with {HALF} of its memory holds the peak and 10 % more"
    named = partial(Waste, "too large a GPU", limit=limit)
    asking = [use for use in run.points if use.asked.gpus]
    used = [use for use in asking if use.row.value("gpu")]
    if not asking:
        return named("no GPU", wasted=False, why=f"no {run.noun} requested a GPU")
    if not used:
        return named("a GPU", why=_no_record(run, "no record names the GPU"))
    capacity = _capacity(used)
    cards = format_list(list(dict.fromkeys(str(use.row.value("gpu")) for use in used)), 3)
    requested = f"{cards}, {format_memory(capacity)}" if capacity else cards
    if any(use.row.outcome is Outcome.GPU_OOM for use in used):
        why = f"a {run.noun} ran out of the memory of the GPU"
        return named(requested, "all of it", len(used), wasted=False, why=why)
    peaks = [peak / use.point.gpus for use in used if (peak := use.row.value(GPU_MEMORY))]
    if not peaks or not capacity:
        return named(requested, why=_no_record(run, "no record has the peak of the GPU's memory"))
    most, fix = max(peaks), None
    if smaller := smallest_card(most, capacity):
        does = f"request a GPU with {format_memory(smaller.usable_bytes)}, by your cluster's name for it"
        fix = fix_of(run, used, does, {"resources.gpu_type": smaller.name}, gpu_type=smaller.name)
    return named(
        requested, f"{format_memory(most)} at most", len(peaks), most / capacity, wasted=bool(fix), fix=fix
    )


def _capacity(uses: Sequence[PointUse]) -> int | None:
    gpus = [use.record.gpu for use in uses if use.record and use.record.gpu]
    return min((usable_bytes(gpu.name, gpu.total_bytes) for gpu in gpus if gpu.total_bytes), default=None)


def smallest_card(peak: float, capacity: int) -> GpuKind | None:
    """Return the smallest common GPU that holds a peak, if it is much smaller than this capacity."""
    fitting = (kind for kind in common_gpus() if kind.usable_bytes >= CARD_FACTOR * peak)
    return next((kind for kind in fitting if kind.usable_bytes < LIMIT * capacity), None)


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
    half = f"half of them shorter than {TINY_S // 60} minutes"
    named = partial(Waste, "tiny jobs", limit=f"several jobs, {half}, and {HALF} of their time is work")
    known = [use for use in run.points if use.seconds and use.row.value(WORK) and use.point.kind.own_task]
    if not known:
        return named(format_count(len(run.points), run.noun), why=_no_times(run))
    jobs: dict[object, float] = {}
    for use in known:
        key = use.point.index if run.here else use.task
        jobs[key] = jobs.get(key, 0.0) + (use.seconds or 0.0)
    share = fsum(use.row.value(WORK) or 0.0 for use in known) / fsum(use.seconds or 0.0 for use in known)
    usual_s = median(jobs.values())
    wasted = len(jobs) > 1 and usual_s < TINY_S and share < LIMIT
    requested = f"{format_count(len(jobs), run.noun)}, no job" if run.here else format_count(len(jobs), "job")
    used = f"{format_took(usual_s)} each (median), {100 * share:.0f} % of it work"
    fix = _larger(run, known) if wasted else None
    return named(requested, used, len(known), share, wasted=wasted, fix=fix)


def _larger(run: RunUse, uses: Sequence[PointUse]) -> Fix:
    kind = kind_for(uses[0].point)
    if kind.fewer_points:
        return Fix(does=f"fewer, larger {kind.noun}s", command=kind.fewer_points)
    seconds = [use.seconds or 0.0 for use in uses]
    pack = min(len(uses), math.ceil(AIM_S / median(seconds)))
    whole_s = walltime_request(pack * max(seconds), _warning_s(run))
    minute_s = 60
    walltime = math.ceil(whole_s / pack / minute_s) * minute_s
    keys: dict[str, str | int] = {"pack": pack, "resources.walltime": format_walltime(walltime)}
    return fix_of(run, uses, f"let {pack} points share a job", keys, walltime=walltime, pack=pack)


def login_node(run: RunUse) -> Waste:
    """Judge whether the points ran on a machine that submits jobs, in no job."""
    login_s = 60  # so much work on a login node does no harm
    named = partial(Waste, "work on the login node", limit=f"more than {login_s} s, outside of a job")
    if not run.here:
        nodes = list(dict.fromkeys(filter(None, (use.row.value("host") for use in run.points))))
        used = f"in jobs, on {format_list(nodes, 3)}" if nodes else "in jobs"
        return named("a job", used, len(run.points), wasted=False)
    known = [use for use in run.points if use.on_path is not None]
    if not known:
        why = "the run does not record whether a scheduler was there (a run of an earlier jobkit)"
        return named("no job", why=why)
    on_path = dict.fromkeys(name for use in known for name in use.on_path or ())
    seconds = fsum(use.seconds or 0.0 for use in known if use.on_path)
    if not on_path:
        why = f"no scheduler was there, or the {run.noun}s ran inside a job"
        return named("no job", "none", len(known), wasted=False, why=why)
    if not seconds:
        return named("no job", why=_no_record(run, "no try has left its times"))
    used = f"{format_took(seconds)}, with {' and '.join(by_name(name).TITLE for name in on_path)} there"
    name, asked = next(iter(on_path)), largest(run.points)
    lines = tuple(header(asked, site, own=run.own) for site in run.sites if site.scheduler == name)
    fix, wasted = Fix(does="submit it as a job", keys={"scheduler": name}, lines=lines), seconds > login_s
    return named("no job", used, len(known), wasted=wasted, fix=fix if wasted else None)


def _range(values: Sequence[int], words: Callable[[int], str]) -> str:
    low, high = min(values), max(values)
    return words(low) if low == high else f"{words(low)} to {words(high)}"


def as_json(run: RunUse, found: Sequence[Waste]) -> str:
    """Return the wastes as JSON."""
    data = {
        "run": run.run,
        "scheduler": run.scheduler,
        "points": len(run.points),
        "to_come": run.to_come,
        "wastes": found,
        "notes": run.notes,
        "search": run.search.data if run.search else None,
    }
    return terminal.as_json(data, indent=2) + "\n"


def blocks(run: RunUse, found: Sequence[Waste]) -> Iterator[Block]:
    """Yield the wastes for a person: all seven, then what fixes each."""
    shown = {True: "WASTE", False: "no", None: "not measured"}
    rows = [
        (each.name, each.requested, each.used, str(each.points or ""), shown[each.wasted]) for each in found
    ]
    columns = columns_of(
        ("kind", "requested", "used", f"{run.noun}s", "waste"), rows, {"kind", "requested", "used", "waste"}
    )
    verdicts = [waste.wasted for waste in found]
    unknown = f", and {verdicts.count(None)} not measured" if None in verdicts else ""
    counts = f"{verdicts.count(True)} are waste, {verdicts.count(False)} are not{unknown}"
    lines = [f"Of the seven kinds, {counts}."]
    for waste in found:
        if waste.wasted is None or waste.why:
            judged = "Not measured" if waste.wasted is None else "No waste"
            lines.append(f"  {judged}: {waste.name}, because {waste.why}.")
    if True in verdicts:
        fixes = "Each fix below leaves the rest unchanged."
        lines.append(f"{fixes} Change the key in your spec, or add --set KEY=VALUE.")
    yield Block.of(_heading(run), columns, lines)
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
    if run.search and run.search.setting:
        yield f"The answer of the search, and its points: {format_setting(run.search.setting)}"
        yield from run.search.lines
    if run.here:
        yield "No scheduler reserved anything for it: the lines are for a job with the same request."


def _explained(waste: Waste, run: RunUse) -> Iterator[str]:
    yield f"{waste.name}: waste if {waste.limit}."
    if fix := waste.fix:
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
    elif run.search and run.search.why:
        yield f"  No fix: the search found no setting that uses more. Its limit: {run.search.why}."
