"""How the entities of each precision agree with those of fp32, in the same run. Standard library only."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.files import read_text
from jobkit.core.knobs import FP32, PRECISION, Value
from jobkit.core.layout import ENTITIES_FILE
from jobkit.core.records import Outcome
from jobkit.outcome.results import PointResult

Rows = frozenset[tuple[str, ...]]
"""The entities of a text: the rows of ``entities.tsv``."""
NOT_COMPARED = "entities were not compared: that needs a point with precision fp32 that has succeeded"
OtherKnobs = tuple[tuple[str, Value], ...]
"""The knobs of a point without its precision."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The entities of a point, compared with those of fp32.

    Attributes
    ----------
    entities
        How many it found.
    differ
        How many are in one of the two and not in the other; one with other offsets or another label is two.
    f1
        2 x common / (its own + those of fp32); 1 if neither has any.
    """

    entities: int
    differ: int
    f1: float


def sweeps_precision(settings: Iterable[Mapping[str, Value]]) -> bool:
    """Return whether settings differ in their precision."""
    words = {word for setting in settings if isinstance(word := setting.get(PRECISION), str)}
    return len(words) > 1


def agreements(points: Sequence[PointResult]) -> dict[int, Agreement]:
    """Return by index the agreement of each point of a run that succeeded.

    A point is compared with the first fp32 point of the same setting, or else with the first fp32
    point of all. Empty if the run sweeps no precision, or no fp32 point has succeeded.

    Parameters
    ----------
    points
        Of one run.
    """
    well = [point for point in points if point.outcome is Outcome.OK and not point.point.trial]
    if not sweeps_precision(point.point.params for point in points):
        return {}
    found = {point.point.index: rows for point in well if (rows := _entities(point)) is not None}
    references: dict[OtherKnobs, Rows] = {}
    for point in well:
        if point.point.precision == FP32 and point.point.index in found:
            references.setdefault(_without_precision(point), found[point.point.index])
    if not references:
        return {}
    first = next(iter(references.values()))
    return {
        point.point.index: compare(rows, references.get(_without_precision(point), first))
        for point in well
        if (rows := found.get(point.point.index)) is not None
    }


def compare(entities: Rows, reference: Rows) -> Agreement:
    """Return how entities agree with those of a reference."""
    together = len(entities) + len(reference)
    f1 = 2 * len(entities & reference) / together if together else 1.0
    return Agreement(len(entities), len(entities ^ reference), f1)


def _without_precision(point: PointResult) -> OtherKnobs:
    return tuple(sorted((name, value) for name, value in point.point.params.items() if name != PRECISION))


def _entities(point: PointResult) -> Rows | None:
    """Return the entities of the try that counts; ``None`` if they cannot be read."""
    if point.chosen is None:
        return None
    try:
        text = read_text(Path(point.chosen.folder) / ENTITIES_FILE)
        _, *rows = csv.reader(io.StringIO(text, newline=""), dialect="excel-tab")
    except (OSError, ValueError, csv.Error):
        return None
    return frozenset(map(tuple, rows))
