"""A picture of the page as SVG, of which a screen reader says the title. Pure.

All looks are presentation attributes, so that it reads the same without a style sheet; text and black marks
have the colour of the page (``currentColor``), for light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from jobkit.core.terminal import printable
from jobkit.report.plot.drawing import COLOURS, FONT_PX, HOLLOW, WIDTH, Mark, Part, Stroke
from jobkit.report.plot.pictures import Picture

SHAPES = {
    "dot": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "ring": "M-8,0a8,8 0 1,0 16,0a8,8 0 1,0 -16,0z",
    "diamond": "M0,-7L7,0L0,7L-7,0z",
    "square": "M-4,-4H4V4H-4z",
    "cross": "M-5,-5L5,5M-5,5L5,-5",
}


def svg(picture: Picture) -> str:
    """Return a picture as markup that is safe to insert."""
    height = f"{picture.canvas.height:.0f}"
    head = (
        f'<svg role="img" aria-label="{escape(printable(picture.title))}" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="{FONT_PX}" '
        'fill="currentColor">'
    )
    return "\n".join([head, *map(_element, picture.canvas.parts), "</svg>"])


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
