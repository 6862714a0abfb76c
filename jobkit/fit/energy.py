"""The energy of points: whose it is, for how many items, and which settings no other beats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from jobkit.core.knobs import Value
from jobkit.core.measurements import Attribution, Energy, Summary
from jobkit.core.records import Record

COMPARED_S = 60.0
"""Over less time the steps of the counter and the lag of the power are too large a share."""
TOLERANCE = 0.05
"""Counter and sampled power that differ by more than this share disagree."""


def joules(energy: Energy | None) -> tuple[float | None, float | None]:
    """Return the energy of a point and its net energy, in joules; ``None`` if not attributable or unknown.

    Every figure of energy comes from here. A record of `jobkit.outcome.results.read_run` has in its
    attribution whether other points ran on its GPU at the same time.
    """
    if energy is None or energy.attribution is Attribution.NOT_ATTRIBUTABLE:
        return None, None
    return energy.joules, energy.net_joules


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyUse:
    """The energy of one setting: means over the repeats whose energy is attributable.

    Attributes
    ----------
    params
        The knobs.
    per_1000_j, per_1000_j_sd
        Joules for 1,000 items, and the standard deviation; ``None`` for the latter of one repeat.
    net_per_1000_j
        The same above idle; ``None`` if a repeat has no idle power.
    per_character_j
        Joules for a character of the text; ``None`` if the characters are unknown.
    counted
        Whether each repeat has the energy counter.
    repeats
        How many there are.
    """

    params: Mapping[str, Value]
    per_1000_j: float
    per_1000_j_sd: float | None
    net_per_1000_j: float | None
    per_character_j: float | None
    counted: bool
    repeats: int

    def of(self, items: int, characters: int | None) -> float:
        """Return the energy of a text, by its characters if they are known."""
        if characters is not None and self.per_character_j is not None:
            return characters * self.per_character_j
        return items * self.per_1000_j / 1000


def uses(records: Iterable[Record]) -> tuple[EnergyUse, ...]:
    """Return the energy of each setting, from the records of points that succeeded."""
    groups: dict[tuple[tuple[str, Value], ...], list[tuple[Energy, Summary]]] = {}
    for record in records:
        energy, summary = record.energy, record.summary
        known = joules(energy)[0] is not None
        if known and energy and summary and summary.items:
            groups.setdefault(tuple(sorted(record.params.items())), []).append((energy, summary))
    return tuple(_use(dict(params), repeats) for params, repeats in groups.items())


def _use(params: Mapping[str, Value], repeats: Sequence[tuple[Energy, Summary]]) -> EnergyUse:
    each = [1000 * (energy.joules or 0.0) / of.items for energy, of in repeats]
    nets = [1000 * net / of.items for energy, of in repeats if (net := energy.net_joules) is not None]
    letters = [(energy.joules or 0.0) / of.characters for energy, of in repeats if of.characters]
    return EnergyUse(
        params=params,
        per_1000_j=fmean(each),
        per_1000_j_sd=stdev(each) if len(each) > 1 else None,
        net_per_1000_j=fmean(nets) if len(nets) == len(each) else None,
        per_character_j=fmean(letters) if len(letters) == len(each) else None,
        counted=all(energy.counter_j is not None for energy, _ in repeats),
        repeats=len(each),
    )


def disagreement(energy: Energy) -> float | None:
    """Return by which share of the counter the two instruments differ; ``None`` if they agree well enough."""
    if energy.span_s < COMPARED_S or not energy.counter_j or energy.power_j is None:
        return None
    share = abs(energy.power_j - energy.counter_j) / energy.counter_j
    return share if share > TOLERANCE else None


def front(settings: Sequence[tuple[float | None, float | None]]) -> list[bool | None]:
    """Return for each setting whether no other beats it; ``None`` if a value is unknown.

    Another beats it if that is at least as good in both, and better in one of them.

    Parameters
    ----------
    settings
        Time and energy of each: less is better.
    """
    known = [(time, energy) for time, energy in settings if time is not None and energy is not None]
    return [
        None
        if time is None or energy is None
        else not any((other != (time, energy)) and other[0] <= time and other[1] <= energy for other in known)
        for time, energy in settings
    ]
