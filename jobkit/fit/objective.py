"""What a setting is chosen by: figures by name, the best of them, and the bounds that it must keep. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean

from jobkit.core.knobs import EVERY, Value
from jobkit.core.measurements import (
    BATCH_P95,
    GPU_MEMORY,
    JOULES_PER_1000,
    MAX,
    SPEED,
    WORK,
    Metric,
    Summary,
)
from jobkit.core.records import Outcome, Record
from jobkit.core.student import TWO_SIDED, deviation, half_width, unknown_spread, welch_half_width
from jobkit.core.terminal import printable
from jobkit.core.units import format_memory
from jobkit.fit.energy import joules
from jobkit.fit.speed import Ratio, Speed, ratio_of, settings_of

BYTES = "bytes"
LARGEST = 1e100
"""The largest figure, up or down, that is taken from a workload."""
DIGITS = 12
"""Of a mean, beyond which only rounding differs."""
NO_UNIT = frozenset({"", "1"})
"""Units that are not printed."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that jobkit measures itself, by which settings may be chosen.

    Attributes
    ----------
    of
        Returns it for a record; ``None`` if it is not known.
    unit
        Its unit.
    optional
        Whether a setting keeps a bound if the figure is not known: not every machine can measure it.
    """

    of: Callable[[Record], float | None]
    unit: str
    optional: bool = True


def _of_summary(read: Callable[[Summary], float | None]) -> Callable[[Record], float | None]:
    return lambda record: read(record.summary) if record.summary else None


def energy_per_1000(record: Record | None) -> float | None:
    """Return the joules for 1,000 items of a point; ``None`` if they are not known, or not its own."""
    items = record.summary.items if record and record.summary else 0
    energy_j = joules(record.energy)[0] if record else None
    return 1000 * energy_j / items if energy_j is not None and items else None


def gpu_memory(record: Record) -> tuple[int | None, str | None]:
    """Return the peak of the GPU memory of all processes of a point, and the instrument that measured it.

    Tables, constraints and comparisons all show this figure. Context and reserved memory are those of one
    process, so they are the figure only of a point with one.
    """
    memory, alone = record.memory, record.point.workers * max(1, record.point.gpus) == 1
    if memory.process_peak_bytes is not None:
        return memory.process_peak_bytes, "NVML process"
    if alone and memory.context_bytes is not None and memory.reserved_peak_bytes is not None:
        return memory.context_bytes + memory.reserved_peak_bytes, "context + torch reserved"
    unshared = record.gpu is not None and record.gpu.foreign_processes == 0
    if unshared and memory.device_peak_bytes is not None and memory.device_idle_bytes is not None:
        return memory.device_peak_bytes - memory.device_idle_bytes, "NVML device above idle"
    return None, None


def rate(record: Record | None) -> float | None:
    """Return the items a second of a point; ``None`` if its workload reports no items."""
    summary = record.summary if record else None
    return summary.items_per_s if summary and summary.items and summary.items_per_s else None


def pace(record: Record) -> float:
    """Return the items a second of a point, or without items the texts a second; 0 if neither is known."""
    work_s = record.summary.work_s if record.summary else 0.0
    return rate(record) or (1 / (work_s * record.point.every) if work_s else 0.0)


FIGURES: Mapping[str, Figure] = {
    SPEED: Figure(rate, "paragraphs/s", optional=False),
    WORK: Figure(_of_summary(lambda summary: summary.work_s or None), "s", optional=False),
    BATCH_P95: Figure(_of_summary(lambda summary: summary.batch_p95_s), "s"),
    JOULES_PER_1000: Figure(energy_per_1000, "J"),
    GPU_MEMORY: Figure(lambda record: gpu_memory(record)[0], BYTES),
}
"""The figures that jobkit measures, by the names of the spec; any other name is a workload's own."""


def reported(record: Record | None) -> dict[str, Metric]:
    """Return the figures that a workload reported, without those beyond `LARGEST`, whose squares overflow."""
    metrics = record.metrics if record else {}
    return {
        name: Metric(value=float(metric.value), unit=metric.unit)
        for name, metric in metrics.items()
        if -LARGEST <= metric.value <= LARGEST  # false of NaN
    }


def figure(record: Record, name: str) -> float | None:
    """Return a figure of a point by its name; ``None`` if it has none."""
    if own := FIGURES.get(name):
        return own.of(record)
    metric = reported(record).get(name)
    return metric.value if metric else None


def units_of(records: Iterable[Record], name: str) -> list[str]:
    """Return the units of a figure, safe to print: figures of several units cannot be compared."""
    if own := FIGURES.get(name):
        return [own.unit]
    return sorted({printable(metrics[name].unit) for one in records if name in (metrics := reported(one))})


@dataclass(frozen=True, slots=True)
class Bound:
    """The least and the highest value of a figure that are accepted; ``None`` for no limit."""

    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """How much more one mean is than another.

    Attributes
    ----------
    mean
        The difference of the two means.
    low, high
        Its interval with 95 % confidence; ``None`` if one of the means is of a single repeat.
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool | None:
        """Whether the interval excludes 0, so that the difference is real; ``None`` without one."""
        return None if self.low is None or self.high is None else not self.low <= 0 <= self.high


def difference(
    first: Sequence[float], other: Sequence[float], *, probability: float = TWO_SIDED
) -> Difference:
    """Return the difference of two means, with Welch's interval (Biometrika 34, 1947, 28-35).

    Parameters
    ----------
    first, other
        Values of independent repeats, at least one each.
    probability
        Of the quantile that ends the interval; by default its confidence is 95 %.
    """
    mean = fmean(first) - fmean(other)
    half = welch_half_width(
        [(deviation(values) or 0.0) ** 2 / len(values) for values in (first, other)],
        [len(values) - 1 for values in (first, other)],
        probability,
    )
    return Difference(mean, None if half is None else mean - half, None if half is None else mean + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a setting is chosen by, and what it must keep.

    Attributes
    ----------
    metric
        One of `FIGURES`, or a figure that the workload reports.
    direction
        ``max`` or ``min``.
    bounds
        By figure.
    """

    metric: str = SPEED
    direction: str = MAX
    bounds: dict[str, Bound] = field(default_factory=dict)

    @classmethod
    def of(
        cls, metric: str, direction: str, ends: Mapping[str, tuple[float | None, float | None]]
    ) -> Objective:
        """Return the objective of a spec; ``ends`` are the least and the highest value by figure."""
        bounds = {name: Bound(*pair) for name, pair in ends.items()}
        return cls(metric=metric, direction=direction, bounds=bounds)

    @property
    def by_speed(self) -> bool:
        """Whether the fastest setting is the best."""
        return (self.metric, self.direction) == (SPEED, MAX)

    @property
    def name(self) -> str:
        """The metric, safe to print."""
        return printable(self.metric)

    def values(self, records: Iterable[Record]) -> tuple[float, ...]:
        """Return the metric of the points of a setting that succeeded and have it."""
        return tuple(values_of(records, self.metric))

    def rank(self, mean: float) -> float:
        """Return a number that is the higher, the better a mean is, without what only rounding adds."""
        rounded = float(f"{mean:.{DIGITS}g}")
        return rounded if self.direction == MAX else -rounded

    def broken(self, records: Sequence[Record]) -> str:
        """Return which bounds the means of a setting break, in words; empty if none."""
        found = (self._break(name, bound, records) for name, bound in self.bounds.items())
        return "; ".join(words for words in found if words)

    def _break(self, name: str, bound: Bound, records: Sequence[Record]) -> str:
        values, own = [*values_of(records, name)], FIGURES.get(name)
        if not values:
            return "" if own and own.optional else f"{printable(name)} is not known"
        mean, units = fmean(values), units_of(records, name)
        if len(units) > 1:
            return f"{printable(name)} has several units: {', '.join(units)}"
        unit = units[0]
        if bound.min is not None and mean < bound.min:
            return f"{printable(name)} {format_figure(mean, unit)} is under {format_figure(bound.min, unit)}"
        if bound.max is not None and mean > bound.max:
            return f"{printable(name)} {format_figure(mean, unit)} is over {format_figure(bound.max, unit)}"
        return ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a setting compares with another by the objective.

    Attributes
    ----------
    apart
        How many times as large the metric is, for the speed; else the difference of the two means.
    better
        Whether the interval shows that the setting is better (``True``) or worse (``False``); ``None`` if it
        shows no difference.
    """

    apart: Ratio | Difference
    better: bool | None


@dataclass(frozen=True, kw_only=True)
class Finals:
    """The finalists of a search and the plain loop, and which of them is the answer.

    Attributes
    ----------
    loop
        The knobs of the plain loop.
    looks
        How often repeats end, at most, so that the intervals are looked at: each interval then has the
        confidence with which all of them together hold in 95 % of searches (Bonferroni). 0 for a search of
        an earlier version, whose answer is its best finalist: it compared none with the plain loop.
    records
        Of their points that succeeded.
    started
        Of all points of the search: the time of a start is known from them, too.
    """

    objective: Objective
    loop: Mapping[str, Value]
    looks: int
    records: Sequence[Record]
    started: Sequence[Record] = ()

    @cached_property
    def speeds(self) -> tuple[Speed, ...]:
        """The plain loop and the finalists that have the metric."""
        return tuple(speed for speed in settings_of(self.records, self.started) if self.values(speed))

    @property
    def plain(self) -> Speed | None:
        """The plain loop; ``None`` if it was not measured."""
        return next((speed for speed in self.speeds if self._is_loop(speed)), None)

    @property
    def finalists(self) -> tuple[Speed, ...]:
        """The others, the best by the objective first, of equal ones the faster."""
        others = (speed for speed in self.speeds if not self._is_loop(speed))
        return tuple(sorted(others, key=lambda one: (self._rank(one), one.rate), reverse=True))

    @property
    def kept(self) -> tuple[Speed, ...]:
        """The finalists whose means keep the constraints."""
        return tuple(speed for speed in self.finalists if not self.looks or not self.broken(speed))

    @property
    def comparison(self) -> Comparison | None:
        """The best finalist that keeps the constraints against the plain loop; ``None`` if one is missing."""
        plain = self.plain
        return self.compared(self.kept[0], plain) if self.kept and plain else None

    @property
    def winner(self) -> Speed | None:
        """The answer: a finalist if it is shown to be better than the plain loop, else the plain loop.

        A plain loop that breaks a constraint, or was not measured, is no answer and needs no comparison.
        """
        best, plain = next(iter(self.kept), None), self.plain
        if not self.looks or plain is None or self.broken(plain):
            return best
        return best if self.comparison and self.comparison.better else plain

    @property
    def decided(self) -> bool:
        """Whether more repeats would not change the answer."""
        plain = self.plain
        if plain is None or not self.kept or self.broken(plain):
            return True
        return self.comparison is not None and self.comparison.better is not None

    @property
    def probability(self) -> float:
        """The probability of the quantile that ends each interval."""
        return 1 - (1 - TWO_SIDED) / max(1, self.looks)

    def compared(self, first: Speed, other: Speed) -> Comparison:
        """Return how one of them compares with another. If all values are equal, the faster is the better."""
        if self.objective.by_speed:
            return _by_speed(first, other, self.probability)
        apart = difference(self.values(first), self.values(other), probability=self.probability)
        if apart.low == apart.high == apart.mean == 0:
            return replace(_by_speed(first, other, self.probability), apart=apart)
        better = (apart.mean > 0) == (self.objective.direction == MAX) if apart.differs else None
        return Comparison(apart, better)

    def records_of(self, speed: Speed | None) -> list[Record]:
        """Return the records of one of them."""
        return [record for record in self.records if speed and record.params == speed.params]

    def values(self, speed: Speed | None) -> tuple[float, ...]:
        """Return the metric of each repeat of one of them."""
        return self.objective.values(self.records_of(speed))

    def broken(self, speed: Speed) -> str:
        """Return which bounds its means break, in words; empty if none."""
        return self.objective.broken(self.records_of(speed))

    def _rank(self, speed: Speed) -> float:
        return self.objective.rank(fmean(self.values(speed)))

    def _is_loop(self, speed: Speed) -> bool:
        return {knob: value for knob, value in speed.params.items() if knob != EVERY} == self.loop


def _by_speed(first: Speed, other: Speed, probability: float) -> Comparison:
    """Return how two settings compare by their speed, or without items by the time of whole runs."""
    rates = [one.rates or tuple(1 / work_s for work_s in one.works_s if work_s) for one in (first, other)]
    if not all(rates):
        return Comparison(Ratio(1.0, None, None), None)
    times = ratio_of(rates[0], rates[1], probability)
    return Comparison(times, times.mean > 1 if times.differs else None)


def values_of(records: Iterable[Record], name: str) -> Iterator[float]:
    """Yield a figure of the points that succeeded and have it."""
    for record in records:
        value = figure(record, name) if record.outcome is Outcome.OK else None
        if value is not None:
            yield value


def format_figure(value: float, unit: str = "", half: float | None = None) -> str:
    """Return a figure with its unit, in four digits, and half of its interval if there is one.

    Parameters
    ----------
    value
        In ``unit``; bytes are printed as a size.
    half
        Half of the 95 % interval of the mean.
    """
    if half is not None and half < abs(value) / 10**DIGITS:
        half = 0.0
    unknown = ", spread unknown" if unknown_spread(value, half) else ""
    half = None if unknown else half
    if unit == BYTES:
        interval = "" if half is None else f" ± {format_memory(half)}"
        return f"{format_memory(value)}{interval}{unknown}"
    interval = "" if half is None else f" ± {half:,.2g}"
    return f"{value:,.4g}{interval}{'' if unit in NO_UNIT else f' {unit}'}{unknown}"


def mean_words(values: Sequence[float], unit: str) -> str:
    """Return the mean of some repeats with its interval and their number: ``0.91 ± 0.004 (n=3)``."""
    half = half_width(deviation(values), len(values))
    return f"{format_figure(fmean(values), unit, half)} (n={len(values)})"
