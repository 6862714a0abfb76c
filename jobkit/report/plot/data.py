"""What the pictures of ``jobkit collect --plot`` show, as data: points, lines, bounds, the knee, a title.

Reads the records behind the tables, group by group as the tables are: points of two groups are
never in one panel. Knows nothing of how it is drawn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter

from jobkit.answers.search_answer import SearchPanel
from jobkit.answers.setting import Mean, other_knobs
from jobkit.answers.speed import SPEED_TOLERANCE
from jobkit.core.figures import FIGURES, GPU_MEMORY, MIN, RAM, SPEED, WORK, Figure
from jobkit.core.knobs import BATCH_SIZE, CPU
from jobkit.core.units import format_bytes_gib, format_setting
from jobkit.report import energy
from jobkit.report.estimates import group_memory, guess_of_file, peaks_of_file
from jobkit.report.plot import memory_data
from jobkit.report.plot.memory_data import MemoryPanel, memory_of_file, memory_of_records, together
from jobkit.report.rows import Row
from jobkit.report.tables import Collected, Size
from jobkit.runs.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSeries:
    """A figure over the first knob, all other knobs the same."""

    name: str  # the other knobs in words; empty if none varies by itself
    sizes: tuple[float, ...]  # values of the knob, ascending
    means: tuple[Mean, ...]  # over the repeats of each, as a person sees the figure


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobPanel:
    """A figure against the batch size."""

    figure: Figure = SPEED  # what is shown
    knob: str  # the name of the knob
    # one for each setting of the other knobs; empty if the figure is not known
    series: tuple[KnobSeries, ...] = ()
    # if no knob has numbers: the settings in words, by their places across
    names: Mapping[float, str] = field(default_factory=dict)
    # of the speed, the smallest value whose mean is within `jobkit.answers.speed.SPEED_TOLERANCE` of
    # the fastest, and its mean; ``None`` if there are `names`
    knee: tuple[float, float] | None = None

    @property
    def means(self) -> list[Mean]:
        """All means."""
        return [mean for line in self.series for mean in line.means]

    @property
    def best(self) -> float:
        """The best mean of a panel that has one."""
        best = min if self.figure.direction == MIN else max
        return best(mean.value for mean in self.means)

    @property
    def sizes(self) -> list[float]:
        """All values of the knob, ascending."""
        return sorted({size for line in self.series for size in line.sizes})


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
    """The panels of a group; ``energy`` is ``None`` if there is none.

    ``others`` are those of the figures that have a picture of their own; ``search`` is of the settings of a
    search.
    """

    memory: MemoryPanel
    speed: KnobPanel
    energy: EnergyPanel | None = None
    others: tuple[KnobPanel, ...] = ()
    search: SearchPanel | None = None


def group_plots(collected: Collected, gpu_memory_bytes: int | None = None) -> list[GroupPlot]:
    """Return what to draw of each group, in the order of the tables.

    ``collected``: what was read.
    ``gpu_memory_bytes``: the GPU to draw the capacity of; by default the one measured on.
    """
    return [_group(collected, group, gpu_memory_bytes) for group in range(len(collected.by_group))]


def _group(collected: Collected, group: int, gpu_memory_bytes: int | None) -> GroupPlot:
    rows = [row for row in collected.rows if row.group == group]
    if rows[0].file_format:
        peak = RAM if rows[0].device == CPU else GPU_MEMORY
        memory = memory_of_file(guess_of_file(rows, gpu_memory_bytes), peaks_of_file(rows), peak.label)
    else:
        memory = _memory(collected, group, rows, gpu_memory_bytes)
    sizes = [size for size in collected.by_size if size.first.group == group]
    if found := collected.searches.get(rows[0].folder):  # it has no knee, and a part of the text is no size
        proof = [size for size in sizes if found.rests_on(size.first.phase)]
        first = next(row.group for row in collected.rows if row.folder == rows[0].folder)
        search = found.panel if group == first else None  # it shows the settings of all groups
        return GroupPlot(memory, KnobPanel(knob=BATCH_SIZE), _energy(proof), search=search)
    speed = _over_knob(sizes, collected.knobs, SPEED)
    others = [figure for figure in FIGURES.values() if figure.drawn]
    others += [] if speed.series else [WORK]
    others += [] if memory.spots() else [GPU_MEMORY, RAM]
    panels = [_over_knob(sizes, collected.knobs, figure) for figure in (*collected.own, *others)]
    drawn = tuple(panel for panel in panels if panel.series)
    return GroupPlot(memory, speed, _energy(sizes), drawn)


def _energy(sizes: Sequence[Size]) -> EnergyPanel | None:
    figure = energy.per_1000(sizes)
    spots = [
        EnergySpot(format_setting(size.params), speed.value, joules.value, size.front is not False)
        for size in sizes
        if (speed := size.mean(SPEED)) and (joules := size.mean(figure))
    ]
    ordered = tuple(sorted(spots, key=attrgetter("items_per_s")))
    return EnergyPanel(ordered, net=figure in energy.NET) if spots else None


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


def _over_knob(settings: Sequence[Size], knobs: Sequence[str], figure: Figure) -> KnobPanel:
    """Return a figure over the first knob whose numbers differ, of the settings that succeeded."""
    known = [setting for setting in settings if setting.mean(figure)]
    values = {knob: [_number(one.params[knob]) for one in known if knob in one.params] for knob in knobs}
    axes = {knob: numbers for knob, numbers in values.items() if numbers and None not in numbers}
    several = (knob for knob, numbers in axes.items() if len({*numbers}) > 1)
    knob = next(several, next(iter(axes), None))
    if not known:
        return KnobPanel(figure=figure, knob=knob or BATCH_SIZE)
    if knob is None:
        names = {float(place): format_setting(one.params) for place, one in enumerate(known)}
        series = _series("", [*zip(names, known, strict=True)], figure)
        return KnobPanel(figure=figure, knob="setting", series=(series,), names=names)
    numbered = ((_number(one.params.get(knob)), one) for one in known)
    over = sorted(((number, one) for number, one in numbered if number is not None), key=itemgetter(0))
    one_line = len(dict(over)) == len(over)  # the other knobs move with it
    lines: dict[str, list[tuple[float, Size]]] = defaultdict(list)
    for number, one in over:
        record = None if one_line else one.first.record
        lines[other_knobs(record, knob) if record else ""].append((number, one))
    named = ((name if len(lines) > 1 else "", line) for name, line in lines.items())
    panel = KnobPanel(figure=figure, knob=knob, series=tuple(_series(*one, figure) for one in named))
    return replace(panel, knee=_knee(panel)) if figure is SPEED else panel


def _number(value: object) -> float | None:
    """Return the value of a knob if it is a number; a spec keeps one with a decimal point as a word."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        number = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _series(name: str, settings: Sequence[tuple[float, Size]], figure: Figure) -> KnobSeries:
    means = (Mean.of(value / figure.scale for value in one.values(figure)) for _, one in settings)
    return KnobSeries(name=name, sizes=tuple(size for size, _ in settings), means=tuple(means))


def _knee(panel: KnobPanel) -> tuple[float, float]:
    """Return the smallest size within reach of the fastest, and its mean."""
    return min(
        (size, mean.value)
        for line in panel.series
        for size, mean in zip(line.sizes, line.means, strict=True)
        if mean.value >= (1 - SPEED_TOLERANCE) * panel.best
    )


NEAR = f"within {100 * SPEED_TOLERANCE:.0f} % of the fastest"


THOUSAND = 1000


def memory_finding(panel: MemoryPanel) -> str:
    """Return what a panel of memory shows."""
    marks = {mark.kind: mark for mark in panel.marks}
    room = f" in {format_bytes_gib(panel.limit.size_bytes, 1)}" if panel.limit else ""
    verified, predicted = marks.get(memory_data.VERIFIED), marks.get(memory_data.PREDICTED)
    if verified and ", " in verified.name:
        return f"Memory: {verified.name.partition(', ')[2]} fits{room}, predicted and verified"
    if predicted and ", " in predicted.name:
        return f"Memory: {predicted.name.partition(', ')[2]} fits{room}, by the prediction"
    if exceeded := marks.get(memory_data.EXCEEDED):
        return f"Memory: {exceeded.name}"
    measured = panel.spots(memory_data.MEASURED)
    if not measured:
        return "Memory: not measured"
    return f"Memory: {panel.up} of at most {format_bytes_gib(max(size for _, size in measured))}"


def knob_finding(panel: KnobPanel) -> str:
    """Return what a panel of a figure shows: of the speed its knee, else the best mean, or the range."""
    knob, values = panel.knob.replace("_", " "), [mean.value for mean in panel.means]
    if panel.knee is None:
        if not panel.figure.direction:
            low, high = f"{min(values):,.4g}", f"{max(values):,.4g}"
            return f"{panel.figure.title}: {low}{f' to {high}' if high != low else ''}"
        which = "lowest" if panel.figure.direction == MIN else "highest"
        return f"{panel.figure.title}: {panel.best:,.4g} is the {which} mean"
    size, mean = panel.knee
    if len(panel.sizes) == 1:
        best = max(panel.series, key=lambda line: max(mean.value for mean in line.means)).name
        which = f"{best}, {knob} {size:,}" if best else f"{knob} {size:,}"
        return f"Speed: {mean:,.4g} paragraphs/s at {which}"
    if size == max(panel.sizes):
        return f"Speed: no knee up to {knob} {size:,}, the largest measured and the fastest"
    slowest = panel.series[0].means[0].value
    gain = f"{mean / slowest:.2g} times as fast as {panel.series[0].sizes[0]:,}"
    return (
        f"Speed: the knee is at {knob} {size:,}, {NEAR if len(panel.series) > 1 or slowest == mean else gain}"
    )


def search_finding(panel: SearchPanel) -> str:
    """Return what a panel of a search shows."""
    answer = panel.answer
    if answer is None:
        fastest = panel.rows[0]
        return f"Speed: {fastest.name} is the fastest so far, {rate_words(fastest.last.value)}"
    speed = rate_words(answer.last.value)
    if panel.base is None or panel.base is answer:
        return f"Speed: the answer has {speed}"
    return f"Speed: the answer has {speed}, the {panel.base.name} {rate_words(panel.base.last.value)}"


def rate_words(items_per_s: float) -> str:
    """Return a speed in few digits."""
    return (
        f"{items_per_s:,.0f} paragraphs/s" if items_per_s >= THOUSAND else f"{items_per_s:,.4g} paragraphs/s"
    )


def energy_finding(panel: EnergyPanel) -> str:
    """Return what a panel of energy shows."""
    cheapest = min(panel.spots, key=lambda spot: spot.joules)
    return f"Energy: least at {cheapest.setting}, {cheapest.joules:,.4g} J per 1,000 paragraphs"
