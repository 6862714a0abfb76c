"""What was collected, for a person or a program: the only place where bytes become GiB."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobkit.core.terminal import as_json, for_csv, for_markdown, printable
from jobkit.report.columns import LEGENDS, PART, Strip, narrowed, strips, without_repetition
from jobkit.report.estimates import GroupEstimate, estimates
from jobkit.report.sentences import base_of, count_lines, estimate_lines, fastest_line, heading, missing_lines
from jobkit.report.tables import Collected

FORMATS = ("table", "csv", "json", "md")
MOST_NOTES = 20
GAP = 2
"""Blanks between two columns."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled piece of the report: lines before a grid, the grid, lines after it.

    ``base`` is the setting that speed-ups are over.
    """

    title: str
    before: tuple[str, ...] = ()
    grid: tuple[Strip, ...] = ()
    after: tuple[str, ...] = ()
    base: str = ""


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
        The card to estimate the largest batch for; by default the one measured on.
    color
        Whether titles carry terminal colours. Only ``table``.
    """
    if fmt == "csv":
        return _cells_safe(_whole(collected.points)).to_csv(index=False)
    found = estimates(collected, gpu_memory_bytes)
    if fmt == "json":
        return _json(collected, found)
    sections = _sections(collected, found, asked=gpu_memory_bytes is not None)
    if fmt == "md":
        return _markdown(_safe(sections, lambda line: for_markdown(line.removeprefix("- "))))
    return _terminal(_safe(sections, printable), width, color=color)


def _safe(sections: Iterable[Section], safe: Callable[[str], str]) -> Iterator[Section]:
    """Yield the sections with all text in them made safe for where it is shown."""
    for section in sections:
        grid = (
            replace(
                strip, head="\n".join(map(safe, strip.head.split("\n"))), cells=tuple(map(safe, strip.cells))
            )
            for strip in section.grid
        )
        before, after = tuple(map(safe, section.before)), tuple(map(safe, section.after))
        yield Section(safe(section.title), before, tuple(grid), after, safe(section.base))


def _cells_safe(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose text a spreadsheet takes for text; numbers stay numbers."""
    texts = frame.select_dtypes(exclude=["number", "bool"])
    cells = texts.map(lambda cell: for_csv(cell) if isinstance(cell, str) else cell)
    found = frame.astype(dict.fromkeys(texts.columns, object))
    found[texts.columns] = cells
    return found.rename(columns=for_csv)


def _sections(collected: Collected, found: Iterable[GroupEstimate], *, asked: bool) -> list[Section]:
    by_group: dict[int, list[GroupEstimate]] = {}
    for estimate in found:
        by_group.setdefault(estimate.group, []).append(estimate)
    sections = [_group(collected, int(group), by_group, asked=asked) for group in collected.groups.index]
    if missing := missing_lines(collected):
        sections.append(Section(count_lines(collected), after=missing))
    if collected.notes:
        more = len(collected.notes) - MOST_NOTES
        rest = (f"... and {more} more (--json has them all)",) if more > 0 else ()
        notes = tuple(f"- {note}" for note in collected.notes[:MOST_NOTES])
        sections.append(Section("Notes", after=(*notes, *rest)))
    return sections


def _group(
    collected: Collected, group: int, found: Mapping[int, Sequence[GroupEstimate]], *, asked: bool
) -> Section:
    rows = _records(collected.sizes[collected.sizes["group"] == group])
    title, *details = heading(_records(collected.groups)[group], rows)
    after = fastest_line(rows, collected.knobs)
    if group in found:
        after += tuple(line for estimate in found[group] for line in estimate_lines(estimate))
    elif asked:
        after += ("No estimate of the largest batch: these points ran on a CPU.",)
    used = [knob for knob in collected.knobs if any(_is_known(row[knob]) for row in rows)]
    return Section(title, tuple(details), tuple(strips(rows, used)), after, base_of(rows, used))


def _is_known(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as plain dicts, a missing value as ``None``, a whole number as ``int``."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): _whole_number(value) for name, value in row.items()} for row in rows]


def _whole_number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose columns of whole numbers print without a decimal point."""
    floats = frame.select_dtypes("float64").columns
    whole = [
        name for name in floats if (frame[name].dropna() % 1 == 0).all() and frame[name].abs().max() < 2**53
    ]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def _json(collected: Collected, found: Iterable[GroupEstimate]) -> str:
    report = {
        "points": _records(collected.points),
        "sizes": _records(collected.sizes),
        "groups": _records(collected.groups),
        "estimates": [asdict(estimate) for estimate in found],
        "notes": collected.notes,
        "failed": collected.failed,
        "to_come": collected.to_come,
    }
    return as_json(report, indent=2) + "\n"


def _legends(grid: Sequence[Strip], base: str) -> list[str]:
    families = {strip.family for strip in grid}
    if not any(strip.name == "n" for strip in grid):
        families.discard("size")
    if any(PART in cell for strip in grid for cell in strip.cells):
        families.add("part")
    return [text.format(base=base) for name, text in LEGENDS.items() if name in families]


def _terminal(sections: Iterable[Section], width: int, *, color: bool) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        emoji=False,
    )
    for number, section in enumerate(sections):
        if number:
            console.print()
        console.print(Text(section.title, style="bold"))
        for line in section.before:
            console.print(Text(line))
        if section.grid:
            shown = _fitted(width, section.grid)
            stream.write("\n".join(["", *_table(shown), "", ""]))
            for line in (*_legends(shown, section.base), *_left_out(section.grid, shown)):
                console.print(Text(line, style="dim"))
            console.print()
        for line in section.after:
            # A command to type stays in one piece: the terminal wraps it, a copy of it works.
            typed = ": jobkit " in line or ": bash " in line
            console.print(Text(line) if typed else _hanging(line), soft_wrap=typed)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _left_out(grid: Sequence[Strip], shown: Sequence[Strip]) -> Iterator[str]:
    """Yield which columns a terminal had no room for."""
    names = {strip.name for strip in shown}
    missing = [" ".join(one.head.split()) for one in without_repetition(grid) if one.name not in names]
    if missing:
        yield f"no room for: {', '.join(missing)}; a wider terminal, or --format md, has them"


def _hanging(line: str) -> Table | Text:
    """Return a line that wraps under its own indentation."""
    indent = len(line) - len(line.lstrip(" -"))
    if not indent:
        return Text(line)
    grid = Table.grid()
    grid.add_column(width=indent, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(line[:indent]), Text(line[indent:]))
    return grid


def _fitted(width: int, grid: tuple[Strip, ...]) -> list[Strip]:
    """Return the columns that fit the width."""
    found: list[Strip] = list(grid)
    while True:
        shown = without_repetition(found)
        fewer = narrowed(found)
        if fewer is None or sum(_wide(strip) + GAP for strip in shown) <= width + GAP:
            return shown
        found = fewer


def _wide(strip: Strip) -> int:
    return max(cell_len(text) for text in (*strip.head.split("\n"), *strip.cells))


def _table(shown: Iterable[Strip]) -> Iterator[str]:
    """Yield the lines of a table, flush right: by hand, for rich takes a second for 1,500 rows."""
    strips_ = [(strip, _wide(strip)) for strip in shown]
    high = max(strip.head.count("\n") for strip, _ in strips_) + 1
    heads = [
        _column([*[""] * (high - 1 - strip.head.count("\n")), *strip.head.split("\n")], wide)
        for strip, wide in strips_
    ]
    yield from map((" " * GAP).join, zip(*heads, strict=True))
    yield ("─" * GAP).join("─" * wide for _, wide in strips_)
    yield from map(
        (" " * GAP).join, zip(*(_column(strip.cells, wide) for strip, wide in strips_), strict=True)
    )


def _column(cells: Iterable[str], wide: int) -> list[str]:
    return [" " * (wide - cell_len(cell)) + cell for cell in cells]


def _markdown(sections: Iterable[Section]) -> str:
    parts: list[str] = []
    for section in sections:
        parts += [f"## {section.title}", ""]
        parts += [f"{line}  " for line in section.before]
        if section.grid:
            grid = without_repetition(section.grid)
            legends = [f"- {line}" for line in _legends(grid, section.base)]
            parts += ["", *_markdown_table(grid), "", *legends, ""]
        parts += [_bullet(line) for line in section.after]
        parts.append("")
    return "\n".join(
        line.rstrip() if line.endswith(" ") and not line.endswith("  ") else line for line in parts
    )


def _bullet(line: str) -> str:
    return f"{'  ' if line.startswith('  ') else ''}- {line.strip(' -')}"


def _markdown_table(grid: list[Strip]) -> list[str]:
    heads = [strip.head.replace("\n", " ").strip() for strip in grid]
    rows = zip(*(strip.cells for strip in grid), strict=True)
    lines = [heads, ["--:"] * len(heads), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]
