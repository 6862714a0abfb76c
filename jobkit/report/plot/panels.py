"""Draws the panels of a group: memory against load, speed against batch size, energy against speed.

Markers and line styles carry the meaning, so that a grey print shows the same; colour only helps.
A panel has names next to its marks in place of a legend. matplotlib is the caller's: an ``Axes`` comes in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

from jobkit.core.figures import SPEED
from jobkit.core.units import GIB, format_list
from jobkit.fit.speed import SPEED_TOLERANCE
from jobkit.report.plot import memory_data
from jobkit.report.plot.data import EnergyPanel, KnobPanel, KnobSeries
from jobkit.report.plot.findings import NEAR
from jobkit.report.plot.labels import DOWN, UP, WAYS, Label
from jobkit.report.plot.memory_data import Curve, Marks, MemoryPanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

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
    """Draw memory in GiB against load, or in an old log against batch size; return the names to write."""
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
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """Return a number in few characters: ``0.5``, ``300``, ``47k``, ``2.5M``."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / min(scale, 10 ** (3 * int(math.log10(scale) // 3))):g}{letter}"
    return f"{value:g}"


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
