"""What the page of the report shows of a run, whatever the run is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobkit.core import files
from jobkit.core.blocks import Block
from jobkit.core.layout import JOB_SCRIPT, SPEC_FILE
from jobkit.core.terminal import NoWrap
from jobkit.report.html.pictures import Picture

MOST_CHARACTERS = 40_000
"""Of a spec or script in the page; the rest is in the run folder."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks of which the page shows no more than a title until the reader asks for them."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of points: its pictures, its scaling table, and the pictures below the table."""

    block: Block
    pictures: Sequence[Picture]
    below: Sequence[Picture] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRun:
    """A run on the page, in the order in which it shows it.

    Attributes
    ----------
    name
        Of the run.
    titles
        What was run.
    caveats
        The stand-in models that it measured.
    tiles
        The answer.
    groups
        Its points, by what sets them apart.
    missing
        The points without figures.
    tables
        What else there is to look up.
    folded
        The rest, of which the page shows the titles: a title, and the blocks below it.
    """

    name: str
    titles: Sequence[str]
    caveats: Sequence[str] = ()
    tiles: Sequence[Block] = ()
    groups: Sequence[Group] = ()
    missing: Sequence[Block] = ()
    tables: Sequence[Block] = ()
    folded: Sequence[Folded]


def folded(block: Block) -> Folded:
    """Return a block of which the page shows the title."""
    return Folded(block.title, [replace(block, title="")])


def source(run: Path, facts: Block) -> Folded:
    """Return where the figures are from: some facts, and the spec and the script of a run folder."""
    return Folded("Where the figures are from", [facts, *_files(run)])


def _files(run: Path) -> Iterator[Block]:
    for name in (SPEC_FILE, JOB_SCRIPT):
        try:
            text = files.mask(files.read_text(run / name))
        except OSError:
            continue
        code = [NoWrap(line) for line in text[:MOST_CHARACTERS].split("\n")]
        cut = f"Cut here: the whole file is {name} in the run folder." if len(text) > MOST_CHARACTERS else ""
        yield Block(title=name, after=(*code, cut), folded=True)
