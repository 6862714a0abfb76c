"""What the pictures of ``jobkit collect --plot`` show, as data: points, lines, bounds, the knee.

Reads the records behind the tables, group by group as the tables are: points of two groups are
never in one panel. Knows nothing of how it is drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean

from jobkit.core.knobs import BATCH_SIZE, CPU, sort_key
from jobkit.core.records import Outcome
from jobkit.core.student import deviation, half_width
from jobkit.core.units import format_setting
from jobkit.fit.speed import SPEED_TOLERANCE
from jobkit.fit.tune_steps import FINAL
from jobkit.outcome.trials import Trial
from jobkit.report import energy
from jobkit.report.estimates import group_memory, guess_of_log, log_peaks
from jobkit.report.plot.memory_data import MemoryPanel, memory_of_log, memory_of_records, together
from jobkit.report.rows import LOG, Row
from jobkit.report.sizes import Size
from jobkit.report.tables import Collected

OF_SEARCH = "the table of the search has it by phase"
"""Why the speeds of a search are in no picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSeries:
    """Speed over the first knob, all other knobs the same.

    Attributes
    ----------
    name
        The other knobs in words; empty if none varies by itself.
    sizes
        Values of the knob, ascending.
    items_per_s, half_widths
        Paragraphs a second: the mean over the repeats, and half of its 95 % interval; ``None`` for the
        latter of one repeat.
    repeats
        How many there were of each.
    """

    name: str
    sizes: tuple[int, ...]
    items_per_s: tuple[float, ...]
    half_widths: tuple[float | None, ...]
    repeats: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPanel:
    """Speed against the batch size.

    Attributes
    ----------
    knob
        The name of the knob.
    series
        One for each setting of the other knobs; empty if no speed is known.
    fastest_items_per_s
        The highest mean.
    knee
        The smallest value whose mean is within `jobkit.fit.speed.SPEED_TOLERANCE` of that, and its mean.
    why
        Why there are no series.
    """

    knob: str
    series: tuple[SpeedSeries, ...]
    fastest_items_per_s: float = 0.0
    knee: tuple[int, float] | None = None
    why: str = "not recorded"


@dataclass(frozen=True, slots=True)
class EnergySpot:
    """A setting in words, its paragraphs a second, joules for 1,000 paragraphs, and whether none beats it."""

    setting: str
    items_per_s: float
    joules: float
    front: bool


@dataclass(frozen=True, slots=True)
class EnergyPanel:
    """Energy against speed: settings in ascending speed; ``net`` if their energy is less idle power."""

    spots: tuple[EnergySpot, ...]
    net: bool


@dataclass(frozen=True, slots=True)
class GroupPlot:
    """The panels of a group, a row of ``Collected.groups``; ``energy`` is ``None`` if there is none."""

    group: int
    memory: MemoryPanel
    speed: SpeedPanel
    energy: EnergyPanel | None = None


def group_plots(collected: Collected, gpu_memory_bytes: int | None = None) -> list[GroupPlot]:
    """Return what to draw of each group, in the order of the tables.

    Parameters
    ----------
    collected
        What was read.
    gpu_memory_bytes
        The GPU to draw the capacity of; by default the one measured on.
    """
    return [_group(collected, group, gpu_memory_bytes) for group in range(len(collected.by_group))]


def _group(collected: Collected, group: int, gpu_memory_bytes: int | None) -> GroupPlot:
    rows = [row for row in collected.rows if row.group == group]
    swept = [row for row in rows if not row.trial]
    if rows[0].workload == LOG:
        up = "RAM" if rows[0].device == CPU else "GPU memory, total"
        memory = memory_of_log(guess_of_log(rows, gpu_memory_bytes), log_peaks(rows), up)
    else:
        memory = _memory(collected, group, rows, gpu_memory_bytes)
    sizes = [size for size in collected.by_size if size.first.group == group]
    if collected.search(group):  # its answer is no knee, and a part of the text no size
        finals = [size for size in sizes if size.first.phase == FINAL]
        return GroupPlot(
            group, memory, SpeedPanel(knob=BATCH_SIZE, series=(), why=OF_SEARCH), _energy(finals)
        )
    return GroupPlot(group, memory, _speed(swept, collected.knobs), _energy(sizes))


def _energy(sizes: Sequence[Size]) -> EnergyPanel | None:
    name = energy.per_1000([size.mean for size in sizes])
    spots = [
        EnergySpot(format_setting(size.params), speed, joules, size.front is not False)
        for size in sizes
        if (speed := size.mean["items_per_s"]) is not None and (joules := size.mean[name]) is not None
    ]
    ordered = tuple(sorted(spots, key=attrgetter("items_per_s")))
    return EnergyPanel(ordered, net=name in energy.NET) if spots else None


def _memory(
    collected: Collected, group: int, rows: Sequence[Row], gpu_memory_bytes: int | None
) -> MemoryPanel:
    tries = [row for row in rows if row.trial]
    tested, trials = [row.record for row in tries if row.record], _trials(collected, tries)
    found = group_memory(collected, group, gpu_memory_bytes)
    if isinstance(found, str):
        return MemoryPanel(across="load", up="memory", marks=(), notes=(found,))
    panels = {
        words: memory_of_records(memory, tested, trials, gpu_memory_bytes) for words, memory in found.items()
    }
    return together(panels) if len(panels) > 1 else next(iter(panels.values()))


def _trials(collected: Collected, tries: Iterable[Row]) -> list[Trial]:
    """Return what was predicted for the points that tried it."""
    indices = {(row.folder, row.index) for row in tries}
    return [
        trial
        for folder, trials in sorted(collected.trials.items())
        for trial in sorted(trials, key=attrgetter("index"))
        if (folder, trial.index) in indices
    ]


def _speed(rows: Iterable[Row], knobs: Sequence[str]) -> SpeedPanel:
    """Return the speed over the first knob of numbers that is there, of the points that succeeded."""
    well = [row for row in rows if row.outcome is Outcome.OK and row.items_per_s is not None]
    used = [knob for knob in knobs if any(knob in row.params for row in well)]
    knob = next((knob for knob in used if any(knob in row.numbers for row in well)), None)
    if knob is None:
        return SpeedPanel(knob=BATCH_SIZE, series=())
    rest = [name for name in used if name != knob]
    well = [row for row in well if knob in row.params]
    settings = {tuple(sorted(row.params.items())) for row in well}
    ambiguous = len(settings) > len({row.params[knob] for row in well})
    by_setting: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(well, key=lambda row: [sort_key(row.params.get(name)) for name in (knob, *rest)]):
        name = format_setting(
            {other: row.params[other] for other in rest if ambiguous and other in row.params}
        )
        by_setting[name][row.numbers[knob]].append(row.items_per_s or 0.0)
    series = tuple(_series(name, repeats) for name, repeats in by_setting.items())
    fastest = max(max(line.items_per_s) for line in series)
    return SpeedPanel(knob=knob, series=series, fastest_items_per_s=fastest, knee=_knee(series, fastest))


def _series(name: str, repeats: Mapping[int, Sequence[float]]) -> SpeedSeries:
    return SpeedSeries(
        name=name,
        sizes=tuple(repeats),
        items_per_s=tuple(fmean(speeds) for speeds in repeats.values()),
        half_widths=tuple(half_width(deviation(speeds), len(speeds)) for speeds in repeats.values()),
        repeats=tuple(len(speeds) for speeds in repeats.values()),
    )


def _knee(series: Sequence[SpeedSeries], fastest: float) -> tuple[int, float]:
    """Return the smallest size within reach of the fastest, and its mean."""
    return min(
        (size, mean)
        for line in series
        for size, mean in zip(line.sizes, line.items_per_s, strict=True)
        if mean >= (1 - SPEED_TOLERANCE) * fastest
    )
