"""What was collected, for a person or a program: the only place where bytes become GiB."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path, PurePath

from jobkit.answers.loads import NONE, read_lengths
from jobkit.answers.memory import Memory, Prediction, memory_by_setting
from jobkit.answers.memory_line import Estimate, estimate
from jobkit.answers.setting import Mean, Setting, other_knobs
from jobkit.answers.speed import no_difference
from jobkit.core import figures, knobs
from jobkit.core.blocks import Block, Column, as_markdown, as_text
from jobkit.core.extensions import EXTENSIONS
from jobkit.core.figures import DIFFER, GPU_MEMORY, LOAD, MODEL, RAM, SPEED, SPEEDUP, WORK, Figure, in_table
from jobkit.core.frozen import keyed
from jobkit.core.knobs import BATCH_SIZE, CPU
from jobkit.core.layout import SEARCH_GOAL_FILE
from jobkit.core.records import Outcome
from jobkit.core.student import unknown_spread
from jobkit.core.terminal import DELIMITERS, NoWrap, as_csv, as_json, printable, shell_quote
from jobkit.core.units import GIB, format_bytes_gib, format_count, format_list, format_memory, format_setting
from jobkit.report.rows import SETTING, Row
from jobkit.report.tables import Collected, Size, hidden_energy, no_search_for_cycles
from jobkit.runs.conditions import ORDERS, memory_condition
from jobkit.runs.hints import FixKind, Step, remedy
from jobkit.runs.results import batches_of
from jobkit.worker.workloads.base import CHARACTERS, SHIPPED, load_unit


@keyed
class GroupEstimate:
    group: int  # a row of ``Collected.groups``
    knob: str  # the knob whose largest value is estimated
    # in a file without records, which has no loads: a straight line in the batch size, a guess without a
    # bound. For a run of jobkit only the reason why there is no line.
    by_knob: Estimate
    by_load: Estimate | None = None  # ``None``, because a log has no load; the key is kept for programs
    # for a run of jobkit the prediction of `jobkit recommend`, or the reason why there is none
    prediction: Prediction | None = None
    run: str = ""  # the folder of the first run of the group
    unit: str = CHARACTERS  # what a load counts
    others: str = ""  # the values of all other knobs, in words; empty if none varies
    allocator: str = ""  # the allocator setting, in words after a comma
    asked: Prediction | None = None  # for the limit that the run was asked for; ``None`` without one


@no_search_for_cycles()
def estimates(collected: Collected, limit_bytes: int | None = None) -> tuple[GroupEstimate, ...]:
    """Return an estimate for each group measured on a GPU, and each value of the other knobs.

    ``limit_bytes``: the GPU to fit; by default the one that the group was measured on.
    """
    found = []
    # The reason why a run of jobkit has no straight line
    bounded = "the prediction, which has a bound, is the answer"
    for group, first in enumerate(collected.by_group):
        if first.point.device == CPU:
            continue
        of_group = partial(GroupEstimate, group=group, run=first.folder)
        if first.file_format:
            guess = guess_of_file([row for row in collected.rows if row.group == group], limit_bytes)
            found.append(of_group(knob=BATCH_SIZE, by_knob=guess))
            continue
        search = collected.search(group)
        answer = next(map(other_knobs, search.finals.winner_records), None) if search else None
        memory = group_memory(collected, group, limit_bytes)
        if isinstance(memory, str):
            why = Prediction(capacity_bytes=0, reason=memory)
            reason = Estimate(line=None, capacity_bytes=None, reason=memory)
            found.append(of_group(knob=why.knob, by_knob=reason, prediction=why))
            continue
        alone = len(memory) == len(collected.by_group) == 1
        for words, own in memory.items():
            if answer is not None and words != answer:
                continue  # points of a search that ran once are no line of memory
            largest = own.largest
            reason = Estimate(line=None, capacity_bytes=own.limit_bytes, reason=largest.reason or bounded)
            estimate = of_group(
                knob=largest.knob,
                by_knob=reason,
                prediction=largest,
                unit=_load_of(first)[0],
                others="" if search or alone else words,
                allocator=memory_condition(own.records),
                asked=own.asked,
            )
            found.append(estimate)
    return tuple(found)


def group_memory(collected: Collected, group: int, limit_bytes: int | None = None) -> dict[str, Memory] | str:
    """Return memory and largest batch of a group of runs of jobkit, as `jobkit recommend` has them."""
    if (known := collected.memories.get((group, limit_bytes))) is not None:
        return known
    alone = len(collected.by_group) == 1  # then a point that failed early is of this group, too
    rows = [row for row in collected.rows if not row.point.trial and (alone or row.group == group)]
    folders = dict.fromkeys(row.folder for row in rows)
    searched = [Path(folder) for folder in folders if (Path(folder) / SEARCH_GOAL_FILE).is_file()]
    asked: set[int | None] = set()
    if searched:
        from jobkit.report.recommend.material import spec_of  # here: of other runs collect reads no spec

        asked = {spec.asked_bytes for folder in searched if (spec := spec_of(folder)[0])}
    found = collected.memories[group, limit_bytes] = memory_by_setting(
        [row.record for row in rows if row.record],
        batches_of(row.result for row in rows),
        collected.lengths(rows),
        tuple(chain.from_iterable(collected.sources.trials.get(folder, ()) for folder in folders)),
        asked_bytes=asked.pop() if len(asked) == 1 and limit_bytes is None else None,
        limit_bytes=limit_bytes,
    )
    return found


def guess_of_file(rows: Sequence[Row], limit_bytes: int | None = None) -> Estimate:
    """Return the line through the peaks of a file, and where it meets the memory of the GPU.

    On a CPU the line is that of RAM, without a limit.
    """
    peaks, first = peaks_of_file(rows), rows[0]
    model = Setting(points=tuple(rows)).mean(MODEL)
    guess = estimate(
        [size for size, _ in peaks],
        [peak for _, peak in peaks],
        None if first.point.device == CPU else limit_bytes or first.cell("gpu_capacity_bytes"),
        model_bytes=model.value if model else 0.0,
    )
    items_total = max(row.cell("items_total") or 0 for row in rows)
    if guess.largest is None or guess.largest <= items_total:
        return guess
    text = f"the text has only {format_count(items_total, 'paragraph')}"
    beyond = f"{text}, so a larger batch cannot be tested on it"
    return replace(guess, warnings=(*guess.warnings, beyond))


def peaks_of_file(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Return batch size and total peak of the rows of a file: of GPU memory, on a CPU of RAM."""
    peaks = ((row, row.value(RAM if row.point.device == CPU else GPU_MEMORY)) for row in rows)
    return [(row.numbers[BATCH_SIZE], peak) for row, peak in peaks if peak is not None]


MEASURED = re.compile(r"\d+(?:[.:]\d+)+")
"""Figures and times in the evidence of a failure, in which equal failures differ."""
MOST_NAMES = 3


def heading(group: Row, sizes: Sequence[Size]) -> list[str]:
    point, model, order, ran = group.point, group.point.model, group.cell("order"), group.cell
    items = max((row.cell("items_total") or 0 for size in sizes for row in size.points), default=0)
    paragraphs = format_count(items, "paragraph") if items else "paragraphs"
    name, capacity, machine = ran("gpu"), ran("gpu_capacity_bytes"), ran("machine")
    if point.device == CPU:
        device = "a CPU" if group.file_format else f"a CPU ({machine})"
    elif name is None or capacity is None or "GiB" in name:
        device = name or "a GPU of unknown name"
    else:
        device = f"{name} ({format_bytes_gib(capacity, 1)})"
    if group.file_format:
        return [f"{PurePath(group.folder).name}: {paragraphs} on {device}", group.file_format.about]
    lines = [f"{point.workload}: {point.text.name} ({paragraphs}) on {device}"]
    if model and model.stand_in:
        what = "STAND-IN model, trained by jobkit on generated text"
        if model.architecture:
            what = f"RANDOM weights: architecture {model.architecture}, not trained"
        lines.append(f"{what}, in place of {model.title}")
    elif model:
        lines.append(f"model {model.title}")
    fixed = dict(zip(SETTING, group.fixed, strict=True))  # a knob that varies is in the table
    words = [ORDERS.get(order, order)] if fixed[knobs.ORDER] else []
    for knob in knobs.SPEC_KNOBS:
        plain = knob.plain if getattr(point, knob.name) else None
        if knob.title and (value := fixed[knob.name]) and value != plain:
            words.append(f"{knob.title}: {value}")
    words += [f"allocator {point.allocator}"] if point.allocator else []
    return [*lines, ", ".join(words), *([ran("versions")] if ran("versions") else [])]


def fastest_line(sizes: Sequence[Size]) -> tuple[str, ...]:
    well = [(size.times.mean, size) for size in sizes if size.times]
    if len(well) < 2:
        return ()
    first, (_, best) = well[0][1], max(well, key=itemgetter(0))
    other = max(well[1:], key=itemgetter(0))[1] if best is first else best  # its ratio is over the first
    small, large, times = format_setting(first.params), format_setting(other.params), other.times
    if times is None or not times.differs or times.low is None:
        run = "" if first.first.file_format else first.first.folder
        return no_difference(small, large, times, run, other.n)
    differ = best.mean(DIFFER)
    entities = " Its entities differ from those of fp32." if differ and differ.value else ""
    if best is first:
        return (f"Fastest: {small}, the smallest that succeeded.{entities}",)
    interval = f"({times.low:.2f} to {times.high:.2f} with 95 % confidence)"
    less = f"{100 * (1 - 1 / times.mean):.0f} % less time"
    return (f"Fastest: {large}, {times.mean:.2f} times as fast as {small} {interval}: {less}.{entities}",)


def front_line(sizes: Sequence[Size]) -> tuple[str, ...]:
    """Return the sentence on time and energy, if there are two sizes to compare."""
    best = [f"({format_setting(size.params)})" for size in sizes if size.front]
    if len(best) == 1:
        return (f"Time and energy: no other setting beats {best[0][1:-1]} in either.",)
    names = format_list(best, 8)
    return (f"Time and energy: no other setting beats one of these in both: {names}.",) if best else ()


def estimate_lines(estimates: Sequence[GroupEstimate]) -> Iterator[str]:
    known = [found for found in estimates if found.prediction is None or not found.prediction.reason]
    for found in known:
        with_ = f"With {found.others}: " if found.others else ""
        batch, guess = found.prediction, found.by_knob
        if batch:
            first, *rest = _prediction_lines(found, batch)
            yield f"{with_}{first}"
            yield from rest
        elif guess.line is None or guess.capacity_bytes is None or guess.largest is None:
            yield f"{with_}No estimate of the largest {found.knob}: {guess.reason}."
        else:
            line, there = guess.line, f"near {guess.largest:,} on {format_bytes_gib(guess.capacity_bytes)}"
            error = line.no_error_bar
            if line.residual_bytes is not None:
                error = f"{line.points} points, {format_bytes_gib(line.residual_bytes, 3)} sd about the line"
            title = f"Largest {found.knob}, a guess without a bound, by a straight line: {there}"
            yield f"{with_}{title} ({error})"
            slope, intercept = line.slope_bytes / GIB, line.intercept_bytes / GIB
            equation = f"{slope:.6f} x {found.knob} {'-' if intercept < 0 else '+'} {abs(intercept):.4f}"
            largest = f"{format_bytes_gib(line.at(line.size_max), 4)} at {line.size_max:,.0f}"
            yield f"  GPU total in GiB = {equation}: {largest}, the largest measured"
            yield from (f"  Caution: {words}." for words in guess.warnings if words != line.no_error_bar)
            yield "  Run that size once before you rely on it."
    if unknown := [found for found in estimates if found not in known]:
        reasons = "; ".join(dict.fromkeys(found.by_knob.reason for found in unknown))
        with_ = f" with {unknown[0].others}" if unknown[0].others else ""
        if (number := len(unknown)) > 1:
            values = format_count(number, "value")
            every = "any of the " if number == len(estimates) else ""
            with_ = f" with {every}{values} of the other knobs"
        yield f"No estimate of the largest {unknown[0].knob}{with_}: {reasons}."
    if any(found.prediction for found in known):
        command = f"jobkit recommend {shell_quote(estimates[0].run)} --why"
        yield NoWrap(command, "  all cautions, other GPUs, time: ")


def _prediction_lines(found: GroupEstimate, batch: Prediction) -> Iterator[str]:
    """Yield what is predicted for the limit that was asked for, and below it for the whole GPU."""
    largest = found.asked or batch
    there, knob = format_memory(largest.capacity_bytes), largest.knob
    ends = ", which is the whole text" if largest.saturated else ""
    yield f"Largest safe {knob}: {largest.safe_batch:,}{ends}; {there} for the allocator{found.allocator}"
    expected, bound = format_memory(largest.expected_bytes), format_memory(largest.bound_bytes)
    if largest.measured_bytes is not None:
        needed = format_memory(largest.measured_bytes)
        same = largest.tested_batch == largest.safe_batch
        line = f"; the line has {expected}" if same else ""
        yield f"  Tested: {'it' if same else f'{largest.tested_batch:,}'} needed {needed}{line}."
    elif largest.safe_batch:
        yield f"  It needs {expected} by the line, and at most {bound} with 95 % confidence."
    else:
        yield f"  Not even a batch of 1 fits: with no batch at all the line has {expected} already."
    if found.asked:
        ends = ", which is the whole text" if batch.saturated else ""
        untested = "; not tested" if batch.measured_bytes is None else ""
        there = f"{format_memory(batch.capacity_bytes)} for the allocator{untested}"
        yield f"  In all memory of the GPU: {batch.safe_batch:,}{ends}; {there}."
    if largest.doubts:
        first, *rest = largest.doubts
        yield f"  Caution: {first}{f' (and {len(rest)} more)' if rest else ''}."


def missing_lines(collected: Collected) -> tuple[str, ...]:
    """Return lines on the points that are in no table: equal failures together, and one on all to come.

    Conclusive trials, which notes name, and repeats that were not needed are not among them.
    """
    points = [
        row
        for row in collected.rows
        if row.size is None and not row.unneeded and not (row.point.trial and row.answered)
    ]
    kinds: dict[tuple[object, ...], list[Row]] = {}
    for row in points:
        if row.outcome is not None:
            tried = row.tried
            kind = row.folder, row.outcome, tried.provisional, MEASURED.sub("", tried.evidence)
            kinds.setdefault(kind, []).append(row)
    lines: list[str] = []
    most_failures = 20
    for alike in [*kinds.values()][:most_failures]:
        first, point, tried, number = alike[0], alike[0].point, alike[0].tried, len(alike)
        ended = f"{tried.outcome}{' (provisional)' if tried.provisional else ''}: {tried.evidence}"
        if number == 1:
            lines.append(f"{point.point_id} ({format_setting(first.params)}, repeat {point.repeat}): {ended}")
        else:
            names = format_list([row.point.point_id for row in alike], MOST_NAMES)
            lines += [f"{number:,} points: {ended}", f"  They are {names}."]
        steps = tuple[Step, ...]()
        if tried.outcome and not first.answered:
            run = shell_quote(first.folder)
            steps = remedy(tried.outcome, tried.evidence, run=run, point=point)
        for step in steps:
            own = f" {point.index}" if number > 1 and step.kind is FixKind.CHANGE else ""
            every = f" --only {tried.outcome}" if own and step.command.endswith(own) else ""
            command = f"{step.command.removesuffix(own)}{every}" if every else step.command
            lines.append(NoWrap(command, f"  {step.does}: "))
    if left := sum(map(len, [*kinds.values()][most_failures:])):
        lines.append(f"... and {format_count(left, 'more point')} (--format csv has them all)")
    if to_come := [row for row in points if row.outcome is None]:
        lines.append(f"to come: {format_list([row.point.point_id for row in to_come], MOST_NAMES)}")
        folders = dict.fromkeys(shell_quote(row.folder) for row in to_come)
        lines.append(NoWrap(f"jobkit status {' '.join(folders)}", "look again later: "))
    return tuple(lines)


LEGENDS = {
    "size": "n: points that succeeded; figures are means over them",
    "interval": "±: half of the 95 % interval of the mean, if no other job slows some runs",
    "unknown": "± ?: spread unknown, because that half is larger than the mean",
    "part": "(n=1): the mean is over that many points, because the other points lack this figure",
    "speed": "speed: of the work, no loading, no warm-up; speed-up: over {base}",
    "work": "total: of the work, no loading, no warm-up",
    "single": "one repeat has no interval and cannot show a difference",
    "times": "95 % interval: of the speed-up; one that contains 1 shows no difference",
    "batch": "batch mean s: seconds of one call",
    "p95": "batch p95 s: 95 in 100 calls take no longer",
    "model": "model: CUDA context and weights",
    "gpu": "GPU total: the peak of the whole run",
    "ram": "RAM: the most resident memory of the worker",
    "text": "text of padded: share of the padded characters that are text, not filling",
    "energy": "energy: of the GPU over the work, with its idle power",
    "net": "net: energy of the GPU over the work, less its idle power",
    "front": "front: no other setting beats it in both time and energy",
    "load": "load: characters of the largest batch once padded; memory follows it",
    "own": "{own}: as the workload reports it; jobkit does not measure it",
    "own load": "load: of the largest batch, as the program reports it; else its items",
    "agreement": "entities differ: in one of this setting and fp32, not in both; F1: how far the two agree",
}
"""A line for each family of columns, shown below a table that has one of them, or one of the marks."""
PART, INTERVAL, UNKNOWN = " (n=", " ± ", " ± ?"


LEAST, MOST = 1e-4, 1e12
"""A workload's figure beyond these is written with an exponent."""


def _load_of(row: Row) -> tuple[str, bool]:
    """Return what the load of a point counts, and whether it is padded: of a user's workload by its run."""
    lengths = None if row.point.workload in SHIPPED else read_lengths(Path(row.folder))
    if lengths and lengths.source != NONE:
        return lengths.unit, lengths.pads
    unit = load_unit(row.point.workload)
    return unit, unit != "tokens"


def _load_figure(unit: str, *, pads: bool) -> Figure:
    of = printable(unit.removeprefix("padded "))
    head = "chars" if unit == CHARACTERS else of.split()[-1] if of else ""
    how = "once padded" if pads else "which is not padded"
    legend = f"load: {of} of the largest batch{',' * (not pads)} {how}; memory follows it"
    return replace(LOAD, head=f"load\n{head[:12]}", family=legend)


def size_columns(sizes: Sequence[Size], knobs: Sequence[str], own: Sequence[Figure] = ()) -> list[Column]:
    columns = [_plain("phase\n", (size.first.point.phase for size in sizes))]
    columns += [
        _plain(knob.replace("_", "\n", 1), (size.params.get(knob) for size in sizes)) for knob in knobs
    ]
    if any(size.n != 1 for size in sizes):
        columns.append(_plain("n\n", (size.n for size in sizes), 1, (LEGENDS["size"],)))
    if any(size.outcomes != Outcome.OK for size in sizes):
        columns.append(_plain("outcome\n", (size.outcomes for size in sizes)))
    columns.append(_plain("no effect\nof", (size.of("inert") for size in sizes), 2))
    hidden, load = hidden_energy(sizes), LOAD
    if sizes and sizes[0].first.point.command:
        load = replace(LOAD, head="load\n", family="own load")
    elif sizes:
        unit, pads = _load_of(sizes[0].first)
        load = _load_figure(unit, pads=pads)
    for figure in in_table(own):
        if figure not in hidden:
            shown = load if figure is LOAD else figure
            scale, means = shown.scale, [size.mean(shown) for size in sizes]
            form = _form(shown, [mean.value / scale for mean in means if mean])
            cells = [
                f"{mean.value / scale:{form}}{_spread(shown, mean, size, form)}" if mean else ""
                for size, mean in zip(sizes, means, strict=True)
            ]
            notes = tuple(_notes(shown, cells, sizes, own))
            # The heads of the columns that one is the sum of
            summed = {figures.MODEL.name: (figures.CONTEXT.head, figures.WEIGHTS.head)}.get(shown.name, ())
            columns.append(Column(shown.head, cells, shown.rank, notes=notes, sum_of=summed))
        if figure is SPEEDUP:
            known = [times if (times := size.times) and times.low is not None else None for size in sizes]
            ends = [f"{times.low:,.2f}-{times.high:,.2f}" if times else "" for times in known]
            columns.append(Column("95 %\ninterval", ends, rank=1, notes=(LEGENDS["times"],)))
    fronts = ("*" if size.front else "" for size in sizes)
    columns.append(_plain("front\n", fronts, 2, (LEGENDS["front"],)))
    return [column for column in columns if any(column.cells)]


def _notes(
    figure: Figure, cells: Sequence[str], sizes: Sequence[Size], own: Sequence[Figure]
) -> Iterator[str]:
    # What a cell may contain that a line of `LEGENDS` explains
    marks = {"part": PART, "interval": INTERVAL, "unknown": UNKNOWN}
    families = {name for name, mark in marks.items() if any(mark in cell for cell in cells)}
    if figure is not WORK or not any(size.mean(SPEED) for size in sizes):
        families.add(figure.family)
    if figure is SPEEDUP and {size.n > 1 for size in sizes if size.n} == {False, True}:
        families.add("single")
    names = ", ".join(one.name for one in own if any(size.mean(one) for size in sizes))
    base = next((size.params for size in sizes if size.times), {})  # speed-ups are over it
    for name, line in LEGENDS.items():
        if name in families:
            yield line.format(base=format_setting(base) or "the smallest size", own=names)
    if figure.name == LOAD.name and figure.family not in LEGENDS:
        yield figure.family


def _form(figure: Figure, means: Sequence[float]) -> str:
    """Return how the means of a column are written."""
    known = [float(f"{abs(mean):.{figures.DIGITS}g}") for mean in means if mean]
    whole = all(mean % 1 == 0 for mean in means)
    if figure.own and known and not LEAST <= min(known) <= max(known) < MOST:
        return ".3e"
    if figure.own or figure.count:
        digits = 3 - math.floor(math.log10(min(known, default=1.0))) if figure.own else 1  # four figures
        return f",.{0 if whole else max(0, digits)}f"
    # Speeds compare by ratio, memory by difference: hundredths of a GiB do, unless all is tiny.
    decisive = 10 * max(known, default=100.0) if figure.unit == figures.BYTES else min(known, default=1000.0)
    places = max(figure.places, min(4, 2 - math.floor(math.log10(decisive))))  # three figures, at most 4
    return f",.{places}f"


def _spread(figure: Figure, mean: Mean, size: Size, form: str) -> str:
    """Return half the interval, and the number of points of a mean if it is less than the size's ``n``."""
    half = mean.half_width if figure.interval else None
    spread = "" if half is None else f"{INTERVAL}{half / figure.scale:{form}}"
    if unknown_spread(mean.value, half):
        spread = UNKNOWN
    return spread if mean.n == size.n else f"{spread}{PART}{mean.n:,})"


def _plain(head: str, values: Iterable[object], rank: int = 0, notes: tuple[str, ...] = ()) -> Column:
    """Return a column of whole numbers and words; a missing value is empty."""
    cells = ["" if value is None else value if isinstance(value, str) else f"{value:,}" for value in values]
    return Column(head, cells, rank, notes=notes)


def render(
    collected: Collected,
    fmt: str = "table",
    *,
    width: int = 80,
    limit_bytes: int | None = None,
    color: bool = False,
) -> str:
    """Return the report as text that ends with a newline.

    ``fmt``: ``table`` and ``md`` are for people, in GiB; ``csv`` and ``tsv`` hold one row per point, and
    ``json`` points, sizes, groups, estimates and notes, all in bytes and seconds.
    ``width``: columns of the terminal: the least important columns of a table give way. Only ``table``.
    ``limit_bytes``: the GPU to estimate the largest batch for; by default the one measured on.
    ``color``: whether titles carry terminal colours. Only ``table``.
    """
    if fmt in DELIMITERS:
        records = (record.values() for record in map(_whole_numbers, collected.point_records()))
        return as_csv((collected.point_columns, *records), DELIMITERS[fmt])
    per_group = estimates(collected, limit_bytes)
    if fmt == "json":
        keys = filter(None, (extension.key for extension in EXTENSIONS.values()))
        report = {
            "points": [*map(_whole_numbers, collected.point_records())],
            "sizes": [*map(_whole_numbers, collected.size_records())],
            "metrics": [{"column": own.name, "name": own.label, "unit": own.unit} for own in collected.own],
            "groups": [*collected.group_records()],
            "estimates": per_group,
            **dict.fromkeys(keys, collected.sources.jobs),
            "notes": collected.notes,
            "failed": collected.failed,
            "to_come": collected.to_come,
        }
        return as_json(report, indent=2) + "\n"
    shown = blocks(collected, per_group, asked=limit_bytes is not None)
    # What shows the columns for which there is no room
    wider = "a wider terminal, or --format md, has them"
    return as_markdown(shown) if fmt == "md" else as_text(shown, width, color=color, wider=wider)


def _whole_numbers(record: Mapping[str, object]) -> dict[str, object]:
    """Return a record whose whole numbers have no decimal point, where a float is exact."""
    return {
        # Below it, a float holds every whole number
        name: int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
        for name, value in record.items()
    }


def blocks(
    collected: Collected, per_group: Sequence[GroupEstimate], *, asked: bool = False
) -> Iterator[Block]:
    """Yield a block for each group, then points without figures, figures of other programs, and notes."""
    for number in range(len(collected.by_group)):
        yield group_block(collected, number, per_group, asked=asked)
    yield from missing_blocks(collected)
    yield from (job.block() for job in collected.sources.jobs)
    yield from note_blocks(collected)


def group_block(
    collected: Collected, number: int, per_group: Sequence[GroupEstimate], *, asked: bool = False
) -> Block:
    """Return the answer of group ``number`` (from 0), its scaling table, and what follows from it."""
    sizes = [size for size in collected.by_size if size.first.group == number]
    title, *about = heading(collected.by_group[number], sizes)
    own = [estimate for estimate in per_group if estimate.group == number]
    search = collected.search(number)
    answer = [*fastest_line(sizes), *front_line(sizes)]
    if search:
        answer = [f"The answer of the search: {format_setting(search.setting)}", *search.lines]
    unknown = ["No estimate of the largest batch: these points ran on a CPU."] if asked and not own else []
    return Block(
        title=title,
        before=(*answer, *about[:1]),
        columns=tuple(size_columns(sizes, collected.knobs, collected.own)),
        after=(*estimate_lines(own), *unknown, *about[1:]),
    )


def missing_blocks(collected: Collected) -> Iterator[Block]:
    if missing := missing_lines(collected):
        rows = collected.rows
        cancelled = sum(row.outcome == Outcome.CANCELLED and not row.point.trial for row in rows)
        failed = collected.failed - cancelled
        counts = {"failed": failed, "cancelled": cancelled, "still to come": collected.to_come}
        words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        yield Block(title=f"Points: {words or 'without figures'}, of {len(rows)}", after=missing)


def note_blocks(collected: Collected) -> Iterator[Block]:
    most_notes = 20
    if collected.notes:
        more = len(collected.notes) - most_notes
        rest = (f"... and {more} more (--json has them all)",) if more > 0 else ()
        notes = tuple(f"- {note}" for note in collected.notes[:most_notes])
        yield Block(title="Notes", after=(*notes, *rest))
