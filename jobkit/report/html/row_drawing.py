"""An SVG with a value across and a row for each thing: settings by speed, tries over time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobkit.report.html.drawing import (
    FONT_PX,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Legend,
    across_axis,
    element,
    frame,
    ink,
    rule,
    shape_at,
    text,
    ticks,
)

LABELLED_PX = 32
"""The height of a row with a label above its marks."""


@dataclass(slots=True, kw_only=True)
class RowDrawing:
    """A picture with an axis from 0 across.

    Attributes
    ----------
    across
        The name of the axis.
    right
        The largest value on it.
    row_px
        The height of a row.
    legend
        What its lines and marks are.
    """

    across: str
    right: float
    row_px: float = LABELLED_PX
    legend: Legend = field(default_factory=Legend)
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
