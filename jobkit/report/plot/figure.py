"""``jobkit collect --plot``: the picture of what was collected, as PNG, SVG or PDF.

matplotlib is an extra (``pip install 'jobkit[plot]'``) and is imported when something is drawn.
The same records give the same bytes: no date, no random ids, no settings of the user.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import JobkitError
from jobkit.core.files import write_atomically
from jobkit.core.terminal import printable
from jobkit.report.plot.data import GroupPlot, group_plots
from jobkit.report.plot.panels import SMALL, draw_energy, draw_memory, draw_speed
from jobkit.report.sentences import heading
from jobkit.report.tables import Collected

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

SUFFIXES = (".png", ".svg", ".pdf")
INSTALL = "pip install 'jobkit[plot]'"
MOST_GROUPS = 4
"""More rows of panels fit no page."""

COLUMN_IN, PAGE_IN = 3.4, 7.0
"""Widths in inches: of a column of a paper, and of its page."""
STACKED_IN, ROW_IN = 5.4, 3.3
"""Heights in inches: of two panels one below the other, and of two side by side."""
ENERGY_IN = 2.5
"""The height that a panel of energy adds."""
LINE_IN = 0.13
"""Height of a line of the title, inches."""
CHARACTERS_PER_IN = 17.5
"""Of a title, in the smallest type."""

STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "font.size": SMALL,
    "axes.labelsize": SMALL + 0.5,
    "axes.titlesize": SMALL + 1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.0,
    "legend.borderpad": 0.0,
    "figure.titlesize": SMALL,
    "text.parse_math": False,  # a text may be called a$b$c
    "pdf.fonttype": 42,  # TrueType: journals refuse matplotlib's own Type 3
    "svg.fonttype": "path",  # outlines: an SVG shows the same without the font
    "svg.hashsalt": "jobkit",
    "savefig.dpi": 300,
}
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


def plot(collected: Collected, path: Path, *, gpu_memory_bytes: int | None = None) -> None:
    """Draw what was collected into a file, whole or not at all.

    Parameters
    ----------
    collected
        What was read.
    path
        Ends in one of `SUFFIXES`.
    gpu_memory_bytes
        The GPU to draw the capacity of; by default the one measured on.

    Raises
    ------
    JobkitError
        If there is nothing to draw, too much for one picture, or the file cannot be written.
    """
    check_plot(path)
    from matplotlib import style

    suffix = path.suffix.lower()
    drawn = io.BytesIO()
    with style.context(["default", dict(STYLE)]), warnings.catch_warnings():
        # A text may have a name in any script: what the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph")
        picture = figure(collected, gpu_memory_bytes=gpu_memory_bytes)
        picture.savefig(drawn, format=suffix[1:], metadata=METADATA[suffix])
    try:
        write_atomically(path, drawn.getvalue())
    except OSError as error:
        hint = "name a file in a folder that exists and is yours"
        raise JobkitError(f"--plot {path}: {error.strerror}", hint=hint) from error


def figure(collected: Collected, *, gpu_memory_bytes: int | None = None) -> Figure:
    """Return the figure: for one group a column, else a row of two panels a group.

    Call it within `matplotlib.style.context` of `STYLE` for the sizes of `plot`.

    Raises
    ------
    JobkitError
        If there is nothing to draw, or too much for one picture.
    """
    from matplotlib.figure import Figure

    plots, titles = _plots(collected, gpu_memory_bytes), _titles(collected)
    single = len(plots) == 1
    width = COLUMN_IN if single else PAGE_IN
    wrapped = [_wrapped(title, width) for title in titles]
    least = STACKED_IN if single else ROW_IN
    heights = [
        least + ENERGY_IN * bool(group.energy) + LINE_IN * text.count("\n")
        for group, text in zip(plots, wrapped, strict=True)
    ]
    whole = Figure(figsize=(width, sum(heights)), layout="constrained")
    rows = whole.subfigures(len(plots), 1, squeeze=False, height_ratios=heights)[:, 0]
    letters = iter("abcdefghijkl")
    for row, group, text in zip(rows, plots, wrapped, strict=True):
        _row(row, group, text, letters, stacked=single)
    return whole


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


def _wrapped(lines: Sequence[str], width_in: float) -> str:
    characters = int(CHARACTERS_PER_IN * width_in)
    safe = map(printable, lines)
    kept = (line.replace(" GiB", "\N{NO-BREAK SPACE}GiB") for line in safe)  # 140.4 stays next to its unit
    return "\n".join(part for line in kept for part in textwrap.wrap(line, characters))


def _row(row: SubFigure, group: GroupPlot, title: str, letters: Iterator[str], *, stacked: bool) -> None:
    row.suptitle(title, x=0.02, ha="left")
    panels = 3 if group.energy else 2
    if stacked:
        axes = row.subplots(panels, 1, height_ratios=(1.25, 1, 1)[:panels])
    else:
        axes = row.subplots(panels - 1, 2).flatten()
    draw_memory(axes[0], group.memory, next(letters))
    draw_speed(axes[1], group.speed, next(letters))
    if group.energy:
        draw_energy(axes[2], group.energy, next(letters))
    for empty in axes[panels:]:
        empty.remove()
