"""The energy of points: whose it is, for how many items, and which settings no other beats. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobkit.core.measurements import Attribution, Energy
from jobkit.core.records import Record
from jobkit.core.units import format_count

COMPARED_S = 60.0
"""Over less time the steps of the counter and the lag of the power are too large a share."""
TOLERANCE = 0.05
"""Counter and sampled power that differ by more than this share disagree."""


def attributed(energy: Energy, overlaps: int | None) -> tuple[Attribution, str]:
    """Return whose energy it is, and why it is not only the point's.

    Parameters
    ----------
    energy
        Of the point.
    overlaps
        How many other points ran at the same time on its GPU; ``None`` if that is not known.
    """
    if overlaps and energy.attribution is not Attribution.NOT_ATTRIBUTABLE:
        points = format_count(overlaps, "other point")
        return Attribution.NOT_ATTRIBUTABLE, f"{points} ran at the same time on the GPU"
    return energy.attribution, energy.reason


def joules(record: Record, overlaps: int | None) -> tuple[float | None, float | None]:
    """Return the energy of a point and its net energy, in joules; ``None`` if not attributable or unknown."""
    energy = record.energy
    if energy is None or attributed(energy, overlaps)[0] is Attribution.NOT_ATTRIBUTABLE:
        return None, None
    return energy.joules, energy.net_joules


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
