"""What a run recommends, for a person or a program."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from jobkit.answers.memory import Prediction
from jobkit.answers.observations import ALLOCATED, NEED, RAM
from jobkit.answers.setting import Mean
from jobkit.answers.speed import NO_INTERVAL, SPEED_TOLERANCE, CorpusVolume, Speed, differ, no_difference
from jobkit.core import terminal
from jobkit.core.blocks import Block, Column
from jobkit.core.knobs import BATCH_SIZE, CPU
from jobkit.core.student import half_width, unknown_spread
from jobkit.core.terminal import NoWrap, shell_quote, wrap
from jobkit.core.units import (
    MIB,
    format_bytes_gib,
    format_count,
    format_memory,
    format_setting,
    format_size,
    format_walltime,
)
from jobkit.report.recommend import objective, types
from jobkit.report.recommend.energy import energy_lines
from jobkit.runs.request import LEAST_ROOM_BYTES, MEMORY_FACTOR, WALLTIME_FACTOR, condition_lines
from jobkit.schedulers.registry import by_name

LINE_THROUGH = {
    NEED: "the needs of the heaviest batches of each point, measured by capping the allocator",
    ALLOCATED: "torch's allocated peaks, times the largest ratio of reserved to allocated memory",
    RAM: "the largest resident memory of each try",
}
BINDS = {
    types.THROUGHPUT: "throughput: larger batches were measured, and gain less than 5 %",
    types.SATURATION: "the text: this batch is the largest measured, and the whole text would fit in a call",
    types.MEMORY: "memory: larger batches than this are not safe",
    types.SWEEP: "the sweep: nothing larger was measured, and the smaller settings are slower",
}

NO_BREAK, NARROW = "\xa0", 58
"""A blank within an option, and the columns of joined header lines, which a terminal must not break."""


def as_json(advice: types.Recommendation) -> str:
    """Return all of it, in bytes and seconds, as JSON that ends with a newline."""
    data = {
        "schema": 1,
        **asdict(replace(advice, search=None)),
        "cautions": [line.strip() for line in cautions(advice)],
    }
    data["corpus"].pop("loads")
    data["search"] = advice.search.data if advice.search else None
    return terminal.as_json(data, indent=2) + "\n"


def blocks(advice: types.Recommendation, *, why: bool = False, gpus: bool = False) -> list[Block]:
    """Return the answer for a person, in GiB: a screen, perhaps with GPUs, or all that it rests on."""
    if why:
        table = [advice.search.table] if advice.search else []
        return [*answer(advice), *table, Block.of(limit(advice)), *details(advice)]
    doubts = f", {format_count(len(advice.beware), 'more caution')}" if advice.beware else ""
    rest = f"With --why: the reasons, the memory{doubts}."
    screen = Block.of([*_largest(advice), *_counted(cautions(advice)), rest])
    return [*answer(advice, joined=True), *(_gpus(advice) if gpus else ()), screen]


def answer(advice: types.Recommendation, *, joined: bool = False) -> list[Block]:
    """Return what to take, what to request if the spec could be read, and how long it takes.

    Header lines of a plain site may be joined: schedulers read several options in one line.
    """
    batch, search, time, asked = advice.batch, advice.search, advice.time, advice.request
    chosen, largest, fastest = batch.recommended, batch.answer, batch.fastest
    if search:
        taken = [f"Take {format_setting(search.setting)}: {_rate(chosen)}, the answer of the search."]
        taken += search.worth
    elif not batch.judged.objective.by_speed:
        why = objective.taken_line(batch.judged, _accepted(batch), chosen)
        taken = [f"Take {chosen.setting}: {why}.", f"  Its speed: {_rate(chosen)}."]
    elif largest.holds(chosen.size, chosen.load) is False:
        why = "the smallest that was measured, though no measured setting is safe"
        taken = [f"Take {chosen.setting}: {_rate(chosen)}, {why}."]
    else:
        safe = " that is safe" if largest.holds(fastest.size, fastest.load) is False else ""
        near = f"the smallest within {100 * SPEED_TOLERANCE:.0f} % of the fastest{safe}"
        taken = [f"Take {chosen.setting}: {_rate(chosen)}, {near}."]
    request: list[str] = []
    if asked:
        size, clock = format_size(asked.memory_bytes), format_walltime(asked.walltime_s)
        own = any(lines.own for lines in asked.lines)
        add = " from the scheduler" if own else " (add your queue, account and GPU type)"
        request.append(f"Request {size} and {clock}{add}:")
        for lines in asked.lines:
            scheduler = by_name(lines.scheduler)
            site = f", site {lines.site}" if own else ""
            reason = f" no lines: {lines.reason}" if lines.reason else ""
            request.append(f"  {scheduler.TITLE}{site}:{reason}")
            header, prefix = list(lines.lines), f"{scheduler.DIRECTIVE} "
            if joined and not own and header:
                options = " ".join(line.removeprefix(prefix).replace(" ", NO_BREAK) for line in header)
                header = wrap(options, NARROW, first=prefix, below=prefix)
            request += [NoWrap(line.replace(NO_BREAK, " "), "  ") for line in header]
    interval = "one repeat has no interval"
    if time.unknown:
        interval = f"spread unknown, n={time.repeats}"
    elif time.low_s is not None and time.high_s is not None:
        interval = f"95 % of runs: {_clock(time.low_s)} to {_clock(time.high_s)}"
    took = f"{_clock(time.expected_s)} ({interval}), {_clock(time.start_s)} of it to start"
    pieces = (taken, request, [f"Time for {_corpus(advice.corpus)}: {took}."])
    return [Block.of(piece) for piece in pieces if piece]


def cautions(advice: types.Recommendation) -> list[str]:
    """Return what the first screen names: stand-in, extrapolated, another GPU, one repeat, unproved."""
    of, batch, largest = advice.measured, advice.batch, advice.batch.answer
    safe, most = largest.safe_batch, max(setting.size for setting in batch.settings)
    new = safe > 0 and largest.measured_bytes is None and all(s.size != safe for s in batch.settings)
    found: list[str] = []
    if of.caveat:
        found.append(f"  {of.caveat}, in place of {of.model}: the real model may take more time and memory")
    if new and safe > most > 0:
        found.append(f"  extrapolated: {safe / most:.1f} times the largest batch that was measured")
    if of.device != CPU:
        found.append(f"  another GPU: speed and time are those of {of.gpu or 'the measured GPU'}")
    if batch.recommended.repeats == 1:
        found.append("  one repeat: no difference in speed is shown, and the time has no interval")
    other = {knob for setting in batch.settings for knob in setting.params} - {largest.knob}
    if new and advice.trials:
        found.append(f"  unproved: {advice.trials[-1]}")
    elif new and any(len({setting.params.get(knob) for setting in batch.settings}) > 1 for knob in other):
        found.append(f"  unproved: jobkit verify tests no sweep that varies a knob other than {largest.knob}")
    elif new and not _fits_text(advice, largest):
        found.append(f"  unproved: the text is too short for a test ({of.paragraphs:,} paragraphs)")
    elif new:
        memory = _memory_option(advice, largest.capacity_bytes) if advice.margin or batch.asked else ""
        command = f"jobkit verify {shell_quote(of.run)}{memory}"
        found.append(NoWrap(command, "  unproved, until you test it: "))
    return found


def _counted(doubts: list[str]) -> list[str]:
    return [f"{format_count(len(doubts), 'caution')}:", *doubts] if doubts else []


def limit(advice: types.Recommendation) -> list[str]:
    """Return why no other setting is taken, as far as that is known."""
    batch, search, run = advice.batch, advice.search, advice.measured.run
    chosen, best, judged, accepted = batch.recommended, batch.fastest, batch.judged, _accepted(batch)
    lines: list[str] = []
    if binds := search.limit if search else BINDS.get(batch.binds or "", ""):
        lines.append(f"The limit is {binds}.")
    if batch.binds in {types.SATURATION, types.SWEEP} and (most := batch.answer.safe_batch) > chosen.size:
        lines.append(f"  Larger batches, up to {most:,}, were not measured: they may be faster still.")
    if not search:
        if not judged.objective.by_speed:
            lines += [f"  {line}." for line in objective.compared_lines(judged, accepted, chosen)]
        if (times := batch.times) and times.differs and times.low and times.high:
            interval = f"{100 * (times.low - 1):.1f} to {100 * (times.high - 1):.1f} % with 95 % confidence"
            faster = f"{100 * (times.mean - 1):.1f} % faster ({interval})"
            lines.append(f"  Fastest: {best.setting}, {_rate(best)}: {faster}.")
        elif chosen is not best and best.rates:
            named = f"{best.setting}, {_rate(best)}"
            lines += no_difference(chosen.setting, named, run, chosen.repeats)
        below = accepted.index(chosen) - 1
        if judged.objective.by_speed and below >= 0 and differ(accepted[below], best) is False:
            lines += no_difference(accepted[below].setting, best.setting, run, chosen.repeats)
    compared = types.lines(batch.settings, chosen, batch.precisions)
    return lines + [f"  {line}." for line in (*objective.left_out_lines(judged), *compared)]


def details(advice: types.Recommendation) -> list[Block]:
    """Return what the answer rests on and what to beware of: a page shows the title of each."""
    doubts = _counted([*cautions(advice), *(f"  {doubt}" for doubt in advice.beware)])
    energy, request, conditions = advice.energy, advice.request, [*condition_lines(advice.conditions)]
    kind, run = "search" if advice.search else "sweep", advice.measured.run
    computed = []
    if request:
        computed.append("How the request is computed:")
        if request.used_memory_bytes is not None:
            used, room = format_memory(request.used_memory_bytes), format_size(LEAST_ROOM_BYTES)
            more = f"x {MEMORY_FACTOR}, at least {room} more, rounded up"
            computed.append(f"  RAM: the points used {used} at most, {more}.")
        upper = "the upper end" if advice.time.high_s is not None else f"{NO_INTERVAL:g} times the mean"
        computed.append(
            f"  walltime: {upper} of the time above, a minute and the site's warning, x {WALLTIME_FACTOR}, "
            "in steps of 5 minutes. For a shard of `jobkit apply` it follows the length of the shard."
        )
        if any("h_vmem" in line for lines in request.lines for line in lines.lines):
            computed += [
                "  h_vmem counts address space on many sites, and PyTorch maps far more than is resident.",
                "  With CUDA that is tens of GiB: if a job ends at once for lack of memory, request more.",
            ]
        whether = f"  Whether the {kind} itself requested too much: "
        computed.append(NoWrap(f"jobkit waste {shell_quote(run)}", whether))
    of, cost = advice.measured, advice.cost
    where = "a CPU" if of.device == CPU else of.gpu or "a GPU of unknown name"
    if of.capacity_bytes and of.device != CPU:
        where += f" ({format_bytes_gib(of.capacity_bytes, 1)} usable)"
    model = f", model {of.model}{f' ({of.caveat})' if of.caveat else ''}" if of.model else ""
    ok = f"{format_count(of.points, 'point')} that succeeded"
    settings = format_count(len(advice.batch.settings), "setting")
    title = f"{advice.search.title}, {ok}" if advice.search else f"{ok}, of {settings}"
    unknown = f", {cost.unknown} without times" if cost.unknown else ""
    unit = "CPU-minutes" if of.device == CPU else "GPU-minutes"
    spent = f"{cost.seconds / 60:.1f} {unit} ({format_count(cost.tries, 'try', 'tries')}{unknown})"
    measured = [
        f"Measured: {of.workload}: {of.text}{model}, on {where}.",
        *(f"  {line}" for line in conditions[:1]),
        f"  {title}: {run}",
        f"  The {kind} took {spent}; queueing is not in it.",
    ]
    lines = energy_lines(energy, advice.batch.settings, _corpus(advice.corpus)) if energy else ()
    before, after = (doubts, _memory(advice)), ([*lines], computed, conditions[1:], measured)
    first, last = ([Block.of(piece) for piece in pieces if piece] for pieces in (before, after))
    return [*first, *_gpus(advice), *last]


def _accepted(batch: types.BatchChoice) -> tuple[Speed, ...]:
    return batch.judged.allowed(types.without_refused(batch.settings, batch.precisions))


def _fits_text(advice: types.Recommendation, largest: Prediction) -> bool:
    """Return whether there is a safe batch, and the text that was measured is long enough to test it."""
    most = advice.measured.paragraphs if largest.knob == BATCH_SIZE else largest.safe_batch
    return 0 < largest.safe_batch <= most


def _memory_option(advice: types.Recommendation, each_bytes: float) -> str:
    """Return the option of ``jobkit verify`` for the allocators of all workers, in whole MiB, rounded down.

    ``each_bytes``: what one worker's allocator has.
    """
    size_bytes = each_bytes * advice.measured.workers * (1 - advice.margin)
    return f" --gpu-memory {math.floor(size_bytes / MIB)}MiB"


def _largest(advice: types.Recommendation) -> list[str]:
    """Return the largest safe batch in the memory that was asked for, and below it that in all memory."""
    batch, of, largest = advice.batch, advice.measured, advice.batch.answer
    with_ = f" with {batch.others}" if batch.others else ""
    if largest.reason:
        return [f"Largest safe batch{with_}: not known, because {largest.reason}."]
    ram, whole, ends = of.kind == RAM, batch.largest, ["where memory ends", "which is the whole text"]
    proven = f", {ends[largest.saturated]}"
    if largest.measured_bytes is not None:
        larger = f"{largest.tested_batch:,} " if largest.tested_batch != largest.safe_batch else ""
        proven = f": tested, {larger}needed {format_memory(largest.measured_bytes)}"
    everywhere = "the requested RAM" if ram else "the memory of this GPU"
    size = format_memory(largest.capacity_bytes * of.workers)
    where = f"{size} of {'process' if ram else 'allocator'} memory" if batch.asked else everywhere
    first = f"Largest safe: {largest.knob} {largest.safe_batch:,}{with_} in {where}{batch.allocator}{proven}."
    untested = "; not tested" if whole.measured_bytes is None else ""
    more = whole.reason or f"{whole.knob} {whole.safe_batch:,}, {ends[whole.saturated]}{untested}"
    return [first, f"  In all of {everywhere}: {more}."] if batch.asked else [first]


def _memory(advice: types.Recommendation) -> list[str]:
    batch, of, largest = advice.batch, advice.measured, advice.batch.answer
    lines = _largest(advice)
    for line in batch.lines:
        if not line.largest.reason:
            values = f"With {line.others}" if line.others else "If the other knobs had no effect"
            ends = "which is the whole text" if line.largest.saturated else "where memory ends"
            lines.append(f"  {values}: {line.largest.knob} {line.largest.safe_batch:,}, {ends}.")
    if unknown := [line.largest.reason for line in batch.lines if line.largest.reason]:
        more = [reason for reason in dict.fromkeys(unknown) if reason != largest.reason]
        because = f", because {'; '.join(more)}" if more else ""
        values = f"{format_count(len(unknown), 'more combination')} of the other knobs"
        lines.append(f"  With {values}: not known{' either' if largest.reason else ''}{because}.")
    if not largest.reason:
        above = 0 if batch.asked else of.overhead_bytes or 0
        expected, bound, there = (
            format_memory(of.workers * size + above)
            for size in (largest.expected_bytes, largest.bound_bytes, largest.capacity_bytes)
        )
        kept = f", {100 * advice.margin:.1f} % of it kept free" if advice.margin else ""
        several = f"s of the {of.workers} workers are" if of.workers > 1 else " is"
        context = f" The context{several} {format_bytes_gib(above)} of it." if above else ""
        lines += [
            f"  It takes {expected} by the line, at most {bound} (95 %), of {there}{kept}.{context}",
            f"  Without the safety bound: {largest.knob} {largest.largest_batch:,}.",
            f"  The line is through {LINE_THROUGH[of.kind]}.",
        ]
        if batch.leave_largest_out is not None:
            missed = f"{100 * batch.leave_largest_out:+.1f} %"
            lines.append(f"  Without its largest point the line would have missed that point by {missed}.")
    if batch.most_workers is not None:
        workers = format_count(batch.most_workers, "worker")
        lines.append(f"  At most {workers} fit this GPU with batches of this size (95 %).")
    lines += [f"  {trial}." for trial in advice.trials]
    if advice.ledger:
        lines.append(f"  Predictions of other runs, of this model, GPU and versions: {advice.ledger}.")
    return lines


def _gpus(advice: types.Recommendation) -> list[Block]:
    """Return what other GPUs take; nothing if that is not known, because the batch size has the reason."""
    if all(gpu.prediction.reason for gpu in advice.cards):
        return []
    fits, rows = {True: "yes", False: "no", None: "?"}, []
    for gpu in advice.cards:
        usable, largest = format_bytes_gib(gpu.usable_bytes).removesuffix(" GiB"), gpu.prediction
        ends = "the text ends" if largest.saturated else ""
        sizes = f"{largest.safe_batch:,}", f"{largest.largest_batch:,}"
        rows.append((gpu.name, usable, fits[gpu.fits], *sizes, ends))
    heads = ("GPU", "usable GiB", "fits", "largest safe", "by the line", "")
    cells = zip(heads, zip(*rows, strict=True), strict=True)
    context, workers = format_bytes_gib(advice.measured.overhead_bytes or 0), advice.measured.workers
    whose = f"contexts of the {workers} workers ({context}) are" if workers > 1 else f"context ({context}) is"
    after = [
        "  A GPU has less usable memory than its name says; jobkit help recommend names the sources.",
        f"  The {whose} taken to be the same on each of them; speed is not.",
    ]
    for gpu in advice.cards[: len(advice.cards) == 1]:  # more are looked at side by side, one is meant
        each = gpu.prediction.capacity_bytes
        kept = each * (1 - advice.margin) >= MIB
        if kept and _fits_text(advice, gpu.prediction) and not advice.batch.others:
            after.append(
                "  Test its largest batch on the GPU that was measured, if that GPU has as much memory:"
            )
            command = f"jobkit verify {shell_quote(advice.measured.run)}{_memory_option(advice, each)}"
            after.append(NoWrap(command, "    "))
    title = f"On other GPUs (does {advice.batch.recommended.setting} fit; the largest batch)"
    columns = tuple(Column(head, column, left=head == "GPU") for head, column in cells)
    return [Block(title=title, columns=columns, after=tuple(after))]


def _rate(speed: Speed) -> str:
    if speed.items_per_s is None:
        return (
            f"not known, because the workload reports no items; {Mean.of(speed.works_s).words('s')} for a run"
        )
    digits = 0 if speed.items_per_s >= 100 else 1 if speed.items_per_s >= 1 else 4  # noqa: PLR2004 - three digits
    half = half_width(speed.items_per_s_sd, speed.repeats)
    known = half is not None and not unknown_spread(speed.items_per_s, half)
    interval = f" ± {half:,.{digits}f}" if known else ""
    unknown = "" if known or half is None else "spread unknown, "
    return f"{speed.items_per_s:,.{digits}f}{interval} paragraphs/s ({unknown}n={speed.repeats})"


def _corpus(corpus: CorpusVolume) -> str:
    if not corpus.paragraphs:
        return f"one run over {corpus.name}"
    characters = f", {corpus.characters:,} characters" if corpus.characters else ""
    paragraphs = f"{format_count(corpus.paragraphs, 'paragraph')}{characters}"
    return f"{corpus.name} ({paragraphs})" if corpus.name else paragraphs


def _clock(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else format_walltime(seconds)  # noqa: PLR2004 - two minutes
