"""The load of every batch size, from the lengths of a text."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import NamedTuple

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.layout import LENGTHS_FILE
from jobkit.core.records import BATCH_SIZE, Point
from jobkit.fit.lengths import CUT_BY, NONE, PUNCTUATION, TOKENIZER, Cut, Lengths

__all__ = ["NONE", "PUNCTUATION", "TOKENIZER", "Cut", "Lengths", "Loads", "Sizes", "measuring_sizes", "sizes"]


ALL_FOLLOWS = Cut()
"""Paragraphs a call and items a chunk are both the batch size."""


@dataclass(frozen=True)
class Loads:
    """The load of every batch size of one text.

    Attributes
    ----------
    lengths
        Of the text's items.
    cut
        What does not follow the batch size; by default all does.
    """

    lengths: Lengths
    cut: Cut = ALL_FOLLOWS

    def own(self, batch_size: int) -> int:
        """Return the largest load of any chunk at exactly this batch size."""
        return self._scan(*self.cut.at(batch_size))[0]

    def of(self, params: Mapping[str, int], default: int) -> int:
        """Return the largest load of any chunk of a setting of knobs.

        Parameters
        ----------
        params
            ``batch_size``, ``paragraphs_per_call`` and ``sentences_per_ner_batch``, as given.
        default
            The batch size where none is given.
        """
        size = params.get(BATCH_SIZE, default)
        paragraphs, sentences = (params.get(name, size) for name in CUT_BY)
        return self._scan(paragraphs, sentences)[0]

    def load(self, batch_size: int) -> int:
        """Return the largest load of this batch size and of all smaller ones.

        The own load is not monotone, for chunks begin elsewhere; this envelope is, and what fits
        by it fits at every smaller size too.
        """
        loads, _ = self._envelope
        return loads[min(batch_size, len(loads) - 1)]

    def worst(self, batch_size: int) -> tuple[int, int]:
        """Return the call that holds the largest load up to a batch size.

        Returns
        -------
        tuple
            Its first paragraph, from 0, and the batch size (this one or a smaller) that makes it.
        """
        _, sources = self._envelope
        source = sources[min(max(batch_size, 1), len(sources) - 1)]
        return self._scan(*self.cut.at(source))[1], source

    @cached_property
    def limit(self) -> int:
        """The largest batch size that the text can exercise, at least 1.

        It is the number of paragraphs; where a call holds a fixed number of them, the most items
        that a call holds.
        """
        paragraphs = len(self.lengths.paragraphs)
        if self.cut.paragraphs_per_call is None:
            return max(paragraphs, 1)
        return max((end - start for _, start, end in self._calls(self.cut.paragraphs_per_call)), default=1)

    @cached_property
    def saturation(self) -> int:
        """The smallest batch size from which on the largest load stays the same.

        It may lie beyond `limit`: a call then holds the whole text, and chunks still grow until
        one holds all its items.
        """
        loads, _ = self._envelope
        return max(bisect_left(loads, loads[-1]), 1)

    def largest_batch(self, load_limit: float) -> int:
        """Return the largest batch size, at most `limit`, whose `load` is within a limit; 0 if none is."""
        loads, _ = self._envelope
        found = bisect_right(loads, load_limit) - 1
        return self.limit if found == len(loads) - 1 else min(max(found, 0), self.limit)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The batch sizes, at most `limit`, whose own load is larger than that of all smaller ones."""
        loads, _ = self._envelope
        last = min(self.limit, len(loads) - 1)
        return tuple(size for size in range(1, last + 1) if loads[size] > loads[size - 1])

    def efficiency(self, batch_size: int) -> float:
        """Return characters over padded characters, 0 to 1, with the text as it stands."""
        padded = 0
        paragraphs, sentences = self.cut.at(batch_size)
        for _, start, end in self._calls(paragraphs):
            padded += sum(
                (right - left) * self._longest(left, right) for left, right in _chunks(start, end, sentences)
            )
        return sum(self._flat) / padded if padded else 1.0

    def efficiency_sorted(self, batch_size: int) -> float:
        """Return the same if all items of the text were sorted by length before they are cut."""
        items = sorted(self._flat, reverse=True)
        chunks = _chunks(0, len(items), self.cut.at(batch_size)[1])
        padded = sum((right - left) * items[left] for left, right in chunks)
        return sum(items) / padded if padded else 1.0

    @cached_property
    def _flat(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(self.lengths.paragraphs))

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """How many items stand before each paragraph, and in all."""
        return tuple(accumulate(map(len, self.lengths.paragraphs), initial=0))

    @cached_property
    def _table(self) -> list[list[int]]:
        """Row k holds the longest of every 2**k items that follow each other."""
        rows = [list(self._flat)]
        while 2 ** len(rows) <= len(self._flat):
            last, half = rows[-1], 2 ** (len(rows) - 1)
            rows.append([max(pair) for pair in zip(last, last[half:], strict=False)])
        return rows

    def _longest(self, start: int, end: int) -> int:
        """Return the longest of the items from ``start`` up to ``end``, of which there is one."""
        level = (end - start).bit_length() - 1
        row = self._table[level]
        return max(row[start], row[end - (1 << level)])

    def _calls(self, paragraphs: int) -> Iterator[tuple[int, int, int]]:
        """Yield first paragraph, first item and end of the items of every call."""
        total = len(self.lengths.paragraphs)
        firsts = range(0, total, paragraphs)
        for first in firsts:
            yield first, self._starts[first], self._starts[min(first + paragraphs, total)]

    def _scan(self, paragraphs: int, sentences: int) -> tuple[int, int]:
        """Return the largest load of a chunk, and the first paragraph of the first call that has it."""
        best, where = 0, 0
        for first, start, end in self._calls(paragraphs):
            for left in range(start, end, sentences):
                right = min(left + sentences, end)
                load = (right - left) * self._longest(left, right)
                if load > best:
                    best, where = load, first
        return best, where

    @cached_property
    def _envelope(self) -> tuple[list[int], list[int]]:
        """The envelope from batch size 0 to where it ends, and the batch size that makes each value."""
        loads, sources = [0], [1]
        last = self.limit if self.cut.sentences_per_ner_batch else max(self.limit, len(self._flat))
        for size in range(1, last + 1):
            own = self.own(size)
            loads.append(max(own, loads[-1]))
            sources.append(size if own >= loads[-1] else sources[-1])
            if loads[-1] >= self._ceiling:
                break
        return loads, sources

    @cached_property
    def _ceiling(self) -> int:
        """A load that no batch size exceeds."""
        items = max(len(self._flat), 1)
        if self.cut.paragraphs_per_call is not None:
            return self._scan(self.cut.paragraphs_per_call, items)[0]
        return min(self.cut.sentences_per_ner_batch or items, items) * max(self._flat, default=0)


def _chunks(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of consecutive pieces of at most a size."""
    return pairwise(chain(range(start, end, size), (end,)))


MIN_LOAD = 4_000
"""Padded characters below which fixed costs bend the line of memory over load (measured with Stanza)."""
TOP_LOAD_SHARE = 0.25
"""The largest size worth measuring takes this much of what the card, or else the text, could."""
SIZES = 5
MIN_DISTINCT_LOADS = 4
"""Distinct loads below which no line can be judged."""
ROUNDING_TOLERANCE = 0.1
"""A rounder batch size is taken where its load is this near the wanted one, in gaps between loads."""


class Sizes(NamedTuple):
    """The batch sizes worth measuring, ascending, and why they are fewer than wanted where they are."""

    batch_sizes: tuple[int, ...]
    why: str = ""


def measuring_sizes(
    loads: Loads,
    largest_load: float | None = None,
    points: int = SIZES,
    *,
    floor: int = MIN_LOAD,
    share: float = TOP_LOAD_SHARE,
) -> tuple[int, ...]:
    """Return the batch sizes worth measuring: the first part of `sizes`."""
    return sizes(loads, largest_load, points, floor=floor, share=share).batch_sizes


def sizes(
    loads: Loads,
    largest_load: float | None = None,
    points: int = SIZES,
    *,
    floor: int = MIN_LOAD,
    share: float = TOP_LOAD_SHARE,
) -> Sizes:
    """Return the batch sizes whose memory makes a line to rely on, at little cost.

    Their loads are spread evenly from a small one up to a share of the largest load that
    matters: the card's, or the whole text's in one call where that is less or the card is
    unknown. Only sizes are taken whose own load is larger than that of all smaller ones, so that
    no two measure the same. Where the share leaves too few above the floor it is doubled until
    there are enough; where the whole text has too few, those below the floor are taken too.

    Parameters
    ----------
    loads
        Of the text.
    largest_load
        What the card takes, where that is known; no batch size beyond it is returned.
    points
        How many are wanted.
    floor
        The load below which the line bends; 0 where the load is the batch size.
    share
        What the largest size takes of what the card, or else the text, could.
    """
    floor = 0 if loads.lengths.source == NONE else floor
    most = min(math.inf if largest_load is None else largest_load, loads.load(loads.limit))
    top = share * most
    usable = _between(loads, floor, top)
    while len(usable) < points and top < most:
        top = min(2 * top, most)
        usable = _between(loads, floor, top)
    if len(usable) < MIN_DISTINCT_LOADS:
        usable = _between(loads, 0, top)
    found = _spread(usable, points)
    return Sizes(
        found, _why_few(loads, found, largest_load) if len(found) < min(points, MIN_DISTINCT_LOADS) else ""
    )


def _between(loads: Loads, floor: float, top: float) -> dict[int, int]:
    """Return load by batch size of the steps between two loads."""
    return {size: load for size in loads.steps if floor <= (load := loads.load(size)) <= top}


def _spread(usable: Mapping[int, int], points: int) -> tuple[int, ...]:
    """Return the sizes whose loads are nearest to evenly spread ones, rounder sizes first."""
    left, gap = dict(usable), max(usable.values(), default=0) / points
    found: list[int] = []
    for share in range(points, 0, -1):
        if not left:
            break
        wanted = gap * share
        chosen = min(left, key=lambda size: _unfit(size, abs(left[size] - wanted) / gap))
        found.append(chosen)
        del left[chosen]
    return tuple(sorted(found))


def _unfit(size: int, gaps: float) -> tuple[int, float]:
    """Return a key that is least for the best size: near what is wanted, then round, then nearest."""
    roundness = next(step for step in (100, 50, 25, 10, 5, 1) if size % step == 0)
    return (-roundness, gaps) if gaps <= ROUNDING_TOLERANCE else (0, gaps)


def _why_few(loads: Loads, found: tuple[int, ...], largest_load: float | None) -> str:
    """Return in a sentence, without a full stop, why there are fewer sizes than a line needs."""
    smallest = loads.load(1)
    if largest_load is not None and largest_load < loads.load(loads.limit):
        if largest_load <= 0:
            return "what the model takes alone is more than there is"
        if not found:
            return f"not even a batch size of 1, a load of {smallest:,}, fits into {largest_load:,.0f}"
        many = "batch sizes with loads of their own fit" if len(found) > 1 else "batch size fits"
        return f"only {len(found)} {many} into {largest_load:,.0f}"
    return f"the text makes too few distinct loads ({len(loads.steps)}) for a line: a longer text tells more"


LOAD_TOLERANCE = 0.2
"""Lengths whose loads differ by more than this share from what was measured are of something else."""


def read_lengths(folder: Path) -> Lengths | None:
    """Return the lengths that a run folder holds; ``None`` where it holds none that can be read."""
    path = folder / LENGTHS_FILE
    try:
        return Lengths.from_json(read_text(path), where=str(path))
    except (OSError, JobkitError):
        return None


def loads_of(lengths: Lengths | None, points: Iterable[Point]) -> Loads | None:
    """Return the loads by batch size, other knobs that cut the text as the points have them.

    ``None`` where there are no lengths, or where the batch size is no knob of the points.
    """
    params = [point.params for point in points]
    if lengths is None or not params or any(BATCH_SIZE not in param for param in params):
        return None
    return Loads(lengths, Cut.largest(params))


def agreeing(loads: Loads | None, load_by_batch: Mapping[int, int]) -> Loads | None:
    """Return the loads if they are those that were measured, else ``None``.

    A workload that tells no lengths, but loads of its own, would otherwise have its loads taken
    for batch sizes.
    """
    if loads is None or all(
        abs(loads.own(batch) - load) <= LOAD_TOLERANCE * load for batch, load in load_by_batch.items()
    ):
        return loads
    return None
