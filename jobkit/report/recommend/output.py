"""What a run recommends, for a person or a program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jobkit.answers.memory import ALLOCATED, NEED, RAM, Prediction
from jobkit.answers.setting import Mean
from jobkit.answers.speed import (
    NO_INTERVAL,
    SPEED_TOLERANCE,
    CorpusVolume,
    Speed,
    differ,
    no_difference,
    tested,
)
from jobkit.core import terminal
from jobkit.core.blocks import Block, columns_of
from jobkit.core.figures import MAX, format_figure
from jobkit.core.knobs import BATCH_SIZE, CPU
from jobkit.core.student import TWO_SIDED, half_width, quantile, unknown_spread
from jobkit.core.terminal import NoWrap, shell_quote, wrap
from jobkit.core.units import (
    MIB,
    format_bytes_gib,
    format_count,
    format_energy,
    format_f1,
    format_memory,
    format_setting,
    format_size,
    format_took,
    format_walltime,
)
from jobkit.report.recommend.advice import (
    MEMORY,
    SATURATION,
    SWEEP,
    THROUGHPUT,
    Advice,
    EnergyAnswer,
    Judgement,
)
from jobkit.runs.conditions import condition_lines
from jobkit.runs.request import LEAST_ROOM_BYTES, MEMORY_FACTOR, WALLTIME_FACTOR
from jobkit.runs.results import overlap_words, overlaps
from jobkit.schedulers.registry import by_name

NO_BREAK, NARROW = "\xa0", 58
"""A blank within an option, and the columns of joined header lines, which a terminal must not break."""


def as_json(advice: Advice) -> str:
    """Return all of it, in bytes and seconds, as JSON that ends with a newline."""
    data = {"schema": 1, **advice.as_data(), "cautions": [line.strip() for line in cautions(advice)]}
    return terminal.as_json(data, indent=2) + "\n"


def blocks(advice: Advice, *, why: bool = False, gpus: bool = False) -> list[Block]:
    """Return the answer for a person, in GiB: a screen, perhaps with GPUs, or all that it rests on."""
    if why:
        table = [advice.search.table] if advice.search else []
        return [*answer(advice), *table, Block.of(limit(advice)), *details(advice)]
    doubts = f", {format_count(len(advice.beware), 'more caution')}" if advice.beware else ""
    rest = f"With --why: the reasons, the memory{doubts}."
    screen = Block.of([*_largest(advice), *_counted(cautions(advice)), rest])
    return [*answer(advice, joined=True), *(_gpus(advice) if gpus else ()), screen]


def answer(advice: Advice, *, joined: bool = False) -> list[Block]:
    """Return what to take, what to request if the spec could be read, and how long it takes.

    Header lines of a plain site may be joined: schedulers read several options in one line.
    """
    search, asked, chosen = advice.search, advice.request, advice.recommended
    if search:
        taken = [f"Take {format_setting(search.setting)}: {_rate(chosen)}, the answer of the search."]
        taken += search.worth
    elif not (judged := advice.judged).objective.by_speed:
        extreme = "highest" if judged.objective.direction == MAX else "lowest"
        safe = " that is safe" if judged.rank(chosen) < max(map(judged.rank, advice.accepted)) else ""
        value = judged.of(chosen).mean.words(judged.unit)
        why = f"{judged.objective.name} {value}, the {extreme} mean{safe}"
        taken = [f"Take {chosen.setting}: {why}.", f"  Its speed: {_rate(chosen)}."]
    elif advice.holds(advice.largest) is False:
        why = "the smallest that was measured, though no measured setting is safe"
        taken = [f"Take {chosen.setting}: {_rate(chosen)}, {why}."]
    else:
        fastest = advice.fastest
        safe = " that is safe" if advice.largest.holds(fastest.size, fastest.load) is False else ""
        keeps = " that keeps the constraints" if any(own.broken for own in judged.settings) else ""
        near = f"the smallest within {100 * SPEED_TOLERANCE:.0f} % of the fastest{keeps or safe}"
        taken = [f"Take {chosen.setting}: {_rate(chosen)}, {near}."]
    request: list[str] = []
    if asked:
        size, clock = format_size(asked.memory_bytes), format_walltime(asked.walltime_s)
        own = any(lines.own for lines in asked.lines)
        add = " from the scheduler" if own else " (add your queue, account and GPU type)"
        each = f" for each of about {asked.jobs:,} jobs" if asked.jobs > 1 else ""
        request.append(f"Request {size} and {clock}{each}{add}:")
        if asked.too_long:
            cut = "; `jobkit apply` cuts it" * (asked.jobs > 1)
            request.append(f"  The corpus in one job: {asked.too_long}{cut}.")
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
    pieces = (taken, request, _time(advice))
    return [Block.of(piece) for piece in pieces if piece]


def _time(advice: Advice) -> list[str]:
    """Return how long the corpus takes, and how long its paragraphs are, or are taken to be."""
    time, interval = advice.time, "one repeat has no interval"
    if time.unknown:
        interval = f"spread unknown, n={time.repeats}"
    elif time.low_s is not None and time.high_s is not None:
        interval = f"95 % of runs: {format_took(time.low_s)} to {format_took(time.high_s)}"
    took = f"{format_took(time.expected_s)} ({interval}), {format_took(time.start_s)} of it to start"
    lines = [f"Time for {_corpus(advice.corpus)}: {took}."]
    alike = (one.summary for one in advice.records if one.params == advice.recommended.params)
    sums = next(filter(None, alike), None)
    if (named := advice.named) and sums and sums.items and sums.characters:
        mean = sums.characters / sums.items
        own = (named.characters or 0) / max(1, named.paragraphs) if named.name else 0.0
        if not named.name:
            words = f"{mean:,.0f} characters on average"
            lines.append(f"  Of paragraphs of {words}, as measured; of a FILE its own lengths count.")
        elif own and not 2 / 3 < own / mean < 3 / 2:
            words = f"{own:,.0f} characters on average, those measured {mean:,.0f}"
            lines.append(f"  Its paragraphs have {words}: the interval does not cover that.")
    return lines


def cautions(advice: Advice) -> list[str]:
    """Return what the first screen names: stand-in, extrapolated, another GPU, one repeat, unproved."""
    point, largest, settings, model = advice.point, advice.largest, advice.settings, advice.point.model
    safe, most = largest.safe_batch, max(setting.size for setting in settings)
    new = safe > 0 and largest.measured_bytes is None and all(s.size != safe for s in settings)
    found: list[str] = []
    if model and model.caveat:
        found.append(f"  {model.label}: the real model may take more time and memory")
    ran = next((one for one in advice.records if one.params == advice.recommended.params), None)
    if ran and ran.inert:
        known = {knob: value for knob in ran.inert if (value := ran.effective.get(knob)) is not None}
        found.append(f"  {', '.join(ran.inert)} had no effect: what ran is {format_setting(known)}")
    if new and safe > most > 0:
        found.append(f"  extrapolated: {safe / most:.1f} times the largest batch that was measured")
    if point.device != CPU:
        gpu = advice.memory.gpu or "the measured GPU"
        found.append(f"  another GPU: speed and time are those of {gpu}")
    if words := overlap_words(advice.records, overlaps(advice.records)):
        found.append(f"  {words.partition(' (`resources')[0]}")
    works_s = [Mean.of(setting.works_s).value for setting in settings]
    # work that is over sooner shows the speed of a first call, and not that of a setting
    if len(settings) > 1 and (longest_s := max(works_s)) < 0.1:
        low, high = (f"{1000 * work_s:.2g}" for work_s in (min(works_s), longest_s))
        found.append(
            f"  the points worked for {low} to {high} ms, too short to compare speeds: a longer text"
        )
    if advice.recommended.repeats == 1:
        found.append("  one repeat: no difference in speed is tested, and the time has no interval")
    other = {knob for setting in settings for knob in setting.params} - {largest.knob}
    if new and advice.material.trials:
        found.append(f"  unproved: {advice.material.trials[-1]}")
    elif new and any(len({setting.params.get(knob) for setting in settings}) > 1 for knob in other):
        found.append(f"  unproved: jobkit verify tests no sweep that varies a knob other than {largest.knob}")
    elif new and not _fits_text(advice, largest):
        found.append(f"  unproved: the text is too short for a test ({advice.paragraphs:,} paragraphs)")
    elif new:
        asked = advice.margin or advice.memory.asked or advice.memory.on_cpu
        command = _verify(advice, largest.capacity_bytes if asked else None)
        of = " (on a CPU the memory of the process)" if advice.memory.on_cpu else ""
        found.append(NoWrap(command, f"  unproved, until you test it{of}: "))
    return found


def _counted(doubts: list[str]) -> list[str]:
    return [f"{format_count(len(doubts), 'caution')}:", *doubts] if doubts else []


def limit(advice: Advice) -> list[str]:
    """Return why no other setting is taken, as far as that is known."""
    search, run, chosen, best = advice.search, advice.material.run, advice.recommended, advice.fastest
    judged, accepted, lines = advice.judged, advice.accepted, list[str]()
    limits = {
        THROUGHPUT: "throughput: larger batches were measured, and gain less than 5 %",
        SATURATION: "the text: this batch is the largest measured, and the whole text would fit in a call",
        MEMORY: "memory: larger batches than this are not safe",
        SWEEP: "the sweep: nothing larger was measured, and the smaller settings are slower",
    }
    if binds := search.limit if search else limits.get(advice.binds or "", ""):
        lines.append(f"The limit is {binds}.")
    if advice.binds in {SATURATION, SWEEP} and (most := advice.largest.safe_batch) > chosen.size:
        lines.append(f"  Larger batches, up to {most:,}, were not measured: they may be faster still.")
    if not search:
        if not judged.objective.by_speed:
            lines += [f"  {line}." for line in compared_lines(judged, accepted, chosen)]
        if (times := advice.times) and times.differs and times.low and times.high:
            interval = f"{100 * (times.low - 1):.1f} to {100 * (times.high - 1):.1f} % with 95 % confidence"
            faster = f"{100 * (times.mean - 1):.1f} % faster ({interval})"
            lines.append(f"  Fastest: {best.setting}, {_rate(best)}: {faster}.")
        elif chosen is not best and best.rates:
            named = f"{best.setting}, {_rate(best)}"
            lines += no_difference(chosen.setting, named, times, run, chosen.repeats)
        below = accepted.index(chosen) - 1
        if judged.objective.by_speed and below >= 0 and differ(accepted[below], best) is False:
            lines += no_difference(accepted[below].setting, best.setting, None, run, chosen.repeats)
    return lines + [f"  {line}." for line in (*left_out_lines(judged), *_precision_lines(advice))]


def compared_lines(judgement: Judgement, settings: Sequence[Speed], chosen: Speed) -> Iterator[str]:
    """Yield how other settings that are allowed compare with the recommended one, without full stops."""
    name, unit, rank = judgement.objective.name, judgement.unit, judgement.rank(chosen)
    rest = [setting for setting in judgement.allowed(settings) if setting is not chosen]
    if same := [setting for setting in rest if judgement.rank(setting) == rank]:
        yield f"The same {name} as {format_count(len(same), 'other setting')}: speed decides"
    best = judgement.of(chosen).mean
    if behind := [setting for setting in rest if judgement.rank(setting) < rank]:
        other = max(behind, key=judgement.rank)
        mean, highest = judgement.of(other).mean, judgement.objective.direction == MAX
        apart = best.minus(mean) if highest else mean.minus(best)
        by = f"{format_figure(apart.mean, unit)} {'lower' if highest else 'higher'}"
        if apart.low is not None and apart.high is not None:
            ends = f"{format_figure(apart.low, unit)} to {format_figure(apart.high, unit)}"
            by += f" ({ends} with 95 % confidence)"
        yield "; ".join(filter(None, (f"Next: {other.setting}, {mean.words(unit)}: {by}", tested(apart))))
    alike = [one for one in behind if best.minus(judgement.of(one).mean).differs is False]
    quick = max(alike, key=lambda setting: setting.rate, default=None)
    if quick and chosen.rate and quick.rate > chosen.rate:
        times = f"{quick.rate / chosen.rate:.2f} times as fast"
        yield f"{quick.setting} is {times}, and no difference in {name} is shown"


def left_out_lines(judgement: Judgement) -> Iterator[str]:
    """Yield which settings are not taken and why, and how many points have no metric, without full stops."""
    for own in judgement.settings:
        if own.broken:
            yield f"Not taken: {own.setting}, because {own.broken}"
    if judgement.missing:
        points = f"{judgement.missing} of {format_count(judgement.points, 'point')}"
        yield f"{judgement.objective.name} has no value in {points}: left out of its means"


def _precision_lines(advice: Advice) -> Iterator[str]:
    """Yield how the entities of the recommended setting agree with fp32, and what is faster and refused."""
    chosen, named = advice.recommended, {one.setting: one for one in advice.precisions}
    if own := named.get(chosen.setting):
        yield f"Of this precision, {own.words}"
    refused = [one for one in advice.settings if one.setting in named and not named[one.setting].accepted]
    best = max(refused, key=lambda setting: setting.rate, default=chosen)
    if best.rate > chosen.rate > 0:
        share, why = 100 * (best.rate / chosen.rate - 1), named[best.setting]
        takes = f"; --min-f1 {format_f1(why.agreement.f1)} takes it" if why.agreement else ""
        yield f"Not taken: {best.setting}, {share:.0f} % faster, because {why.words}{takes}"


def details(advice: Advice) -> list[Block]:
    """Return what the answer rests on and what to beware of: a page shows the title of each."""
    doubts = _counted([*cautions(advice), *(f"  {doubt}" for doubt in advice.beware)])
    energy, request, conditions = advice.energy, advice.request, [*condition_lines(advice.conditions)]
    kind, run = "search" if advice.search else "sweep", advice.material.run
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
    point, cost, memory, model = advice.point, advice.cost, advice.memory, advice.point.model
    where = "a CPU" if point.device == CPU else memory.gpu or "a GPU of unknown name"
    if memory.limit_bytes and point.device != CPU:
        where += f" ({format_bytes_gib(memory.limit_bytes, 1)} usable)"
    of = f", model {model.title}{f' ({model.caveat})' if model.caveat else ''}" if model else ""
    ok = f"{format_count(advice.points, 'point')} that succeeded"
    settings = format_count(len(advice.settings), "setting")
    title = f"{advice.search.title}, {ok}" if advice.search else f"{ok}, of {settings}"
    unknown = f", {cost['unknown']} without times" if cost["unknown"] else ""
    unit = "CPU-minutes" if point.device == CPU else "GPU-minutes"
    tries = format_count(int(cost["tries"]), "try", "tries")
    measured = [
        f"Measured: {point.workload}: {point.text.name}{of}, on {where}.",
        *(f"  {line}" for line in conditions[:1]),
        f"  {title}: {run}",
        f"  The {kind} took {cost['seconds'] / 60:.1f} {unit} ({tries}{unknown}); queueing is not in it.",
    ]
    lines = _energy(energy, advice.settings, _corpus(advice.corpus)) if energy else ()
    before, after = (doubts, _memory(advice)), ([*lines], computed, conditions[1:], measured)
    first, last = ([Block.of(piece) for piece in pieces if piece] for pieces in (before, after))
    return [*first, *_gpus(advice), *last]


def _fits_text(advice: Advice, largest: Prediction) -> bool:
    """Return whether there is a safe batch, and the text that was measured is long enough to test it."""
    most = advice.paragraphs if largest.knob == BATCH_SIZE else largest.safe_batch
    return 0 < largest.safe_batch <= most


def _verify(advice: Advice, each_bytes: float | None) -> str:
    """Return the ``jobkit verify`` that tests the largest batch, in the memory of all workers in whole MiB.

    ``each_bytes``: what one worker's allocator has, on a CPU its process; ``None`` for all memory of the GPU.
    """
    memory, model = "", advice.point.model
    if each_bytes is not None:
        size_bytes = each_bytes * advice.memory.workers * (1 - advice.margin)
        memory = f" --gpu-memory {math.floor(size_bytes / MIB)}MiB"
    permits = " --stand-in" if model and model.stand_in else ""
    return f"jobkit verify {shell_quote(advice.material.run)}{memory}{permits}"


def _largest(advice: Advice) -> list[str]:
    """Return the largest safe batch in the memory that was asked for, and below it that in all memory."""
    of, largest, with_ = advice.memory, advice.largest, f" with {advice.others}" if advice.others else ""
    if largest.reason:
        return [f"Largest safe batch{with_}: not known, because {largest.reason}."]
    ram, whole, proven = of.on_cpu, of.largest, f", {largest.ends}"
    if largest.measured_bytes is not None:
        larger = f"{largest.tested_batch:,} " if largest.tested_batch != largest.safe_batch else ""
        proven = f": tested, {larger}needed {format_memory(largest.measured_bytes)}"
    everywhere = f"{format_memory(of.limit_bytes or 0)} of RAM" if ram else "the memory of this GPU"
    size = format_memory(largest.capacity_bytes * of.workers)
    where = f"{size} of {'process' if ram else 'allocator'} memory" if of.asked else everywhere
    batch = f"{largest.knob} {largest.safe_batch:,}"
    first = f"Largest safe: {batch}{with_} in {where}{advice.allocator}{proven}."
    untested = "; not tested" if whole.measured_bytes is None else ""
    more = whole.reason or f"{whole.knob} {whole.safe_batch:,}, {whole.ends}{untested}"
    return [first, f"  In all of {everywhere}: {more}."] if of.asked else [first]


def _memory(advice: Advice) -> list[str]:
    of, largest, margin, lines = advice.memory, advice.largest, advice.margin, _largest(advice)
    unknown: list[str] = []
    for others, there in advice.lines.items():
        if there.reason:
            unknown.append(there.reason)
            continue
        values = f"With {others}" if others else "If the other knobs had no effect"
        lines.append(f"  {values}: {there.knob} {there.safe_batch:,}, {there.ends}.")
    if unknown:
        values = f"{format_count(len(unknown), 'more combination')} of the other knobs"
        lines.append(f"  With {values}: not known, because {'; '.join(dict.fromkeys(unknown))}.")
    line_through = {
        NEED: "the needs of the heaviest batches of each point, measured by capping the allocator",
        ALLOCATED: "torch's allocated peaks, times the largest ratio of reserved to allocated memory",
        RAM: "the largest resident memory of each try",
    }
    if not largest.reason:
        above = 0 if of.asked else of.overhead_bytes or 0
        expected, bound, room = (
            format_memory(of.workers * size + above)
            for size in (largest.expected_bytes, largest.bound_bytes, largest.capacity_bytes)
        )
        kept = f", {100 * margin:.1f} % of it kept free" if margin else ""
        several = f"s of the {of.workers} workers are" if of.workers > 1 else " is"
        context = f" The context{several} {format_bytes_gib(above)} of it." if above else ""
        lines += [
            f"  It takes {expected} by the line, at most {bound} (95 %), of {room}{kept}.{context}",
            f"  Without the safety bound: {largest.knob} {largest.largest_batch:,}.",
            f"  The line is through {line_through[of.kind]}.",
        ]
        if advice.leave_largest_out is not None:
            missed = f"{100 * advice.leave_largest_out:+.1f} %"
            lines.append(f"  Without its largest point the line would have missed that point by {missed}.")
    if advice.most_workers is not None:
        workers = format_count(advice.most_workers, "worker")
        lines.append(f"  At most {workers} fit this GPU with batches of this size (95 %).")
    lines += [f"  {trial}." for trial in advice.material.trials]
    return lines


def _gpus(advice: Advice) -> list[Block]:
    """Return what other GPUs take; nothing if that is not known, because the batch size has the reason."""
    predictions, of = advice.predictions, advice.memory
    if all(largest.reason for _, largest in predictions):
        return []
    fits, rows = {True: "yes", False: "no", None: "?"}, []
    for gpu, largest in predictions:
        usable = format_bytes_gib(gpu.usable_bytes).removesuffix(" GiB")
        ends = "the text ends" if largest.saturated else ""
        sizes = f"{largest.safe_batch:,}", f"{largest.largest_batch:,}"
        rows.append((gpu.name, usable, fits[advice.holds(largest)], *sizes, ends))
    heads = ("GPU", "usable GiB", "fits", "largest safe", "by the line", "")
    context = format_bytes_gib(of.overhead_bytes or 0)
    several = f"contexts of the {of.workers} workers ({context}) are"
    whose = several if of.workers > 1 else f"context ({context}) is"
    after = [
        "  A GPU has less usable memory than its name says; jobkit help recommend names the sources.",
        f"  The {whose} taken to be the same on each of them; speed is not.",
    ]
    if len(predictions) == 1 and not advice.others:  # more are looked at side by side, one is meant
        _, largest = predictions[0]
        if largest.capacity_bytes * (1 - advice.margin) >= MIB and _fits_text(advice, largest):
            after.append(
                "  Test its largest batch on the GPU that was measured, if that GPU has as much memory:"
            )
            after.append(NoWrap(_verify(advice, largest.capacity_bytes), "    "))
    title = f"On other GPUs (does {advice.recommended.setting} fit; the largest batch)"
    return [Block(title=title, columns=columns_of(heads, rows, {"GPU"}), after=tuple(after))]


def _energy(answer: EnergyAnswer, settings: Sequence[Speed], corpus: str) -> Iterator[str]:
    """Yield the sentences; ``settings`` are all, ``corpus`` is in words."""
    own, least = answer.recommended, answer.least
    if own is None or answer.corpus_j is None:
        yield "Energy: not known for the recommended setting."
    else:
        half = half_width(own.per_1000_j_sd, own.repeats)
        unknown = half is not None and unknown_spread(own.per_1000_j, half)
        interval = " (spread unknown)" if unknown else "" if half is None else f" ± {format_energy(half)}"
        net = "" if own.net_per_1000_j is None else f", {format_energy(own.net_per_1000_j)} of it above idle"
        source = f"by the energy counter (n={own.repeats}){net}"
        each = f"{format_energy(own.per_1000_j)}{interval} for 1,000 paragraphs {source}"
        yield f"Energy for {corpus}, with {format_setting(own.params)}: {format_energy(answer.corpus_j)}."
        yield f"  It is {each}. Loading, the CPU and the rest of the machine are not in it."
    if own and least and least is not own:
        rates = {format_setting(setting.params): setting.rate for setting in settings}
        faster = rates[format_setting(least.params)] / rates[format_setting(own.params)] - 1
        rate = f"{100 * abs(faster):.0f} % {'slower' if faster < 0 else 'faster'}"
        less = f"{100 * (1 - least.per_1000_j / own.per_1000_j):.0f} % less"
        each = f"{format_energy(least.per_1000_j)} for 1,000 paragraphs, {less}"
        # A share that would be printed as 0 %
        rate = rate if abs(faster) >= 0.005 else "as fast"
        yield f"  Least energy: {format_setting(least.params)}, {each}; it is {rate}."


def _rate(speed: Speed) -> str:
    if speed.items_per_s is None:
        return (
            f"not known, because the workload reports no items; {Mean.of(speed.works_s).words('s')} for a run"
        )
    digits = 0 if speed.items_per_s >= 100 else 1 if speed.items_per_s >= 1 else 4
    half = half_width(speed.items_per_s_sd, speed.repeats)
    if half is not None and unknown_spread(speed.items_per_s, half) and speed.work_scatter:
        share, free = speed.work_scatter  # of all settings, as in the interval of the time
        half = speed.items_per_s * share * quantile(TWO_SIDED, free) / math.sqrt(speed.repeats)
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
