"""``jobkit collect --plot``: the picture of what was collected, as PNG, SVG or PDF.

matplotlib is an extra (``pip install 'jobkit[plot]'``) and is imported when something is drawn.
The same records give the same bytes: no date, no random ids, no settings of the user.

Markers and line styles carry the meaning, so that a grey print shows the same; colour only helps.
A panel has names next to its marks in place of a legend: none covers a mark or another name.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from operator import itemgetter
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from jobkit.answers.speed import SPEED_TOLERANCE
from jobkit.core.errors import JobkitError
from jobkit.core.extras import missing_extra
from jobkit.core.figures import SPEED
from jobkit.core.files import write_atomically
from jobkit.core.terminal import printable
from jobkit.core.units import GIB, format_list, format_short
from jobkit.report.estimates import heading
from jobkit.report.plot import memory_data
from jobkit.report.plot.data import (
    NEAR,
    EnergyPanel,
    GroupPlot,
    KnobPanel,
    KnobSeries,
    energy_finding,
    figure_finding,
    group_plots,
    memory_finding,
    speed_finding,
)
from jobkit.report.plot.memory_data import Curve, Marks, MemoryPanel
from jobkit.report.tables import Collected

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure

Spot = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in pixels."""

WAYS = ((1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))
"""Where a name may stand, seen from its mark; the best first."""
UP = tuple(sorted(WAYS, key=lambda way: -way[1]))
DOWN = tuple(sorted(WAYS, key=itemgetter(1)))
NEAR_PT, FAR_PT = (7.0, 11.0), (18.0, 30.0, 44.0)
"""How far from its mark; beyond the near a thin line joins them."""
STEP_PX = 3.0
MARK_PX, EDGE_PX = 5.0, 4.0
"""Half the width of a mark, and the room between a name and the edge of the axes."""
CURVE, MARK, NAME, OUTSIDE = 3.0, 500.0, 1000.0, 10_000.0
"""What it costs to cover a step of a curve, a mark and another name, and to leave the axes."""
FARTHER, WORSE = 4.0, 2.0
"""What the next distance costs, and the next way."""


@dataclass(frozen=True, slots=True)
class Label:
    """A name and the spot that it belongs to, in the data's units; ``ways`` as `WAYS`."""

    text: str
    spot: Spot
    color: str = "0"
    ways: Sequence[tuple[int, int]] = WAYS


def place(axes: Axes, labels: Iterable[Label]) -> None:
    """Write the names where they cover least; one for which there is no room is left out."""
    curves, marks = _drawn(axes)
    names: list[Box] = [_box(text.get_window_extent()) for text in axes.texts]
    for label in labels:
        x, y = axes.transData.transform(label.spot)
        anchor = float(x), float(y)
        sample = axes.text(*label.spot, label.text)
        extent = sample.get_window_extent()
        sample.remove()
        pixel = axes.figure.dpi / 72
        cost, box, distance = min(
            (
                _cost(box, axes, curves, marks, names) + _price(number, anchor, box, names) + WORSE * rank,
                box,
                distance,
            )
            for number, distance in enumerate((*NEAR_PT, *FAR_PT))
            for rank, box in enumerate(
                _boxes(anchor, (extent.width, extent.height), distance * pixel, label, _box(axes.bbox))
            )
        )
        if cost < MARK:
            _write(axes, label, box, anchor, pixel, joined=distance in FAR_PT)
            names.append(box)
            marks += _steps([anchor, _middle(box)]) if distance in FAR_PT else []


def _price(number: int, anchor: Spot, box: Box, names: Sequence[Box]) -> float:
    """Return what a place costs for being far: more if the line to it crosses a name."""
    if number < len(NEAR_PT):
        return FARTHER * number
    crossed = any(_holds(name, spot, 1) for spot in _steps([anchor, _middle(box)]) for name in names)
    return FARTHER * number + NAME * crossed


def _middle(box: Box) -> Spot:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _boxes(anchor: Spot, size: Spot, away: float, label: Label, frame: Box) -> Iterator[Box]:
    """Yield the places for a name at a distance; above and below its mark it is moved into the frame."""
    width, height = size
    for across, up in label.ways:
        reach = away / (2**0.5 if across and up else 1)
        x = anchor[0] + across * (reach + width / 2) - width / 2
        y = anchor[1] + up * (reach + height / 2) - height / 2
        if not across:
            x = max(frame[0] + EDGE_PX, min(x, frame[2] - width - EDGE_PX))
        yield x, y, x + width, y + height


def _cost(box: Box, axes: Axes, curves: Sequence[Spot], marks: Sequence[Spot], names: Sequence[Box]) -> float:
    left, bottom, right, top = box
    frame = axes.bbox
    outside = bool(left < frame.x0 or right > frame.x1 or bottom < frame.y0 or top > frame.y1)
    covered = sum(_holds(box, spot, 1) for spot in curves)
    hidden = sum(_holds(box, spot, MARK_PX) for spot in marks)
    over: int = sum(left < b[2] and b[0] < right and bottom < b[3] and b[1] < top for b in names)
    return OUTSIDE * outside + CURVE * covered + MARK * hidden + NAME * over


def _holds(box: Box, spot: Spot, margin: float) -> bool:
    return box[0] - margin <= spot[0] <= box[2] + margin and box[1] - margin <= spot[1] <= box[3] + margin


def _write(axes: Axes, label: Label, box: Box, anchor: Spot, pixel: float, *, joined: bool) -> None:
    middle = _middle(box)
    arrow: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "color": "0.5", "shrinkA": 0, "shrinkB": 3}
    note = axes.annotate(
        label.text,
        label.spot,
        xytext=((middle[0] - anchor[0]) / pixel, (middle[1] - anchor[1]) / pixel),
        textcoords="offset points",
        ha="center",
        va="center",
        color=label.color,
        arrowprops=arrow if joined else None,
        annotation_clip=False,
        zorder=4,
    )
    note.set_in_layout(False)  # the axes stay as they were measured


def _drawn(axes: Axes) -> tuple[list[Spot], list[Spot]]:
    """Return the pixels of the curves, in small steps, and of the marks."""
    curves: list[Spot] = []
    marks: list[Spot] = []
    for line in axes.get_lines():
        spots = [tuple(spot) for spot in line.get_transform().transform(line.get_xydata())]
        if line.get_marker() not in {"None", None, ""}:
            marks += spots
        if line.get_linestyle() != "None":
            curves += _steps(spots)
    for bars in axes.collections:
        for path in bars.get_paths():
            curves += _steps([tuple(spot) for spot in axes.transData.transform(path.vertices)])
    return curves, marks


def _steps(spots: Sequence[Spot]) -> Iterator[Spot]:
    for (x0, y0), (x1, y1) in pairwise(spots):
        count = min(400, 1 + int(max(abs(x1 - x0), abs(y1 - y0)) / STEP_PX))
        for step in range(count + 1):
            yield x0 + (x1 - x0) * step / count, y0 + (y1 - y0) * step / count


def _box(extent: Any) -> Box:  # noqa: ANN401 - matplotlib's
    return extent.x0, extent.y0, extent.x1, extent.y1


SMALL = 7.0
"""Points: no text is smaller."""
FAR = 6.0
"""If the limit or the prediction is this many times beyond the measurements, it is left out and named."""
MANY_TIMES = 20.0
"""Batch sizes that span more than this are drawn logarithmic."""
STEPS = 200
MOST_TICKS = 6
MOST_SERIES = 5
"""With a name at the end of each."""
AHEAD = (memory_data.PREDICTED,)
"""The kinds of marks that are not measured."""
BLUE, ORANGE, GREY, BLACK = "#1f4e9c", "#c2410c", "0.6", "0"

MARKS: dict[str, dict[str, Any]] = {
    memory_data.MEASURED: {"marker": "o", "markersize": 4, "color": BLACK},
    memory_data.PREDICTED: {"marker": "D", "markersize": 8.5, "markerfacecolor": "none", "color": BLUE},
    memory_data.VERIFIED: {"marker": "*", "markersize": 6.5, "color": ORANGE},
    memory_data.EXCEEDED: {"marker": "x", "markersize": 5, "color": ORANGE, "markeredgewidth": 1.5},
}
KNEE = MARKS[memory_data.PREDICTED] | {"marker": "o", "markersize": 9, "linestyle": "none"}
FRONT: dict[str, Any] = {"marker": "o", "markersize": 4, "color": BLACK, "linestyle": "-", "linewidth": 0.9}
BEATEN: dict[str, Any] = {**FRONT, "markerfacecolor": "none", "linestyle": "none"}
MOST_NAMES = 4
"""Of settings in a legend."""
SERIES = ("o-", "s--", "^-.", "D:", "v-", "P--")


def draw_memory(axes: Axes, panel: MemoryPanel) -> list[Label]:
    """Draw memory in GiB against load, of a file without records against batch size; return the names."""
    axes.set_ylabel(f"{panel.up} (GiB)")
    axes.set_xlabel(panel.across)
    beyond = _scale_memory(axes, panel)
    if panel.line:
        _curves(axes, panel)
    labels = _limit(axes, panel, beyond)
    shown = [marks for marks in panel.marks if marks.kind in MARKS and not (beyond and marks.kind in AHEAD)]
    for marks in shown:
        loads, sizes = [load for load, _ in marks.spots], [size / GIB for _, size in marks.spots]
        axes.plot(loads, sizes, linestyle="none", label=marks.name, zorder=3, **MARKS[marks.kind])
    labels += _names(shown)
    return [*labels, *_names_of_curves(axes, panel)]


def _names(shown: Sequence[Marks]) -> list[Label]:
    """Return the name of each kind of marks, next to the largest; the measured last, for they have room."""
    alone = [marks.kind for marks in shown].count(memory_data.MEASURED) == 1
    tested = [marks for marks in shown if marks.kind in {memory_data.PREDICTED, memory_data.VERIFIED}]
    top = max((max(marks.spots)[1] for marks in tested), default=0.0)
    labels = []
    for marks in sorted(shown, key=lambda marks: marks.kind == memory_data.MEASURED):
        load, size = max(marks.spots)
        words = f"measured: {marks.name}" if alone and marks.kind == memory_data.MEASURED else marks.name
        ways = (UP if size == top else DOWN) if len(tested) > 1 and marks in tested else WAYS
        labels.append(Label(words, (load, size / GIB), MARKS[marks.kind]["color"], ways))
    return labels


def _limit(axes: Axes, panel: MemoryPanel, beyond: Sequence[str]) -> list[Label]:
    """Draw the limit; if it is beyond the axes, write its name, and that of the prediction, into a corner."""
    if beyond:
        words = "\n".join(["\N{UPWARDS ARROW} beyond the axes:", *beyond])
        axes.text(0.02, 0.98, words, transform=axes.transAxes, va="top").set_in_layout(False)
        return []
    if panel.limit is None:
        return []
    height = panel.limit.size_bytes / GIB
    axes.axhline(height, color=BLACK, linestyle=":", linewidth=1.5, label=panel.limit.name)
    left, right = axes.get_xlim()
    name = panel.limit.name if panel.limit.name.startswith("limit") else f"limit: {panel.limit.name}"
    return [Label(name, (left + 0.02 * (right - left), height), BLACK, ((1, -1), (1, 1)))]


def _names_of_curves(axes: Axes, panel: MemoryPanel) -> list[Label]:
    left, right = axes.get_xlim()
    shares = ((panel.line, 0.62, "0.4"), (panel.bound, 0.4, BLACK))
    spots = [(curve, left + share * (right - left), color) for curve, share, color in shares if curve]
    return [
        Label(curve.name, (load, curve.at(load) / GIB), color)
        for curve, load, color in spots
        if curve.at(load) / GIB < axes.get_ylim()[1]
    ]


def _scale_memory(axes: Axes, panel: MemoryPanel) -> list[str]:
    """Set both axes from 0 to hold everything; return what is so far off that it is left out."""
    kinds = [kind for kind in MARKS if kind not in AHEAD]
    measured = panel.spots(*kinds) or panel.spots(memory_data.ALLOCATED)
    if not measured:
        axes.set(xticks=[], yticks=[])
        return []
    right, top = (max(values) for values in zip(*measured, strict=True))
    ahead = [marks for marks in panel.marks if marks.kind in AHEAD]
    loads = [load for marks in ahead for load, _ in marks.spots] + [panel.reach or 0.0]
    heights = [size for marks in ahead for _, size in marks.spots]
    heights.append(panel.limit.size_bytes if panel.limit else 0.0)
    far = max(loads) > FAR * right or max(heights) > FAR * top
    limit = [f"limit: {panel.limit.name.removeprefix('limit ')}"] if panel.limit else []
    beyond = [*limit, *(marks.name for marks in ahead)] if far else []
    if not far:
        right, top = max(right, *loads), max(top, *heights)
    axes.set(xlim=(0, 1.1 * right), ylim=(0, (1.3 if far else 1.12) * top / GIB))
    _ticks(axes.xaxis, logarithmic=False)
    _ticks(axes.yaxis, logarithmic=False)
    return beyond


def _curves(axes: Axes, panel: MemoryPanel) -> None:
    left, right = axes.get_xlim()
    loads = [left + (right - left) * step / STEPS for step in range(STEPS + 1)]
    _curve(axes, panel.line, loads, color=GREY, linewidth=2.2, linestyle="-")
    _curve(axes, panel.bound, loads, color=BLACK, linewidth=0.9, linestyle=(0, (4, 2)))


def _curve(axes: Axes, curve: Curve | None, loads: Sequence[float], **style: Any) -> None:  # noqa: ANN401 - matplotlib's
    if curve is not None:
        axes.plot(loads, [curve.at(load) / GIB for load in loads], label=curve.name, **style)


def _ticks(axis: Axis, *, logarithmic: bool) -> None:
    """Set few ticks with plain words: 200k and not 2 x 10^5."""
    from matplotlib import ticker

    if logarithmic:
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=MOST_TICKS + 2))
        axis.set_minor_locator(ticker.LogLocator(subs=range(2, 10), numticks=100))
    else:
        axis.set_major_locator(ticker.MaxNLocator(MOST_TICKS, steps=[1, 2, 2.5, 5, 10]))
    axis.set_minor_formatter(ticker.NullFormatter())
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_short(value)))


def draw_knob(axes: Axes, panel: KnobPanel) -> list[Label]:
    """Draw a figure against the batch size, with intervals; of the speed mark the knee; return the names."""
    axes.set_xlabel(panel.knob.replace("_", " "))
    axes.set_ylabel("paragraphs per second" if panel.figure is SPEED else panel.figure.title)
    if not panel.series:
        axes.set(xticks=[], yticks=[])
        return []
    for style, series in zip(cycle(SERIES), panel.series, strict=False):
        _series(axes, series, style)
    sizes = panel.sizes
    labels = _knee(axes, panel, *panel.knee) if panel.knee and len(sizes) > 1 else []
    _scale_sizes(axes, sizes)
    axes.margins(y=0.12)
    bars = sorted({mean.n for series in panel.series for mean in series.means})
    axes.set_xlabel(f"{axes.get_xlabel()} ({repeats_in_words(bars)})")
    return labels + _names_of_series(axes, panel)


def _knee(axes: Axes, panel: KnobPanel, size: int, mean: float) -> list[Label]:
    """Draw the knee, and the speed that is near the fastest."""
    near = (1 - SPEED_TOLERANCE) * panel.best
    axes.axhline(near, color=GREY, linestyle=":", linewidth=1.2, label=NEAR)
    name = f"knee: {size:,}" if size < panel.sizes[-1] else f"fastest: {size:,}"
    axes.plot([size], [mean], label=name, **KNEE)
    return [Label(name, (size, mean), BLUE), Label(NEAR, (panel.sizes[0], near), "0.4")]


def _names_of_series(axes: Axes, panel: KnobPanel) -> list[Label]:
    """Return the names next to the ends of a few series; of many draw a legend."""
    if len(panel.series) > MOST_SERIES:
        axes.legend(loc="lower right", ncols=2)
        return []
    return [
        Label(series.name, (series.sizes[-1], series.means[-1].value))
        for series in panel.series
        if series.name
    ]


def draw_energy(axes: Axes, panel: EnergyPanel) -> list[Label]:
    """Draw joules for 1,000 paragraphs against paragraphs a second; join and name the settings none beats."""
    axes.set_xlabel("paragraphs per second")
    axes.set_ylabel(f"{'net ' if panel.net else ''}J per 1,000 paragraphs")
    best, others = ([spot for spot in panel.spots if spot.front is front] for front in (True, False))
    names = f"none beats {format_list([spot.setting for spot in best], MOST_NAMES)}"
    for label, spots, style in ((names, best, FRONT), ("other settings", others, BEATEN)):
        speeds, joules = [spot.items_per_s for spot in spots], [spot.joules for spot in spots]
        if spots:
            axes.plot(speeds, joules, label=label, **style)
    right, top = max(spot.items_per_s for spot in panel.spots), max(spot.joules for spot in panel.spots)
    axes.set(xlim=(0, 1.08 * right), ylim=(0, 1.15 * top))
    _ticks(axes.xaxis, logarithmic=False)
    _ticks(axes.yaxis, logarithmic=False)
    return [Label(spot.setting, (spot.items_per_s, spot.joules)) for spot in (*best, *others)]


def _series(axes: Axes, series: KnobSeries, style: str) -> None:
    marker, line = style[0], style[1:]
    repeats, halves = ([mean.n for mean in series.means], [mean.half_width for mean in series.means])
    label = ": ".join(part for part in (series.name, repeats_in_words(repeats)) if part)
    axes.errorbar(
        series.sizes,
        [mean.value for mean in series.means],
        yerr=[half or 0.0 for half in halves] if any(half is not None for half in halves) else None,
        label=label,
        color=BLACK,
        marker=marker,
        linestyle=line,
        markersize=4,
        linewidth=0.9,
        capsize=3,
    )


def repeats_in_words(repeats: Sequence[int]) -> str:
    """Return what an error bar is, and of how many."""
    least, most = min(repeats), max(repeats)
    if most == 1:
        return "n = 1, no error bar"
    return f"mean ± 95 %, n = {least}" + (f" to {most}" if least < most else "")


def _scale_sizes(axes: Axes, sizes: Sequence[int]) -> None:
    logarithmic = sizes[-1] > MANY_TIMES * sizes[0] > 0
    if logarithmic:
        axes.set_xscale("log")
    _ticks(axes.xaxis, logarithmic=logarithmic)
    if not logarithmic and len(sizes) <= MOST_TICKS and _apart(sizes):
        axes.set_xticks(sizes)


def _apart(sizes: Sequence[int]) -> bool:
    """Return whether labels at these sizes would not run into one another."""
    room = (sizes[-1] - sizes[0]) / (2 * MOST_TICKS)
    return all(after - before >= room for before, after in pairwise(sizes))


SUFFIXES = (".png", ".svg", ".pdf")
MOST_GROUPS = 4
"""More rows of panels fit no page."""

COLUMN_IN, PAGE_IN, PANEL_IN = 3.4, 7.0, 5.5
"""Widths in inches: of a column of a paper, of its page, and of a panel on a screen."""
EM_WIDTH = 0.56
"""The mean width of a character, in sizes of its type."""
SIDE_IN = 0.7
"""Width left of an axis, for its numbers and its name."""


@dataclass(frozen=True, slots=True)
class Look:
    """How large a picture is: its type in points, dots per inch, and the height of a panel in inches."""

    font_pt: float
    dpi: int
    panel_in: float


LOOKS = {"screen": Look(10.0, 120, 4.4), "paper": Look(SMALL, 300, 2.5)}
"""By the word of ``--plot-size``; the default first."""
SCREEN, PAPER = LOOKS

STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "legend.frameon": False,
    "text.parse_math": False,  # a text may be called a$b$c
    "pdf.fonttype": 42,  # TrueType: journals refuse matplotlib's own Type 3
    "svg.fonttype": "path",  # outlines: an SVG shows the same without the font
    "svg.hashsalt": "jobkit",
}
SIZED = (
    "font.size",
    "axes.labelsize",
    "xtick.labelsize",
    "ytick.labelsize",
    "legend.fontsize",
    "figure.titlesize",
)


def style(size: str = SCREEN) -> dict[str, Any]:
    """Return matplotlib's settings for a picture of a size."""
    look = LOOKS[size]
    sizes: dict[str, Any] = dict.fromkeys(SIZED, look.font_pt)
    sizes |= {
        "axes.labelsize": look.font_pt,
        "axes.titlesize": look.font_pt + 0.5,
        "axes.titleweight": "bold",
    }
    return {**STYLE, **sizes, "savefig.dpi": look.dpi}


METADATA: Mapping[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": "jobkit"},
    ".pdf": {"CreationDate": None, "Creator": "jobkit", "Producer": None},
}
"""No date, and no version of matplotlib."""


def check_plot(path: Path) -> None:
    """Make sure that a picture can be drawn there, before time is spent on reading."""
    if path.suffix.lower() not in SUFFIXES:
        raise JobkitError(
            f"--plot {path}: the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}",
            hint="the ending chooses the format: svg and pdf for papers, png for slides",
        )
    if lack := missing_extra(f"--plot {path}", "plot"):
        raise lack


def plot(
    collected: Collected, path: Path, *, gpu_memory_bytes: int | None = None, size: str = SCREEN
) -> None:
    """Draw what was collected into a file, whole or not at all.

    ``collected``: what was read.
    ``path``: ends in one of `SUFFIXES`.
    ``gpu_memory_bytes``: the GPU to draw the capacity of; by default the one measured on.
    ``size``: A key of `LOOKS`.
    """
    check_plot(path)
    from matplotlib import style as styles

    suffix = path.suffix.lower()
    drawn = io.BytesIO()
    with styles.context(["default", style(size)]), warnings.catch_warnings():
        # A text may have a name in any script: what the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph")
        picture = figure(collected, gpu_memory_bytes=gpu_memory_bytes, size=size)
        picture.savefig(drawn, format=suffix[1:], metadata=METADATA[suffix])
    try:
        write_atomically(path, drawn.getvalue())
    except OSError as error:
        hint = "name a file in a folder that exists and is yours"
        raise JobkitError(f"--plot {path}: {error.strerror}", hint=hint) from error


def figure(collected: Collected, *, gpu_memory_bytes: int | None = None, size: str = SCREEN) -> Figure:
    """Return the figure: a row of panels a group; for one group on paper a column.

    Call it within `matplotlib.style.context` of `style` for the sizes of `plot`.
    """
    from matplotlib.figure import Figure

    plots, titles = _plots(collected, gpu_memory_bytes), _titles(collected)
    look, columns = LOOKS[size], _columns(plots, size)
    width = columns * PANEL_IN if size == SCREEN else COLUMN_IN if columns == 1 else PAGE_IN
    wrapped = [_wrapped(title, _characters(width, look.font_pt)) for title in titles]
    pairs = zip(plots, wrapped, strict=True)
    heights = [_height(group, text, look, columns) for group, text in pairs]
    whole = Figure(figsize=(width, sum(heights)), layout="constrained")
    rows = whole.subfigures(len(plots), 1, squeeze=False, height_ratios=heights)[:, 0]
    letters = iter(ascii_lowercase)
    names = []
    for row, group, text in zip(rows, plots, wrapped, strict=True):
        row.suptitle(text, x=0.01, ha="left")
        axis_in = width / columns - SIDE_IN
        names += _row(row, group, letters, _characters(axis_in, look.font_pt + 1), columns)
    whole.draw_without_rendering()  # lays the axes out
    for axes, labels in names:
        place(axes, labels)
    return whole


def _characters(width_in: float, font_pt: float) -> int:
    """Return how many characters a line of a width holds."""
    return int(72 * width_in / (EM_WIDTH * font_pt))


def _columns(plots: Sequence[GroupPlot], size: str) -> int:
    """Return how many panels are side by side."""
    if size == PAPER:
        return 1 if len(plots) == 1 else 2
    return min(3, max(map(_panels, plots)))


def _panels(group: GroupPlot) -> int:
    return 2 + (group.energy is not None) + len(group.others)


def _height(group: GroupPlot, title: str, look: Look, columns: int) -> float:
    """Return the height of a group in inches."""
    rows = math.ceil(_panels(group) / columns)
    return rows * look.panel_in + (title.count("\n") + 1) * 1.3 * look.font_pt / 72


def _plots(collected: Collected, gpu_memory_bytes: int | None) -> list[GroupPlot]:
    count = len(collected.by_group)
    if not count:
        raise JobkitError(
            "nothing to draw: no point has figures yet", hint="look again later: jobkit collect"
        )
    if count > MOST_GROUPS:
        raise JobkitError(
            f"{count} tables are too many for one picture, which holds {MOST_GROUPS}: points that differ in "
            "text, model, GPU, versions or settings are never mixed",
            hint="name fewer runs, one picture each: jobkit collect RUN --plot FILE",
        )
    return group_plots(collected, gpu_memory_bytes)


def _titles(collected: Collected) -> list[list[str]]:
    """Return the lines above each group: those of its table, the versions only if they differ."""
    alike = len({group.versions for group in collected.by_group}) == 1
    titles = []
    for number, group in enumerate(collected.by_group):
        lines = heading(group, [size for size in collected.by_size if size.first.group == number])
        titles.append(lines[:-1] if alike and group.versions else lines)
    return titles


def _wrapped(lines: Sequence[str], characters: int) -> str:
    safe = map(printable, lines)
    kept = (
        line.replace(" GiB", "\N{NO-BREAK SPACE}GiB").replace(" %", "\N{NO-BREAK SPACE}%") for line in safe
    )  # 140.4 stays next to its unit
    return "\n".join(part for line in kept for part in textwrap.wrap(line, characters))


def _row(
    row: SubFigure, group: GroupPlot, letters: Iterator[str], characters: int, columns: int
) -> list[tuple[Axes, list[Label]]]:
    """Draw the panels of a group; return the names to write into each."""
    panels = _panels(group)
    axes = row.subplots(math.ceil(panels / columns), columns, squeeze=False).flatten()
    names = [draw_memory(axes[0], group.memory), draw_knob(axes[1], group.speed)]
    findings = [memory_finding(group.memory), speed_finding(group.speed)]
    if group.energy:
        names.append(draw_energy(axes[2], group.energy))
        findings.append(energy_finding(group.energy))
    for panel in group.others:
        names.append(draw_knob(axes[len(names)], panel))
        findings.append(figure_finding(panel))
    for empty in axes[panels:]:
        empty.remove()
    for one, finding in zip(axes, findings, strict=False):
        one.set_title(_wrapped([f"({next(letters)}) {finding}"], int(0.9 * characters)), loc="left")
    if group.memory.notes:
        across = _wrapped([axes[0].get_xlabel(), *group.memory.notes], characters)
        axes[0].set_xlabel(across)
    return list(zip(axes, names, strict=False))
