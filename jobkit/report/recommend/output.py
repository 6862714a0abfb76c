"""What a run recommends, for a person or a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace

from jobkit.answers.memory import Prediction
from jobkit.answers.observations import ALLOCATED, NEED, RAM
from jobkit.answers.setting import Mean
from jobkit.answers.speed import NO_INTERVAL, SPEED_TOLERANCE, CorpusVolume, Speed, differ
from jobkit.core import terminal
from jobkit.core.blocks import Block, Column
from jobkit.core.knobs import BATCH_SIZE
from jobkit.core.student import TWO_SIDED, half_width, unknown_spread
from jobkit.core.terminal import NoWrap, shell_quote
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
from jobkit.runs.conditions import condition_lines
from jobkit.runs.request import LEAST_ROOM_BYTES, MEMORY_FACTOR, WALLTIME_FACTOR
from jobkit.runs.trials import NOT_TRIED

EVEN = 0.0005
"""A difference in speed that would be printed as 0.0 %."""
LINE_THROUGH = {
    NEED: "the needs of the heaviest batches of each point, measured by capping the allocator",
    ALLOCATED: "torch's allocated peaks, times the largest ratio of reserved to allocated memory",
    RAM: "the largest resident memory of each try",
}
BINDS = {
    types.THROUGHPUT: "throughput: larger batches were measured, and gain less than that",
    types.SATURATION: "the text: this is the largest batch measured, and all of it in one call would fit",
    types.MEMORY: "memory: larger batches than this are not safe",
    types.SWEEP: "the sweep: nothing larger was measured, and all smaller ones are slower",
}
ADDRESS_SPACE = (
    "  h_vmem counts address space on many sites, of which PyTorch maps far more than is resident.",
    "  With CUDA that is tens of GiB: if a job ends at once for lack of memory, request more than this.",
)


def as_json(advice: types.Recommendation) -> str:
    """Return all of it, in bytes and seconds, as JSON that ends with a newline."""
    data = {"schema": 1, **asdict(replace(advice, search=None))}
    data["corpus"].pop("loads")
    data["search"] = advice.search.as_data() if advice.search else None
    return terminal.as_json(data, indent=2) + "\n"


def blocks(advice: types.Recommendation) -> list[Block]:
    """Return the answer for a person, in GiB: first what to take, last what it was measured from."""
    measured = [advice.search.table] if advice.search else []
    return [*answer(advice), *measured, *_with_title([limit(advice)]), *details(advice)]


def answer(advice: types.Recommendation) -> list[Block]:
    """Return the answer itself: what to take, and of a sweep what to request and the time that it takes."""
    rest = [advice.search.worth()] if advice.search else [_requested(advice), _time(advice)]
    return _with_title([_taken(advice), *rest])


def details(advice: types.Recommendation) -> list[Block]:
    """Return what the answer rests on and what to beware of: a page shows the title of each."""
    energy, cautions = advice.energy, [f"  Beware: {warning}." for warning in advice.beware]
    before = [
        *([_requested(advice), _time(advice)] if advice.search else []),
        [f"{format_count(len(cautions), 'caution')}:", *cautions] if cautions else [],
        _largest(advice),
    ]
    after = [
        energy_lines(energy, advice.batch.settings, _corpus(advice.corpus)) if energy else (),
        _asked(advice.request, advice) if advice.request else (),
        [*condition_lines(advice.conditions)][1:],
        _measured(advice),
    ]
    return [*_with_title(before), *_gpus(advice), *_with_title(after)]


def _with_title(pieces: Iterable[Iterable[str]]) -> list[Block]:
    """Return a block for each piece that has a line."""
    return [block for block in map(Block.of, pieces) if block.title]


def _where(advice: types.Recommendation) -> str:
    of = advice.measured
    model = f", model {of.model}" if of.model else ""
    where = "a CPU" if of.device == "cpu" else of.gpu or "a GPU of unknown name"
    if of.capacity_bytes and of.device != "cpu":
        where += f" ({format_bytes_gib(of.capacity_bytes, 1)} usable)"
    return f"{of.workload}: {of.text}{model}{f' ({of.caveat})' if of.caveat else ''}, on {where}"


def _measured(advice: types.Recommendation) -> Iterator[str]:
    """Yield from what the answer is, and what that took."""
    of = advice.measured
    if advice.search:
        yield f"{advice.search.title}, {format_count(of.points, 'point')} succeeded: {of.run}"
    else:
        settings = format_count(len(advice.batch.settings), "setting")
        yield f"{format_count(of.points, 'point')} that succeeded, of {settings}: {of.run}"
    cost, unit = advice.cost, "CPU-minutes" if of.device == "cpu" else "GPU-minutes"
    unknown = f", {cost.unknown} of which left no times" if cost.unknown else ""
    spent = f"{cost.seconds / 60:.1f} {unit} ({format_count(cost.tries, 'try', 'tries')}{unknown})"
    yield f"  The {_kind(advice)} took {spent}; queueing is not in it."


def limit(advice: types.Recommendation) -> Iterator[str]:
    """Yield why no other setting is taken, as far as that is known."""
    batch = advice.batch
    binds = advice.search.limit if advice.search else BINDS.get(batch.binds or "", "")
    if binds:
        yield f"The limit is {binds}."
    unmeasured = batch.binds in {types.SATURATION, types.SWEEP}
    if unmeasured and batch.largest.safe_batch > batch.recommended.size:
        more = f"{batch.largest.safe_batch:,}"
        yield f"  Larger ones, up to {more}, were not measured: they may be faster still."
    yield from _smaller(advice)
    compared = types.lines(batch.settings, batch.recommended, batch.precisions)
    yield from (f"  {line}." for line in (*objective.left_out_lines(batch.judged), *compared))


def _taken(advice: types.Recommendation) -> Iterator[str]:
    """Yield the setting to take, what is the fastest, and under which conditions that was measured."""
    if advice.search:
        setting, speed = format_setting(advice.search.setting), _rate(advice.batch.recommended)
        yield f"Take {setting}: {speed}, the answer of the search."
    else:
        yield from _chosen(advice)
    yield f"  Measured: {_where(advice)}."
    yield from (f"  {line}" for line in [*condition_lines(advice.conditions)][:1])


def _chosen(advice: types.Recommendation) -> Iterator[str]:
    chosen, best, judged = advice.batch.recommended, advice.batch.fastest, advice.batch.judged
    if judged.objective.by_speed:
        yield f"Take {chosen.setting}: {_rate(chosen)}, {_why(advice)}."
    else:
        yield f"Take {chosen.setting}: {objective.taken_line(judged, _accepted(advice), chosen)}."
        yield from (f"  {line}." for line in objective.compared_lines(judged, _accepted(advice), chosen))
        yield f"  Its speed: {_rate(chosen)}."
    if chosen is best and chosen.rates:
        yield "  It is the fastest that was measured."
    elif best.rates:
        yield f"  Fastest: {best.setting}, {_rate(best)}: {_difference(advice)}."


def _accepted(advice: types.Recommendation) -> tuple[Speed, ...]:
    """Return the settings that may be recommended, as far as precision and constraints go."""
    batch = advice.batch
    return batch.judged.allowed(types.without_refused(batch.settings, batch.precisions))


def _tried(sentence: str) -> str:
    """Return the result of a trial, or why there was none."""
    return sentence[:1].upper() + sentence[1:] if sentence.startswith(NOT_TRIED) else f"Tried: {sentence}"


def _why(advice: types.Recommendation) -> str:
    """Return why the recommended setting is the one to take."""
    chosen, fastest, largest = advice.batch.recommended, advice.batch.fastest, advice.batch.largest
    if largest.holds(chosen.size, chosen.load) is False:
        return "the smallest that was measured, though none of them is safe"
    safe = " that is safe" if largest.holds(fastest.size, fastest.load) is False else ""
    return f"the smallest within {_percent(SPEED_TOLERANCE)} of the fastest{safe}"


def _proof(advice: types.Recommendation) -> Iterator[str]:
    """Yield how to prove the largest safe batch, or why that cannot be done."""
    largest, of = advice.batch.largest, advice.measured
    other = {knob for setting in advice.batch.settings for knob in setting.params} - {largest.knob}
    if largest.safe_batch == 0:
        return
    if any(setting.size == largest.safe_batch for setting in advice.batch.settings):
        yield "  This run has measured it: no test is needed."
        return
    if any(len({setting.params.get(knob) for setting in advice.batch.settings}) > 1 for knob in other):
        yield f"  jobkit verify cannot test it: this sweep also varies a knob other than {largest.knob}."
    elif not _fits_text(advice, largest):
        text = format_count(of.paragraphs, "paragraph")
        yield f"  jobkit verify cannot test it on so short a text ({text})."
    else:
        memory = _memory_option(advice, largest.capacity_bytes) if advice.margin else ""
        command = f"jobkit verify {shell_quote(of.run)}{memory}"
        yield NoWrap(command, "  Test it before you rely on it: ")


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


def _smaller(advice: types.Recommendation) -> Iterator[str]:
    """Yield what to know of the next smaller setting: scatter alone may have left it out."""
    batch, allowed = advice.batch, _accepted(advice)
    if not batch.judged.objective.by_speed or advice.search:
        return
    below = allowed.index(batch.recommended) - 1
    if below >= 0 and differ(allowed[below], batch.fastest) is False:
        slower = 1 - allowed[below].rate / batch.fastest.rate
        by = f"{_percent(slower, 1)} slower than the fastest, which is within the scatter too"
        yield f"  The next smaller, {allowed[below].setting}, is {by}: more repeats would decide it."


def _rate(speed: Speed) -> str:
    if speed.items_per_s is None:
        return (
            f"not known, because the workload reports no items; {Mean.of(speed.works_s).words('s')} for a run"
        )
    digits = 0 if speed.items_per_s >= 100 else 1 if speed.items_per_s >= 1 else 4  # noqa: PLR2004 - three digits
    half = half_width(speed.items_per_s_sd, speed.repeats)
    known = half is not None and not unknown_spread(speed.items_per_s, half)
    interval = f" ± {half:,.{digits}f}" if known else "" if half is None else ", spread unknown"
    return f"{speed.items_per_s:,.{digits}f}{interval} paragraphs/s (n={speed.repeats})"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _difference(advice: types.Recommendation) -> str:
    times = advice.batch.times
    if times is None:
        return "just as fast"
    words = f"{_percent(times.mean - 1, 1)} faster" if times.mean - 1 >= EVEN else "just as fast"
    if times.low is None or times.high is None:
        return f"{words}; single repeats cannot show whether that is more than scatter"
    interval = f"{100 * (times.low - 1):.1f} to {_percent(times.high - 1, 1)} with 95 % confidence"
    return f"{words} ({interval})" if times.differs else f"{words} ({interval}): no difference is shown"


def _largest(advice: types.Recommendation) -> Iterator[str]:
    largest, where = advice.batch.largest, "the requested RAM" if advice.measured.kind == RAM else "this GPU"
    with_ = f" with {advice.batch.others}" if advice.batch.others else ""
    if largest.reason:
        yield f"Largest safe batch{with_}: not known, because {largest.reason}."
        yield from _lines_of_others(advice)
    else:
        safe = f"{largest.knob} {largest.safe_batch:,}{with_}"
        yield f"Largest safe: {safe} on {where}{advice.batch.allocator}, {_ended(largest)}."
        yield from _lines_of_others(advice)
        yield from _room(advice)
    if advice.batch.most_workers is not None:
        workers = format_count(advice.batch.most_workers, "worker")
        yield f"  At most {workers} fit this GPU with batches of this size (95 %)."
    yield from (f"  {_tried(trial)}." for trial in advice.trials)
    if not advice.trials and not largest.reason:
        yield from _proof(advice)
    if advice.ledger:
        yield f"  Predictions of other runs, of this model, GPU and versions: {advice.ledger}."


def _lines_of_others(advice: types.Recommendation) -> Iterator[str]:
    """Yield the largest batch for each other value of the other knobs, and of how many it is not known."""
    for line in advice.batch.lines:
        largest = line.largest
        values = f"With {line.others}" if line.others else "If the other knobs had no effect"
        if not largest.reason:
            yield f"  {values}: {largest.knob} {largest.safe_batch:,}, {_ended(largest)}."
    unknown = [line.largest for line in advice.batch.lines if line.largest.reason]
    more = [largest.reason for largest in unknown if largest.reason != advice.batch.largest.reason]
    if unknown:
        because = f", because {'; '.join(dict.fromkeys(more))}" if more else ""
        values = f"{format_count(len(unknown), 'other value')} of the other knobs"
        yield f"  With {values}: not known{' either' if advice.batch.largest.reason else ''}{because}."


def _ended(largest: Prediction) -> str:
    if largest.saturated:
        return "which is the whole text"
    return f"where memory ends; without the safety bound: {largest.largest_batch:,}"


def _room(advice: types.Recommendation) -> Iterator[str]:
    """Yield what the largest safe batch takes of what there is, and how far to trust the line."""
    above, largest = advice.measured.overhead_bytes or 0, advice.batch.largest
    each = (largest.expected_bytes, largest.bound_bytes)
    expected, bound = (format_memory(advice.measured.workers * size + above) for size in each)
    there = format_memory(advice.measured.capacity_bytes or 0)
    kept = f", of which {_percent(advice.margin, 1)} is kept free" if advice.margin else ""
    several = f"s of the {advice.measured.workers} workers are" if advice.measured.workers > 1 else " is"
    context = f" The context{several} {format_bytes_gib(above)} of it." if above else ""
    yield f"  It takes {expected} by the line, at most {bound} (95 %), of {there}{kept}.{context}"
    yield f"  The line is through {LINE_THROUGH[advice.measured.kind]}."
    if advice.batch.leave_largest_out is not None:
        missed = f"{100 * advice.batch.leave_largest_out:+.1f} %"
        yield f"  Without its largest point the line would have missed it by {missed}."


def _gpus(advice: types.Recommendation) -> list[Block]:
    if all(gpu.prediction.reason for gpu in advice.cards):  # the batch size has the reason
        return []
    title = f"On other GPUs (does {advice.batch.recommended.setting} fit; the largest batch)"
    heads = ["GPU", "usable GiB", "fits", "largest safe", "by the line", ""]
    columns = zip(*map(_gpu_cells, advice.cards), strict=True)
    cells = (Column(head, cells, left=head == heads[0]) for head, cells in zip(heads, columns, strict=True))
    return [Block(title=title, columns=tuple(cells), after=tuple(_about_gpus(advice)))]


def _about_gpus(advice: types.Recommendation) -> Iterator[str]:
    yield "  A GPU has less usable memory than its name says; jobkit help recommend names the sources."
    context = format_bytes_gib(advice.measured.overhead_bytes or 0)
    workers = advice.measured.workers
    whose = f"contexts of the {workers} workers ({context}) are" if workers > 1 else f"context ({context}) is"
    yield f"  The {whose} taken to be the same on each of them; speed is not."
    for gpu in advice.cards[: len(advice.cards) == 1]:  # more are looked at side by side, one is meant
        each = gpu.prediction.capacity_bytes
        kept = each * (1 - advice.margin) >= MIB
        if kept and _fits_text(advice, gpu.prediction) and not advice.batch.others:
            yield "  Test its largest batch on the GPU that was measured, if that has as much memory:"
            command = f"jobkit verify {shell_quote(advice.measured.run)}{_memory_option(advice, each)}"
            yield NoWrap(command, "    ")


def _gpu_cells(gpu: types.OnGpu) -> list[str]:
    prediction = gpu.prediction
    usable = format_bytes_gib(gpu.usable_bytes).removesuffix(" GiB")
    fits = {True: "yes", False: "no", None: "?"}[gpu.fits]
    note = "the text ends" if prediction.saturated else ""
    return [gpu.name, usable, fits, f"{prediction.safe_batch:,}", f"{prediction.largest_batch:,}", note]


def _time(advice: types.Recommendation) -> Iterator[str]:
    time = advice.time
    known = time.low_s is not None and time.high_s is not None and not time.unknown
    between = f"{_clock(time.low_s or 0.0)} to {_clock(time.high_s or 0.0)}"
    runs = f" ({_percent(2 * TWO_SIDED - 1)} of runs: {between})" if known else ""
    yield f"Time for {_corpus(advice.corpus)}: {_clock(time.expected_s)}{runs}."
    why = f"spread unknown (n={time.repeats})" if time.unknown else "one repeat has no interval"
    doubt = f" (t, n={time.repeats})." if known else f"; {why}."
    yield f"  {_clock(time.start_s)} of it once, to start, load the model and end{doubt}"


def _corpus(corpus: CorpusVolume) -> str:
    if not corpus.paragraphs:
        return f"one run over {corpus.name}"
    characters = f", {corpus.characters:,} characters" if corpus.characters else ""
    paragraphs = f"{corpus.paragraphs:,} paragraph{'s' if corpus.paragraphs != 1 else ''}{characters}"
    return f"{corpus.name} ({paragraphs})" if corpus.name else paragraphs


def _clock(seconds: float) -> str:
    """Return seconds as they are below two minutes, else as a clock."""
    return f"{seconds:.1f} s" if seconds < 120 else format_walltime(seconds)  # noqa: PLR2004 - two minutes


def _requested(advice: types.Recommendation) -> Iterator[str]:
    """Yield what to request, with the lines of each scheduler; nothing if the spec could not be read."""
    request = advice.request
    if request is None:
        return
    memory = format_size(request.memory_bytes)
    yield f"Request {memory} and {format_walltime(request.walltime_s)} from the scheduler:"
    for lines in request.lines:
        of = "the run's own" if lines.own else "a plain one: queue, account and GPU type are yours to add"
        yield from ("", f"  {lines.scheduler}, site {lines.site} ({of})", "")
        if lines.reason:
            yield f"  no lines: {lines.reason}"
        yield from (NoWrap(line, "  ") for line in lines.lines)


def _asked(request: types.RequestAdvice, advice: types.Recommendation) -> Iterator[str]:
    """Yield how the request is computed, and what judges that of the run."""
    upper = "the upper end" if advice.time.high_s is not None else f"{NO_INTERVAL:g} times the mean"
    yield "How the request is computed:"
    if request.used_memory_bytes is not None:
        used, room = format_memory(request.used_memory_bytes), format_size(LEAST_ROOM_BYTES)
        yield f"  RAM: {used} was used at most, x {MEMORY_FACTOR}, at least {room} more, rounded up."
    yield (
        f"  walltime: {upper} of the time above, a minute and the site's warning, x {WALLTIME_FACTOR}, in "
        "steps of 5 minutes. For a shard of `jobkit apply` it follows the length of the shard."
    )
    if any("h_vmem" in line for lines in request.lines for line in lines.lines):
        yield from ADDRESS_SPACE
    run = shell_quote(advice.measured.run)
    yield NoWrap(f"jobkit waste {run}", f"  Whether the {_kind(advice)} itself requested too much: ")


def _kind(advice: types.Recommendation) -> str:
    return "search" if advice.search else "sweep"
