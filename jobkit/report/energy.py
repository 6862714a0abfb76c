"""Energy in the tables: net or not, which settings are on the front, and what a reader must know. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from jobkit.answers.setting import Setting
from jobkit.core.figures import ENERGY, ENERGY_PER_1000, NET_ENERGY, NET_PER_1000, SPEED, Figure
from jobkit.core.measurements import Attribution, Energy
from jobkit.core.units import format_count
from jobkit.report.rows import Row

COMPARED_S = 60.0
"""Over less time the steps of the counter and the lag of the power are too large a share."""
TOLERANCE = 0.05
"""Counter and sampled power that differ by more than this share disagree."""
GROSS = (ENERGY, ENERGY_PER_1000)
NET = (NET_ENERGY, NET_PER_1000)


def hidden(sizes: Iterable[Setting[Row]]) -> tuple[Figure, Figure]:
    """Return the figures that a table does not show: the energies of all settings are net, or none is."""
    measured = [size for size in sizes if size.mean(ENERGY)]
    return GROSS if measured and all(size.mean(NET_ENERGY) for size in measured) else NET


def per_1000(sizes: Iterable[Setting[Row]]) -> Figure:
    return (NET if hidden(sizes) is GROSS else GROSS)[1]


def front(sizes: Sequence[Setting[Row]]) -> list[bool | None]:
    """Return for each setting whether no other beats it in both time and energy; ``None`` if not known."""
    figure = per_1000(sizes)
    speeds, joules = ([size.mean(one) for size in sizes] for one in (SPEED, figure))
    times = [1 / mean.value if mean else None for mean in speeds]
    found = unbeaten(list(zip(times, [mean.value if mean else None for mean in joules], strict=True)))
    return found if len(found) - found.count(None) > 1 else [None] * len(found)


def remarks(rows: Sequence[Row]) -> Iterator[str]:
    measured = [(row, row.record.energy) for row in rows if row.record and row.record.energy]
    reasons = Counter((row.energy_attribution, row.energy_reason) for row, _ in measured)
    for (attribution, reason), number in sorted(reasons.items(), key=str):
        points = format_count(number, "point")
        if attribution == Attribution.NOT_ATTRIBUTABLE:
            yield f"the energy of {points} is in no table, because it is not attributable: {reason}"
        elif attribution == Attribution.UNKNOWN:
            yield f"the energy of {points} may be of other processes too: {reason}"
    yield from _instruments([energy for _, energy in measured])


def _instruments(measured: Sequence[Energy]) -> Iterator[str]:
    powered = sum(energy.counter_j is None and energy.power_j is not None for energy in measured)
    if powered:
        points = format_count(powered, "point")
        yield f"the energy of {points} is the integral of the sampled power: the GPU has no energy counter"
    shares = [share for energy in measured if (share := disagreement(energy)) is not None]
    if shares:
        points = format_count(len(shares), "point")
        yield (
            f"energy: the counter and the sampled power differ by up to {100 * max(shares):.0f} % "
            f"({points} of at least {COMPARED_S:.0f} s)"
        )


def disagreement(energy: Energy) -> float | None:
    """Return by which share of the counter the two instruments differ; ``None`` if they agree well enough."""
    if energy.span_s < COMPARED_S or not energy.counter_j or energy.power_j is None:
        return None
    share = abs(energy.power_j - energy.counter_j) / energy.counter_j
    return share if share > TOLERANCE else None


def unbeaten(settings: Sequence[tuple[float | None, float | None]]) -> list[bool | None]:
    """Return for each setting (time and energy) whether no other beats it; ``None`` if a value is unknown.

    A setting beats another if it is at least as good in both, and better in one of them; less is better.
    """
    known = [(time, energy) for time, energy in settings if time is not None and energy is not None]
    return [
        None
        if time is None or energy is None
        else not any((other != (time, energy)) and other[0] <= time and other[1] <= energy for other in known)
        for time, energy in settings
    ]
