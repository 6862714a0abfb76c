"""Titled text with a table, for a terminal and as Markdown; `jobkit.report.html` makes a page of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from jobkit.core.terminal import display_width, for_markdown, printable, wrap_lines

GAP = 2
"""Blanks between two columns of a table."""
UNKNOWN = "?"
"""A cell whose value is not known."""
BOLD, DIM = 1, 2
"""Styles of a terminal."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    head
        Its name, in one or more lines.
    cells
        One a row.
    rank
        If room is short, the columns of the highest rank are left out first; those of rank 0 stay.
    left
        Whether it is flush left; numbers are flush right.
    notes
        What it means, in lines below the table.
    sum_of
        The heads of its parts: a table that has all of them leaves the sum out.
    """

    head: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False
    notes: tuple[str, ...] = ()
    sum_of: tuple[str, ...] = ()

    @cached_property
    def width(self) -> int:
        """How many columns of a terminal it takes."""
        return max(map(display_width, (*self.head.split("\n"), *self.cells)))

    @property
    def name(self) -> str:
        """Its head in one line."""
        return " ".join(self.head.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of an answer: a title, lines, a table, and lines after it.

    A line is a sentence or an item. One that begins with blanks is about the line above it, one that begins
    with ``- `` is an item of a list, a `NoWrap` of `jobkit.core.terminal` is code to copy, and an empty line
    is a gap.

    Attributes
    ----------
    title
        Empty if it goes on with what the block before it is about.
    before, after
        The lines above and below the table; without a table one follows the other.
    columns
        The table: columns without a value are not shown.
    folded
        Whether a page shows no more than the title until the reader asks for the rest.
    """

    title: str = ""
    before: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    after: tuple[str, ...] = ()
    folded: bool = False

    @classmethod
    def of(cls, lines: Iterable[str], columns: Sequence[Column] = (), after: Iterable[str] = ()) -> Block:
        """Return a block of lines, the first of which is its title, with a table and lines below it."""
        title, *before = [*lines] or [""]
        return cls(title=title.strip(), before=tuple(before), columns=tuple(columns), after=tuple(after))

    def shown(self, width: int | None = None) -> list[Column]:
        """Return the columns that have a value and fit a width; all that have one without a width.

        A table has no column if all cells except the names of the rows are unknown.
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
    """Return what columns mean, each line once."""
    return list(dict.fromkeys(note for column in columns for note in column.notes))


def table(columns: Sequence[Column], *, rule: bool = True) -> list[str]:
    """Return the lines of a table: the heads, a rule if wanted, and the rows."""
    columns = [column for column in columns if column.width]
    high = max((column.head.count("\n") for column in columns), default=0)
    rows = zip(*(_padded(column, high, rule=rule) for column in columns), strict=True)
    lines = [(" " * GAP).join(row).rstrip() for row in rows]
    if rule:
        lines[high + 1] = lines[high + 1].replace(" ", "─")
    return lines


def _padded(column: Column, high: int, *, rule: bool) -> list[str]:
    head = column.head.split("\n")
    lines = [*[""] * (high + 1 - len(head)), *head, *["─" * column.width] * rule, *column.cells]
    pads = (" " * (column.width - display_width(line)) for line in lines)
    pairs = zip(map(printable, lines), pads, strict=True)
    return [line + pad if column.left else pad + line for line, pad in pairs]


def as_text(
    blocks: Iterable[Block],
    width: int | None = None,
    *,
    color: bool = False,
    wider: str = "a wider terminal has them",
) -> str:
    """Return blocks for a terminal, an empty line between, as text that ends with a newline.

    Parameters
    ----------
    blocks
        Those without a word are left out.
    width
        No line is longer than this, unless it is a `NoWrap`; ``None`` wraps nothing and shows all columns.
    color
        Whether titles and the notes of columns carry terminal colours.
    wider
        What has the columns for which there is no room.
    """
    parts = [part for block in blocks for part in _parts(block, width, wider, color=color) if part]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _parts(block: Block, width: int | None, wider: str, *, color: bool) -> Iterator[list[str]]:
    """Yield the lines of a block that stand together."""
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
    """Return blocks as Markdown, which shows every word as it is."""
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
    yield from (_item(line) for line in block.after if line)
    yield ""


def _item(line: str) -> str:
    return f"{'  ' if line.startswith('  ') else ''}- {for_markdown(line.removeprefix('- ')).strip(' ')}"
