"""The repeats of each setting: their means, with intervals. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from statistics import fmean

from jobkit.core.knobs import WORKERS, Value, sort_key
from jobkit.core.records import Outcome
from jobkit.core.student import TWO_SIDED, deviation, half_width
from jobkit.fit.speed import Ratio, ratio_of
from jobkit.fit.tune_steps import FINAL, MEMORY, SEARCH
from jobkit.report import energy
from jobkit.report.own_figures import OwnFigure
from jobkit.report.rows import MEASURES, Row

PHASES = {"": 0, MEMORY: 1, SEARCH: 2, FINAL: 3}
"""Of a search; the last is the one that the answer rests on, so it comes first."""
INTERVALS = ("items_per_s", "work_s")
"""The measures whose means have a 95 % interval in the table."""
OF_A_SIZE = ("effective", "inert", "items_total", "gpu_instrument")
"""What a size has of its first point that has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The repeats of one setting of the knobs within a group.

    Attributes
    ----------
    first
        Its first point.
    outcomes
        In words.
    n
        How many points succeeded.
    mean, sd, counts
        By measure, over the points that succeeded and have it: the mean, the standard deviation
        (``None`` for fewer than two) and how many there are.
    times
        How many times as fast as the smallest size of the group that succeeded; that size itself has
        no interval.
    front
        Whether no other size of the group beats it in both time and energy; ``None`` if not known.
    items_total, effective, inert, gpu_instrument
        Of the first point that has it.
    """

    first: Row
    outcomes: str
    n: int
    mean: Mapping[str, float | None]
    sd: Mapping[str, float | None]
    counts: Mapping[str, int]
    times: Ratio | None
    front: bool | None = None
    items_total: int | None
    effective: str | None
    inert: str | None
    gpu_instrument: str | None

    @property
    def params(self) -> Mapping[str, Value]:
        """The values of the knobs."""
        return self.first.params

    @property
    def speedup(self) -> float | None:
        """The mean of ``times``."""
        return self.times.mean if self.times else None

    def half_width(self, measure: str) -> float | None:
        """Return half the 95 % interval of the mean of a measure; ``None`` for fewer than two points."""
        return half_width(self.sd.get(measure), self.counts.get(measure, 0))

    def ends(self, measure: str) -> tuple[float | None, float | None]:
        """Return the ends of that interval."""
        mean, half = self.mean[measure], self.half_width(measure)
        return (None, None) if mean is None or half is None else (mean - half, mean + half)


def sizes(
    rows: Iterable[Row],
    knobs: Sequence[str],
    own: Sequence[OwnFigure] = (),
    probabilities: Mapping[str, float] | None = None,
) -> list[Size]:
    """Return the sizes of all groups in order, and give the rows their speed-up.

    Parameters
    ----------
    own
        The figures that the workload reports.
    probabilities
        By run folder, of the quantile that ends the intervals of the finals of a search: these were looked at
        several times.
    """
    looked_at = probabilities or {}
    repeats: dict[int, list[Row]] = {}
    for row in rows:
        if row.size is not None:
            repeats.setdefault(row.size, []).append(row)
    base: dict[int | None, list[float]] = {}

    def order(same: Sequence[Row]) -> tuple[object, ...]:
        first = same[0]  # fewer workers are smaller, whatever else differs
        workers = first.numbers.get(WORKERS, 1)
        knob_keys = (sort_key(first.params.get(knob)) for knob in knobs)
        return first.group or 0, workers, *knob_keys, -PHASES.get(first.phase or "", 0)

    found = [
        _size(
            same, own, base, looked_at.get(same[0].folder, TWO_SIDED) if same[0].phase == FINAL else TWO_SIDED
        )
        for same in sorted(repeats.values(), key=order)
    ]
    groups = [list(same) for _, same in groupby(found, key=lambda size: size.first.group)]
    fronts = (energy.front([size.mean for size in same]) for same in groups)
    return list(map(_on_front, found, chain.from_iterable(fronts)))


def _on_front(size: Size, front: bool | None) -> Size:  # noqa: FBT001 - of map
    return size if front is None else replace(size, front=front)


def _size(
    same: Sequence[Row], own: Sequence[OwnFigure], base: dict[int | None, list[float]], probability: float
) -> Size:
    """Return a size; ``base`` holds the speeds of the smallest size by group."""
    well = [row for row in same if row.outcome is Outcome.OK]
    known = {name: [getattr(row, name) for row in well] for name in MEASURES}
    known |= {one.measure: [row.metrics.get(one.column) for row in well] for one in own}
    figures = {name: [value for value in values if value is not None] for name, values in known.items()}
    first = {
        name: next((v for row in same if (v := getattr(row, name)) is not None), None) for name in OF_A_SIZE
    }
    return Size(
        first=same[0],
        outcomes=_in_words(row.outcome for row in same),
        n=len(well),
        mean={name: fmean(values) if values else None for name, values in figures.items()},
        sd={name: deviation(values) for name, values in figures.items()},
        counts={name: len(values) for name, values in figures.items()},
        times=_times(well, base, probability),
        **first,
    )


def _times(well: Sequence[Row], base: dict[int | None, list[float]], probability: float) -> Ratio | None:
    """Return how many times as fast as the base the points of a size are, and give each its speed-up."""
    rates = [row.items_per_s for row in well if row.items_per_s]
    if not rates:
        return None
    slowest = base.setdefault(well[0].group, rates)
    mean = fmean(slowest)
    for row in well:
        row.speedup = row.items_per_s / mean if row.items_per_s else None
    return Ratio(1.0, None, None) if rates is slowest else ratio_of(rates, slowest, probability)


def _in_words(outcomes: Iterable[Outcome | None]) -> str:
    counts = Counter(map(str, outcomes))
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
