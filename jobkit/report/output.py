"""What was collected, for a person or a program: the only place where bytes become GiB."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from jobkit.core.terminal import as_json, fit_columns, for_csv, for_markdown, table, wrap_lines
from jobkit.core.units import format_setting
from jobkit.report import dcgm_figures
from jobkit.report.columns import LEGENDS, MARKS, SizeColumn, size_columns, without_repetition
from jobkit.report.dcgm_figures import JobFigures
from jobkit.report.estimates import GroupEstimate, estimates
from jobkit.report.own_figures import OWN
from jobkit.report.sentences import (
    base_of,
    count_lines,
    estimate_lines,
    fastest_line,
    front_line,
    heading,
    missing_lines,
)
from jobkit.report.tables import Collected
from jobkit.report.tune import answer_lines

FORMATS = ("table", "csv", "json", "md")
MOST_NOTES = 20
EXACT = 2**53
"""Below it, a float holds every whole number."""
DCGM = "dcgm"
"""The family of the columns of a report of DCGM."""
BOLD, DIM = 1, 2
"""Styles of a terminal."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled piece of the report: lines before a table, the table, lines after it.

    ``base`` is the setting that speed-ups are over; ``group`` is a row of ``Collected.groups``, if the
    table is of a group.
    """

    title: str
    before: tuple[str, ...] = ()
    columns: tuple[SizeColumn, ...] = ()
    after: tuple[str, ...] = ()
    base: str = ""
    group: int | None = None


def render(
    collected: Collected,
    fmt: str = "table",
    *,
    width: int = 80,
    gpu_memory_bytes: int | None = None,
    color: bool = False,
) -> str:
    """Return the report as text that ends with a newline.

    Parameters
    ----------
    collected
        What was read.
    fmt
        One of `FORMATS`. ``table`` and ``md`` are for people, in GiB; ``csv`` holds one row per
        point and ``json`` points, sizes, groups, estimates and notes, both in bytes and seconds.
    width
        Columns of the terminal: the least important columns of a table give way. Only ``table``.
    gpu_memory_bytes
        The GPU to estimate the largest batch for; by default the one measured on.
    color
        Whether titles carry terminal colours. Only ``table``.
    """
    if fmt == "csv":
        return _csv(collected)
    per_group = estimates(collected, gpu_memory_bytes)
    if fmt == "json":
        return _json(collected, per_group)
    found = sections(collected, per_group, asked=gpu_memory_bytes is not None)
    return _markdown(found) if fmt == "md" else _terminal(found, width, color=color)


def _csv(collected: Collected) -> str:
    """Return a row a point; a spreadsheet takes its text for text."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(for_csv, collected.point_columns))
    for record in map(_whole_numbers, collected.point_records()):
        writer.writerow(for_csv(cell) if isinstance(cell, str) else cell for cell in record.values())
    return stream.getvalue()


def _whole_numbers(record: Mapping[str, object]) -> dict[str, object]:
    """Return a record whose whole numbers have no decimal point, as far as each is exact."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value
        for name, value in record.items()
    }


def _json(collected: Collected, per_group: Iterable[GroupEstimate]) -> str:
    report = {
        "points": [*map(_whole_numbers, collected.point_records())],
        "sizes": [*map(_whole_numbers, collected.size_records())],
        "metrics": [asdict(one) for one in collected.own],
        "groups": [*collected.group_records()],
        "estimates": [asdict(estimate) for estimate in per_group],
        "dcgm": [asdict(job) for job in collected.jobs],
        "notes": collected.notes,
        "failed": collected.failed,
        "to_come": collected.to_come,
    }
    return as_json(report, indent=2) + "\n"


def sections(
    collected: Collected, per_group: Sequence[GroupEstimate], *, asked: bool = False
) -> Iterator[Section]:
    """Yield a section for each group, then the points without figures, then the notes.

    Parameters
    ----------
    collected, per_group
        What was read, and its estimates.
    asked
        Whether the user named a GPU to estimate for.
    """
    for number, group in enumerate(collected.by_group):
        sizes = [size for size in collected.by_size if size.first.group == number]
        title, *details = heading(group, sizes)
        own = [estimate for estimate in per_group if estimate.group == number]
        search = collected.search(number)
        if search:
            answer = f"The answer of the search: {format_setting(search.setting)}"
            details = [answer, *answer_lines(search), *details]
        after = [] if search else [*fastest_line(sizes), *front_line(sizes)]
        after += estimate_lines(own)
        if asked and not own:
            after.append("No estimate of the largest batch: these points ran on a CPU.")
        columns = size_columns(sizes, collected.knobs, collected.own)
        yield Section(title, tuple(details), tuple(columns), tuple(after), base_of(sizes), number)
    if missing := missing_lines(collected):
        yield Section(count_lines(collected), after=missing)
    for job in collected.jobs:
        lines = tuple(dcgm_figures.lines(job))
        yield Section(dcgm_figures.title(job), columns=job_columns(job), after=lines)
    if collected.notes:
        more = len(collected.notes) - MOST_NOTES
        rest = (f"... and {more} more (--json has them all)",) if more > 0 else ()
        notes = tuple(f"- {note}" for note in collected.notes[:MOST_NOTES])
        yield Section("Notes", after=(*notes, *rest))


def job_columns(job: JobFigures) -> tuple[SizeColumn, ...]:
    """Return a report of DCGM next to the figures of its points, as columns."""
    cells = {
        "figure": [figure.name for figure in job.figures],
        "DCGM": [dcgm_figures.shown(figure.dcgm, figure.unit) for figure in job.figures],
        job.whose: [dcgm_figures.shown(figure.own, figure.unit) for figure in job.figures],
    }
    return tuple(
        SizeColumn(name=head, head=head, cells=tuple(column), family=DCGM, left=head == "figure")
        for head, column in cells.items()
    )


def legends(columns: Sequence[SizeColumn], base: str, safe: Callable[[str], str] = str) -> list[str]:
    """Return what the columns mean, a line for each family; ``base`` is as in `Section`.

    Names and values in them are made safe.
    """
    own = ", ".join(column.name.removeprefix(OWN) for column in columns if column.family == "own")
    families = {column.family for column in columns}
    cells = [cell for column in columns for cell in column.cells]
    numbers = next((column.cells for column in columns if column.name == "n"), None)
    if numbers is None:
        families.discard("size")
    if "speed" in families and (numbers is None or "1" in numbers):
        families.add("single")
    families |= {name for name, mark in MARKS.items() if any(mark in cell for cell in cells)}
    return [text.format(base=safe(base), own=safe(own)) for name, text in LEGENDS.items() if name in families]


def _terminal(found: Iterable[Section], width: int, *, color: bool) -> str:
    def styled(lines: Iterable[str], code: int) -> list[str]:
        return [f"\x1b[{code}m{line}\x1b[0m" if color else line for line in wrap_lines(lines, width)]

    parts: list[list[str]] = []
    for section in found:
        head = styled([section.title], BOLD) + wrap_lines(section.before, width)
        after = wrap_lines(section.after, width)
        if not section.columns:
            parts.append(head + after)
            continue
        shown = fit_columns(section.columns, width, without_repetition)
        lines = [*legends(shown, section.base), *_left_out(section.columns, shown)]
        parts += [head, [*table(shown)], styled(lines, DIM), after]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _left_out(columns: Sequence[SizeColumn], shown: Sequence[SizeColumn]) -> Iterator[str]:
    """Yield which columns a terminal had no room for."""
    missing = [" ".join(column.head.split()) for column in without_repetition(columns) if column not in shown]
    if missing:
        yield f"no room for: {', '.join(missing)}; a wider terminal, or --format md, has them"


def _markdown(found: Iterable[Section]) -> str:
    parts: list[str] = []
    for section in found:
        parts += [f"## {for_markdown(section.title)}", ""]
        parts += [f"{for_markdown(line)}  " for line in section.before]
        if columns := without_repetition(section.columns):
            lines = [f"- {line}" for line in legends(columns, section.base, for_markdown)]
            parts += ["", *_markdown_table(columns), "", *lines, ""]
        parts += [*map(_bullet, section.after), ""]
    return "\n".join(parts)


def _bullet(line: str) -> str:
    return f"{'  ' if line.startswith('  ') else ''}- {for_markdown(line.removeprefix('- ')).strip(' ')}"


def _markdown_table(columns: Sequence[SizeColumn]) -> list[str]:
    heads = [" ".join(map(for_markdown, column.head.split())) for column in columns]
    rows = zip(*(map(for_markdown, column.cells) for column in columns), strict=True)
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["--:"] * len(heads), *rows)]
