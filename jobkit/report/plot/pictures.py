"""The pictures of a group: does my batch fit, where is the knee, the energy, a workload's own figures.

The page and ``jobkit collect --plot`` show the same. Each picture has a title that says its finding, a legend
of its lines, and a table of what it shows; what has no data has no picture.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, cycle, product
from operator import itemgetter
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from jobkit.answers.objective import SearchAnswer, SearchRow
from jobkit.answers.setting import Mean
from jobkit.answers.speed import SPEED_TOLERANCE
from jobkit.core.blocks import Block, columns_of
from jobkit.core.errors import JobkitError
from jobkit.core.extras import missing_extra
from jobkit.core.figures import LOAD, SPEED
from jobkit.core.files import write_atomically
from jobkit.core.frozen import keyed
from jobkit.core.knobs import SIZES
from jobkit.core.student import unknown_spread
from jobkit.core.terminal import printable
from jobkit.core.units import GIB, format_count, format_figure, format_setting
from jobkit.report.output import heading
from jobkit.report.plot import data as panels
from jobkit.report.plot import drawing as draw
from jobkit.report.plot.drawing import Mark, Stroke
from jobkit.report.recommend.advice import Advice, advised
from jobkit.report.rows import Row
from jobkit.report.tables import NET, Collected, Size, shown_energy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_PX = 34.0
"""The height of a row of a search, with a label above its marks."""
LOOKS = {
    panels.VERIFIED: ("square", "orange"),
    panels.EXCEEDED: ("cross", "limit"),
    panels.PREDICTED: ("diamond", "blue"),
    panels.MEASURED: ("dot", ""),
}
"""The shape and the colour of the kinds of marks, in the order in which their labels choose a place."""
SERIES = (
    ("dot", draw.SOLID),
    ("square", draw.DASHED),
    ("diamond", draw.DOTTED),
    ("cross", (8.0, 3.0, 2.0, 3.0)),
)
"""The shape and the dash of each value of the other knobs."""


@keyed
class Picture:
    """A picture and its data."""

    title: str  # the finding
    canvas: draw.Canvas  # what is drawn
    caption: str  # what it shows, in sentences
    data: Block  # the same as a table


def pictures(
    collected: Collected, limit_bytes: int | None = None, advice: Advice | None = None
) -> list[list[Picture]]:
    """Return the pictures of each group, in the order of the tables.

    ``collected``: what was read.
    ``limit_bytes``: the GPU to draw the capacity of; by default the one measured on.
    ``advice``: what the run recommends, if it does: the ring is around its setting.
    """
    groups = panels.group_plots(collected, limit_bytes, advice)
    return [_of_group(group, collected.rows_of(number)) for number, group in enumerate(groups)]


def _of_group(group: panels.GroupPlot, rows: Sequence[Row]) -> list[Picture]:
    found = [_of_knob(group.speed)] if group.speed.series else []
    found += [_of_search(group.search)] if group.search and group.search.rows else []
    if group.memory.spots():
        knobs = (*SIZES, group.speed.knob)
        knob = next((one for one in knobs if any(one in row.numbers for row in rows)), "")
        word = SIZES.get(knob, knob.replace("_", " "))
        loads = {load: row.numbers[knob] for row in rows if knob in row.numbers and (load := row.value(LOAD))}
        found.append(_of_memory(group.memory, {load: f"{word} {size:,}" for load, size in loads.items()}))
    found += _of_energy(group.sizes)
    # More figures of a workload are in the table only
    others = [_of_knob(panel) for panel in group.others[:8]]
    if more := len(group.others) - len(others):
        words = f"{format_count(more, 'more figure')} without a picture: in the table."
        others[-1] = replace(others[-1], caption=f"{others[-1].caption} {words}")
    return [*found, *others]


def _data(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Block:
    return Block(title="The data of this picture", columns=columns_of(heads, rows, ()), folded=True)


def _of_memory(panel: panels.MemoryPanel, names: Mapping[float, str]) -> Picture:
    """Return memory against load: limit, line, measured, predicted and verified, each with its name.

    ``panel``: what to draw.
    ``names``: what the load of a point is called: ``batch 50``.
    """
    drawing, beyond = _memory_axes(panel)
    right = drawing.x_range[1]
    for curve, dash in ((panel.line, draw.SOLID), (panel.bound, draw.DASHED)):
        if curve:
            loads = (right * step / 200 for step in range(201))
            along = ((load, curve.at(load) / GIB) for load in loads)
            seen = [(load, size) for load, size in along if 0 <= size <= drawing.y_range[1]]
            drawing.line(Stroke(seen, "grey", dash), curve.name)
    if panel.limit and not beyond:
        height = panel.limit.size_bytes / GIB
        drawing.line(Stroke([(0, height), (right, height)], "limit", draw.DOTTED), panel.limit.name)
    for place, words in enumerate(["beyond this picture:", *beyond] if beyond else []):
        drawing.write((draw.LEFT + 8, draw.TOP + 12 + 16 * place), words)
    kinds = [kind for kind in LOOKS if not (beyond and kind == panels.PREDICTED)]
    shapes = cycle(shape for shape, _ in SERIES)
    for marks in (marks for kind in kinds for marks in panel.marks if marks.kind == kind):
        shape, css = LOOKS[marks.kind]
        _draw_marks(drawing, marks, names, next(shapes) if marks.kind == panels.MEASURED else shape, css)
    rows = []
    for marks in panel.marks:
        what, _, own = marks.name.partition(", ")
        largest = dict(sorted(marks.spots))  # at each load
        rows += [[what, f"{x:,.0f}", f"{y / GIB:.3f}", names.get(x, own)] for x, y in largest.items()]
    rows += [["limit", "", f"{panel.limit.size_bytes / GIB:.3f}", panel.limit.name]] if panel.limit else []
    sentences = (f"{panel.up} against {panel.across}", *panel.notes)
    return Picture(
        title=panels.memory_finding(panel),
        canvas=drawing.canvas(),
        caption=" ".join(f"{words[:1].upper()}{words[1:]}." for words in sentences),
        data=_data(("what", "load", "GiB", "setting"), rows),
    )


def _memory_axes(panel: panels.MemoryPanel) -> tuple[draw.Drawing, list[str]]:
    """Return axes from 0 that hold everything, and the names of what is so far off that it is left out."""
    seen = panel.spots(*(kind for kind in LOOKS if kind != panels.PREDICTED)) or panel.spots()
    right, top = (max(values) for values in zip(*seen, strict=True))
    ahead = panel.spots(panels.PREDICTED)
    most_load = max(right, panel.reach or 0.0, *(load for load, _ in ahead))
    most = max(top, panel.limit.size_bytes if panel.limit else 0.0, *(size for _, size in ahead))
    far = most_load > 2.0 * right or most > 2.0 * top  # beyond twice the measurements
    names = [panel.limit.name] if panel.limit else []
    names += [marks.name for marks in panel.marks if marks.kind == panels.PREDICTED]
    right, top = (right, 1.25 * top) if far else (most_load, most)
    if panel.line:
        top = max(top, panel.line.at(right))  # so that the line reaches the largest load
    up, across = f"{panel.up}, GiB", panel.across
    axes = draw.Drawing(
        across=across, up=up, x_range=draw.from_zero(right), y_range=draw.from_zero(top / GIB, 1.1)
    )
    return axes, names if far else []


def _draw_marks(
    drawing: draw.Drawing, marks: panels.Marks, names: Mapping[float, str], shape: str, css: str
) -> None:
    """Draw marks of a kind, of those at one pixel one; the largest has the name of the kind as its label."""
    spots = [(load, size / GIB) for load, size in marks.spots]
    apart = {tuple(map(round, drawing.at(spot))): spot for spot in spots}
    named: set[str] = set()
    for number, (load, size) in enumerate(sorted(apart.values(), reverse=True)):
        own = names.get(load, "")
        title = f"{marks.name}: {', '.join(filter(None, (own, f'load {load:,.0f}', f'{size:.2f} GiB')))}"
        label = f"{marks.name}, {own}" if own and marks.kind == panels.MEASURED else marks.name
        label = ("" if own in named else own) if number else label
        drawing.mark(Mark((load, size), shape, css, title), label=label, far=not number, name=marks.name)
        named.add(own)


def _of_knob(panel: panels.KnobPanel) -> Picture:
    """Return a figure against the first knob, with the intervals of the means; of the speed with its knee."""
    knob, sizes = panel.knob.replace("_", " "), panel.sizes
    repeats = sorted({mean.n for mean in panel.means})
    number = f"{repeats[0]} to {repeats[-1]}" if len(repeats) > 1 else f"{repeats[0]}"
    bars = f"Bars: 95 % interval of the mean of {number} repeats."
    sentences = [
        f"{panel.figure.label} against {knob}.",
        "Each setting ran once: there is no interval." if repeats == [1] else bars,
        "The ring is around what jobkit recommend takes."
        if panel.taken
        else f"The knee is the smallest {knob} {panels.NEAR}."
        if panel.knee and panel.knee[0] < sizes[-1]
        else "",
    ]
    at_size = not panel.names  # else the size is only a place in the picture
    rows = [
        (
            panel.names.get(size, name),
            *([f"{size:,}"] if at_size else []),
            *(format_figure(mean.value), _half(mean), f"{mean.n}"),
        )
        for name, line in panel.series.items()
        for size, mean in line
    ]
    return Picture(
        title=panels.knob_finding(panel),
        canvas=(_by_name if panel.names else _over_knob)(panel).canvas(),
        caption=" ".join(filter(None, sentences)),
        data=_data(("setting", *([knob] if at_size else []), _unit(panel), "± (95 %)", "repeats"), rows),
    )


def _unit(panel: panels.KnobPanel) -> str:
    return SPEED.unit if panel.figure is SPEED else panel.figure.title


def _values(panel: panels.KnobPanel) -> draw.Spot:
    """Return the range of the axis of a figure."""
    values = [mean.value for mean in panel.means]
    room = max(map(abs, values))  # of an interval, which may be much wider than all means
    ends = [mean.value + sign * min(mean.half_width or 0.0, room) for mean in panel.means for sign in (-1, 1)]
    if min(values) >= 0:
        ends = [max(0.0, end) for end in ends]
    return draw.from_zero(max(ends), 1.1) if panel.figure is SPEED else draw.around(ends)


def _over_knob(panel: panels.KnobPanel) -> draw.Drawing:
    sizes = panel.sizes
    logarithmic = draw.geometric(sizes)
    drawing = draw.Drawing(
        across=panel.knob.replace("_", " "),
        up=_unit(panel),
        x_range=(sizes[0] / 1.3, sizes[-1] * 1.3) if logarithmic else draw.around([0, *sizes]),
        y_range=_values(panel),
        x_ticks={size: f"{size:,}" for size in sizes},
        logarithmic=logarithmic,
    )
    if panel.knee and len(sizes) > 1:
        knee, speed = panel.knee
        near = (1 - SPEED_TOLERANCE) * panel.best
        drawing.line(Stroke([(x, near) for x in drawing.x_range], "grey", draw.DOTTED), panels.NEAR)
        name = f"{'take' if panel.taken else 'fastest' if knee == sizes[-1] else 'knee'}: {knee:,}"
        ring = Mark(panel.knee, "ring", "blue")
        drawing.mark(ring, label=name, far=True, name=f"{name}, {format_figure(speed)}/s")
    for (others, means), (shape, dash) in zip(panel.series.items(), cycle(SERIES), strict=False):
        name = others or ("means" if len(means) > 1 else "mean")
        drawing.line(Stroke([(size, mean.value) for size, mean in means], "grey", dash, 1.2), name)
        for size, mean in means:
            bar = [(size, end) for end in _ends(mean, drawing.y_range)]
            drawing.line(Stroke(bar, width=1.2), "95 % interval")
            setting = f"{others}, {size:,}" if others else f"{size:,}"
            drawing.mark(Mark((size, mean.value), shape, title=_said(panel, setting, mean)), name=name)
    return drawing


def _by_name(panel: panels.KnobPanel) -> draw.Drawing:
    """Return a row for each setting of knobs that are words."""
    means = [(panel.names[size], mean) for size, mean in zip(panel.sizes, panel.means, strict=True)]
    drawing = row_drawing(_unit(panel), _values(panel), len(means))
    for row, (setting, mean) in enumerate(means):
        y = _name_row(drawing, row, setting)
        bar = [(end, y) for end in _ends(mean, drawing.x_range)]
        drawing.line(Stroke(bar, width=1.2), "95 % interval")
        drawing.mark(Mark((mean.value, y), "dot", title=_said(panel, setting, mean)), name="mean")
    return drawing


def _ends(mean: Mean, within: draw.Spot) -> list[float]:
    """Return the ends of an interval, as far as an axis reaches; nothing of one repeat."""
    return [min(max(end, within[0]), within[1]) for end in mean.ends if end is not None]


def _said(panel: panels.KnobPanel, setting: str, mean: Mean) -> str:
    half, unit = _half(mean), _unit(panel).rpartition(", ")[2]
    return f"{setting}: {format_figure(mean.value)}{f' ± {half}' if half else ''} {unit}, n={mean.n}"


def _half(mean: Mean) -> str:
    """Return half an interval, unless it is larger than the mean."""
    half = mean.half_width
    if half is None:
        return ""
    return "? (spread unknown)" if unknown_spread(mean.value, half) else f"{half:,.3g}"


def _of_search(search: SearchAnswer) -> Picture:
    """Return the settings of a search by speed, a row each: phases, intervals and the plain loop."""
    most = max(mean.value + (mean.half_width or 0.0) for row in search.rows for mean in row.means.values())
    drawing = row_drawing("paragraphs/s", draw.from_zero(most), len(search.rows))
    if base := search.base:
        ends, name = [(base.last.value, 0), (base.last.value, len(search.rows))], base.name
        drawing.line(Stroke(ends, "limit", draw.DOTTED), f"{name}: {format_figure(base.last.value)}/s")
    # The shape and the colour of the marks of a search, by phase: there are three at most
    phases = (("square", "grey"), ("dot", ""), ("diamond", "blue"))
    for number, row in enumerate(search.rows):
        y = _name_row(drawing, number, row.name)
        for phase, (shape, css) in zip(search.phases, phases, strict=False):
            if mean := row.means.get(phase):
                bar = [(end, y) for end in _ends(mean, drawing.x_range) if phase == search.phases[-1]]
                drawing.line(Stroke(bar, css, width=2), "95 % interval")
                title = f"{phase}: {mean.words(SPEED.unit)}"
                drawing.mark(Mark((mean.value, y), shape, css, title), name=phase)
        if row is search.best:
            drawing.mark(Mark((row.last.value, y), "ring", "blue"), name="the answer")
    answer, fastest = search.best, search.rows[0]
    finding = f"{fastest.name} is the fastest so far, {_rate(fastest)}"
    if answer:
        than = "" if base is None or base is answer else f", the {base.name} {_rate(base)}"
        finding = f"the answer has {_rate(answer)}{than}"
    return Picture(
        title=f"Speed: {finding}",
        canvas=drawing.canvas(),
        caption="Settings of the search, the fastest first. A mark is the mean of a phase.",
        data=Block(),
    )


def _rate(row: SearchRow) -> str:
    return f"{format_figure(row.last.value)} paragraphs/s"


def row_drawing(
    across: str,
    x_range: draw.Spot,
    rows: int,
    row_px: float = ROW_PX,
    names: Mapping[float, str] | None = None,
    up: str = "",
) -> draw.Drawing:
    """Return axes across, and down the rows, which are 1 high: the first is 0 to 1."""
    return draw.Drawing(
        across=across,
        up=up,
        x_range=x_range,
        y_range=(rows, 0),
        y_ticks=names or {},
        height=draw.TOP + row_px * rows + draw.BOTTOM,
    )


def _name_row(drawing: draw.Drawing, row: int, name: str) -> float:
    """Write the name of a row above its marks; return where they are."""
    drawing.write((draw.LEFT + 6, drawing.y(row) + draw.FONT_PX), name)
    return row + 1 - 9 / ROW_PX


def _of_energy(sizes: Sequence[Size]) -> list[Picture]:
    """Return energy against speed, and which settings no other beats in both; nothing if it is not known."""
    figure = shown_energy(sizes)[1]
    spots = [
        (speed.value, each.value, format_setting(size.params), size.front is not False)
        for size in sizes
        if (speed := size.mean(SPEED)) and (each := size.mean(figure))
    ]
    spots.sort(key=itemgetter(0))
    if not spots:
        return []
    drawing = draw.Drawing(
        across="paragraphs/s",
        up=f"{'net energy' if figure in NET else 'energy'}, J per 1,000 paragraphs",
        x_range=draw.from_zero(max(rate for rate, *_ in spots)),
        y_range=draw.from_zero(max(joules for _, joules, *_ in spots), 1.1),
    )
    best = [(rate, joules) for rate, joules, _, front in spots if front]
    drawing.line(Stroke(best, "grey"), "no other beats these")
    for rate, joules, setting, front in spots:
        words = f"{setting}: {format_figure(rate)} paragraphs/s, {format_figure(joules)} J"
        drawing.mark(Mark((rate, joules), "dot" if front else "diamond", title=words), label=setting)
    rows = [
        [setting, format_figure(rate), format_figure(joules), "yes" if front else "no"]
        for rate, joules, setting, front in spots
    ]
    _, least, cheapest, _ = min(spots, key=itemgetter(1))
    picture = Picture(
        title=f"Energy: least at {cheapest}, {format_figure(least)} J per 1,000 paragraphs",
        canvas=drawing.canvas(),
        caption="Filled marks, joined by a line: no other setting is both faster and takes less energy.",
        data=_data(("setting", "paragraphs/s", "J per 1,000 paragraphs", "no other beats it"), rows),
    )
    return [picture]


SUFFIXES = (".png", ".svg", ".pdf")
MOST_GROUPS = 4
"""More rows of panels fit no page."""

COLUMN_IN, PAGE_IN, PANEL_IN = 3.4, 7.0, 4.5
"""Widths in inches: of a column of a paper, of its page, and of a picture on a screen."""
GAP_PX, LINE_PX, BOLD_PX = 20, 16, 7.8
"""Between two pictures, the height of a line of text, and the mean width of a character of a title."""
COLUMN_PX = draw.WIDTH + GAP_PX
DPI = {"screen": 120, "paper": 300}
"""Dots per inch, by the word of ``--plot-size``; the default first."""
SCREEN, PAPER = DPI
STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "lines.scale_dashes": False,
    "text.parse_math": False,  # a text may be called a$b$c
    "pdf.fonttype": 42,  # TrueType: journals refuse matplotlib's own Type 3
    "svg.fonttype": "path",  # outlines: an SVG shows the same without the font
    "svg.hashsalt": "jobkit",
}
"""matplotlib's settings for a picture."""


def check_plot(path: Path) -> None:
    """Make sure that a picture can be drawn there, before time is spent on reading."""
    if path.suffix.lower() not in SUFFIXES:
        raise JobkitError(
            f"--plot {path}: the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}",
            hint="the ending chooses the format: svg and pdf for papers, png for slides",
        )
    if lack := missing_extra(f"--plot {path}", "plot"):
        raise lack


def plot(collected: Collected, path: Path, *, limit_bytes: int | None = None, size: str = SCREEN) -> None:
    """Draw what was collected into a file, whole or not at all.

    ``collected``: what was read.
    ``path``: ends in one of `SUFFIXES`.
    ``limit_bytes``: the GPU to draw the capacity of; by default the one measured on.
    ``size``: A key of `DPI`.
    """
    check_plot(path)
    from matplotlib import style as styles

    suffix = path.suffix.lower()
    drawn = io.BytesIO()
    # No date, and no version of matplotlib
    metadata = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": "jobkit"},
        ".pdf": {"CreationDate": None, "Creator": "jobkit", "Producer": None},
    }
    with styles.context(["default", dict(STYLE)]), warnings.catch_warnings():
        # A text may have a name in any script: what the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph")
        picture = figure(collected, limit_bytes=limit_bytes, size=size)
        picture.savefig(drawn, format=suffix[1:], dpi=DPI[size], metadata=metadata[suffix])
    try:
        write_atomically(path, drawn.getvalue())
    except OSError as error:
        hint = "name a file in a folder that exists and is yours"
        raise JobkitError(f"--plot {path}: {error.strerror}", hint=hint) from error


def figure(collected: Collected, *, limit_bytes: int | None = None, size: str = SCREEN) -> Figure:
    """Return the figure: pictures side by side, group below group; for one group on paper a column.

    Call it within `matplotlib.style.context` of `STYLE` for what `plot` draws. Its axes are in pixels.
    """
    from matplotlib.figure import Figure

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
    drawn, titles = pictures(collected, limit_bytes, advised({row.folder for row in collected.rows})), []
    alike = len({group.value("versions") for group in collected.by_group}) == 1  # then they are left out
    for number, group in enumerate(collected.by_group):
        lines = heading(collected, number)
        titles.append(lines[:-1] if alike and group.value("versions") else lines)
    most = max(1, *map(len, drawn))
    columns = min(3, most) if size == SCREEN else min(2, most, len(drawn))
    parts, height = _sheet(titles, drawn, columns)
    width_in = columns * PANEL_IN if size == SCREEN else COLUMN_IN if columns == 1 else PAGE_IN
    inch = width_in / (columns * COLUMN_PX)  # inches of a pixel
    whole = Figure(figsize=(width_in, height * inch))
    axes = whole.add_axes((0, 0, 1, 1), xlim=(0, columns * COLUMN_PX), ylim=(height, 0))
    axes.set_axis_off()
    for part in parts:
        draw.paint(axes, part, 72 * inch)
    return whole


def _sheet(
    titles: Sequence[Sequence[str]], groups: Sequence[Sequence[Picture]], columns: int
) -> tuple[list[draw.Part], float]:
    """Return all pictures, each below its title and above its caption, and the height of the sheet."""
    parts: list[draw.Part] = []
    top, letters = GAP_PX / 2, map("".join, chain(ascii_lowercase, product(ascii_lowercase, repeat=2)))
    for title, group in zip(titles, groups, strict=True):
        lines = [*title, *([] if group else ["nothing to draw: no point of this table has succeeded yet"])]
        head = _lines(lines, GAP_PX / 2, top, columns * COLUMN_PX - GAP_PX)
        parts += head
        top = head[-1].spot[1] + LINE_PX
        for first in range(0, len(group), columns):
            row = [
                (GAP_PX / 2 + COLUMN_PX * at, one) for at, one in enumerate(group[first : first + columns])
            ]
            heads = [
                _lines([f"({next(letters)}) {picture.title}"], left, top, draw.WIDTH, bold=True)
                for left, picture in row
            ]
            below = max(head[-1].spot[1] for head in heads) + 6
            captions = [
                _lines([picture.caption], left, below + picture.canvas.height, draw.WIDTH)
                for left, picture in row
            ]
            parts += chain(*heads, *captions)
            parts += [draw.moved(part, left, below) for left, picture in row for part in picture.canvas.parts]
            top = max(caption[-1].spot[1] for caption in captions) + LINE_PX
    return parts, top


def _lines(
    texts: Sequence[str], left: float, top: float, width: float, *, bold: bool = False
) -> list[draw.Words]:
    """Return texts below one another, wrapped to a width."""
    characters = int(width / (BOLD_PX if bold else draw.CHARACTER_PX))
    kept = (
        printable(text).replace(" GiB", "\N{NO-BREAK SPACE}GiB").replace(" %", "\N{NO-BREAK SPACE}%")
        for text in texts
    )  # 140.4 stays next to its unit
    wrapped = [line for text in kept for line in textwrap.wrap(text, characters)]
    return [
        draw.Words((left, top + LINE_PX * number), line, bold=bold) for number, line in enumerate(wrapped, 1)
    ]
