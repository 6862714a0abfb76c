"""How fast each setting was, which one to take, and how long a corpus takes with it. Pure.

A difference within the scatter of the repeats is no difference, so scatter goes with every figure:
two settings are compared by Welch's test, and a time has a prediction interval, for it is about
one run to come and not about the mean of many.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, stdev

from jobkit.core.knobs import BATCH_SIZE, PADDED_CHARS, Value, numbers, sort_key
from jobkit.core.records import Outcome, Record
from jobkit.core.units import format_count, format_setting
from jobkit.fit.loads import TextLoads
from jobkit.fit.stats import quantile

SPEED_TOLERANCE = 0.05
"""The smallest setting within this share of the fastest is the one to take."""
TWO_SIDED = 0.975


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
        Paragraphs a second: mean and standard deviation; ``None`` for the latter of one repeat.
    seconds_per_item, seconds_per_character
        Of each repeat.
    start_s
        To load the model and to warm up: the mean.
    starts_s
        The same of each repeat.
    """

    params: Mapping[str, Value]
    load: int | None
    items_per_s: float
    items_per_s_sd: float | None
    seconds_per_item: tuple[float, ...]
    seconds_per_character: tuple[float, ...]
    start_s: float
    starts_s: tuple[float, ...]

    @property
    def repeats(self) -> int:
        """How many there were."""
        return len(self.seconds_per_item)

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


@dataclass(frozen=True, slots=True)
class Span:
    """Where and when a point ran: ``place`` is its GPU, or on a CPU its host; times are ISO 8601."""

    place: str
    started_at: object
    ended_at: object

    @property
    def seconds(self) -> tuple[float, float] | None:
        """From when to when; ``None`` if that is not known."""
        try:
            began, ended = (
                datetime.fromisoformat(str(at)).timestamp() for at in (self.started_at, self.ended_at)
            )
        except (ValueError, OverflowError):
            return None
        return (began, ended) if began < ended else None


def span(uuid: str | None, host: object, started_at: object, ended_at: object) -> Span:
    """Return where and when a point ran that has a GPU, or on a CPU none."""
    return Span(f"GPU {uuid}" if uuid else f"host {host}", started_at, ended_at)


def span_of(record: Record) -> Span:
    """Return where and when the point of a record ran."""
    uuid = record.gpu.uuid if record.gpu else None
    return span(uuid, record.host, record.started_at, record.ended_at)


def overlaps(spans: Sequence[Span]) -> list[int | None]:
    """Return for each point how many others ran at the same time at the same place.

    Points of one place that follow each other, as those that are packed in one job, do not overlap.
    ``None`` if the times of a point are not known.
    """
    times = [span.seconds for span in spans]
    began: dict[str, list[float]] = defaultdict(list)
    ended: dict[str, list[float]] = defaultdict(list)
    for span, known in zip(spans, times, strict=True):
        if known:
            began[span.place].append(known[0])
            ended[span.place].append(known[1])
    for moments in (*began.values(), *ended.values()):
        moments.sort()
    return [
        bisect_left(began[span.place], known[1]) - bisect_right(ended[span.place], known[0]) - 1
        if known
        else None
        for span, known in zip(spans, times, strict=True)
    ]


def overlap_words(spans: Sequence[Span], others: Sequence[float | None]) -> str:
    """Return a warning if points slowed each other down, without a full stop; empty if none did.

    Parameters
    ----------
    spans
        Of the points.
    others
        How many others ran at the same time, as `overlaps` counts them.
    """
    places = [span.place for span, number in zip(spans, others, strict=True) if number]
    if not places:
        return ""
    there = sorted(set(places))
    where = there[0] if len(there) == 1 else f"one of {len(there)} hosts or GPUs"
    return (
        f"{len(places)} of {format_count(len(spans), 'point')} ran at the same time as another point on "
        f"{where}: their speeds may not be comparable; `exclusive: true` in the spec keeps points apart"
    )


def speeds(records: Iterable[Record]) -> tuple[Speed, ...]:
    """Return the speed of every setting that succeeded, the smallest first.

    The time of a start has the longest import of all: forked tries did without, but a new run has one.
    """
    records = list(records)
    import_s = max((record.import_s or 0.0 for record in records), default=0.0)
    groups: dict[tuple[tuple[str, Value], ...], list[Record]] = {}
    for record in records:
        summary = record.summary
        if record.outcome is Outcome.OK and summary and summary.items and summary.work_s > 0:
            groups.setdefault(tuple(sorted(record.point.params.items())), []).append(record)
    settings = [_speed(dict(params), repeats, import_s) for params, repeats in groups.items()]
    return tuple(sorted(settings, key=_size))


def _size(speed: Speed) -> tuple[object, ...]:
    return (
        speed.size,
        speed.load or 0,
        [(name, sort_key(value)) for name, value in sorted(speed.params.items())],
    )


def _speed(params: Mapping[str, Value], records: Sequence[Record], import_s: float) -> Speed:
    summaries = [record.summary for record in records if record.summary]
    rates = [summary.items / summary.work_s for summary in summaries]
    starts = tuple(import_s + (record.load_s or 0.0) + (record.warm_up_s or 0.0) for record in records)
    return Speed(
        params=params,
        load=max((summary.load_max for summary in summaries if summary.load_max), default=None),
        items_per_s=fmean(rates),
        items_per_s_sd=stdev(rates) if len(rates) > 1 else None,
        seconds_per_item=tuple(summary.work_s / summary.items for summary in summaries),
        seconds_per_character=tuple(
            summary.work_s / summary.characters for summary in summaries if summary.characters
        ),
        start_s=fmean(starts),
        starts_s=starts,
    )


def fastest(settings: Sequence[Speed]) -> Speed:
    """Return the setting of the highest mean."""
    return max(settings, key=lambda setting: setting.items_per_s)


def recommended(settings: Sequence[Speed], near: float = SPEED_TOLERANCE) -> Speed:
    """Return the smallest setting whose mean is within a share of the fastest."""
    best = fastest(settings).items_per_s
    return next(setting for setting in settings if setting.items_per_s >= (1 - near) * best)


def ratio(first: Speed, other: Speed) -> Ratio:
    """Return how many times as fast as another a setting is, as `ratio_of` computes it."""
    return ratio_of(first.rates, other.rates)


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
    mean = fmean(first) / fmean(other)
    if min(len(first), len(other)) == 1:
        return Ratio(mean, None, None)
    variances = [(stdev(values) / fmean(values)) ** 2 / len(values) for values in (first, other)]
    if not (total := sum(variances)):
        return Ratio(mean, mean, mean)
    parts = zip(variances, (first, other), strict=True)
    degrees = total**2 / math.fsum(variance**2 / (len(values) - 1) for variance, values in parts)
    factor = math.exp(quantile(TWO_SIDED, max(1, math.floor(degrees))) * math.sqrt(total))
    return Ratio(mean, mean / factor, mean * factor)


def differ(first: Speed, other: Speed) -> bool | None:
    """Return whether the interval of `ratio` excludes 1; ``None`` without an interval."""
    return ratio(first, other).differs


def duration(speed: Speed, *, items: int, characters: int | None = None) -> Duration:
    """Return how long a text takes at a setting, on the machine that was measured.

    The interval is about the whole of a run: its start scatters too, and more than the work of a
    short text does.

    Parameters
    ----------
    speed
        Of the setting.
    items
        Paragraphs of the text.
    characters
        Of the text, if known: they predict the work better than the paragraphs do.
    """
    by_character = characters is not None and len(speed.seconds_per_character) == speed.repeats
    each = speed.seconds_per_character if by_character else speed.seconds_per_item
    amount = characters if by_character and characters is not None else items
    whole = [start + amount * rate for start, rate in zip(speed.starts_s, each, strict=True)]
    expected, half = fmean(whole), None
    if len(whole) > 1:
        half = stdev(whole) * quantile(TWO_SIDED, len(whole) - 1) * math.sqrt(1 + 1 / len(whole))
    return Duration(
        expected_s=expected,
        low_s=None if half is None else max(min(speed.starts_s), expected - half),
        high_s=None if half is None else expected + half,
        start_s=speed.start_s,
        repeats=speed.repeats,
    )
