"""The repeats of one setting, and the only place that averages them. Pure, and standard library only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import ClassVar, Generic, Protocol, TypeVar

from jobkit.core.figures import Figure, format_figure
from jobkit.core.frozen import frozen
from jobkit.core.knobs import LOAD_KNOBS, REFUSED, Value
from jobkit.core.records import Outcome, Record
from jobkit.core.student import TWO_SIDED, deviation, half_width, welch_half_width
from jobkit.core.units import format_setting


@frozen
class Difference:
    EQUAL: ClassVar[float] = 0.0  # of equal means

    mean: float  # the difference of the two means
    # ends of the 95 % interval; ``None`` if one of the means is of a single repeat
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool | None:
        """Whether the interval excludes `EQUAL`, so that the difference is real; ``None`` without one."""
        return None if self.low is None or self.high is None else not self.low <= self.EQUAL <= self.high


@frozen
class Ratio(Difference):
    """The ratio of two means."""

    EQUAL: ClassVar[float] = 1.0


@frozen
class Mean:
    values: tuple[float, ...]  # of each repeat
    value: float  # the mean itself
    n: int  # how many repeats there are
    sd: float | None  # the standard deviation of the repeats; ``None`` of one
    half_width: float | None  # half of the 95 % interval of the mean; ``None`` of one repeat

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        found = tuple(values)
        sd = deviation(found)
        return cls(found, fmean(found), len(found), sd, half_width(sd, len(found)))

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The ends of the 95 % interval; ``None`` for one repeat."""
        half = self.half_width
        return (None, None) if half is None else (self.value - half, self.value + half)

    def over(self, other: Mean, probability: float = TWO_SIDED) -> Ratio:
        """Return the ratio of two means of positive values.

        The interval is Welch's (Biometrika 34, 1947, 28-35) for the difference of the logarithms: the
        variance of the logarithm of a mean is (sd / mean)^2 / n (Hedges and others, Ecology 80, 1999,
        1150-1156). So the order of the two settings does not matter, and the interval is never below 0.
        ``probability`` is of the quantile that ends it; by default its confidence is 95 %.
        """
        mean = self.value / other.value
        half = welch_half_width(
            [((one.sd or 0.0) / one.value) ** 2 / one.n for one in (self, other)],
            [one.n - 1 for one in (self, other)],
            probability,
        )
        if half is None:
            return Ratio(mean, None, None)
        return Ratio(mean, mean / math.exp(half), mean * math.exp(half))

    def minus(self, other: Mean, probability: float = TWO_SIDED) -> Difference:
        """Return the difference of two means with Welch's interval; ``probability`` is as in `over`."""
        mean = self.value - other.value
        half = welch_half_width(
            [(one.sd or 0.0) ** 2 / one.n for one in (self, other)],
            [one.n - 1 for one in (self, other)],
            probability,
        )
        return Difference(mean, None if half is None else mean - half, None if half is None else mean + half)

    def words(self, unit: str) -> str:
        """Return the mean with its interval and the number of repeats: ``0.91 ± 0.004 (n=3)``."""
        return f"{format_figure(self.value, unit, self.half_width)} (n={self.n})"


class Repeat(Protocol):
    """A point, as far as its setting needs it: a record, or a point of a table."""

    @property
    def params(self) -> Mapping[str, Value]:
        """The values of its knobs."""

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; ``None`` if it is still to come."""

    def value(self, figure: Figure) -> float | None:
        """Return a figure; ``None`` if it is not known."""


P = TypeVar("P", bound=Repeat)
Key = tuple[tuple[str, Value], ...]


def key_of(params: Mapping[str, Value]) -> Key:
    return tuple(sorted(params.items()))


@dataclass(frozen=True, kw_only=True)
class Setting(Generic[P]):
    """The repeats of one setting of the knobs. Only those that succeeded are in its means."""

    points: tuple[P, ...]  # all of its points, at least one

    @property
    def first(self) -> P:
        return self.points[0]

    @property
    def params(self) -> Mapping[str, Value]:
        return self.first.params

    @cached_property
    def well(self) -> tuple[P, ...]:
        return tuple(point for point in self.points if point.outcome is Outcome.OK)

    @property
    def n(self) -> int:
        return len(self.well)

    @property
    def outcomes(self) -> str:
        """How its points ended, in words, and so why some are in no mean."""
        counts = Counter(str(point.outcome) for point in self.points)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())

    def values(self, figure: Figure) -> tuple[float, ...]:
        """Return a figure of the points that succeeded and have it."""
        return tuple(value for point in self.well if (value := point.value(figure)) is not None)

    def mean(self, figure: Figure) -> Mean | None:
        """Return the mean of these values; ``None`` if there are none."""
        values = self.values(figure)
        return Mean.of(values) if values else None


def settings_of(
    points: Iterable[P], key: Callable[[P], Hashable] | None = None
) -> dict[Hashable, Setting[P]]:
    """Return the settings of some points in order, by what repeats share: a ``key``, or all knobs."""
    groups: dict[Hashable, list[P]] = {}
    for point in points:
        groups.setdefault(key(point) if key else key_of(point.params), []).append(point)
    return {shared: Setting(points=tuple(repeats)) for shared, repeats in groups.items()}


def other_knobs(record: Record, own: str | None = None) -> str:
    """Return the knobs whose values have lines of their own: ``sentences_per_ner_batch 50``.

    Knobs that did not take effect are left out, except shortcuts that were refused. ``own`` is the knob that
    the line is over; by default the one with which the load grows.
    """
    params = record.params
    sizes = (knob for knob in sorted(params) if not isinstance(params[knob], str))
    over = next((knob for knob in (own, *LOAD_KNOBS, *sizes) if knob in params), None)
    inert = {knob for knob in record.inert if params.get(knob) != REFUSED}
    return format_setting({knob: params[knob] for knob in sorted(params.keys() - inert - {over})})
