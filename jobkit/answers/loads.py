"""The lengths of a text's items, and the load of every batch size and of every budget. Pure."""

from __future__ import annotations

import json
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import NamedTuple

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_text
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import parse_json
from jobkit.core.knobs import BATCH_SIZE, CUT_BY, SORTED, budget_of
from jobkit.core.layout import LENGTHS_FILE
from jobkit.core.records import Point
from jobkit.worker.paragraphs import cut_by_budget, load_of, sorted_places
from jobkit.worker.workloads.base import CHARACTERS

SCHEMA = 1

TOKENIZER = "tokenizer"  # lengths as the workload itself finds them
PUNCTUATION = "punctuation"  # lengths estimated from where sentences seem to end
NONE = "none"  # no lengths: every paragraph counts 1, so the load is the batch size


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """The lengths of the items of a text, in the unit that the framework pads to."""

    paragraphs: tuple[tuple[int, ...], ...]  # lengths of the items of each paragraph, in text order
    source: str = TOKENIZER  # how they were found: `TOKENIZER`, `PUNCTUATION` or `NONE`
    unit: str = CHARACTERS  # what a load counts
    pads: bool = True  # the load is items x longest; if ``False``, the sum of the lengths

    @classmethod
    def unknown(cls, paragraphs: int) -> Lengths:
        """Return a text without known lengths: its load is the batch size."""
        return cls(paragraphs=((1,),) * paragraphs, source=NONE, unit="paragraphs")

    @cached_property
    def loads(self) -> dict[object, TextLoads]:
        """What `loads_of` has returned: the envelope of each takes many passes over the text."""
        return {}

    def every(self, number: int) -> Lengths:
        """Return the lengths of every n-th paragraph, as a point with ``every`` takes them."""
        return replace(self, paragraphs=self.paragraphs[::number])

    def to_json(self) -> str:
        data: dict[str, object] = {"schema": SCHEMA, "source": self.source}
        if self.unit != CHARACTERS:
            data["unit"] = self.unit
        if not self.pads:
            data["padded"] = False
        data["paragraphs"] = self.paragraphs
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, where: str = LENGTHS_FILE) -> Lengths:
        """Return the lengths that `to_json` wrote; ``where`` names their file in an error message."""
        try:
            data = parse_json(text, where)
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']!r}, not {SCHEMA}")  # noqa: TRY301 - reported below
            rows = tuple(once_each((_length(length) for length in row) for row in data["paragraphs"]))
            unit, pads = str(data.get("unit", CHARACTERS)), data.get("padded") is not False
            return cls(paragraphs=rows, source=str(data["source"]), unit=unit, pads=pads)
        except (JobkitError, ValueError, KeyError, TypeError) as error:
            raise JobkitError(f"{where}: no lengths of a text: {error!r}") from error


def once_each(rows: Iterable[Iterable[int]]) -> Iterator[tuple[int, ...]]:
    """Yield each row; rows that are equal are one object, so a long text takes 8 bytes a paragraph."""
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    for row in map(tuple, rows):
        yield seen.setdefault(row, row)


def _length(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no length")
    return value


_parsed = lru_cache(maxsize=2)(Lengths.from_json)  # a report reads the lengths of a run several times


def read_lengths(folder: Path) -> Lengths | None:
    """Return the lengths that a run folder holds; ``None`` if it holds none that can be read."""
    try:
        return _parsed(read_text(folder / LENGTHS_FILE))
    except (OSError, JobkitError):
        return None


@keyed
class Cut:
    """How a text becomes calls, and a call the chunks that are padded together."""

    paragraphs_per_call: int | None = None  # consecutive; ``None`` for the batch size
    sentences_per_ner_batch: int | None = None  # items, never across calls; ``None`` for the batch size

    @classmethod
    def largest(cls, settings: Iterable[Mapping[str, int]]) -> Cut:
        """Return the cut that makes the largest batches among some settings of knobs."""
        settings = list(settings)
        return cls(**{name: max((s.get(name, 0) for s in settings), default=0) or None for name in CUT_BY})

    def at(self, batch_size: int) -> tuple[int, int]:
        """Return the paragraphs of a call and the items of a chunk at a batch size."""
        return self.paragraphs_per_call or batch_size, self.sentences_per_ner_batch or batch_size


ALL_FOLLOWS = Cut()  # paragraphs of a call and items of a chunk are both the batch size


class Chunks(NamedTuple):
    """The batches of a setting: their number, the largest load, and characters over padded characters."""

    batches: int
    load: int
    efficiency: float


@dataclass(frozen=True)
class Loads:
    """The load of every batch size of one text."""

    lengths: Lengths  # of the text's items
    cut: Cut = ALL_FOLLOWS  # what does not follow the batch size; by default all does
    # whether paragraphs are sorted by their longest item, and the items of a call by length
    by_length: bool = False
    window: int | None = None  # paragraphs that are sorted together; ``None`` for all

    def own(self, batch_size: int) -> int:
        """Return the largest load of any chunk at exactly this batch size."""
        return self._scan(*self.cut.at(batch_size))[0]

    def load(self, batch_size: int) -> int:
        """Return the largest load of this batch size and of all smaller ones.

        The load of exactly one size is not monotone, because chunks begin elsewhere; this envelope is, so
        what fits by it fits at every smaller size too.
        """
        loads, _ = self._envelope
        return loads[min(batch_size, len(loads) - 1)]

    def worst(self, batch_size: int) -> tuple[int, int]:
        """Return the first paragraph of the call with the largest `load`, and that call's batch size."""
        _, sources = self._envelope
        source = sources[min(max(batch_size, 1), len(sources) - 1)]
        return self._places[self._scan(*self.cut.at(source))[1]] if self._places else 0, source

    def under_budget(self, budget: int, work_unit: int) -> Chunks:
        """Return the batches with a capped load, in calls of ``work_unit`` paragraphs."""
        calls = [self._items(start, end) for _, start, end in self._calls(work_unit)]
        cut = [(iter(items), cut_by_budget(items, budget, pads=self.lengths.pads)) for items in calls]
        return self._chunks_of([list(islice(items, size)) for items, sizes in cut for size in sizes])

    def chunks(self, batch_size: int) -> Chunks:
        paragraphs, sentences = self.cut.at(batch_size)
        return self._chunks_of(
            items[left : left + sentences]
            for _, start, end in self._calls(paragraphs)
            for items in [self._items(start, end)]
            for left in range(0, len(items), sentences)
        )

    def _chunks_of(self, chunks: Iterable[Sequence[int]]) -> Chunks:
        loads = [load_of(chunk, pads=self.lengths.pads) for chunk in chunks]
        return Chunks(
            batches=len(loads),
            load=max(loads, default=0),
            efficiency=sum(self._flat) / sum(loads) if sum(loads) else 1.0,
        )

    @cached_property
    def limit(self) -> int:
        """The largest batch size that the text can exercise, at least 1: the most items of a call."""
        paragraphs = len(self.lengths.paragraphs)
        if self.cut.paragraphs_per_call is None:
            return max(paragraphs, 1)
        return max((end - start for _, start, end in self._calls(self.cut.paragraphs_per_call)), default=1)

    @cached_property
    def saturation(self) -> int:
        """The smallest batch size from which on the largest load stays the same.

        It may lie beyond `limit`: a call then holds the whole text, and chunks still grow until one holds all
        its items.
        """
        loads, _ = self._envelope
        return max(bisect_left(loads, loads[-1]), 1)

    def largest_batch(self, load_limit: float) -> int:
        """Return the largest batch size, at most `limit`, whose `load` is within a limit; 0 if none is."""
        loads, _ = self._envelope
        size = bisect_right(loads, load_limit) - 1
        return self.limit if size == len(loads) - 1 else min(max(size, 0), self.limit)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The batch sizes, at most `limit`, whose own load is larger than that of all smaller ones."""
        loads, _ = self._envelope
        last = min(self.limit, len(loads) - 1)
        return tuple(size for size in range(1, last + 1) if loads[size] > loads[size - 1])

    def efficiency_sorted(self, batch_size: int) -> float:
        """Return characters over padded characters, 0 to 1, for items that were sorted before the cut."""
        items = sorted(self._flat, reverse=True)
        step = self.cut.at(batch_size)[1]
        return self._chunks_of(items[at : at + step] for at in range(0, len(items), step)).efficiency

    @cached_property
    def _places(self) -> Sequence[int]:
        paragraphs = self.lengths.paragraphs
        if not self.by_length:
            return range(len(paragraphs))
        return sorted_places([max(row, default=0) for row in paragraphs], self.window)

    @cached_property
    def _flat(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(self.lengths.paragraphs[place] for place in self._places))

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """How many items stand before each paragraph, and in all."""
        return tuple(accumulate((len(self.lengths.paragraphs[place]) for place in self._places), initial=0))

    def _items(self, start: int, end: int) -> Sequence[int]:
        items = self._flat[start:end]
        return sorted(items, reverse=True) if self.by_length else items

    @cached_property
    def _table(self) -> list[list[int]]:
        """Row k holds the longest of every 2**k items that follow each other."""
        rows = [list(self._flat)]
        while 2 ** len(rows) <= len(self._flat):
            last, half = rows[-1], 2 ** (len(rows) - 1)
            rows.append([*map(max, last, last[half:])])
        return rows

    @cached_property
    def _sums(self) -> tuple[int, ...]:
        """The sum of the lengths before each item, and in all."""
        return tuple(accumulate(self._flat, initial=0))

    def _calls(self, paragraphs: int) -> Iterator[tuple[int, int, int]]:
        """Yield first paragraph, first item and end of the items of every call."""
        total = len(self.lengths.paragraphs)
        firsts = range(0, total, paragraphs)
        for first in firsts:
            yield first, self._starts[first], self._starts[min(first + paragraphs, total)]

    def _scan(self, paragraphs: int, sentences: int) -> tuple[int, int]:
        """Return the largest load of a chunk, and the first paragraph of the first call that has it."""
        best, where, table, sums, pads = 0, 0, self._table, self._sums, self.lengths.pads
        for first, start, end in self._calls(paragraphs):
            # Of sorted items the first chunk has the longest, and no other chunk has more items.
            lefts = range(start, end, max(end - start, 1) if self.by_length else sentences)
            for left in lefts:
                right = min(left + sentences, end)
                load = sums[right] - sums[left]
                if pads:
                    last = end if self.by_length else right
                    level = (last - left).bit_length() - 1
                    row = table[level]
                    load = (right - left) * max(row[left], row[last - (1 << level)])
                if load > best:
                    best, where = load, first
        return best, where

    @cached_property
    def _envelope(self) -> tuple[list[int], list[int]]:
        """The envelope from batch size 0 to where it ends, and the batch size that makes each value."""
        items = max(len(self._flat), 1)
        if self.cut.paragraphs_per_call is not None:  # a load that no batch size exceeds
            ceiling = self._scan(self.cut.paragraphs_per_call, items)[0]
        elif not self.lengths.pads:
            ceiling = self._sums[-1]
        else:
            ceiling = min(self.cut.sentences_per_ner_batch or items, items) * max(self._flat, default=0)
        loads, sources = [0], [1]
        last = self.limit if self.cut.sentences_per_ner_batch else max(self.limit, len(self._flat))
        for size in range(1, last + 1):
            own = self.own(size)
            loads.append(max(own, loads[-1]))
            sources.append(size if own >= loads[-1] else sources[-1])
            if loads[-1] >= ceiling:
                break
        return loads, sources


@dataclass(frozen=True)
class Budgets:
    """The load of every budget, ``padded``, of one text; as `Loads` for batch sizes."""

    text: Loads  # the text, and whether it is sorted
    work_unit: int  # paragraphs a call

    @property
    def lengths(self) -> Lengths:
        return self.text.lengths

    @cached_property
    def limit(self) -> int:
        """The smallest budget with which each call is one batch: a larger budget changes nothing."""
        return max(self.text.under_budget(sys.maxsize, self.work_unit).load, 1)

    @cached_property
    def _longest(self) -> int:
        return max(map(max, filter(None, self.lengths.paragraphs)), default=0)

    @cached_property
    def _owned(self) -> dict[int, int]:
        """The loads computed so far, by budget: each takes a pass over the text."""
        return {}

    def own(self, budget: int) -> int:
        """Return the largest load of any batch at exactly this budget."""
        if budget not in self._owned:
            self._owned[budget] = self.text.under_budget(budget, self.work_unit).load
        return self._owned[budget]

    def load(self, budget: int) -> int:
        """Return a load that no batch exceeds at this budget and at all smaller ones.

        An item that is longer than the budget is a batch of its own.
        """
        return min(max(budget, self._longest), self.limit)

    def largest_batch(self, load_limit: float) -> int:
        """Return the largest budget, at most `limit`, whose `load` is within a limit; 0 if none is."""
        return 0 if load_limit < self._longest else int(min(load_limit, self.limit))


TextLoads = Loads | Budgets  # by the knob that caps the batches


def loads_of(lengths: Lengths | None, points: Iterable[Point]) -> TextLoads | None:
    """Return the loads by batch size or by budget, with the other knobs as the points have them.

    If points work on different parts of the text (``every``), the loads are of the largest part. ``None`` if
    there are no lengths, or if not all points have one of the two knobs.
    """
    points = list(points)
    params = [point.numbers for point in points]
    if lengths is None or not params:
        return None
    by_budget = all(map(budget_of, params))
    if not by_budget and any(BATCH_SIZE not in param for param in params):
        return None
    every, cut = min(point.every for point in points), ALL_FOLLOWS if by_budget else Cut.largest(params)
    by_length, window = all(point.order == SORTED for point in points), points[0].sort_window
    unit = max(point.work_unit for point in points) if by_budget else 0
    key = every, cut, by_length, window, unit
    if key not in lengths.loads:
        # Paragraphs times settings whose envelopes are kept: a long text has few, so that they fit into
        # memory
        if len(lengths.loads) * len(lengths.paragraphs) > 5_000_000:
            lengths.loads.clear()
        text = Loads(lengths.every(every), cut, by_length, window)
        lengths.loads[key] = Budgets(text, unit) if by_budget else text
    return lengths.loads[key]


def agreeing(loads: TextLoads | None, load_by_batch: Mapping[int, int]) -> TextLoads | None:
    """Return the loads if the measured loads agree with them, else ``None``.

    A workload that reports its own loads, but no lengths, would otherwise have these taken for batch sizes or
    budgets.
    """
    if loads is None or all(
        # with a larger difference from the measured loads, lengths are of something else
        abs(loads.own(batch) - load) <= 0.2 * load
        for batch, load in load_by_batch.items()
    ):
        return loads
    return None
