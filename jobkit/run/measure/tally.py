"""The batches of a try, counted as they end, so that memory does not grow with the text. Pure.

All that is kept of a batch is its seconds, for the percentiles. The totals of a worker are replaced as one
object, so that a signal between two lines leaves no half of a batch in them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

from jobkit.core.measurements import Summary
from jobkit.core.records import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums over batches; by default over none.

    Attributes
    ----------
    batches, items, characters
        How many.
    sentences, padded_chars
        Their sums; ``None`` if a batch does not report it.
    load_max
        The largest load.
    retries
        Of the allocator, of the batches that report it; ``None`` if none does.
    seconds
        Of all batches.
    end_s
        When the last batch ended, in seconds since the work began; ``None`` if that is not followed.
    """

    batches: int = 0
    items: int = 0
    characters: int = 0
    sentences: int | None = 0
    padded_chars: int | None = 0
    load_max: int | None = None
    retries: int | None = None
    seconds: float = 0.0
    end_s: float | None = None

    def plus(self, other: Totals) -> Totals:
        """Return the sums over the batches of both."""
        return Totals(
            batches=self.batches + other.batches,
            items=self.items + other.items,
            characters=self.characters + other.characters,
            sentences=_sum(self.sentences, other.sentences),
            padded_chars=_sum(self.padded_chars, other.padded_chars),
            load_max=_largest(self.load_max, other.load_max),
            retries=self.retries if other.retries is None else (self.retries or 0) + other.retries,
            seconds=self.seconds + other.seconds,
            end_s=_largest(self.end_s, other.end_s),
        )

    @property
    def padding_efficiency(self) -> float | None:
        """Characters over padded characters; ``None`` if that is not known."""
        return min(1.0, self.characters / self.padded_chars) if self.padded_chars else None


def totals_of(batch: Batch, end_s: float | None = None) -> Totals:
    """Return the sums over one batch, and when it ended if that is followed."""
    return Totals(
        batches=1,
        items=batch.items,
        characters=batch.characters,
        sentences=batch.sentences,
        padded_chars=batch.padded_chars,
        load_max=batch.load,
        retries=batch.alloc_retries,
        seconds=batch.seconds,
        end_s=end_s,
    )


class Tally:
    """The totals of each worker, and the seconds of each batch."""

    def __init__(self) -> None:
        self._by_worker: dict[int, Totals] = {}
        self._seconds = array("d")

    def add(self, batch: Batch, end_s: float | None = None) -> None:
        """Count a batch.

        Parameters
        ----------
        end_s
            When it ended, in seconds since the work began, if other things than batches count as work:
            several workers at a time, or the reading of a shard.
        """
        self._by_worker[batch.worker] = self.of(batch.worker).plus(totals_of(batch, end_s))
        self._seconds.append(batch.seconds)

    def add_totals(self, worker: int, totals: Totals) -> None:
        """Count batches of a worker of which only the sums are known."""
        self._by_worker[worker] = self.of(worker).plus(totals)

    def of(self, worker: int) -> Totals:
        """Return what a worker did."""
        return self._by_worker.get(worker, Totals())

    @property
    def batches(self) -> int:
        """How many have been counted."""
        return len(self._seconds)

    @property
    def total(self) -> Totals:
        """What all workers did."""
        return reduce(Totals.plus, self._by_worker.values(), Totals())

    def summary(self, *, items_total: int, batches_total: int, wall_s: float | None = None) -> Summary:
        """Summarise a try, complete or cut short.

        Parameters
        ----------
        items_total, batches_total
            Items and batches of the whole try.
        wall_s
            Of a command, how long it ran. The work took no longer, and no longer than its worker with
            the most seconds.
        """
        total, seconds = self.total, sorted(self._seconds)
        work_s = total.seconds if total.end_s is None else total.end_s
        if wall_s is not None:
            own_s = [own.seconds for own in self._by_worker.values()]
            work_s = min(wall_s, max(own_s, default=wall_s))
        return Summary(
            items_total=items_total,
            batches_total=batches_total,
            items=total.items,
            sentences=total.sentences if total.batches else None,
            characters=total.characters,
            batches=total.batches,
            work_s=work_s,
            items_per_s=total.items / work_s if work_s > 0 and total.batches else None,
            batch_mean_s=total.seconds / total.batches if total.batches else None,
            batch_p50_s=percentile(seconds, 0.50),
            batch_p95_s=percentile(seconds, 0.95),
            padding_efficiency=total.padding_efficiency,
            load_max=total.load_max,
        )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which ``share`` of the sorted values lie, linearly interpolated."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


T = TypeVar("T", int, float)


def _largest(*values: T | None) -> T | None:
    known: Iterable[T] = (value for value in values if value is not None)
    return max(known, default=None)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
