"""Draws the panels of a group: memory against load, speed against batch size, energy against speed.

Markers and line styles carry the meaning, so that a grey print shows the same; colour only helps.
Every artist is labelled with what the legend calls it. matplotlib is the caller's: an ``Axes`` comes in.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

from jobkit.core.units import GIB, format_list
from jobkit.fit.speed import SPEED_TOLERANCE
from jobkit.report.plot import memory_data
from jobkit.report.plot.data import EnergyPanel, SpeedPanel, SpeedSeries
from jobkit.report.plot.memory_data import Curve, MemoryPanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

SMALL = 7.0
"""Points: no text is smaller."""
FAR = 5.0
"""If an axis reaches this many times beyond the measurements, both are logarithmic."""
MANY_TIMES = 20.0
"""Batch sizes that span more than this are drawn logarithmic."""
STEPS = 200
MOST_TICKS = 6
BELOW_PT = 28
"""From the axis down to the legend: room for the numbers and the name of the axis."""
LEGEND_CHARACTERS, NOTE_CHARACTERS = 25, 55
"""After which the text of a legend goes on in the next line."""
BLUE, ORANGE, GREY, BLACK = "#1f4e9c", "#c2410c", "0.6", "0"

MARKS: dict[str, dict[str, Any]] = {
    memory_data.ALLOCATED: {"marker": "s", "markersize": 4.5, "markerfacecolor": "none", "color": "0.45"},
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


def draw_memory(axes: Axes, panel: MemoryPanel, letter: str) -> None:
    """Draw memory in GiB against load, or in an old log against batch size."""
    axes.set_title(f"({letter})", loc="left")
    axes.set_ylabel(f"{panel.up} (GiB)")
    axes.set_xlabel(panel.across)
    _scale_memory(axes, panel)
    if panel.line:
        _curves(axes, panel)
    if panel.limit:
        axes.axhline(
            panel.limit.size_bytes / GIB, color=BLACK, linestyle=":", linewidth=1.5, label=panel.limit.name
        )
    for marks in panel.marks:
        loads, sizes = [load for load, _ in marks.spots], [size / GIB for _, size in marks.spots]
        axes.plot(loads, sizes, linestyle="none", label=marks.name, zorder=3, **MARKS[marks.kind])
    _legend(axes, panel.notes)


def _scale_memory(axes: Axes, panel: MemoryPanel) -> None:
    """Set both axes to hold everything, the limit too, from 0 or logarithmic."""
    measured = panel.spots(memory_data.MEASURED) or panel.spots()
    if not measured:
        axes.set(xticks=[], yticks=[])
        return
    right = max([load for load, _ in panel.spots()] + [panel.reach or 0.0])
    top = max([size for _, size in panel.spots()] + [panel.limit.size_bytes if panel.limit else 0.0]) / GIB
    far = (
        right > FAR * max(load for load, _ in measured) or top > FAR * max(size for _, size in measured) / GIB
    )
    if far:
        least = min(load for load, _ in panel.spots()), min(size for _, size in panel.spots()) / GIB
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(0.7 * least[0], 1.4 * right), ylim=(0.7 * least[1], 1.4 * top))
    else:
        axes.set(xlim=(0, 1.06 * right), ylim=(0, 1.08 * top))
    _ticks(axes.xaxis, logarithmic=far, many=panel.across.startswith("load"))
    _ticks(axes.yaxis, logarithmic=far)


def _curves(axes: Axes, panel: MemoryPanel) -> None:
    left, right = axes.get_xlim()
    if axes.get_xscale() == "log":
        loads = [left * (right / left) ** (step / STEPS) for step in range(STEPS + 1)]
    else:
        loads = [left + (right - left) * step / STEPS for step in range(STEPS + 1)]
    _curve(axes, panel.line, loads, color=GREY, linewidth=2.2, linestyle="-")
    _curve(axes, panel.bound, loads, color=BLACK, linewidth=0.9, linestyle=(0, (4, 2)))


def _curve(axes: Axes, curve: Curve | None, loads: Sequence[float], **style: Any) -> None:  # noqa: ANN401 - matplotlib's
    if curve is not None:
        axes.plot(loads, [curve.at(load) / GIB for load in loads], label=curve.name, **style)


def _ticks(axis: Axis, *, logarithmic: bool, many: bool = False) -> None:
    """Set few ticks with plain words: 200k and not 2 x 10^5."""
    from matplotlib import ticker

    if logarithmic:
        axis.set_major_locator(
            ticker.LogLocator(subs=(1.0,) if many else (1.0, 2.0, 5.0), numticks=MOST_TICKS + 2)
        )
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


def draw_speed(axes: Axes, panel: SpeedPanel, letter: str) -> None:
    """Draw paragraphs a second against the batch size, mean and sd, and mark the knee."""
    axes.set_title(f"({letter})", loc="left")
    axes.set_xlabel(panel.knob.replace("_", " "))
    axes.set_ylabel("paragraphs per second")
    if panel.knee is None:
        axes.set(xticks=[], yticks=[])
        _legend(axes, ("no speed was recorded",))
        return
    for style, series in zip(cycle(SERIES), panel.series, strict=False):
        _series(axes, series, style)
    near = (1 - SPEED_TOLERANCE) * panel.fastest_items_per_s
    axes.axhline(
        near,
        color=GREY,
        linestyle=":",
        linewidth=1.2,
        label=f"within {SPEED_TOLERANCE:.0%} of the fastest".replace("%", " %"),
    )
    size, mean = panel.knee
    axes.plot([size], [mean], label=f"knee: {size:,}", **KNEE)
    _scale_sizes(axes, sorted({size for line in panel.series for size in line.sizes}))
    _legend(axes)


def draw_energy(axes: Axes, panel: EnergyPanel, letter: str) -> None:
    """Draw joules for 1,000 paragraphs against paragraphs a second, and join the settings that none beats."""
    axes.set_title(f"({letter})", loc="left")
    axes.set_xlabel("paragraphs per second")
    axes.set_ylabel(f"{'net ' if panel.net else ''}J per 1,000 paragraphs")
    best, others = ([spot for spot in panel.spots if spot.front is front] for front in (True, False))
    names = f"none beats {format_list([spot.setting for spot in best], MOST_NAMES)}"
    for label, spots, style in ((names, best, FRONT), ("other settings", others, BEATEN)):
        speeds, joules = [spot.items_per_s for spot in spots], [spot.joules for spot in spots]
        if spots:
            axes.plot(speeds, joules, label=label, **style)
    right, top = max(spot.items_per_s for spot in panel.spots), max(spot.joules for spot in panel.spots)
    axes.set(xlim=(0, 1.08 * right), ylim=(0, 1.08 * top))
    _ticks(axes.xaxis, logarithmic=False)
    _ticks(axes.yaxis, logarithmic=False)
    _legend(axes)


def _series(axes: Axes, series: SpeedSeries, style: str) -> None:
    marker, line = style[0], style[1:]
    label = ": ".join(part for part in (series.name, repeats_in_words(series.repeats)) if part)
    errors = [0.0 if half is None else half for half in series.half_widths]
    axes.errorbar(
        series.sizes,
        series.items_per_s,
        yerr=errors if any(half is not None for half in series.half_widths) else None,
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


def _legend(axes: Axes, notes: Sequence[str] = ()) -> None:
    """Put the legend below the axes, so that it hides nothing, in two columns, with the notes above it."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = axes.get_legend_handles_labels()
    first = [isinstance(handle, tuple) for handle in handles]  # error bars, which matplotlib puts last
    order = sorted(range(len(handles)), key=lambda number: not first[number])
    below = ScaledTranslation(0, -BELOW_PT / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        [handles[number] for number in order],
        [textwrap.fill(labels[number], LEGEND_CHARACTERS) for number in order],
        title="\n".join(line for note in notes for line in textwrap.wrap(note, NOTE_CHARACTERS)) or None,
        title_fontproperties={"size": SMALL, "style": "italic"},
        alignment="left",
        loc="upper center",
        bbox_to_anchor=(0.46, 0.0),
        bbox_transform=axes.transAxes + below,
        ncols=2,
    )
