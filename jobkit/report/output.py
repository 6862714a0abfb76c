"""What was collected, for a person or a program: the only place where bytes become GiB."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jobkit.answers.setting import Mean
from jobkit.core import figures
from jobkit.core.blocks import Block, Column, as_markdown, as_text
from jobkit.core.extensions import load_all
from jobkit.core.figures import LOAD, SPEED, SPEEDUP, WORK, Figure, in_table
from jobkit.core.records import Outcome
from jobkit.core.student import unknown_spread
from jobkit.core.terminal import DELIMITERS, as_json, for_csv
from jobkit.core.units import format_setting
from jobkit.report.estimates import (
    GroupEstimate,
    estimate_lines,
    estimates,
    fastest_line,
    front_line,
    heading,
    missing_lines,
)
from jobkit.report.rows import FileReader
from jobkit.report.tables import Collected, Size, hidden_energy
from jobkit.worker.workloads.base import CHARACTERS, load_unit

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
    "padded tokens": "load: tokens of the largest batch once padded; memory follows it",
    "tokens": "load: tokens of the largest batch, which is not padded; memory follows it",
    "own load": "load: of the largest batch, as the program reports it; else its items",
    "agreement": "entities differ: in one of this setting and fp32, not in both; F1: how far the two agree",
}
"""A line for each family of columns, shown below a table that has one of them, or one of the `MARKS`."""
PART, INTERVAL, UNKNOWN = " (n=", " ± ", " ± ?"
MARKS = {"part": PART, "interval": INTERVAL, "unknown": UNKNOWN}
"""What a cell may contain that a line of `LEGENDS` explains."""


LEAST, MOST = 1e-4, 1e12
"""A workload's figure beyond these is written with an exponent."""

SUM_OF = {figures.MODEL.name: (figures.CONTEXT.head, figures.WEIGHTS.head)}
"""The heads of the columns that one is the sum of."""


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
    elif sizes and (unit := load_unit(sizes[0].first.point.workload)) != CHARACTERS:
        load = replace(LOAD, head="load\ntokens", family=unit)
    for figure in in_table(own):
        if figure not in hidden:
            columns.append(_column(load if figure is LOAD else figure, sizes, own))
        if figure is SPEEDUP:
            known = [times if (times := size.times) and times.low is not None else None for size in sizes]
            ends = [f"{times.low:,.2f}-{times.high:,.2f}" if times else "" for times in known]
            columns.append(Column("95 %\ninterval", ends, rank=1, notes=(LEGENDS["times"],)))
    fronts = ("*" if size.front else "" for size in sizes)
    columns.append(_plain("front\n", fronts, 2, (LEGENDS["front"],)))
    return [column for column in columns if any(column.cells)]


def _column(figure: Figure, sizes: Sequence[Size], own: Sequence[Figure]) -> Column:
    scale, means = figure.scale, [size.mean(figure) for size in sizes]
    form = _form(figure, [mean.value / scale for mean in means if mean])
    cells = [
        f"{mean.value / scale:{form}}{_spread(figure, mean, size, form)}" if mean else ""
        for size, mean in zip(sizes, means, strict=True)
    ]
    notes = tuple(_notes(figure, cells, sizes, own))
    return Column(figure.head, cells, figure.rank, notes=notes, sum_of=SUM_OF.get(figure.name, ()))


def _notes(
    figure: Figure, cells: Sequence[str], sizes: Sequence[Size], own: Sequence[Figure]
) -> Iterator[str]:
    families = {name for name, mark in MARKS.items() if any(mark in cell for cell in cells)}
    if figure is not WORK or not any(size.mean(SPEED) for size in sizes):
        families.add(figure.family)
    if figure is SPEEDUP and {size.n > 1 for size in sizes if size.n} == {False, True}:
        families.add("single")
    names = ", ".join(one.name for one in own if any(size.mean(one) for size in sizes))
    base = next((size.params for size in sizes if size.times), {})  # speed-ups are over it
    for name, line in LEGENDS.items():
        if name in families:
            yield line.format(base=format_setting(base) or "the smallest size", own=names)


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


MOST_NOTES = 20
EXACT = 2**53
"""Below it, a float holds every whole number."""
WIDER = "a wider terminal, or --format md, has them"
"""What shows the columns for which there is no room."""


def render(
    collected: Collected,
    fmt: str = "table",
    *,
    width: int = 80,
    gpu_memory_bytes: int | None = None,
    color: bool = False,
) -> str:
    """Return the report as text that ends with a newline.

    ``fmt``: ``table`` and ``md`` are for people, in GiB; ``csv`` and ``tsv`` hold one row per point, and
    ``json`` points, sizes, groups, estimates and notes, all in bytes and seconds.
    ``width``: columns of the terminal: the least important columns of a table give way. Only ``table``.
    ``gpu_memory_bytes``: the GPU to estimate the largest batch for; by default the one measured on.
    ``color``: whether titles carry terminal colours. Only ``table``.
    """
    if fmt in DELIMITERS:
        stream = io.StringIO()
        writer = csv.writer(stream, delimiter=DELIMITERS[fmt], lineterminator="\n")
        writer.writerow(map(for_csv, collected.point_columns))
        for record in map(_whole_numbers, collected.point_records()):
            writer.writerow(for_csv(cell) if isinstance(cell, str) else cell for cell in record.values())
        return stream.getvalue()
    per_group = estimates(collected, gpu_memory_bytes)
    if fmt == "json":
        readers: list[FileReader] = load_all("files")
        jobs = collected.sources.jobs
        report = {
            "points": [*map(_whole_numbers, collected.point_records())],
            "sizes": [*map(_whole_numbers, collected.size_records())],
            "metrics": [{"column": own.name, "name": own.label, "unit": own.unit} for own in collected.own],
            "groups": [*collected.group_records()],
            "estimates": per_group,
            **{reader.key: [job for job in jobs if job.key == reader.key] for reader in readers},
            "notes": collected.notes,
            "failed": collected.failed,
            "to_come": collected.to_come,
        }
        return as_json(report, indent=2) + "\n"
    shown = blocks(collected, per_group, asked=gpu_memory_bytes is not None)
    return as_markdown(shown) if fmt == "md" else as_text(shown, width, color=color, wider=WIDER)


def _whole_numbers(record: Mapping[str, object]) -> dict[str, object]:
    """Return a record whose whole numbers have no decimal point, where a float is exact."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value
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
    if collected.notes:
        more = len(collected.notes) - MOST_NOTES
        rest = (f"... and {more} more (--json has them all)",) if more > 0 else ()
        notes = tuple(f"- {note}" for note in collected.notes[:MOST_NOTES])
        yield Block(title="Notes", after=(*notes, *rest))
