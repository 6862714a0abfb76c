"""The settings of each table in order, compared with its smallest and by time and energy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

from jobkit.core.figures import SPEED, SPEEDUP
from jobkit.core.knobs import WORKERS, sort_key
from jobkit.core.student import TWO_SIDED
from jobkit.fit.setting import Mean, Ratio, Setting, settings_of
from jobkit.fit.tune_steps import FINAL, MEMORY, SEARCH
from jobkit.report import energy
from jobkit.report.rows import Row

PHASES = {"": 0, MEMORY: 1, SEARCH: 2, FINAL: 3}
"""Of a search; the last is the one that the answer rests on, so it comes first."""
OF_A_SIZE = ("effective", "inert", "items_total", "gpu_instrument")
"""What a size has of its first point that has it."""


@dataclass(frozen=True, kw_only=True)
class Size(Setting[Row]):
    """A setting in a table, which stands next to others.

    Attributes
    ----------
    times
        How many times as fast as the smallest size of the group that succeeded; that size itself has
        no interval.
    front
        Whether no other size of the group beats it in both time and energy; ``None`` if not known.
    """

    times: Ratio | None
    front: bool | None = None

    def of(self, name: str) -> object:
        """Return a value of the first point that has it; ``name`` is one of `OF_A_SIZE`."""
        return next((value for row in self.points if (value := getattr(row, name)) is not None), None)


def sizes(
    rows: Iterable[Row], knobs: Sequence[str], probabilities: Mapping[str, float] | None = None
) -> list[Size]:
    """Return the sizes of all groups in order, and give the rows their speed-up.

    Parameters
    ----------
    probabilities
        By run folder, of the quantile that ends the intervals of the finals of a search: these were looked at
        several times.
    """
    looked_at = probabilities or {}

    def order(setting: Setting[Row]) -> tuple[object, ...]:
        first = setting.first  # fewer workers are smaller, whatever else differs
        workers = first.numbers.get(WORKERS, 1)
        knob_keys = (sort_key(first.params.get(knob)) for knob in knobs)
        return first.group or 0, workers, *knob_keys, -PHASES.get(first.phase or "", 0)

    measured = settings_of((row for row in rows if row.size is not None), lambda row: row.size)
    groups = groupby(sorted(measured, key=order), key=lambda setting: setting.first.group)
    return [*chain.from_iterable(_table(list(settings), looked_at) for _, settings in groups)]


def _table(settings: Sequence[Setting[Row]], looked_at: Mapping[str, float]) -> list[Size]:
    """Return the sizes of a group, the smallest first; the first of them that has a speed is the base."""
    found: list[Size] = []
    base: Mean | None = None
    for setting in settings:
        speed, times, first = setting.mean(SPEED), None, setting.first
        if speed and base:
            of_search = looked_at.get(first.folder, TWO_SIDED) if first.phase == FINAL else TWO_SIDED
            times = speed.over(base, of_search)
        elif speed:
            base, times = speed, Ratio(1.0, None, None)
        for row in setting.well:
            rate = row.value(SPEED)
            row.figures[SPEEDUP.name] = rate / base.value if rate and base else None
        found.append(Size(points=setting.points, times=times))
    return [replace(size, front=front) for size, front in zip(found, energy.front(found), strict=True)]
