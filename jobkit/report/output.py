"""What was collected, for a person or a program: the only place where bytes become GiB."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from jobkit.core.blocks import Block, as_markdown, as_text
from jobkit.core.extensions import load_all
from jobkit.core.terminal import DELIMITERS, as_json, for_csv
from jobkit.core.units import format_setting
from jobkit.report.columns import size_columns
from jobkit.report.estimates import (
    GroupEstimate,
    count_lines,
    estimate_lines,
    estimates,
    fastest_line,
    front_line,
    heading,
    missing_lines,
)
from jobkit.report.sources import FileReader
from jobkit.report.tables import Collected

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
        return _csv(collected, DELIMITERS[fmt])
    per_group = estimates(collected, gpu_memory_bytes)
    if fmt == "json":
        return _json(collected, per_group)
    shown = blocks(collected, per_group, asked=gpu_memory_bytes is not None)
    return as_markdown(shown) if fmt == "md" else as_text(shown, width, color=color, wider=WIDER)


def _csv(collected: Collected, delimiter: str) -> str:
    """Return a row a point; a spreadsheet takes its text for text."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(map(for_csv, collected.point_columns))
    for record in map(_whole_numbers, collected.point_records()):
        writer.writerow(for_csv(cell) if isinstance(cell, str) else cell for cell in record.values())
    return stream.getvalue()


def _whole_numbers(record: Mapping[str, object]) -> dict[str, object]:
    """Return a record whose whole numbers have no decimal point, where a float is exact."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value
        for name, value in record.items()
    }


def _json(collected: Collected, per_group: Iterable[GroupEstimate]) -> str:
    readers: list[FileReader] = load_all("files")
    report = {
        "points": [*map(_whole_numbers, collected.point_records())],
        "sizes": [*map(_whole_numbers, collected.size_records())],
        "metrics": [{"column": own.name, "name": own.label, "unit": own.unit} for own in collected.own],
        "groups": [*collected.group_records()],
        "estimates": [asdict(estimate) for estimate in per_group],
        **{reader.key: [job.data() for job in collected.jobs if job.key == reader.key] for reader in readers},
        "notes": collected.notes,
        "failed": collected.failed,
        "to_come": collected.to_come,
    }
    return as_json(report, indent=2) + "\n"


def blocks(
    collected: Collected, per_group: Sequence[GroupEstimate], *, asked: bool = False
) -> Iterator[Block]:
    """Yield a block for each group, then points without figures, figures of other programs, and notes."""
    for number in range(len(collected.by_group)):
        yield group_block(collected, number, per_group, asked=asked)
    yield from missing_blocks(collected)
    yield from (job.block() for job in collected.jobs)
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
        yield Block(title=count_lines(collected), after=missing)


def note_blocks(collected: Collected) -> Iterator[Block]:
    if collected.notes:
        more = len(collected.notes) - MOST_NOTES
        rest = (f"... and {more} more (--json has them all)",) if more > 0 else ()
        notes = tuple(f"- {note}" for note in collected.notes[:MOST_NOTES])
        yield Block(title="Notes", after=(*notes, *rest))
