"""``jobkit collect --plot``: the picture of what was collected, as PNG, SVG or PDF.

matplotlib is an extra (``pip install 'jobkit[plot]'``) and is imported when something is drawn.
The same records give the same bytes: no date, no random ids, no settings of the user.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import write_atomically
from jobkit.core.terminal import printable
from jobkit.report.plot.data import GroupPlot, group_plots
from jobkit.report.plot.findings import energy_finding, figure_finding, memory_finding, speed_finding
from jobkit.report.plot.labels import Label, place
from jobkit.report.plot.panels import SMALL, draw_energy, draw_knob, draw_memory
from jobkit.report.sentences import heading
from jobkit.report.tables import Collected

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

SUFFIXES = (".png", ".svg", ".pdf")
INSTALL = "pip install 'jobkit[plot]'"
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
    """Make sure that a picture can be drawn there, before time is spent on reading.

    Raises
    ------
    JobkitError
        If the suffix is unknown, or matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise JobkitError(
            f"--plot {path}: the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}",
            hint="the ending chooses the format: svg and pdf for papers, png for slides",
        )
    try:
        import matplotlib.figure  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise JobkitError(f"--plot {path} needs matplotlib: {error}", hint=INSTALL) from error


def plot(
    collected: Collected, path: Path, *, gpu_memory_bytes: int | None = None, size: str = SCREEN
) -> None:
    """Draw what was collected into a file, whole or not at all.

    Parameters
    ----------
    collected
        What was read.
    path
        Ends in one of `SUFFIXES`.
    gpu_memory_bytes
        The GPU to draw the capacity of; by default the one measured on.
    size
        A key of `LOOKS`.

    Raises
    ------
    JobkitError
        If there is nothing to draw, too much for one picture, or the file cannot be written.
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

    Raises
    ------
    JobkitError
        If there is nothing to draw, or too much for one picture.
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
