"""A small SVG writer: two linear axes, marks, lines, and labels that do not cover one another. Pure.

All looks are presentation attributes, so that a picture reads the same without a style sheet; text and
black marks take the colour of the page (``currentColor``), for light and dark. Lengths are in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from operator import itemgetter

from jobkit.core.terminal import display_width, printable
from jobkit.core.units import format_short

WIDTH, HEIGHT = 500, 310
"""So narrow that the text can be read on a telephone."""
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 20, 48
FONT_PX, CHARACTER_PX, WIDEST_PX = 12, 6.6, 7.4
"""The size of the type, and the mean width of a character: of most fonts, and of wide ones."""
MOST_TICKS = 6
STEP_PX = 6
SAMPLE_PX, ENTRY_PX = 26, 18
"""In the legend: the width of a sample, and the height of a row."""
MARK_PX = 6
"""Half the width that a mark keeps free of labels."""
NEAR = (
    *((12, 4, "start"), (12, -8, "start"), (12, 17, "start")),
    *((-12, 4, "end"), (-12, -8, "end"), (-12, 17, "end"), (0, -12, "middle"), (0, 22, "middle")),
)
FAR = (
    *((12, -24, "start"), (-12, -24, "end"), (12, 33, "start"), (-12, 33, "end"), (50, 62, "end")),
    *((12, -40, "start"), (-12, -40, "end"), (12, 50, "start"), (-12, 50, "end")),
)
"""Places for a label: the shift from its mark, and which end of the text is there; the best first."""
SHAPES = {
    "dot": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "ring": "M-8,0a8,8 0 1,0 16,0a8,8 0 1,0 -16,0z",
    "diamond": "M0,-7L7,0L0,7L-7,0z",
    "square": "M-5,-5H5V5H-5z",
    "cross": "M-5,-5L5,5M-5,5L5,-5",
}
HOLLOW = ("ring", "diamond", "cross")

Spot = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def element(name: str, text: str | None = None, /, **attributes: object) -> str:
    """Return an element as text, escaped; ``_`` in the name of an attribute stands for ``-``.

    ``name``: of the element.
    ``text``: its content; ``None`` if it has none.
    """
    words = "".join(
        f' {key.replace("_", "-")}="{escape(printable(_short(value)))}"' for key, value in attributes.items()
    )
    return f"<{name}{words}/>" if text is None else f"<{name}{words}>{escape(printable(text))}</{name}>"


def _short(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def ticks(top: float) -> list[float]:
    """Return round numbers from 0 to a maximum, a few."""
    if top <= 0:
        return [0.0]
    step = 10 ** math.floor(math.log10(top / MOST_TICKS))
    step *= next(times for times in (1, 2, 2.5, 5, 10) if top / (step * times) <= MOST_TICKS)
    return [step * index for index in range(math.floor(top / step + 1e-9) + 1)]


@dataclass(slots=True)
class Legend:
    """What each kind of line and mark of a picture is, in rows below it."""

    _samples: dict[str, str] = field(default_factory=dict)

    def line(self, words: str, *, css: str = "", dash: str = "none", width: float = 1.5) -> None:
        """Name a kind of line."""
        ends = {"x1": 0, "y1": -4, "x2": SAMPLE_PX, "y2": -4}
        self._samples[words] = element("line", **ends, stroke_dasharray=dash, stroke_width=width, **ink(css))

    def mark(self, words: str, shape: str, *, css: str = "") -> None:
        """Name a kind of mark."""
        self._samples[words] = shape_at(shape, (SAMPLE_PX / 2, -4.0), css)

    def draw(self, top: float) -> tuple[list[str], float]:
        """Return the rows, the first of which begins at a height, and where they end."""
        x, y, parts = float(LEFT), top + ENTRY_PX, []
        for words, sample in self._samples.items():
            width = SAMPLE_PX + 6 + WIDEST_PX * display_width(words)
            if x > LEFT and x + width > WIDTH:
                x, y = float(LEFT), y + ENTRY_PX
            words_of = text((SAMPLE_PX + 6.0, 0.0), words, "start", "")
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{sample}{words_of}</g>')
            x += width + 18
        return parts, y + 8 if parts else top


def frame(title: str, height: float, parts: Iterable[str]) -> str:
    """Return a picture of parts; a screen reader says the title."""
    head = (
        f'<svg role="img" aria-label="{escape(printable(title))}" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" font-family="sans-serif" font-size="{FONT_PX}" '
        'fill="currentColor">'
    )
    return "\n".join([head, *parts, "</svg>"])


@dataclass(slots=True, kw_only=True)
class Drawing:
    """A picture with axes from 0."""

    across: str  # `across`, `up`: the names of the axes
    up: str
    right: float  # `right`, `top`: the largest value on each
    top: float
    legend: Legend = field(default_factory=Legend)  # what its lines and marks are
    _parts: list[str] = field(default_factory=list)
    _taken: list[Box] = field(default_factory=list)
    _lines: list[Box] = field(default_factory=list)
    _labels: list[tuple[bool, Spot, str, str]] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Return where a value stands across."""
        return LEFT + (WIDTH - LEFT - RIGHT) * value / (1.06 * self.right or 1.0)

    def y(self, value: float) -> float:
        """Return where a value stands up."""
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / (1.1 * self.top or 1.0)

    def line(
        self, spots: Sequence[Spot], name: str, *, css: str, dash: str = "none", width: float = 1.5
    ) -> None:
        """Draw a line through spots; the legend names it."""
        self.legend.line(name, css=css, dash=dash, width=width)
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in spots)
        self._lines += _along([(self.x(x), self.y(y)) for x, y in spots])
        self._parts.append(
            element(
                "polyline", points=path, fill="none", stroke_dasharray=dash, stroke_width=width, **ink(css)
            )
        )

    def level(self, value: float, name: str, *, css: str) -> None:
        """Draw a line over the whole width at a height."""
        self.line([(0, value), (1.06 * self.right, value)], name, css=css, dash="2 4")

    def bar(self, at: float, low: float, high: float, name: str) -> None:
        """Draw an interval as a vertical bar."""
        self.line([(at, max(0.0, low)), (at, high)], name, css="", width=1.2)

    def mark(
        self, spot: Spot, shape: str, *, css: str = "", title: str = "", label: str = "", first: bool = False
    ) -> None:
        """Draw a mark; ``title`` is shown while the pointer is over it, ``label`` is next to it.

        ``first`` labels get their places before all others.
        """
        x, y = self.x(spot[0]), self.y(spot[1])
        self._parts.append(shape_at(shape, (x, y), css, title))
        self._taken.append((x - MARK_PX, y - MARK_PX, x + MARK_PX, y + MARK_PX))
        if label:
            self._labels.append((not first, (x, y), label, css))

    def label(self, spot: Spot, text: str, *, css: str = "") -> None:
        """Name what is at a spot."""
        self._labels.append((True, (self.x(spot[0]), self.y(spot[1])), text, css))

    def svg(self, title: str, across_ticks: Iterable[float] | None = None) -> str:
        """Return the picture; labels that find no room are left out, because the table has their data.

        ``title``: what a screen reader says of it.
        ``across_ticks``: where to put numbers on the axis across; by default round numbers.
        """
        axes = [*self._across(across_ticks), *self._up()]
        labels = sorted(self._labels, key=itemgetter(0))
        placed = [self._place(spot, words, css, first=not later) for later, spot, words, css in labels]
        legend, end = self.legend.draw(HEIGHT)
        return frame(title, end, [*axes, *self._parts, *filter(None, placed), *legend])

    def _across(self, at: Iterable[float] | None) -> Iterable[str]:
        values = ticks(1.06 * self.right) if at is None else at
        return across_axis([(value, self.x(value)) for value in values], HEIGHT - BOTTOM, self.across)

    def _up(self) -> Iterable[str]:
        yield rule((LEFT, TOP), (LEFT, HEIGHT - BOTTOM))
        for value in ticks(1.1 * self.top):
            y = self.y(value)
            yield rule((LEFT - 4, y), (LEFT, y))
            yield text((LEFT - 7.0, y + 4), format_short(value), "end", "")
        yield text((4.0, 12.0), self.up, "start", "")

    def _place(self, where: Spot, words: str, css: str, *, first: bool) -> str:
        """Return a label at the first place that is free; empty if there is none.

        A label that is not one of the first has to be near its mark; the others may also be on a line.
        """
        everything = (*self._taken, *self._lines)
        choices = [(place, everything) for place in (*NEAR, *FAR)] + [(place, self._taken) for place in NEAR]
        for (right, down, anchor), taken in choices if first else choices[: len(NEAR)]:
            spot = (where[0] + right, where[1] + down)
            box = _box(spot, words, anchor)
            if _inside(box) and not any(_overlap(box, other) for other in taken):
                self._taken.append(box)
                return text(spot, words, anchor, css)
        return ""


def across_axis(at: Iterable[Spot], bottom: float, name: str) -> Iterable[str]:
    """Yield the axis across with numbers, each a value and where it stands, as far as there is room."""
    last = -math.inf
    yield rule((LEFT, bottom), (WIDTH - RIGHT, bottom))
    for value, x in at:
        words = format_short(value)
        half = CHARACTER_PX * len(words) / 2
        if x - half > last:
            yield rule((x, bottom), (x, bottom + 4))
            yield text((x, bottom + 17.0), words, "middle", "")
            last = x + half + 4
    yield text(((LEFT + WIDTH - RIGHT) / 2, bottom + 38.0), name, "middle", "")


COLOURS = {"": "currentColor", "limit": "#b3261e", "blue": "#1f5fbf", "orange": "#b54708", "grey": "#6b7280"}
"""The strokes by the class that a style sheet may colour for a dark page."""


def ink(css: str) -> dict[str, str]:
    """Return the attributes of a stroke."""
    return {"stroke": COLOURS[css]} | ({"class": css} if css else {})


def shape_at(shape: str, where: Spot, css: str, title: str = "") -> str:
    """Return a mark; the title is shown while the pointer is over it."""
    fill = "none" if shape in HOLLOW else ink(css)["stroke"]
    move = f"translate({where[0]:.1f} {where[1]:.1f})"
    path = element("path", "", d=SHAPES[shape], fill=fill, stroke_width=1.8, transform=move, **ink(css))
    return path.replace("</path>", f"{element('title', title) if title else ''}</path>")


def rule(start: Spot, end: Spot) -> str:
    """Return a line of an axis."""
    return element(
        "line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], stroke="currentColor", stroke_opacity=0.5
    )


def text(where: Spot, words: str, anchor: str, css: str) -> str:
    """Return words that cover the lines behind them; the anchor is the end of them that stands there."""
    colour = {"fill": COLOURS[css], "class": f"t-{css} halo"} if css else {"class": "halo"}
    return element("text", words, x=where[0], y=where[1], text_anchor=anchor, **colour)


def _box(where: Spot, text: str, anchor: str) -> Box:
    width = CHARACTER_PX * display_width(text)
    left = where[0] - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return left, where[1] - FONT_PX, left + width, where[1] + 3


def _along(spots: Sequence[Spot]) -> list[Box]:
    """Return small boxes along a line, so that no label covers it."""
    boxes = []
    for (x0, y0), (x1, y1) in pairwise(spots):
        steps = max(1, round(math.hypot(x1 - x0, y1 - y0) / STEP_PX))
        points = ((x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps) for i in range(steps + 1))
        boxes += [(x - 1, y - 1, x + 1, y + 1) for x, y in points]
    return boxes


def _inside(box: Box) -> bool:
    return box[0] > LEFT + 2 and box[2] < WIDTH and box[1] > TOP - 4 and box[3] < HEIGHT - BOTTOM


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
