"""What the pictures of ``jobkit collect --plot`` show, as data: points, lines, bounds, the knee, a title.

Reads the records behind the tables, group by group as the tables are: points of two groups are
never in one panel. Knows nothing of how it is drawn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter, itemgetter

from jobkit.answers.memory import NEED, Memory, measured_bytes, too_small
from jobkit.answers.memory_line import Estimate
from jobkit.answers.objective import SearchAnswer
from jobkit.answers.setting import Mean, other_knobs
from jobkit.answers.speed import SPEED_TOLERANCE, tested
from jobkit.core.figures import GPU_MEMORY, MIN, RAM, SPEED, WORK, Figure
from jobkit.core.frozen import frozen, keyed
from jobkit.core.knobs import BATCH_SIZE, CPU, SIZES, Value
from jobkit.core.records import Outcome, Record
from jobkit.core.units import format_bytes_gib, format_figure, format_setting
from jobkit.report.predictions import group_memory, guess_of_file, peaks_of_file
from jobkit.report.recommend.advice import Advice
from jobkit.report.rows import Row
from jobkit.report.tables import Collected, Size
from jobkit.runs.trials import Trial
from jobkit.worker.workloads.base import SHIPPED, load_unit

Spot = tuple[float, float]
"""A load (in a file without records a batch size) and bytes."""

MEASURED, ALLOCATED, PREDICTED = "measured", "allocated_peak", "predicted"
VERIFIED, EXCEEDED = "verified", "exceeded"
"""The kinds of marks."""


@frozen
class Marks:
    """Points of one kind, with their name in the legend."""

    kind: str
    name: str
    spots: tuple[Spot, ...]


@frozen
class Curve:
    """Bytes at any load, with a name for the legend."""

    name: str
    at: Callable[[float], float]


@frozen
class Limit:
    """Bytes that must not be exceeded, with a name for the legend."""

    name: str
    size_bytes: float


@keyed
class MemoryPanel:
    """Memory against load."""

    across: str  # `across`, `up`: what the axes show; ``up`` is in bytes here
    up: str
    marks: tuple[Marks, ...]  # what was measured, predicted and verified; kinds without a spot are left out
    # `line`, `bound`: the fitted line and its one-sided 95 % bound; ``None`` if there is none
    line: Curve | None = None
    bound: Curve | None = None
    limit: Limit | None = None  # what must not be exceeded; ``None`` if unknown
    reach: float | None = None  # the load at which the line meets the limit; ``None`` if one is missing
    notes: tuple[str, ...] = ()  # why there is no line, or what to beware of: sentences without a full stop

    def spots(self, *kinds: str) -> list[Spot]:
        """Return the spots of some kinds, of all where none is named."""
        return [spot for mark in self.marks if not kinds or mark.kind in kinds for spot in mark.spots]


def together(panels: Mapping[str, MemoryPanel]) -> MemoryPanel:
    """Return one panel of what was measured with several values of the other knobs, without a line.

    Each value has a line of its own, which ``jobkit recommend`` prints.
    """
    first = next(iter(panels.values()))
    marks = (
        replace(mark, name=f"{mark.name}, {words}")
        for words, panel in panels.items()
        for mark in panel.marks
        if mark.kind == MEASURED
    )
    note = "no line: another knob than batch_size varies; jobkit recommend fits a line for each of its values"
    return MemoryPanel(across=first.across, up=first.up, marks=tuple(marks), limit=first.limit, notes=(note,))


def memory_of_records(
    memory: Memory,
    tries: Sequence[Record],
    trials: Sequence[Trial] = (),
    limit_bytes: int | None = None,
) -> MemoryPanel:
    """Return the panel of a group of points of run folders.

    ``memory``: what the points show, as `jobkit.answers.memory.memory_by_setting` returns it.
    ``tries``: of points that tried a prediction. The line is without them: it is what they are held to.
    ``trials``: what was predicted for the tries before they ran.
    ``limit_bytes``: of the GPU to draw, the context included; by default what the tries had to stay
        within, else the GPU measured on.
    """
    workload = next((one.point.workload for one in memory.records), "")
    line, notes = memory.line, tuple[str, ...]()
    ram, limit = memory.on_cpu, None  # unknown on a CPU without trials
    if trials and (limit_bytes is None or ram):
        size_bytes = min(trial.capacity_bytes for trial in trials)
        limit = Limit(f"limit {format_bytes_gib(size_bytes)}", size_bytes)
    elif memory.limit_bytes is not None and not ram:
        room = memory.allocator_bytes(memory.limit_bytes)
        less = "GPU less context" if memory.overhead_bytes else "GPU"
        limit = Limit(f"{less}, {format_bytes_gib(room)}", room)
    marks = [*_measured(memory), *_tried(memory.records, tries, limit)]
    if isinstance(line, str):
        notes = (f"no line: {line}",)
    elif trials:
        marks.append(Marks(PREDICTED, "predicted", tuple((one.load, one.expected_bytes) for one in trials)))
    elif limit and not memory.largest.reason:  # the largest safe batch, and the weightiest doubt
        largest, loads = memory.largest, memory.loads
        notes = largest.doubts[:1] if largest.safe_batch else (too_small(largest.knob),)
        load = loads.load(largest.safe_batch) if loads else largest.safe_load
        whole = " (whole text)" if largest.saturated else ""
        name = f"predicted, {SIZES[largest.knob]} {largest.safe_batch:,}{whole}"
        marks += [Marks(PREDICTED, name, ((load, line.at(load)),))] if largest.safe_batch else []
    fitted = None if isinstance(line, str) else line
    slack = "fitted line" if memory.slack == 1 else f"allocated line x {memory.slack:.2f} (slack)"
    return MemoryPanel(
        across=f"load ({load_unit(workload)})" if workload in SHIPPED else "load",
        up="RAM" if ram else "allocator memory",
        marks=tuple(mark for mark in marks if mark.spots),
        line=Curve(slack, fitted.at) if fitted else None,
        bound=Curve("95 % bound, one-sided", fitted.upper) if fitted else None,
        limit=limit,
        reach=fitted.largest(limit.size_bytes) if fitted and limit else None,
        notes=notes,
    )


def _measured(memory: Memory) -> list[Marks]:
    well = [record for record in memory.records if record.outcome is Outcome.OK]
    if memory.kind == NEED:
        needs = [need for record in well for need in record.needs]
        return [
            Marks(ALLOCATED, "allocated peak", tuple((need.load, need.allocated_bytes) for need in needs)),
            Marks(MEASURED, "need", tuple((need.load, need.passed_bytes) for need in needs)),
        ]

    def peaks(name: str) -> tuple[Spot, ...]:
        return _spots((_load(record), getattr(record.memory, name)) for record in well)

    if memory.on_cpu:
        return [Marks(MEASURED, "RAM peak", peaks("ram_peak_bytes"))]
    return [
        Marks(ALLOCATED, "allocated peak", peaks("allocated_peak_bytes")),
        Marks(MEASURED, "reserved peak", peaks("reserved_peak_bytes")),
    ]


def _tried(measured: Sequence[Record], tries: Sequence[Record], limit: Limit | None) -> list[Marks]:
    """Return the results of the predictions, and the other points that ran out of memory."""
    well = [record for record in tries if record.outcome is Outcome.OK]
    failed = [
        record for record in (*measured, *tries) if record.outcome in {Outcome.GPU_OOM, Outcome.RAM_OOM}
    ]
    had = limit.size_bytes if limit else None
    verified = _spots((_load(record), measured_bytes(record)) for record in well)
    exceeded = _spots((_load(record), record.point.cap_bytes or had) for record in failed)
    return [
        Marks(VERIFIED, f"verified{_sizes(well)}", verified),
        Marks(EXCEEDED, f"out of memory{_sizes(failed)}", exceeded),
    ]


def _load(record: Record) -> int | None:
    return record.failed_load or (record.summary.load_max if record.summary else None)


def _spots(pairs: Iterable[tuple[float | None, float | None]]) -> tuple[Spot, ...]:
    return tuple((load, size_bytes) for load, size_bytes in pairs if load and size_bytes)


def _sizes(records: Sequence[Record]) -> str:
    for knob, word in SIZES.items():
        if known := {size for record in records if (size := record.point.numbers.get(knob))}:
            return f", {word} {', '.join(f'{size:,}' for size in sorted(known))}"
    return ""


def memory_of_file(guess: Estimate, peaks: Sequence[Spot], up: str) -> MemoryPanel:
    """Return the panel of a file without records: a straight line in the batch size, without an error bar.

    ``guess``: the line, and where it meets the memory of the GPU.
    ``peaks``: batch size and total peak of each run of the log.
    ``up``: which memory it is.
    """
    capacity, line, largest = guess.capacity_bytes, guess.line, guess.largest
    marks = [Marks(MEASURED, "peak in the log", tuple(peaks))] if peaks else []
    notes = [line.no_error_bar or "no error bar" if line else f"no line: {guess.reason}"]
    if line and largest is not None:
        at_limit = ((largest, line.at(largest)),)
        marks.append(Marks(PREDICTED, f"meets the limit near batch {largest:,}", at_limit))
        notes += [warning for warning in guess.warnings if warning != line.no_error_bar][:1]
    return MemoryPanel(
        across="batch size (the log has no load)",
        up=up,
        marks=tuple(marks),
        line=Curve("straight line", line.at) if line else None,
        limit=Limit(f"GPU {format_bytes_gib(capacity)}", capacity) if capacity else None,
        reach=None if largest is None else float(largest),
        notes=tuple(notes),
    )


@keyed
class KnobPanel:
    """A figure against the batch size."""

    figure: Figure = SPEED  # what is shown
    knob: str  # the name of the knob
    # by the other knobs in words, empty if none varies by itself: values of the knob, ascending, each with
    # the mean over its repeats, as a person sees the figure; empty if the figure is not known
    series: Mapping[str, Sequence[tuple[float, Mean]]] = field(default_factory=dict)
    # if no knob has numbers: the settings in words, by their places across
    names: Mapping[float, str] = field(default_factory=dict)
    # of the speed, the value that `jobkit recommend` takes, and its mean; without an answer the smallest
    # within `jobkit.answers.speed.SPEED_TOLERANCE` of the fastest. ``None`` if there are `names`
    knee: tuple[float, float] | None = None
    taken: bool = False  # whether `knee` is that of `jobkit recommend`

    @property
    def means(self) -> list[Mean]:
        """All means."""
        return [mean for line in self.series.values() for _, mean in line]

    @property
    def best(self) -> float:
        """The best mean of a panel that has one."""
        best = min if self.figure.direction == MIN else max
        return best(mean.value for mean in self.means)

    @property
    def sizes(self) -> list[float]:
        """All values of the knob, ascending."""
        return sorted({size for line in self.series.values() for size, _ in line})


@frozen
class GroupPlot:
    """What the pictures of a group show."""

    memory: MemoryPanel
    speed: KnobPanel
    sizes: Sequence[Size]  # the settings whose energy is drawn
    others: tuple[KnobPanel, ...] = ()  # of the figures that have a picture of their own
    search: SearchAnswer | None = None  # of the settings of a search


def group_plots(
    collected: Collected, limit_bytes: int | None = None, advice: Advice | None = None
) -> list[GroupPlot]:
    """Return what to draw of each group, in the order of the tables.

    ``collected``: what was read.
    ``limit_bytes``: the GPU to draw the capacity of; by default the one measured on.
    ``advice``: what the run recommends, if it does.
    """
    taken = advice.recommended.params if advice else None
    return [_group(collected, group, limit_bytes, taken) for group in range(len(collected.by_group))]


def _group(
    collected: Collected, group: int, limit_bytes: int | None, taken: Mapping[str, Value] | None
) -> GroupPlot:
    rows = collected.rows_of(group)
    if rows[0].file_format:
        peak = RAM if rows[0].point.device == CPU else GPU_MEMORY
        memory = memory_of_file(guess_of_file(rows, limit_bytes), peaks_of_file(rows), peak.label)
    else:
        memory = _memory(collected, group, rows, limit_bytes)
    sizes = collected.sizes_of(group)
    if found := collected.sources.searches.get(rows[0].folder):
        # it has no knee, and a part of the text is no size
        proof = [size for size in sizes if found.rests_on(size.first.point.phase)]
        first = next(row.group for row in collected.rows if row.folder == rows[0].folder)
        search = found if group == first else None  # it shows the settings of all groups
        return GroupPlot(memory, KnobPanel(knob=BATCH_SIZE), proof, search=search)
    speed = _over_knob(sizes, collected.knobs, SPEED, taken)
    others = [] if speed.series else [WORK]
    others += [] if memory.spots() else [GPU_MEMORY, RAM]
    panels = [_over_knob(sizes, collected.knobs, figure) for figure in (*collected.own, *others)]
    return GroupPlot(memory, speed, sizes, tuple(panel for panel in panels if panel.series))


def _memory(collected: Collected, group: int, rows: Sequence[Row], limit_bytes: int | None) -> MemoryPanel:
    tries = [row for row in rows if row.point.trial]
    tested = [row.record for row in tries if row.record]
    indices = {(row.folder, row.point.index) for row in tries}
    tried = [
        trial
        for folder, trials in sorted(collected.sources.trials.items())
        for trial in sorted(trials, key=attrgetter("index"))
        if (folder, trial.index) in indices
    ]
    found = group_memory(collected, group, limit_bytes)
    if isinstance(found, str):
        return MemoryPanel(across="load", up="memory", marks=(), notes=(found,))
    panels = {words: memory_of_records(memory, tested, tried, limit_bytes) for words, memory in found.items()}
    return together(panels) if len(panels) > 1 else next(iter(panels.values()))


def _over_knob(
    settings: Sequence[Size],
    knobs: Sequence[str],
    figure: Figure,
    taken: Mapping[str, Value] | None = None,
) -> KnobPanel:
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
        line = [(place, _mean(one, figure)) for place, one in zip(names, known, strict=True)]
        return KnobPanel(figure=figure, knob="setting", series={"": line}, names=names)
    numbered = ((_number(one.params.get(knob)), one) for one in known)
    over = sorted(((number, one) for number, one in numbered if number is not None), key=itemgetter(0))
    one_line = len(dict(over)) == len(over)  # the other knobs move with it
    lines: dict[str, list[tuple[float, Mean]]] = defaultdict(list)
    for number, one in over:
        record = None if one_line else one.first.record
        lines[other_knobs(record, knob) if record else ""].append((number, _mean(one, figure)))
    panel = KnobPanel(
        figure=figure, knob=knob, series=lines if len(lines) > 1 else {"": next(iter(lines.values()))}
    )
    if figure is not SPEED:
        return panel
    if own := next(((size, _mean(one, figure).value) for size, one in over if one.params == taken), None):
        return replace(panel, knee=own, taken=True)
    means = [(size, mean.value) for line in lines.values() for size, mean in line]
    return replace(panel, knee=min(pair for pair in means if pair[1] >= (1 - SPEED_TOLERANCE) * panel.best))


def _number(value: object) -> float | None:
    """Return the value of a knob if it is a number; a spec keeps one with a decimal point as a word."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        number = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _mean(setting: Size, figure: Figure) -> Mean:
    return Mean.of(value / figure.scale for value in setting.values(figure))


NEAR = f"within {100 * SPEED_TOLERANCE:.0f} % of the fastest"


def memory_finding(panel: MemoryPanel) -> str:
    """Return what a panel of memory shows."""
    marks = {mark.kind: mark for mark in panel.marks}
    room = f" in {format_bytes_gib(panel.limit.size_bytes, 1)}" if panel.limit else ""
    verified, predicted = marks.get(VERIFIED), marks.get(PREDICTED)
    if verified and ", " in verified.name:
        return f"Memory: {verified.name.partition(', ')[2]} fits{room}, predicted and verified"
    if predicted and ", " in predicted.name:
        beyond = max(load for load, _ in predicted.spots) / max(load for load, _ in panel.spots(MEASURED))
        so = f", at {beyond:.1f} times the largest load measured: not tested" if beyond > 1 else ""
        return f"Memory: {predicted.name.partition(', ')[2]} fits{room}, by the prediction{so}"
    if exceeded := marks.get(EXCEEDED):
        return f"Memory: {exceeded.name}"
    measured = panel.spots(MEASURED)
    if not measured:
        return "Memory: not measured"
    return f"Memory: {panel.up} of at most {format_bytes_gib(max(size for _, size in measured))}"


def knob_finding(panel: KnobPanel) -> str:
    """Return what a panel of a figure shows: of the speed its knee, else the best mean, or the range."""
    knob, values = panel.knob.replace("_", " "), [mean.value for mean in panel.means]
    if panel.knee is None:
        if not panel.figure.direction:
            low, high = format_figure(min(values)), format_figure(max(values))
            return f"{panel.figure.title}: {low}{f' to {high}' if high != low else ''}"
        which = "lowest" if panel.figure.direction == MIN else "highest"
        return f"{panel.figure.title}: {format_figure(panel.best)} is the {which} mean"
    size, mean = panel.knee
    if len(panel.sizes) == 1:
        best = max(panel.series, key=lambda name: max(mean.value for _, mean in panel.series[name]))
        which = f"{best}, {knob} {size:,}" if best else f"{knob} {size:,}"
        return f"Speed: {format_figure(mean)} paragraphs/s at {which}"
    line = next(iter(panel.series.values()))
    (smallest, first), own = line[0], dict(line).get(size)
    shown = (
        NEAR
        if mean >= (1 - SPEED_TOLERANCE) * panel.best
        else f"of at most {format_figure(panel.best)} paragraphs/s"
    )
    if len(panel.series) == 1 and own and size != smallest:
        gain = f"{mean / first.value:.2g} times as fast as {smallest:,}"
        shown = "; ".join(filter(None, (gain, tested(own.over(first)))))
    lead = "take" if panel.taken else "no knee up to" if size == max(panel.sizes) else "the knee is at"
    return f"Speed: {lead} {knob} {size:,}, {format_figure(mean)} paragraphs/s, {shown}"
