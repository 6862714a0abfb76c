"""Titled text with a table, for a terminal and as Markdown; `jobkit.report.page` makes a page of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from jobkit.core.frozen import keyed
from jobkit.core.terminal import display_width, for_markdown, printable, wrap_lines

GAP = 2
UNKNOWN = "?"
BOLD, DIM = 1, 2


@dataclass(frozen=True)
class Column:
    head: str  # name in one or more lines
    cells: Sequence[str]  # a cell for each row
    # if room is short, the columns of the highest rank are left out first; those of rank 0 stay
    rank: int = 0
    left: bool = False  # whether it is flush left; numbers are flush right
    notes: tuple[str, ...] = ()  # what the column means, in lines below the table
    sum_of: tuple[str, ...] = ()  # the heads of its parts: a table that has all of them leaves the sum out

    @cached_property
    def shown(self) -> list[str]:
        """The lines of the head, then the cells, as a terminal can show them."""
        return [*map(printable, (*self.head.split("\n"), *self.cells))]

    @cached_property
    def width(self) -> int:
        return max(map(display_width, self.shown))

    @property
    def name(self) -> str:
        """Its head, which may have several lines, in one line."""
        return " ".join(self.head.split())


@keyed
class Block:
    """A piece of an answer: a title, lines, a table, and lines after it.

    A line that begins with blanks is about the line above it, one that begins with ``- `` is an item of a
    list, a `NoWrap` is code to copy, and an empty line is a gap.
    """

    title: str = ""  # empty if it goes on with the subject of the block before
    # the lines above and below the table; without a table one follows the other
    before: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()  # the table: columns without a value are not shown
    after: tuple[str, ...] = ()
    folded: bool = False  # whether a page shows no more than the title until the reader asks for the rest

    @classmethod
    def of(cls, lines: Iterable[str], columns: Sequence[Column] = (), after: Iterable[str] = ()) -> Block:
        title, *before = [*lines] or [""]
        return cls(title=title.strip(), before=tuple(before), columns=tuple(columns), after=tuple(after))

    def shown(self, width: int | None = None) -> list[Column]:
        """Return the columns that have a value, and fit a width if it is given.

        A table whose cells are all unknown, except the names of its rows, has no column.
        """
        cells = {cell for column in self.columns[1:] for cell in column.cells if cell}
        if cells == {UNKNOWN}:
            return []
        return fit_columns([column for column in self.columns if any(column.cells)], width)


def fit_columns(columns: Sequence[Column], width: int | None = None) -> list[Column]:
    """Return the columns that fit a width, less the most dispensable; a sum goes if all its parts fit."""
    while True:
        heads = {column.head for column in columns}
        shown = [column for column in columns if not column.sum_of or not heads.issuperset(column.sum_of)]
        rank = max((column.rank for column in columns), default=0)
        taken = sum(column.width + GAP for column in shown) - GAP
        if width is None or not rank or taken <= width:
            return shown
        columns = [column for column in columns if column.rank < rank]


def notes_of(columns: Iterable[Column]) -> list[str]:
    return list(dict.fromkeys(note for column in columns for note in column.notes))


def table(columns: Sequence[Column], *, rule: bool = True) -> list[str]:
    columns = [column for column in columns if column.width]
    high = max((column.head.count("\n") for column in columns), default=0)
    rows = zip(*(_padded(column, high, rule=rule) for column in columns), strict=True)
    lines = [(" " * GAP).join(row).rstrip() for row in rows]
    if rule:
        lines[high + 1] = lines[high + 1].replace(" ", "─")
    return lines


def _padded(column: Column, high: int, *, rule: bool) -> list[str]:
    head = 1 + column.head.count("\n")
    lines = [*[""] * (high + 1 - head), *column.shown[:head], *["─" * column.width] * rule]
    lines += column.shown[head:]
    pads = (" " * (column.width - display_width(line)) for line in lines)
    return [line + pad if column.left else pad + line for line, pad in zip(lines, pads, strict=True)]


def as_text(
    blocks: Iterable[Block],
    width: int | None = None,
    *,
    color: bool = False,
    wider: str = "a wider terminal has them",
) -> str:
    """Return blocks as text for a terminal, with an empty line between two; leave out blocks without words.

    ``width``: no line is longer, unless it is a `NoWrap`; ``None`` wraps nothing and shows all columns.
    ``color``: whether titles and the notes of columns carry terminal colours.
    ``wider``: what has the columns for which there is no room.
    """
    parts = [part for block in blocks for part in _parts(block, width, wider, color=color) if part]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _parts(block: Block, width: int | None, wider: str, *, color: bool) -> Iterator[list[str]]:
    title = _styled([block.title] if block.title else [], width, BOLD if color else 0)
    head, after = title + wrap_lines(block.before, width), wrap_lines(block.after, width)
    columns = block.shown(width)
    if not columns:
        yield head + after
        return
    yield head
    yield table(columns)
    missing = [column.name for column in block.shown() if column not in columns]
    room = [f"no room for: {', '.join(missing)}; {wider}"] if missing else []
    yield _styled([*notes_of(columns), *room], width, DIM if color else 0)
    yield after


def _styled(lines: Iterable[str], width: int | None, code: int) -> list[str]:
    return [f"\x1b[{code}m{line}\x1b[0m" if code else line for line in wrap_lines(lines, width)]


def as_markdown(blocks: Iterable[Block]) -> str:
    return "\n".join(line for block in blocks for line in _markdown(block))


def _markdown(block: Block) -> Iterator[str]:
    if block.title:
        yield from (f"## {for_markdown(block.title)}", "")
    yield from (f"{for_markdown(line)}  " for line in block.before if line)
    if columns := block.shown():
        sides = [":--" if column.left else "--:" for column in columns]
        cells = zip(*(map(for_markdown, column.cells) for column in columns), strict=True)
        rows = ([for_markdown(column.name) for column in columns], sides, *cells)
        yield from ("", *(f"| {' | '.join(row)} |" for row in rows), "")
        yield from (*(f"- {for_markdown(note)}" for note in notes_of(columns)), "")
    for line in filter(None, block.after):
        yield f"{'  ' * line.startswith('  ')}- {for_markdown(line.removeprefix('- ')).strip(' ')}"
    yield ""
