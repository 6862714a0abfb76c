"""What was collected, for a person or a program: the only place where bytes become GiB."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import PurePath

from jobkit.answers.memory import Prediction
from jobkit.answers.setting import Mean
from jobkit.answers.speed import no_difference
from jobkit.core import figures, knobs
from jobkit.core.blocks import Block, Column, as_markdown, as_text
from jobkit.core.extensions import EXTENSIONS
from jobkit.core.figures import DIFFER, LOAD, SPEED, SPEEDUP, WORK, Figure, in_table
from jobkit.core.knobs import CPU
from jobkit.core.records import Outcome
from jobkit.core.student import unknown_spread
from jobkit.core.terminal import DELIMITERS, NoWrap, as_csv, as_json, printable, shell_quote
from jobkit.core.units import GIB, format_bytes_gib, format_count, format_list, format_memory, format_setting
from jobkit.report.predictions import GroupEstimate, estimates, load_of
from jobkit.report.rows import SETTING, Row
from jobkit.report.tables import GROSS, NET, Collected, Size, shown_energy
from jobkit.runs.conditions import ORDERS
from jobkit.runs.hints import FixKind, Step, remedy
from jobkit.worker.workloads.base import CHARACTERS

MEASURED = re.compile(r"\d+(?:[.:]\d+)+")
"""Figures and times in the evidence of a failure, in which equal failures differ."""


def heading(collected: Collected, number: int) -> list[str]:
    """Return what the points of group ``number`` have in common: a title, then lines below it."""
    group = collected.by_group[number]
    point, model, order, ran = group.point, group.point.model, group.value("order"), group.value
    sizes = collected.sizes_of(number)
    items = max((row.value("items_total") or 0 for size in sizes for row in size.points), default=0)
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
        if len(unknown) > 1:
            with_ = f" with {format_count(len(unknown), 'value')} of the other knobs"
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
            names = format_list([row.point.point_id for row in alike], 3)
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
        lines.append(f"to come: {format_list([row.point.point_id for row in to_come], 3)}")
        folders = dict.fromkeys(shell_quote(row.folder) for row in to_come)
        lines.append(NoWrap(f"jobkit status {' '.join(folders)}", "look again later: "))
    return tuple(lines)


PART, INTERVAL, UNKNOWN = " (n=", " ± ", " ± ?"
MARKS = {
    INTERVAL: "±: half of the 95 % interval of the mean, if no other job slows some runs",
    UNKNOWN: "± ?: spread unknown, because that half is larger than the mean",
    PART: "(n=1): the mean is over that many points, because the other points lack this figure",
}
"""What explains a mark in a cell, below its table."""
LEAST, MOST = 1e-4, 1e12
"""A workload's figure beyond these is written with an exponent."""


def _load_figure(row: Row) -> Figure:
    if row.point.command:
        legend = "load: of the largest batch, as the program reports it; else its items"
        return replace(LOAD, head="load\n", legend=legend)
    unit, pads = load_of(row)
    of = printable(unit.removeprefix("padded "))
    head = "chars" if unit == CHARACTERS else of.split()[-1] if of else ""
    how = " once padded" if pads else ", which is not padded"
    legend = f"load: {of} of the largest batch{how}; memory follows it"
    return replace(LOAD, head=f"load\n{head[:12]}", legend=legend)


def size_columns(sizes: Sequence[Size], knobs: Sequence[str], own: Sequence[Figure] = ()) -> list[Column]:
    columns = [_plain("phase\n", (size.first.point.phase for size in sizes))]
    columns += [
        _plain(knob.replace("_", "\n", 1), (size.params.get(knob) for size in sizes)) for knob in knobs
    ]
    if any(size.n != 1 for size in sizes):
        succeeded = "n: points that succeeded; figures are means over them"
        columns.append(_plain("n\n", (size.n for size in sizes), 1, (succeeded,)))
    if any(size.outcomes != Outcome.OK for size in sizes):
        columns.append(_plain("outcome\n", (size.outcomes for size in sizes)))
    columns.append(_plain("no effect\nof", (size.of("inert") for size in sizes), 2))
    hidden = {*GROSS, *NET} - {*shown_energy(sizes)}
    load = _load_figure(sizes[0].first) if sizes else LOAD
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
            line = "95 % interval: of the speed-up; one that contains 1 shows no difference"
            columns.append(Column("95 %\ninterval", ends, rank=1, notes=(line,)))
    line = "front: no other setting beats it in both time and energy"
    columns.append(_plain("front\n", ("*" if size.front else "" for size in sizes), 2, (line,)))
    return [column for column in columns if any(column.cells)]


def _notes(
    figure: Figure, cells: Sequence[str], sizes: Sequence[Size], own: Sequence[Figure]
) -> Iterator[str]:
    yield from (line for mark, line in MARKS.items() if any(mark in cell for cell in cells))
    if figure.legend and (figure is not WORK or not any(size.mean(SPEED) for size in sizes)):
        names = ", ".join(one.name for one in own if any(size.mean(one) for size in sizes))
        base = next((size.params for size in sizes if size.times), {})
        over = format_setting(base) or "the smallest size"
        yield figure.legend.replace("{base}", over).replace("{own}", names)
    if figure is SPEEDUP and {size.n > 1 for size in sizes if size.n} == {False, True}:
        yield "one repeat has no interval and cannot show a difference"


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
    sizes, (title, *about) = collected.sizes_of(number), heading(collected, number)
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
