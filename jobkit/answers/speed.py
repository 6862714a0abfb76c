"""How fast each setting was, which one to take, and how long a corpus takes with it. Pure.

A difference within the scatter of the repeats is no difference. So settings are compared by the interval of
the ratio of their means, and a time has a prediction interval: it is about one run to come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jobkit.answers.loads import TextLoads
from jobkit.answers.setting import Difference, Mean, Ratio, Setting, settings_of
from jobkit.core.figures import SPEED
from jobkit.core.frozen import keyed
from jobkit.core.knobs import Value, numbers, size_knob, sort_key
from jobkit.core.layout import SPEC_FILE
from jobkit.core.records import Outcome, Record
from jobkit.core.student import TWO_SIDED, quantile, unknown_spread
from jobkit.core.terminal import NoWrap, shell_quote
from jobkit.core.units import format_setting

SPEED_TOLERANCE = 0.05  # the smallest setting within this share of the fastest is recommended
NO_INTERVAL = 2.0  # a time by one repeat may be off by this factor
PAST = 3  # earlier predictions that suffice to show how far predictions are off


@keyed
class Speed:
    params: Mapping[str, Value]  # the knobs
    load: int | None  # the largest that was measured; ``None`` if none was
    items_per_s: float | None  # mean of paragraphs a second; ``None`` if the workload reports no items
    items_per_s_sd: float | None  # its standard deviation; ``None`` also for one repeat
    seconds_per_item: tuple[float, ...]  # of each repeat; empty if the number is not reported
    seconds_per_character: tuple[float, ...]  # likewise
    works_s: tuple[float, ...]  # the time of the work of each repeat
    # mean time besides the work, from the begin of the job's script to the end: staging, import, loading,
    # warm-up, the end of its processes, the copying home. Without the time of a job: import, loading and
    # warm-up.
    start_s: float
    # of each repeat whose processes had not worked before; if there is none, of others with as many workers
    starts_s: tuple[float, ...]
    import_s: float = 0.0  # the import in ``start_s``, which a forked process does without
    hosts: int = 0  # on how many nodes the repeats ran; 0 if it is not known
    # standard deviation of the starts, without import, of all points of the run with this number of workers,
    # as a share of their mean, and its degrees of freedom; ``None`` for one point
    start_scatter: tuple[float, int] | None = None
    # standard deviation of the work about the mean of each setting with this number of workers, likewise
    work_scatter: tuple[float, int] | None = None

    @property
    def repeats(self) -> int:
        return len(self.works_s)

    @property
    def rate(self) -> float:
        """The mean speed to compare settings by: of items, or without items of whole runs."""
        work_s = Mean.of(self.works_s).value
        return self.items_per_s or (1 / work_s if work_s else 0.0)

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(1 / seconds for seconds in self.seconds_per_item)

    @property
    def size(self) -> int:
        """Its batch size, or its budget; 0 if neither is one of its knobs."""
        return numbers(self.params).get(size_knob(self.params), 0)

    @property
    def setting(self) -> str:
        """The knobs in words: ``batch_size 50``."""
        return format_setting(dict(sorted(self.params.items())))


@keyed
class Duration:
    """How long a text takes, from the start of the process."""

    expected_s: float  # by the mean of the repeats
    low_s: float | None  # of the 95 % interval of one run; ``None`` after one repeat
    high_s: float | None
    start_s: float  # the part that is not work
    repeats: int  # what it rests on
    degrees: int = 0  # of freedom of the interval

    @property
    def unknown(self) -> bool:
        """Whether half the interval is larger than the mean, so that the spread is not known."""
        return self.high_s is not None and unknown_spread(self.expected_s, self.high_s - self.expected_s)

    @property
    def longest_s(self) -> float:
        """The upper end, or `NO_INTERVAL` times the expected time: enough for a walltime."""
        return NO_INTERVAL * self.expected_s if self.high_s is None else self.high_s


@keyed
class CorpusVolume:
    """The text that the user wants to work through in the end."""

    name: str = ""  # the file; empty if only a number of paragraphs is known
    paragraphs: int  # ``None`` for unknown characters
    characters: int | None = None
    loads: TextLoads | None = None  # by batch size or budget, if the lengths of its items are known already


def speeds(records: Iterable[Record]) -> tuple[Speed, ...]:
    """Return the speed of every setting that succeeded and has one, the smallest first."""
    return tuple(speed for speed in speeds_of(records) if speed.items_per_s)


def speeds_of(records: Iterable[Record], run: Iterable[Record] = ()) -> tuple[Speed, ...]:
    """Return every setting that succeeded, with its speed if it has one, the smallest first.

    ``records`` have the times of their jobs (`jobkit.runs.tries.timed`). ``run``, if given, is all records
    of the run: the longest import of all counts as that of a new run, because forked tries import nothing.
    """
    records = list(records)
    every = list(run) or records
    import_s = max((record.import_s or 0.0 for record in every), default=0.0)
    well = (record for record in records if record.outcome is Outcome.OK and record.summary)
    by_workers = settings_of(every, lambda record: record.point.workers)
    alike = {workers: _starts(setting) for workers, setting in by_workers.items()}
    found: dict[int, list[Speed]] = {}
    for setting in settings_of(well).values():
        workers = setting.first.point.workers
        found.setdefault(workers, []).append(_speed(setting, import_s, alike[workers]))
    of_all, settings = _scatter([*alike.values()]), list[Speed]()
    for workers, own in found.items():
        start = _scatter([alike[workers]]) or of_all
        work = _scatter([speed.seconds_per_item or speed.works_s for speed in own])
        settings += [replace(speed, start_scatter=start, work_scatter=work) for speed in own]
    return tuple(sorted(settings, key=_size))


def _scatter(groups: Sequence[Sequence[float]]) -> tuple[float, int] | None:
    """Return the standard deviation about the mean of each group, as a share of it, and its degrees.

    Few repeats show little of it, so groups that scatter alike are taken together.
    """
    groups = [values for values in groups if values]
    means = [Mean.of(values).value for values in groups]
    degrees = sum(len(values) - 1 for values in groups)
    if not degrees:
        return None
    squares = math.fsum(
        (value / mean - 1) ** 2
        for values, mean in zip(groups, means, strict=True)
        if mean
        for value in values
    )
    return math.sqrt(squares / degrees), degrees


def _starts(setting: Setting[Record]) -> list[float]:
    """Return the starts of the records whose processes had not worked before."""
    return [start_of(record) for record in setting.well if not record.standing]


def start_of(record: Record) -> float:
    """Return what the job of a record took besides its import and its work, with a check of its own.

    The measurement of its needs counts: a shard of a corpus does without, and claims its rows instead. The
    time is never less than loading and warm-up, which are all that is known without the time of the job.
    """
    known = math.fsum(part or 0.0 for part in (record.memory_wait_s, record.load_s, record.warm_up_s))
    check_s = record.check.seconds if record.check and record.check.reused else 0.0
    if record.task_s is None or record.summary is None:
        return known
    return check_s + max(known, record.task_s - record.summary.work_s - (record.import_s or 0.0))


def _size(speed: Speed) -> tuple[object, ...]:
    return (
        speed.size,
        speed.load or 0,
        [(name, sort_key(value)) for name, value in sorted(speed.params.items())],
    )


def _speed(setting: Setting[Record], import_s: float, alike: Sequence[float]) -> Speed:
    known = [record for record in setting.well if record.value(SPEED)]
    records = known or setting.well
    summaries = [record.summary for record in records if record.summary]
    counted = summaries if known else []
    speed = setting.mean(SPEED)
    own = _starts(Setting(points=tuple(records))) or alike or [start_of(record) for record in records]
    starts = tuple(import_s + start_s for start_s in own)
    hosts = {record.host for record in records}
    return Speed(
        params=dict(sorted(setting.params.items())),
        load=max((summary.load_max for summary in summaries if summary.load_max), default=None),
        items_per_s=speed.value if speed else None,
        items_per_s_sd=speed.sd if speed else None,
        seconds_per_item=tuple(summary.work_s / summary.items for summary in counted),
        seconds_per_character=tuple(
            summary.work_s / summary.characters for summary in counted if summary.characters
        ),
        works_s=tuple(summary.work_s for summary in summaries),
        start_s=Mean.of(starts).value,
        starts_s=starts,
        import_s=import_s,
        hosts=len(hosts) if all(hosts) else 0,
    )


def fastest(settings: Sequence[Speed]) -> Speed:
    return max(settings, key=lambda setting: setting.rate)


def recommended(settings: Sequence[Speed]) -> Speed:
    """Return the smallest setting whose mean is within `SPEED_TOLERANCE` of the fastest."""
    best = fastest(settings).rate
    return next(setting for setting in settings if setting.rate >= (1 - SPEED_TOLERANCE) * best)


def ratio(first: Speed, other: Speed, probability: float = TWO_SIDED) -> Ratio | None:
    """Return how many times as fast as another a setting is; ``None`` if one of them has no speed."""
    known = first.rates and other.rates
    return Mean.of(first.rates).over(Mean.of(other.rates), probability) if known else None


def differ(first: Speed, other: Speed) -> bool | None:
    """Return whether the interval of `ratio` excludes 1; ``None`` without an interval."""
    times = ratio(first, other)
    return times.differs if times else None


def duration(
    speed: Speed,
    *,
    items: int,
    characters: int | None = None,
    forked: bool = False,
    past: Sequence[float] = (),
) -> Duration:
    """Return how long a job takes for a text at a setting, on the machine that was measured.

    The interval is about the whole of one run: its start scatters too, and more than the work of a short text
    does. Its low end is without the import, the longest of the run: a node that has imported before has the
    files in its memory.

    Without a speed the time is that of one run on the measured text. ``characters``, if known, predict the
    work better than the paragraphs do. A ``forked`` process does without the import. ``past`` are the shares
    by which earlier predictions were off: from `PAST` of them on, the interval is never shorter.
    """
    by_character = characters is not None and len(speed.seconds_per_character) == speed.repeats
    each = speed.seconds_per_character if by_character else speed.seconds_per_item or speed.works_s
    amount = characters if by_character and characters is not None else items if speed.rates else 1
    start_s = speed.start_s - (speed.import_s if forked else 0.0)
    work_s = amount * Mean.of(each).value
    base_s = speed.start_s - speed.import_s
    half, degrees = _half(speed, start_s, work_s, past)
    below, _ = _half(speed, base_s, work_s, past)
    least_s = min(speed.starts_s) - speed.import_s
    return Duration(
        expected_s=start_s + work_s,
        low_s=None if below is None else max(least_s, base_s + work_s - below),
        high_s=None if half is None else start_s + work_s + half,
        start_s=start_s,
        repeats=speed.repeats,
        degrees=degrees,
    )


def _half(speed: Speed, start_s: float, work_s: float, past: Sequence[float]) -> tuple[float | None, int]:
    """Return half the 95 % interval of one run, and its degrees of freedom; ``None`` for one repeat.

    Start and work are taken to be slow together, as on a slow node.
    """
    if speed.repeats == 1:
        return None, 0
    bases = [start - speed.import_s for start in speed.starts_s]
    starts = speed.start_scatter or _scatter([bases]) or (0.0, 1)
    works = speed.work_scatter or _scatter([speed.seconds_per_item or speed.works_s]) or (0.0, 1)
    half = math.sqrt(1 + 1 / speed.repeats) * math.fsum(  # of one run about the mean of some
        seconds * sd * quantile(TWO_SIDED, free)
        for seconds, (sd, free) in ((start_s, starts), (work_s, works))
    )
    found = half, min(starts[1], works[1])
    if len(past) < PAST:
        return found
    off = math.sqrt(math.fsum(share**2 for share in past) / len(past)) * (start_s + work_s)
    return max(found, (quantile(TWO_SIDED, len(past)) * off, len(past)))


def upper(time: Duration, part: float) -> float | None:
    """Return how long this part of such runs take at most; ``None`` after one repeat."""
    if time.high_s is None:
        return None
    half = time.high_s - time.expected_s
    return time.expected_s + half * quantile(part, time.degrees) / quantile(TWO_SIDED, time.degrees)


def total(times: Sequence[Duration]) -> Duration:
    """Return how long the parts of a corpus take; a node may slow all parts, so the intervals add up."""
    known = [
        (time.low_s, time.high_s) for time in times if time.low_s is not None and time.high_s is not None
    ]
    whole = len(known) == len(times)
    return Duration(
        expected_s=math.fsum(time.expected_s for time in times),
        low_s=math.fsum(low for low, _ in known) if whole else None,
        high_s=math.fsum(high for _, high in known) if whole else None,
        start_s=math.fsum(time.start_s for time in times),
        repeats=times[0].repeats,
        degrees=times[0].degrees,
    )


def not_sampled(
    speed: Speed, *, elsewhere: bool, shared: bool, past: Sequence[float] = ()
) -> tuple[str, ...]:
    """Return in sentences what the interval of a time does not include.

    ``elsewhere``: on a node that the scheduler chooses. ``shared``: other jobs may run on the node at the
    same time. ``past`` as in `duration`: enough of them include all that differs from day to day.
    """
    if speed.repeats == 1 or len(past) >= PAST:
        return ()
    node = f"the {speed.repeats} repeats ran on one node: another node is not in the interval"
    found = [node] if elsewhere and speed.hosts == 1 else []
    neighbours = "other jobs may share the node, and slow a run down beyond the interval"
    return (*found, *([neighbours] if shared else []))


def tested(times: Difference | None) -> str:
    """Return in words what the repeats show of a difference; empty if they show that there is one."""
    if times is None or times.differs is None:
        return "one repeat: not tested"
    return "" if times.differs else "no difference is shown"


def no_difference(first: str, other: str, times: Ratio | None, run: str, repeats: int) -> tuple[str, ...]:
    """Return that no difference in speed is shown or tested, and the sweep that may show one; none of a log.

    ``times``: how many times as fast as the ``first`` the ``other`` is.
    """
    line = f"No difference in speed is shown between {first} and {other}."
    if times and times.differs is None:
        line = f"{other}: {times.mean:.2f} times as fast as {first}; {tested(times)}."
    command = f"jobkit sweep {shell_quote(f'{run}/{SPEC_FILE}')} --set repeats={2 * repeats + 1}"
    return (line, NoWrap(command, "  repeat with: ")) if run else (line,)
