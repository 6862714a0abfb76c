"""``jobkit collect --plot``: the pictures of the report as one PNG, SVG or PDF.

matplotlib is an extra (``pip install 'jobkit[plot]'``) and is imported when something is painted.
The same records give the same bytes: no date, no random ids, no settings of the user.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import JobkitError
from jobkit.core.extras import missing_extra
from jobkit.core.files import write_atomically
from jobkit.core.terminal import printable
from jobkit.report.estimates import heading
from jobkit.report.plot.drawing import (
    CHARACTER_PX,
    COLOURS,
    FONT_PX,
    HOLLOW,
    WIDTH,
    Part,
    Stroke,
    Words,
    moved,
)
from jobkit.report.plot.pictures import Picture, pictures
from jobkit.report.tables import Collected

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
MOST_GROUPS = 4
"""More rows of panels fit no page."""

COLUMN_IN, PAGE_IN, PANEL_IN = 3.4, 7.0, 4.5
"""Widths in inches: of a column of a paper, of its page, and of a picture on a screen."""
GAP_PX, LINE_PX, BOLD_PX = 20, 16, 7.8
"""Between two pictures, the height of a line of text, and the mean width of a character of a title."""
COLUMN_PX = WIDTH + GAP_PX
DPI = {"screen": 120, "paper": 300}
"""Dots per inch, by the word of ``--plot-size``; the default first."""
SCREEN, PAPER = DPI
MARKERS = {"dot": ("o", 8), "ring": ("o", 16), "diamond": ("D", 10), "square": ("s", 8), "cross": ("x", 10)}
"""What matplotlib calls the shapes, and how wide they are in pixels."""

STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "lines.scale_dashes": False,
    "text.parse_math": False,  # a text may be called a$b$c
    "pdf.fonttype": 42,  # TrueType: journals refuse matplotlib's own Type 3
    "svg.fonttype": "path",  # outlines: an SVG shows the same without the font
    "svg.hashsalt": "jobkit",
}
"""matplotlib's settings for a picture."""

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
    ``size``: A key of `DPI`.
    """
    check_plot(path)
    from matplotlib import style as styles

    suffix = path.suffix.lower()
    drawn = io.BytesIO()
    with styles.context(["default", dict(STYLE)]), warnings.catch_warnings():
        # A text may have a name in any script: what the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph")
        picture = figure(collected, gpu_memory_bytes=gpu_memory_bytes, size=size)
        picture.savefig(drawn, format=suffix[1:], dpi=DPI[size], metadata=METADATA[suffix])
    try:
        write_atomically(path, drawn.getvalue())
    except OSError as error:
        hint = "name a file in a folder that exists and is yours"
        raise JobkitError(f"--plot {path}: {error.strerror}", hint=hint) from error


def figure(collected: Collected, *, gpu_memory_bytes: int | None = None, size: str = SCREEN) -> Figure:
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
    drawn, titles = pictures(collected, gpu_memory_bytes), _titles(collected)
    most = max(1, *map(len, drawn))
    columns = min(3, most) if size == SCREEN else min(2, most, len(drawn))
    parts, height = _sheet(titles, drawn, columns)
    width_in = columns * PANEL_IN if size == SCREEN else COLUMN_IN if columns == 1 else PAGE_IN
    inch = width_in / (columns * COLUMN_PX)  # inches of a pixel
    whole = Figure(figsize=(width_in, height * inch))
    axes = whole.add_axes((0, 0, 1, 1), xlim=(0, columns * COLUMN_PX), ylim=(height, 0))
    axes.set_axis_off()
    for part in parts:
        _paint(axes, part, 72 * inch)
    return whole


def _titles(collected: Collected) -> list[list[str]]:
    """Return the lines above each group: those of its table, the versions only if they differ."""
    alike = len({group.versions for group in collected.by_group}) == 1
    titles = []
    for number, group in enumerate(collected.by_group):
        lines = heading(group, [size for size in collected.by_size if size.first.group == number])
        titles.append(lines[:-1] if alike and group.versions else lines)
    return titles


def _sheet(
    titles: Sequence[Sequence[str]], groups: Sequence[Sequence[Picture]], columns: int
) -> tuple[list[Part], float]:
    """Return all pictures, each below its title and above its caption, and the height of the sheet."""
    parts: list[Part] = []
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
                _lines([f"({next(letters)}) {picture.title}"], left, top, WIDTH, bold=True)
                for left, picture in row
            ]
            below = max(head[-1].spot[1] for head in heads) + 6
            captions = [
                _lines([picture.caption], left, below + picture.canvas.height, WIDTH) for left, picture in row
            ]
            parts += chain(*heads, *captions)
            parts += [moved(part, left, below) for left, picture in row for part in picture.canvas.parts]
            top = max(caption[-1].spot[1] for caption in captions) + LINE_PX
    return parts, top


def _lines(texts: Sequence[str], left: float, top: float, width: float, *, bold: bool = False) -> list[Words]:
    """Return texts below one another, wrapped to a width."""
    characters = int(width / (BOLD_PX if bold else CHARACTER_PX))
    kept = (
        printable(text).replace(" GiB", "\N{NO-BREAK SPACE}GiB").replace(" %", "\N{NO-BREAK SPACE}%")
        for text in texts
    )  # 140.4 stays next to its unit
    wrapped = [line for text in kept for line in textwrap.wrap(text, characters)]
    return [Words((left, top + LINE_PX * number), line, bold=bold) for number, line in enumerate(wrapped, 1)]


def _paint(axes: Axes, part: Part, point: float) -> None:
    """Paint a part; a pixel is so many points."""
    colour = COLOURS[part.css].replace("currentColor", "black")
    if isinstance(part, Words):
        axes.text(
            *part.spot,
            part.text,
            ha={"start": "left", "middle": "center", "end": "right"}[part.anchor],
            va="baseline",
            color=colour,
            fontsize=FONT_PX * point,
            fontweight="bold" if part.bold else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
        return
    if isinstance(part, Stroke):
        across, up = [x for x, _ in part.spots], [y for _, y in part.spots]
        dash = (0, tuple(length * point for length in part.dash)) if part.dash else "solid"
        axes.plot(across, up, color=colour, linestyle=dash, linewidth=part.width * point)
        return
    marker, size = MARKERS[part.shape]
    inside = "none" if part.shape in HOLLOW else colour
    axes.plot(
        *([length] for length in part.spot),
        color=colour,
        marker=marker,
        markersize=size * point,
        markerfacecolor=inside,
        markeredgewidth=1.8 * point,
    )
