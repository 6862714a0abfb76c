"""Which knobs change the result: entities compared with those of fp32, and the rows of a user's workload."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from jobkit.core import layout
from jobkit.core.files import read_text
from jobkit.core.frozen import frozen
from jobkit.core.knobs import CUT_BY, FP32, LOAD_KNOBS, PRECISION, SPEC_KNOBS, TIMING, Value, sort_key
from jobkit.core.records import Outcome
from jobkit.runs.status import PointResult

Rows = frozenset[tuple[str, ...]]  # the entities of a text: the rows of ``entities.tsv``
OtherKnobs = tuple[tuple[str, Value], ...]  # the knobs of a point without its precision


@frozen
class Agreement:
    """The entities of a point, compared with those of fp32."""

    entities: int  # how many it found
    # entities in one of the two only; an entity with other offsets or another label counts twice
    differ: int
    f1: float  # 2 x common / (its own + those of fp32)


def sweeps_precision(settings: Iterable[Mapping[str, Value]]) -> bool:
    words = {word for setting in settings if isinstance(word := setting.get(PRECISION), str)}
    return len(words) > 1


def agreements(points: Sequence[PointResult]) -> dict[int, Agreement]:
    """Return the agreement of each point of a run that succeeded, by index.

    A point is compared with the first fp32 point of the same setting, or else with the first fp32 point of
    all. Empty if the run sweeps no precision, or no fp32 point has succeeded; without points that have no
    entities to compare, as those of vectors.
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
        point.point.index: compare(rows, reference)
        for point in well
        for reference in [references.get(_without_precision(point), first)]
        if (rows := found.get(point.point.index)) is not None and (rows or reference)
    }


Counts = Mapping[Value, list[int]]  # of each value of a knob: how many rows its points found


def changing_knobs(points: Iterable[PointResult]) -> dict[str, Counts]:
    """Return the knobs of a user's workload whose values found other rows, with the numbers of rows.

    If the rows depend on how the text is cut, too, their numbers decide.
    """
    well = [one for one in points if one.outcome is Outcome.OK and one.point.kind.swept]
    well = [one for one in well if one.point.workload_folder is not None and not one.point.command]
    # what cuts the text changes no result, or only by rounding
    cuts, keys = {*LOAD_KNOBS, *CUT_BY, *TIMING}, {knob.name for knob in SPEC_KNOBS}
    knobs = sorted({name for one in well for name in one.point.params} - cuts - keys)
    varied = [knob for knob in knobs if len({one.point.params.get(knob) for one in well}) > 1]
    found = [(one.point.params, rows) for one in well if varied and (rows := _rows_found(one))]
    changing: dict[str, Counts] = {}
    for knob in varied:
        alike: dict[Hashable, dict[Value, set[tuple[int, int]]]] = defaultdict(lambda: defaultdict(set))
        counts: dict[Value, set[int]] = defaultdict(set)
        for params, rows in found:
            if knob in params:
                rest = frozenset(item for item in params.items() if item[0] not in {knob, *cuts})
                alike[rest][params[knob]].add(rows)
                counts[params[knob]].add(rows[0])
        if any(_apart([*groups.values()]) for groups in alike.values()):
            changing[knob] = {value: sorted(counts[value]) for value in sorted(counts, key=sort_key)}
    return changing


def _apart(groups: Sequence[set[tuple[int, int]]]) -> bool:
    """Return whether groups of results differ by more than the results of a group do."""
    if all(len(group) == 1 for group in groups):
        return len(set().union(*groups)) > 1
    ranges = sorted((min(group)[0], max(group)[0]) for group in groups)
    return any(before[1] < after[0] for before, after in pairwise(ranges))


def changing_words(changing: Mapping[str, Counts]) -> list[str]:
    """Return in words what each knob changes: ``shortest changes the result (756 rows at 3, 153 at 8)``."""
    lines = []
    for knob, counts in changing.items():
        same = len({number for numbers in counts.values() for number in numbers}) == 1
        parts: list[str] = []
        for value, (least, *more) in counts.items():
            most = f" to {more[-1]:,}" if more else ""
            parts.append(f"{least:,}{most}{'' if parts else ' rows'} at {value}")
        lines.append(f"{knob} changes the result ({', '.join(parts)}{', but other rows' * same})")
    return lines


def _rows_found(result: PointResult) -> tuple[int, int] | None:
    """Return how many rows a point found, and a number that equal rows share; ``None`` if not known."""
    summary = result.record.summary if result.record else None
    if summary and summary.rows is not None:
        return summary.rows, summary.rows_sum or 0
    entities = _entities(result)
    return None if entities is None else (len(entities), hash(entities))


def compare(entities: Rows, reference: Rows) -> Agreement:
    f1 = 2 * len(entities & reference) / (len(entities) + len(reference))
    return Agreement(len(entities), len(entities ^ reference), f1)


def _without_precision(point: PointResult) -> OtherKnobs:
    return tuple(sorted((name, value) for name, value in point.point.params.items() if name != PRECISION))


def _entities(point: PointResult) -> Rows | None:
    """Return the entities of the try that counts; ``None`` if they cannot be read."""
    if not point.verdict.folder:
        return None
    try:
        text = read_text(Path(point.verdict.folder) / layout.ENTITIES_FILE)
        _, *rows = csv.reader(io.StringIO(text, newline=""), dialect="excel-tab")
    except (OSError, ValueError, csv.Error):
        return None
    return frozenset(map(tuple, rows))
