"""A picture as strokes, marks and words: two axes, a legend, labels that cover nothing. Pure.

`svg` writes a canvas for the page, and matplotlib paints it into a file, so both show the same. Lengths are
in pixels, from the top left. Shapes and dashes carry the meaning; colour only helps.
"""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise, product
from typing import TYPE_CHECKING

from jobkit.core.frozen import frozen
from jobkit.core.terminal import display_width, printable
from jobkit.core.units import format_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 372, 270
"""So narrow that type has 11 pixels on a telephone of 390, and 7 points in the column of a paper."""
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 22, 42
FONT_PX, CHARACTER_PX = 12, 7.0
"""The size of the type, and the mean width of a character of a wide font."""
SAMPLE_PX, ENTRY_PX = 26, 18
"""In the legend: the width of a sample, and the height of a row."""
LEAST_STEP, SAME_STEP = 1.5, 1.25
"""So are those that grow by more than this at each step, by about the same factor."""
NEAR = (
    *((10, 4, "start"), (10, -8, "start"), (10, 17, "start")),
    *((-10, 4, "end"), (-10, -8, "end"), (-10, 17, "end"), (0, -12, "middle"), (0, 22, "middle")),
)
FAR = (
    *((12, -24, "start"), (-12, -24, "end"), (12, 33, "start"), (-12, 33, "end"), (50, 62, "end")),
    *((12, -40, "start"), (-12, -40, "end"), (12, 50, "start"), (-12, 50, "end")),
)
"""Places for a label: the shift from its mark, and which end of the text is there; the best first."""
COLOURS = {"": "currentColor", "limit": "#b3261e", "blue": "#1f5fbf", "orange": "#b54708", "grey": "#6b7280"}
"""The colours by the class that a style sheet may change for a dark page."""
HOLLOW = ("ring", "diamond", "cross")
"""The shapes that are not filled."""
SOLID, DASHED, DOTTED = (), (5.0, 3.0), (2.0, 4.0)

Spot = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class Boxes:
    """What is drawn, by the cells of the picture that it touches: a label asks its neighbours only."""

    def __init__(self) -> None:
        self._by_cell: dict[tuple[int, int], list[Box]] = defaultdict(list)

    def add(self, *boxes: Box) -> None:
        for box in boxes:
            for cell in self._cells(box):
                self._by_cell[cell].append(box)

    def cover(self, box: Box) -> bool:
        left, top, end, bottom = box
        near = (other for cell in self._cells(box) for other in self._by_cell.get(cell, ()))
        return any(left < b[2] and b[0] < end and top < b[3] and b[1] < bottom for b in near)

    @staticmethod
    def _cells(box: Box) -> Iterator[tuple[int, int]]:
        left, top, end, bottom = (int(edge // 16) for edge in box)
        return product(range(left, end + 1), range(top, bottom + 1))


@frozen
class Stroke:
    """A line through spots; the title is shown while the pointer is over it."""

    spots: Sequence[Spot]
    css: str = ""
    dash: tuple[float, ...] = SOLID
    width: float = 1.5
    title: str = ""


@frozen
class Mark:
    """A dot, ring, diamond, square or cross; the title is shown while the pointer is over it."""

    spot: Spot
    shape: str
    css: str = ""
    title: str = ""


@frozen
class Words:
    """A text with the start, the middle or the end of its baseline at a spot."""

    spot: Spot
    text: str
    anchor: str = "start"
    css: str = ""
    bold: bool = False

    @property
    def box(self) -> Box:
        """What it covers."""
        width = CHARACTER_PX * display_width(self.text)
        left = self.spot[0] - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.spot[1] - FONT_PX, left + width, self.spot[1] + 3


Part = Stroke | Mark | Words


@frozen
class Canvas:
    """Parts to draw one after the other, and the height that they need."""

    height: float
    parts: Sequence[Part]


def from_zero(most: float, share: float = 1.06) -> Spot:
    """Return the range of an axis from 0 to a maximum and a margin."""
    return 0.0, share * most or 1.0


def around(values: Sequence[float]) -> Spot:
    """Return the range of an axis that shows how values differ: from 0 only if that takes half of it."""
    low, high = min(values), max(values)
    if 0 <= low < high / 2:
        return from_zero(high, 1.1)
    margin = 0.15 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def geometric(values: Sequence[float]) -> bool:
    """Return whether ascending values span much, or are about a geometric row: their axis is logarithmic."""
    if values[0] <= 0:
        return False
    steps = [large / small for small, large in pairwise(values)]
    row = len(steps) > 1 and min(steps) > LEAST_STEP and max(steps) < SAME_STEP * min(steps)
    # values that span more than this are drawn logarithmic
    return row or values[-1] > 20.0 * values[0]


def ticks(low: float, high: float) -> dict[float, str]:
    """Return a few round numbers of a range, with their words."""
    most_ticks = 6
    step = 10 ** math.floor(math.log10((high - low) / most_ticks))
    step *= next(times for times in (1, 2, 2.5, 5, 10) if (high - low) / (step * times) <= most_ticks)
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return {step * place: format_short(step * place) for place in places}


@dataclass(slots=True, kw_only=True)
class Drawing:
    """A picture with axes."""

    across: str  # `across`, `up`: the names of the axes
    up: str
    x_range: Spot  # `x_range`, `y_range`: the values at the left and right, and at the bottom and top
    y_range: Spot
    # `x_ticks`, `y_ticks`: values with their words; by default round numbers
    x_ticks: Mapping[float, str] | None = None
    y_ticks: Mapping[float, str] | None = None
    height: float = HEIGHT  # of the axes with their numbers and names, in pixels; the legend is below
    logarithmic: bool = False  # whether the axis across is
    _parts: list[Part] = field(default_factory=list)
    _legend: dict[str, list[Part]] = field(default_factory=dict)
    _taken: Boxes = field(default_factory=Boxes)
    _lines: Boxes = field(default_factory=Boxes)
    _labels: list[tuple[Words, bool]] = field(default_factory=list)

    @property
    def bottom(self) -> float:
        """Where the axis across is."""
        return self.height - BOTTOM

    def x(self, value: float) -> float:
        """Return where a value stands across."""
        scale = math.log10 if self.logarithmic else float
        low, high = map(scale, self.x_range)
        return LEFT + (WIDTH - LEFT - RIGHT) * (scale(value) - low) / (high - low)

    def y(self, value: float) -> float:
        """Return where a value stands up."""
        low, high = self.y_range
        return self.bottom - (self.bottom - TOP) * (value - low) / (high - low)

    def at(self, spot: Spot) -> Spot:
        """Return the pixel of a spot in the units of the axes."""
        return self.x(spot[0]), self.y(spot[1])

    def line(self, stroke: Stroke, name: str = "") -> None:
        """Draw a stroke, given in the units of the axes; the legend has its name."""
        if not stroke.spots:
            return
        pixels = [self.at(spot) for spot in stroke.spots]
        self._parts.append(replace(stroke, spots=pixels))
        self._lines.add(*_along(pixels))
        if name:
            self._name(name, replace(stroke, spots=[(0, -4), (SAMPLE_PX, -4)], title=""))

    def mark(self, mark: Mark, *, label: str = "", far: bool = False, name: str = "") -> None:
        """Draw a mark, given in the units of the axes; the legend has its name.

        Its label may be ``far``, or has to be next to it.
        """
        x, y = self.at(mark.spot)
        self._parts.append(replace(mark, spot=(x, y)))
        # Half the width that a mark keeps free of labels
        mark_px = 6
        self._taken.add((x - mark_px, y - mark_px, x + mark_px, y + mark_px))
        if label:
            self._labels.append((Words((x, y), label, css=mark.css), far))
        if name:
            self._name(name, replace(mark, spot=(SAMPLE_PX / 2, -4.0), title=""))

    def _name(self, name: str, sample: Part) -> None:
        """Put a name into the legend, below the picture, with what is drawn under it."""
        known = self._legend.setdefault(name, [])
        known += [] if sample in known else [sample]

    def write(self, spot: Spot, words: str) -> None:
        """Write words at a pixel, which no label covers."""
        text = Words(spot, _fitted(words, spot[0]))
        self._parts.append(text)
        self._taken.add(text.box)

    def canvas(self) -> Canvas:
        """Return the picture; labels without room are left out, because the table of the picture has them."""
        axes = [*self._across(), *self._up()]
        labels = [placed for label, far in self._labels if (placed := self._place(label, far=far))]
        rows, end = self._rows()
        return Canvas(end, (*axes, *self._parts, *labels, *rows))

    def _across(self) -> Iterator[Part]:
        bottom, last = self.bottom, -math.inf
        yield Stroke([(LEFT, bottom), (WIDTH - RIGHT, bottom)], "grey", width=1)
        for value, words in (ticks(*self.x_range) if self.x_ticks is None else self.x_ticks).items():
            at = Words((self.x(value), bottom + 17), words, "middle")
            if at.box[0] > last and at.box[2] <= WIDTH:
                yield Stroke([(at.spot[0], bottom), (at.spot[0], bottom + 4)], "grey", width=1)
                yield at
                last = at.box[2] + 2
        yield Words(((LEFT + WIDTH - RIGHT) / 2, bottom + 35), _fitted(self.across, LEFT), "middle")

    def _up(self) -> Iterator[Part]:
        last = math.inf
        yield Stroke([(LEFT, TOP), (LEFT, self.bottom)], "grey", width=1)
        for value, words in (ticks(*self.y_range) if self.y_ticks is None else self.y_ticks).items():
            y = self.y(value)
            if abs(y - last) > FONT_PX:
                yield Stroke([(LEFT - 4, y), (LEFT, y)], "grey", width=1)
                yield Words((LEFT - 7, y + 4), words, "end")
                last = y
        yield Words((0, 12), _fitted(self.up, 0))

    def _place(self, label: Words, *, far: bool) -> Words | None:
        """Return a label at the first free place; a ``far`` one may also be farther off, or on a line."""
        everything, marks = (self._taken, self._lines), (self._taken,)
        choices: list[tuple[tuple[int, int, str], tuple[Boxes, ...]]] = [
            (place, everything) for place in NEAR
        ]
        if far:
            choices += [(place, everything) for place in FAR] + [(place, marks) for place in NEAR]
        for (right, down, anchor), taken in choices:
            spot = label.spot[0] + right, label.spot[1] + down
            placed = replace(label, spot=spot, anchor=anchor)
            left, top, end, bottom = placed.box
            inside = left > LEFT + 2 and end < WIDTH and top > TOP - 6 and bottom < self.bottom
            if inside and not any(boxes.cover(placed.box) for boxes in taken):
                self._taken.add(placed.box)
                return placed
        return None

    def _rows(self) -> tuple[list[Part], float]:
        """Return the legend in rows below the axes, and where it ends."""
        x, y, parts = float(LEFT), self.height + ENTRY_PX - 6, list[Part]()
        for words, sample in self._legend.items():
            lines = textwrap.wrap(words, int((WIDTH - LEFT - SAMPLE_PX - 6) / CHARACTER_PX)) or [""]
            width = SAMPLE_PX + 6 + CHARACTER_PX * max(map(display_width, lines))
            if x > LEFT and x + width > WIDTH:
                x, y = float(LEFT), y + ENTRY_PX
            parts += [moved(part, x, y) for part in sample]
            parts += [Words((x + SAMPLE_PX + 6, y + ENTRY_PX * at), line) for at, line in enumerate(lines)]
            x, y = x + width + 14, y + ENTRY_PX * (len(lines) - 1)
        return parts, y + 8 if parts else self.height


def _fitted(words: str, left: float) -> str:
    """Return words that end before the picture does."""
    most = int((WIDTH - left) / CHARACTER_PX)
    return words if len(words) <= most else f"{words[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def moved(part: Part, x: float, y: float) -> Part:
    """Return a part to the right and below."""
    if isinstance(part, Stroke):
        return replace(part, spots=[(x + right, y + down) for right, down in part.spots])
    return replace(part, spot=(x + part.spot[0], y + part.spot[1]))


def _along(spots: Sequence[Spot]) -> list[Box]:
    """Return small boxes along a line, so that no label covers it."""
    boxes = []
    for (x0, y0), (x1, y1) in pairwise(spots):
        steps = max(1, round(math.hypot(x1 - x0, y1 - y0) / 6))
        points = ((x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps) for i in range(steps + 1))
        boxes += [(x - 1, y - 1, x + 1, y + 1) for x, y in points]
    return boxes


SHAPES = {
    "dot": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "ring": "M-8,0a8,8 0 1,0 16,0a8,8 0 1,0 -16,0z",
    "diamond": "M0,-7L7,0L0,7L-7,0z",
    "square": "M-4,-4H4V4H-4z",
    "cross": "M-5,-5L5,5M-5,5L5,-5",
}


def svg(title: str, canvas: Canvas) -> str:
    """Return a picture as markup that is safe to insert.

    All looks are presentation attributes, so that it reads the same without a style sheet; text and black
    marks have the colour of the page (``currentColor``), for light and dark. A screen reader says the title.
    """
    height = f"{canvas.height:.0f}"
    head = (
        f'<svg role="img" aria-label="{escape(printable(title))}" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="{FONT_PX}" '
        'fill="currentColor">'
    )
    return "\n".join([head, *map(_element, canvas.parts), "</svg>"])


def _element(part: Part) -> str:
    colour = COLOURS[part.css]
    if isinstance(part, Stroke):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in part.spots)
        dash = {"stroke-dasharray": " ".join(f"{length:g}" for length in part.dash)} if part.dash else {}
        of_line = {"points": path, "fill": "none", "stroke": colour, "stroke-width": part.width, **dash}
        return _tag("polyline", of_line, part.css, _title(part.title))
    x, y = (f"{length:.1f}" for length in part.spot)
    if isinstance(part, Mark):
        fill = "none" if part.shape in HOLLOW else colour
        of_mark = {"d": SHAPES[part.shape], "fill": fill, "stroke": colour, "stroke-width": 1.8}
        return _tag("path", {**of_mark, "transform": f"translate({x} {y})"}, part.css, _title(part.title))
    of_words = {"x": x, "y": y, "text-anchor": part.anchor} | ({"fill": colour} if part.css else {})
    return _tag("text", of_words, f"t-{part.css} halo" if part.css else "halo", escape(printable(part.text)))


def _tag(name: str, attributes: Mapping[str, object], css: str, inside: str) -> str:
    pairs = {**attributes, "class": css} if css else attributes
    words = "".join(f' {key}="{value}"' for key, value in pairs.items())
    return f"<{name}{words}>{inside}</{name}>"


def _title(words: str) -> str:
    return f"<title>{escape(printable(words))}</title>" if words else ""


def paint(axes: Axes, part: Part, point: float) -> None:
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
    # What matplotlib calls the shapes, and how wide they are in pixels
    marks = {"dot": ("o", 8), "ring": ("o", 16), "diamond": ("D", 10), "square": ("s", 8), "cross": ("x", 10)}
    marker, size = marks[part.shape]
    inside = "none" if part.shape in HOLLOW else colour
    axes.plot(
        *([length] for length in part.spot),
        color=colour,
        marker=marker,
        markersize=size * point,
        markerfacecolor=inside,
        markeredgewidth=1.8 * point,
    )
