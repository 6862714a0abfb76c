"""Names next to the marks of a panel, in place of a legend: none covers a mark or another name.

matplotlib is the caller's: an ``Axes`` that is laid out comes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Spot = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in pixels."""

WAYS = ((1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))
"""Where a name may stand, seen from its mark; the best first."""
UP = tuple(sorted(WAYS, key=lambda way: -way[1]))
DOWN = tuple(sorted(WAYS, key=itemgetter(1)))
NEAR_PT, FAR_PT = (7.0, 11.0), (18.0, 30.0, 44.0)
"""How far from its mark; beyond the near a thin line joins them."""
STEP_PX = 3.0
MARK_PX, EDGE_PX = 5.0, 4.0
"""Half the width of a mark, and the room between a name and the edge of the axes."""
CURVE, MARK, NAME, OUTSIDE = 3.0, 500.0, 1000.0, 10_000.0
"""What it costs to cover a step of a curve, a mark and another name, and to leave the axes."""
FARTHER, WORSE = 4.0, 2.0
"""What the next distance costs, and the next way."""


@dataclass(frozen=True, slots=True)
class Label:
    """A name and the spot that it belongs to, in the data's units; ``ways`` as `WAYS`."""

    text: str
    spot: Spot
    color: str = "0"
    ways: Sequence[tuple[int, int]] = WAYS


def place(axes: Axes, labels: Iterable[Label]) -> None:
    """Write the names where they cover least; one for which there is no room is left out."""
    curves, marks = _drawn(axes)
    names: list[Box] = [_box(text.get_window_extent()) for text in axes.texts]
    for label in labels:
        x, y = axes.transData.transform(label.spot)
        anchor = float(x), float(y)
        sample = axes.text(*label.spot, label.text)
        extent = sample.get_window_extent()
        sample.remove()
        pixel = axes.figure.dpi / 72
        cost, box, distance = min(
            (
                _cost(box, axes, curves, marks, names) + _price(number, anchor, box, names) + WORSE * rank,
                box,
                distance,
            )
            for number, distance in enumerate((*NEAR_PT, *FAR_PT))
            for rank, box in enumerate(
                _boxes(anchor, (extent.width, extent.height), distance * pixel, label, _box(axes.bbox))
            )
        )
        if cost < MARK:
            _write(axes, label, box, anchor, pixel, joined=distance in FAR_PT)
            names.append(box)
            marks += _steps([anchor, _middle(box)]) if distance in FAR_PT else []


def _price(number: int, anchor: Spot, box: Box, names: Sequence[Box]) -> float:
    """Return what a place costs for being far: more if the line to it crosses a name."""
    if number < len(NEAR_PT):
        return FARTHER * number
    crossed = any(_holds(name, spot, 1) for spot in _steps([anchor, _middle(box)]) for name in names)
    return FARTHER * number + NAME * crossed


def _middle(box: Box) -> Spot:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _boxes(anchor: Spot, size: Spot, away: float, label: Label, frame: Box) -> Iterator[Box]:
    """Yield the places for a name at a distance; above and below its mark it is moved into the frame."""
    width, height = size
    for across, up in label.ways:
        reach = away / (2**0.5 if across and up else 1)
        x = anchor[0] + across * (reach + width / 2) - width / 2
        y = anchor[1] + up * (reach + height / 2) - height / 2
        if not across:
            x = max(frame[0] + EDGE_PX, min(x, frame[2] - width - EDGE_PX))
        yield x, y, x + width, y + height


def _cost(box: Box, axes: Axes, curves: Sequence[Spot], marks: Sequence[Spot], names: Sequence[Box]) -> float:
    left, bottom, right, top = box
    frame = axes.bbox
    outside = bool(left < frame.x0 or right > frame.x1 or bottom < frame.y0 or top > frame.y1)
    covered = sum(_holds(box, spot, 1) for spot in curves)
    hidden = sum(_holds(box, spot, MARK_PX) for spot in marks)
    over: int = sum(left < b[2] and b[0] < right and bottom < b[3] and b[1] < top for b in names)
    return OUTSIDE * outside + CURVE * covered + MARK * hidden + NAME * over


def _holds(box: Box, spot: Spot, margin: float) -> bool:
    return box[0] - margin <= spot[0] <= box[2] + margin and box[1] - margin <= spot[1] <= box[3] + margin


def _write(axes: Axes, label: Label, box: Box, anchor: Spot, pixel: float, *, joined: bool) -> None:
    middle = _middle(box)
    arrow: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "color": "0.5", "shrinkA": 0, "shrinkB": 3}
    note = axes.annotate(
        label.text,
        label.spot,
        xytext=((middle[0] - anchor[0]) / pixel, (middle[1] - anchor[1]) / pixel),
        textcoords="offset points",
        ha="center",
        va="center",
        color=label.color,
        arrowprops=arrow if joined else None,
        annotation_clip=False,
        zorder=4,
    )
    note.set_in_layout(False)  # the axes stay as they were measured


def _drawn(axes: Axes) -> tuple[list[Spot], list[Spot]]:
    """Return the pixels of the curves, in small steps, and of the marks."""
    curves: list[Spot] = []
    marks: list[Spot] = []
    for line in axes.get_lines():
        spots = [tuple(spot) for spot in line.get_transform().transform(line.get_xydata())]
        if line.get_marker() not in {"None", None, ""}:
            marks += spots
        if line.get_linestyle() != "None":
            curves += _steps(spots)
    for bars in axes.collections:
        for path in bars.get_paths():
            curves += _steps([tuple(spot) for spot in axes.transData.transform(path.vertices)])
    return curves, marks


def _steps(spots: Sequence[Spot]) -> Iterator[Spot]:
    for (x0, y0), (x1, y1) in pairwise(spots):
        count = min(400, 1 + int(max(abs(x1 - x0), abs(y1 - y0)) / STEP_PX))
        for step in range(count + 1):
            yield x0 + (x1 - x0) * step / count, y0 + (y1 - y0) * step / count


def _box(extent: Any) -> Box:  # noqa: ANN401 - matplotlib's
    return extent.x0, extent.y0, extent.x1, extent.y1
