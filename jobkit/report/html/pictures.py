"""The pictures of the page: does my batch fit, where is the knee, what does it cost in energy, what ran when.

The data are those of ``jobkit collect --plot``. Each picture has a title that says its finding, a legend of
its lines, and a table of what it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

from jobkit.answers.search_answer import SearchPanel
from jobkit.answers.setting import Mean
from jobkit.answers.speed import SPEED_TOLERANCE
from jobkit.core import files
from jobkit.core.blocks import Block, Column
from jobkit.core.errors import JobkitError
from jobkit.core.figures import LOAD, SPEED
from jobkit.core.layout import JOB_SCRIPT, SPEC_FILE
from jobkit.core.records import Outcome
from jobkit.core.student import unknown_spread
from jobkit.core.terminal import NoWrap
from jobkit.core.units import GIB
from jobkit.report.html.drawing import (
    FONT_PX,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Drawing,
    Legend,
    Spot,
    across_axis,
    element,
    frame,
    ink,
    rule,
    shape_at,
    text,
    ticks,
)
from jobkit.report.plot import memory_data
from jobkit.report.plot.data import (
    NEAR,
    EnergyPanel,
    GroupPlot,
    KnobPanel,
    KnobSeries,
    energy_finding,
    figure_finding,
    memory_finding,
    search_finding,
    speed_finding,
)
from jobkit.report.plot.memory_data import Marks, MemoryPanel
from jobkit.report.rows import Row
from jobkit.spec.sweep_spec import Environment
from jobkit.spec.yaml_files import as_yaml, read_document

LABELLED_PX = 32
"""The height of a row with a label above its marks."""


@dataclass(slots=True, kw_only=True)
class RowDrawing:
    """A picture with an axis from 0 across."""

    across: str  # the name of the axis
    right: float  # the largest value on it
    row_px: float = LABELLED_PX  # the height of a row
    legend: Legend = field(default_factory=Legend)  # what its lines and marks are
    _rows: int = 0
    _levels: list[tuple[float, str]] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)

    @property
    def _bottom(self) -> float:
        return TOP + self.row_px * self._rows

    def x(self, value: float) -> float:
        """Return where a value stands across."""
        return LEFT + (WIDTH - LEFT - RIGHT) * value / (1.04 * self.right or 1.0)

    def row(self, label: str = "") -> None:
        """Begin the next row, with a label above what it shows."""
        self._rows += 1
        if label:
            top = self._bottom - self.row_px + FONT_PX
            self._parts.append(text((LEFT + 6.0, top), label, "start", ""))

    @property
    def _middle(self) -> float:
        """Where the marks of the row stand that was begun last."""
        return self._bottom - min(self.row_px / 2, 9.0)

    def bar(self, low: float, high: float, *, css: str = "", width: float = 1.2, title: str = "") -> None:
        """Draw an interval in the row; it is no shorter than a pixel."""
        y, left = self._middle, self.x(max(0.0, low))
        ends = {"x1": left, "y1": y, "x2": max(self.x(high), left + 1), "y2": y}
        line = element("line", "", **ends, stroke_width=width, **ink(css))
        inside = element("title", title) if title else ""
        self._parts.append(line.replace("</line>", f"{inside}</line>"))

    def mark(self, value: float, shape: str, *, css: str = "", title: str = "") -> None:
        """Draw a mark in the row."""
        self._parts.append(shape_at(shape, (self.x(value), self._middle), css, title))

    def level(self, value: float, name: str, *, css: str) -> None:
        """Draw a line over all rows at a value."""
        self.legend.line(name, css=css, dash="2 4")
        self._levels.append((value, css))

    def svg(self, title: str) -> str:
        """Return the picture; a screen reader says the title."""
        bottom = self._bottom
        numbers = ticks(1.04 * self.right)
        axis = across_axis([(value, self.x(value)) for value in numbers], bottom, self.across)
        up = rule((LEFT, TOP), (LEFT, bottom))
        levels = [_level(self.x(at), bottom, css) for at, css in self._levels]
        legend, end = self.legend.draw(bottom + 44)
        return frame(title, end, [up, *axis, *levels, *self._parts, *legend])


def _level(x: float, bottom: float, css: str) -> str:
    return element("line", x1=x, y1=TOP, x2=x, y2=bottom, stroke_dasharray="2 4", **ink(css))


LOOKS = {
    memory_data.MEASURED: ("dot", ""),
    memory_data.PREDICTED: ("diamond", "blue"),
    memory_data.VERIFIED: ("square", "orange"),
    memory_data.EXCEEDED: ("cross", "limit"),
}
"""The shape and the colour of the kinds of marks; torch's allocated peak is not drawn."""
SHAPES = ("dot", "square", "diamond", "cross")
PHASES = (("square", "grey"), ("dot", ""), ("diamond", "blue"))
"""The shape and the colour of the marks of a search, by phase, of which there are three at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture and its data."""

    title: str  # the finding
    svg: str  # the picture, as markup that is safe to insert
    caption: str  # what it shows, in sentences
    data: Block  # the same as a table


def pictures(group: GroupPlot, rows: Sequence[Row]) -> list[Picture]:
    """Return the pictures of a group.

    ``group``: its panels.
    ``rows``: the points of the group, for the batch sizes of the loads.
    """
    knob = group.speed.knob
    sizes = {load: row.numbers[knob] for row in rows if (load := row.value(LOAD)) and knob in row.numbers}
    found = [knob_picture(group.speed)] if group.speed.series else []
    found += [search_picture(group.search)] if group.search and group.search.rows else []
    if group.memory.spots():
        names = {load: f"{_words(knob)} {size:,}" for load, size in sizes.items()}
        found.append(memory_picture(group.memory, names))
    found += [energy_picture(group.energy)] if group.energy else []
    return [*found, *map(knob_picture, group.others)]


def _words(knob: str) -> str:
    return memory_data.WORDS.get(knob, knob.replace("_", " "))


def memory_picture(panel: MemoryPanel, names: Mapping[float, str]) -> Picture:
    """Return memory against load: limit, measured, predicted and verified, each with its name.

    ``panel``: what to draw.
    ``names``: what the load of a point is called: ``batch 50``.
    """
    title = memory_finding(panel)
    notes = ". ".join(note[:1].upper() + note[1:] for note in panel.notes)
    caption = (
        f"{panel.up[:1].upper()}{panel.up[1:]} against {panel.across}. {notes}{'.' if notes else ''}".strip()
    )
    rows = [list(row) for marks in panel.marks for row in _memory_rows(marks, names)]
    rows += [["limit", "", f"{panel.limit.size_bytes / GIB:.3f}", panel.limit.name]] if panel.limit else []
    heads = ("what", "load", "GiB", "setting")
    svg = _draw_memory(panel, names).svg(title)
    return Picture(title=title, svg=svg, caption=caption, data=_data(heads, rows))


def _data(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
    columns = [Column(head, cells) for head, cells in zip(heads, zip(*rows, strict=True), strict=bool(rows))]
    return Block(title="The data of this picture", columns=tuple(columns), folded=True)


def _draw_memory(panel: MemoryPanel, names: Mapping[float, str]) -> Drawing:
    right = max([load for load, _ in panel.spots()] + [panel.reach or 0.0])
    top = max([size for _, size in panel.spots()] + [panel.limit.size_bytes if panel.limit else 0.0]) / GIB
    drawing = Drawing(across=panel.across, up=f"{panel.up}, GiB", right=right, top=top)
    for curve, dash in ((panel.line, "none"), (panel.bound, "5 3")):
        if curve:
            spots = [(load, curve.at(load) / GIB) for load in _within(panel, right, top)]
            drawing.line(spots, curve.name, css="grey", dash=dash)
    if panel.limit:
        drawing.level(panel.limit.size_bytes / GIB, panel.limit.name, css="limit")
    for marks in sorted(panel.marks, key=lambda mark: mark.kind == memory_data.MEASURED):
        if marks.kind in LOOKS:
            _draw_marks(drawing, marks, names)
    return drawing


def _within(panel: MemoryPanel, right: float, top: float) -> list[float]:
    """Return loads from 0 to the right at which line and bound are within the picture."""
    loads = [1.06 * right * step / 60 for step in range(61)]
    return [
        load
        for load in loads
        if all(0 <= curve.at(load) / GIB <= 1.1 * top for curve in (panel.line, panel.bound) if curve)
    ]


def _draw_marks(drawing: Drawing, marks: Marks, names: Mapping[float, str]) -> None:
    shape, css = LOOKS[marks.kind]
    spots = {
        (round(drawing.x(load)), round(drawing.y(size / GIB))): (load, size / GIB)
        for load, size in marks.spots
    }
    last = max(spots.values())
    for load, size in sorted(spots.values(), reverse=True):
        own = names.get(load, "")
        title = f"{marks.name}: {', '.join(filter(None, (own, f'load {load:,.0f}', f'{size:.2f} GiB')))}"
        first = (load, size) == last
        label = own
        if first:
            label = f"{marks.name}{f', {own}' if own and marks.kind == memory_data.MEASURED else ''}"
        drawing.mark((load, size), shape, css=css, title=title, label=label, first=first)


def _memory_rows(marks: Marks, names: Mapping[float, str]) -> Iterator[Sequence[str]]:
    """Yield a row for each load, with the largest value there."""
    largest: dict[float, float] = {}
    for load, size in marks.spots:
        largest[load] = max(size, largest.get(load, 0.0))
    what = marks.name.partition(", ")[0]
    for load, size in sorted(largest.items()):
        yield what, f"{load:,.0f}", f"{size / GIB:.3f}", names.get(load, marks.name.partition(", ")[2])


def knob_picture(panel: KnobPanel) -> Picture:
    """Return a figure against the first knob, with the intervals of the means; of the speed with its knee."""
    knob, figure, speed = panel.knob.replace("_", " "), panel.figure, panel.figure is SPEED
    title = speed_finding(panel) if speed else figure_finding(panel)
    single = all(mean.n == 1 for line in panel.series for mean in line.means)
    bars = "Each setting ran once: there is no interval." if single else "Bars: 95 % interval of the mean."
    knee = f" The knee is the smallest {knob} {NEAR}." if speed else ""
    caption = f"{figure.label} against {knob}. {bars}{knee}"
    rows = [list(row) for line in panel.series for row in _knob_rows(line)]
    heads = ("setting", knob, _unit(panel), "± (95 %)", "repeats")
    svg = _draw_knob(panel).svg(title, panel.sizes)
    return Picture(title=title, svg=svg, caption=caption, data=_data(heads, rows))


def _unit(panel: KnobPanel) -> str:
    return panel.figure.unit if panel.figure is SPEED else panel.figure.title


def _draw_knob(panel: KnobPanel) -> Drawing:
    means = [mean for line in panel.series for mean in line.means]
    most = max(mean.value for mean in means)
    drawing = Drawing(
        across=panel.knob.replace("_", " "),
        up=_unit(panel),
        right=float(panel.sizes[-1]),
        top=min(max(mean.value + (mean.half_width or 0.0) for mean in means), 2 * most),
    )
    if panel.knee:
        size, mean = panel.knee
        drawing.level((1 - SPEED_TOLERANCE) * panel.best, NEAR, css="grey")
        drawing.mark((size, mean), "ring", css="blue")
        drawing.legend.mark(f"knee: {size:,}, {mean:,.4g}/s", "ring", css="blue")
    for line, shape in zip(panel.series, cycle(SHAPES), strict=False):
        _draw_series(drawing, line, shape, _unit(panel))
    return drawing


def _draw_series(drawing: Drawing, line: KnobSeries, shape: str, unit: str) -> None:
    spots: list[Spot] = [(float(size), mean.value) for size, mean in zip(line.sizes, line.means, strict=True)]
    drawing.line(spots, "means" if len(spots) > 1 else "mean", css="grey", width=1.2)
    for spot, mean in zip(spots, line.means, strict=True):
        half = mean.half_width
        if half is not None:
            drawing.bar(spot[0], spot[1] - half, min(spot[1] + half, 1.1 * drawing.top), "95 % interval")
        spread = f" ± {_half(mean)}" if half is not None else ""
        title = f"{spot[0]:,.0f}: {mean.value:,.4g}{spread} {unit}, n={mean.n}"
        drawing.mark(spot, shape, title=f"{line.name}, {title}" if line.name else title)
    if line.name:
        drawing.legend.mark(line.name, shape)


def _knob_rows(line: KnobSeries) -> Iterator[Sequence[str]]:
    for size, mean in zip(line.sizes, line.means, strict=True):
        yield line.name, f"{size:,}", f"{mean.value:,.4g}", _half(mean), f"{mean.n}"


def _half(mean: Mean) -> str:
    """Return half an interval, unless it is larger than the mean."""
    half = mean.half_width
    if half is None:
        return ""
    return "? (spread unknown)" if unknown_spread(mean.value, half) else f"{half:,.3g}"


def search_picture(panel: SearchPanel) -> Picture:
    """Return the settings of a search by speed, with its phases, the plain loop and the intervals."""
    title = search_finding(panel)
    ends = [mean.value + (mean.half_width or 0.0) for row in panel.rows for mean in row.means.values()]
    drawing = RowDrawing(across="paragraphs/s", right=max(ends))
    if base := panel.base:
        drawing.level(base.last.value, f"{base.name}: {base.last.value:,.4g}/s", css="limit")
    for row in panel.rows:
        drawing.row(row.name)
        for phase, (shape, css) in zip(panel.phases, PHASES, strict=False):
            if mean := row.means.get(phase):
                drawing.legend.mark(phase, shape, css=css)
                if phase == panel.phases[-1]:
                    _draw_interval(drawing, mean, css)
                drawing.mark(mean.value, shape, css=css, title=f"{phase}: {mean.words(SPEED.unit)}")
        if row is panel.answer:
            drawing.mark(row.last.value, "ring", css="blue")
            drawing.legend.mark("the answer", "ring", css="blue")
    caption = "Settings of the search, the fastest first. A mark is the mean of a phase."
    return Picture(title=title, svg=drawing.svg(title), caption=caption, data=Block())


def _draw_interval(drawing: RowDrawing, mean: Mean, css: str) -> None:
    if mean.half_width is not None:
        low, high = mean.value - mean.half_width, mean.value + mean.half_width
        drawing.bar(low, high, css=css, width=2.0)
        drawing.legend.line("95 % interval", css=css, width=2.0)


def energy_picture(panel: EnergyPanel) -> Picture:
    """Return energy against speed, and which settings no other beats in both."""
    best = [spot for spot in panel.spots if spot.front]
    net = "net energy" if panel.net else "energy"
    title = energy_finding(panel)
    drawing = Drawing(
        across="paragraphs/s",
        up=f"{net}, J per 1,000 paragraphs",
        right=max(spot.items_per_s for spot in panel.spots),
        top=max(spot.joules for spot in panel.spots),
    )
    drawing.line([(spot.items_per_s, spot.joules) for spot in best], "no other beats these", css="grey")
    for spot in panel.spots:
        words = f"{spot.setting}: {spot.items_per_s:,.4g} paragraphs/s, {spot.joules:,.4g} J"
        drawing.mark(
            (spot.items_per_s, spot.joules),
            "dot" if spot.front else "diamond",
            title=words,
            label=spot.setting,
        )
    caption = "Filled marks, joined by a line: no other setting is both faster and takes less energy."
    rows = [
        [spot.setting, f"{spot.items_per_s:,.4g}", f"{spot.joules:,.4g}", "yes" if spot.front else "no"]
        for spot in panel.spots
    ]
    heads = ("setting", "paragraphs/s", "J per 1,000 paragraphs", "no other beats it")
    return Picture(title=title, svg=drawing.svg(title), caption=caption, data=_data(heads, rows))


MOST_CHARACTERS = 40_000
"""Of a spec or script in the page; the rest is in the run folder."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks of which the page shows no more than a title until the reader asks for them."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureGroup:
    """A group of points: its pictures, its scaling table, and the pictures below the table."""

    block: Block
    pictures: Sequence[Picture]
    below: Sequence[Picture] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRun:
    """A run on the page, in the order in which it shows it."""

    name: str  # of the run
    outcomes: frozenset[Outcome | None]  # of its points
    titles: Sequence[str]  # what was run
    caveats: Sequence[str] = ()  # the stand-in models that it measured
    tiles: Sequence[Block] = ()  # the answer
    groups: Sequence[PictureGroup] = ()  # its points, by what sets them apart
    missing: Sequence[Block] = ()  # the points without figures
    tables: Sequence[Block] = ()  # what else there is to look up
    folded: Sequence[Folded]  # the rest, of which the page shows the titles: a title, and the blocks below it


def folded(block: Block) -> Folded:
    """Return a block of which the page shows the title."""
    return Folded(block.title, [replace(block, title="")])


def source(run: Path, facts: Block) -> Folded:
    """Return where the figures are from: some facts, and the spec and the script of a run folder."""
    return Folded("Where the figures are from", [facts, *_files(run)])


def _files(run: Path) -> Iterator[Block]:
    for name in (SPEC_FILE, JOB_SCRIPT):
        try:
            text, data = files.read_text(run / name), read_document(run / SPEC_FILE).data
            environment = Environment.model_validate(data.get("environment", {}))
        except (OSError, ValueError, JobkitError):
            continue
        if environment.setup or environment.variables:
            changed = {**data, "environment": {**data["environment"], **environment.shown(SPEC_FILE)}}
            hidden = environment.hidden_in(text, SPEC_FILE, data.get("template"))
            text = as_yaml(changed) if name == SPEC_FILE else hidden
        code = [NoWrap(line) for line in text[:MOST_CHARACTERS].split("\n")]
        cut = f"Cut here: the whole file is {name} in the run folder." if len(text) > MOST_CHARACTERS else ""
        yield Block(title=name, after=(*code, cut), folded=True)
