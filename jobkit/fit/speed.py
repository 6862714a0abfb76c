"""How fast each setting was, which one to take, and how long a corpus takes with it. Pure.

A difference within the scatter of the repeats is no difference, so every figure has an interval: two
settings are compared by the interval of the ratio of their means, and a time has a prediction interval,
because it is about one run to come and not about the mean of many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from jobkit.core.knobs import BATCH_SIZE, PADDED_CHARS, Value, numbers, sort_key
from jobkit.core.measurements import Summary
from jobkit.core.records import Outcome, Record
from jobkit.core.student import TWO_SIDED, deviation, half_width, quantile, welch_half_width
from jobkit.core.units import format_setting
from jobkit.fit.loads import TextLoads

SPEED_TOLERANCE = 0.05
"""The smallest setting within this share of the fastest is the one to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of one setting, from its repeats.

    Attributes
    ----------
    params
        The knobs.
    load
        The largest that was measured; ``None`` if none was.
    items_per_s, items_per_s_sd
        Paragraphs a second: mean and standard deviation; ``None`` for the latter of one repeat, and for both
        if the workload reports no items.
    seconds_per_item, seconds_per_character
        Of each repeat; empty if the workload does not report how many there are.
    works_s
        The time of the work of each repeat.
    start_s
        To load the model and to warm up: the mean.
    starts_s
        The same of each repeat.
    """

    params: Mapping[str, Value]
    load: int | None
    items_per_s: float | None
    items_per_s_sd: float | None
    seconds_per_item: tuple[float, ...]
    seconds_per_character: tuple[float, ...]
    works_s: tuple[float, ...]
    start_s: float
    starts_s: tuple[float, ...]

    @property
    def repeats(self) -> int:
        """How many there were."""
        return len(self.starts_s)

    @property
    def rate(self) -> float:
        """The mean speed to compare settings by: of items, or without items of whole runs."""
        work_s = fmean(self.works_s)
        return self.items_per_s or (1 / work_s if work_s else 0.0)

    @property
    def rates(self) -> tuple[float, ...]:
        """Paragraphs a second of each repeat."""
        return tuple(1 / seconds for seconds in self.seconds_per_item)

    @property
    def size(self) -> int:
        """Its batch size, or its ``padded_chars``; 0 if neither is one of its knobs."""
        sizes = numbers(self.params)
        return sizes.get(BATCH_SIZE, sizes.get(PADDED_CHARS, 0))

    @property
    def setting(self) -> str:
        """The knobs in words: ``batch_size 50``."""
        return format_setting(dict(sorted(self.params.items())))


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as large as another a mean is.

    Attributes
    ----------
    mean
        The ratio of the two means.
    low, high
        Its interval with 95 % confidence; ``None`` if one of the means is of a single repeat.
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool | None:
        """Whether the interval excludes 1, so that the difference is real; ``None`` without one."""
        return None if self.low is None or self.high is None else not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """How long a text takes, from the start of the process.

    Attributes
    ----------
    expected_s
        By the mean of the repeats.
    low_s, high_s
        The interval of one run with 95 % confidence; ``None`` after one repeat.
    start_s
        What of it is spent once, before the first paragraph.
    repeats
        What it rests on.
    """

    expected_s: float
    low_s: float | None
    high_s: float | None
    start_s: float
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What the user really wants to work through.

    Attributes
    ----------
    name
        The file; empty if only a number of paragraphs is known.
    paragraphs, characters
        How many; ``None`` for characters that are unknown.
    loads
        By batch size or budget, if the lengths of its items are known already.
    """

    name: str = ""
    paragraphs: int
    characters: int | None = None
    loads: TextLoads | None = None


def speeds(records: Iterable[Record]) -> tuple[Speed, ...]:
    """Return the speed of every setting that succeeded and has one, the smallest first."""
    return tuple(setting for setting in settings_of(records) if setting.items_per_s)


def settings_of(records: Iterable[Record]) -> tuple[Speed, ...]:
    """Return every setting that succeeded, with its speed if it has one, the smallest first.

    The time of a start has the longest import of all: forked tries did without, but a new run has one.
    """
    records = list(records)
    import_s = max((record.import_s or 0.0 for record in records), default=0.0)
    groups: dict[tuple[tuple[str, Value], ...], list[Record]] = {}
    for record in records:
        if record.outcome is Outcome.OK and record.summary:
            groups.setdefault(tuple(sorted(record.point.params.items())), []).append(record)
    settings = [_speed(dict(params), repeats, import_s) for params, repeats in groups.items()]
    return tuple(sorted(settings, key=_size))


def _has_speed(summary: Summary) -> bool:
    return summary.items > 0 and summary.work_s > 0


def _size(speed: Speed) -> tuple[object, ...]:
    return (
        speed.size,
        speed.load or 0,
        [(name, sort_key(value)) for name, value in sorted(speed.params.items())],
    )


def _speed(params: Mapping[str, Value], records: Sequence[Record], import_s: float) -> Speed:
    known = [record for record in records if record.summary and _has_speed(record.summary)]
    records = known or records
    summaries = [record.summary for record in records if record.summary]
    counted = [summary for summary in summaries if _has_speed(summary)]
    rates = [summary.items / summary.work_s for summary in counted]
    starts = tuple(import_s + (record.load_s or 0.0) + (record.warm_up_s or 0.0) for record in records)
    return Speed(
        params=params,
        load=max((summary.load_max for summary in summaries if summary.load_max), default=None),
        items_per_s=fmean(rates) if rates else None,
        items_per_s_sd=deviation(rates),
        seconds_per_item=tuple(summary.work_s / summary.items for summary in counted),
        seconds_per_character=tuple(
            summary.work_s / summary.characters for summary in counted if summary.characters
        ),
        works_s=tuple(summary.work_s for summary in summaries),
        start_s=fmean(starts),
        starts_s=starts,
    )


def fastest(settings: Sequence[Speed]) -> Speed:
    """Return the setting of the highest mean."""
    return max(settings, key=lambda setting: setting.rate)


def recommended(settings: Sequence[Speed], near: float = SPEED_TOLERANCE) -> Speed:
    """Return the smallest setting whose mean is within a share of the fastest."""
    best = fastest(settings).rate
    return next(setting for setting in settings if setting.rate >= (1 - near) * best)


def ratio(first: Speed, other: Speed) -> Ratio | None:
    """Return how many times as fast as another a setting is, as `ratio_of` computes it.

    ``None`` if one of them has no speed.
    """
    return ratio_of(first.rates, other.rates) if first.rates and other.rates else None


def ratio_of(first: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return the ratio of two means, with its interval at 95 % confidence.

    The interval is Welch's (Biometrika 34, 1947, 28-35) for the difference of the logarithms of the
    means: the variance of such a logarithm is (sd / mean)^2 / n (Hedges and others, Ecology 80,
    1999, 1150-1156). So it is the same interval whichever setting stands first, and never below 0.

    Parameters
    ----------
    first, other
        Positive values of independent repeats, at least one each.
    """
    means, spreads = [*map(fmean, (first, other))], [*map(deviation, (first, other))]
    mean, degrees = means[0] / means[1], [len(first) - 1, len(other) - 1]
    shares = [(sd or 0.0) / value for sd, value in zip(spreads, means, strict=True)]
    variances = [share**2 / (free + 1) for share, free in zip(shares, degrees, strict=True)]
    half = welch_half_width(variances, degrees)
    if half is None:
        return Ratio(mean, None, None)
    return Ratio(mean, mean / math.exp(half), mean * math.exp(half))


def differ(first: Speed, other: Speed) -> bool | None:
    """Return whether the interval of `ratio` excludes 1; ``None`` without an interval."""
    times = ratio(first, other)
    return times.differs if times else None


def duration(speed: Speed, *, items: int, characters: int | None = None) -> Duration:
    """Return how long a text takes at a setting, on the machine that was measured.

    The interval is about the whole of a run: its start scatters too, and more than the work of a
    short text does.

    Parameters
    ----------
    speed
        Of the setting.
    items
        Paragraphs of the text. Without a speed the time is that of one run on the text that was measured.
    characters
        Of the text, if known: they predict the work better than the paragraphs do.
    """
    by_character = characters is not None and len(speed.seconds_per_character) == speed.repeats
    each = speed.seconds_per_character if by_character else speed.seconds_per_item or speed.works_s
    amount = characters if by_character and characters is not None else items if speed.rates else 1
    whole = [start + amount * rate for start, rate in zip(speed.starts_s, each, strict=True)]
    expected, half = fmean(whole), half_width(deviation(whole), len(whole))
    half = None if half is None else half * math.sqrt(len(whole) + 1)  # about one run, not about the mean
    return Duration(
        expected_s=expected,
        low_s=None if half is None else max(min(speed.starts_s), expected - half),
        high_s=None if half is None else expected + half,
        start_s=speed.start_s,
        repeats=speed.repeats,
    )


def upper(time: Duration, part: float) -> float | None:
    """Return how long this part of such runs take at most; ``None`` after one repeat."""
    if time.high_s is None:
        return None
    degrees = time.repeats - 1
    half = time.high_s - time.expected_s
    return time.expected_s + half * quantile(part, degrees) / quantile(TWO_SIDED, degrees)


def total(speed: Speed, parts: Sequence[tuple[int, int]]) -> Duration:
    """Return how long the parts of a corpus take together, each with a start of its own.

    The parts scatter each for itself, but the mean on which all rest is off for all in the same way. So the
    variance of the sum of n equal parts after k repeats is (n + n^2 / k) times that of one part.

    Parameters
    ----------
    speed
        Of the setting.
    parts
        Paragraphs and characters of each.
    """
    number = len(parts)
    items, characters = sum(part[0] for part in parts), sum(part[1] for part in parts)
    mean = duration(speed, items=round(items / number), characters=round(characters / number))
    expected = duration(speed, items=items, characters=characters).expected_s + (number - 1) * speed.start_s
    half = None
    if mean.high_s is not None:
        sd = (mean.high_s - mean.expected_s) / math.sqrt(1 + 1 / mean.repeats)  # of one part, times t
        half = sd * math.sqrt(number + number**2 / mean.repeats)
    return Duration(
        expected_s=expected,
        low_s=None if half is None else max(0.0, expected - half),
        high_s=None if half is None else expected + half,
        start_s=number * speed.start_s,
        repeats=speed.repeats,
    )
