"""Energy in the tables: net or not, which settings are on the front, and what a reader must know. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from jobkit.core.measurements import Attribution, Energy
from jobkit.core.units import format_count
from jobkit.fit import energy as fit
from jobkit.report.rows import Row

GROSS = ("energy_j", "energy_per_1000_j")
NET = ("net_energy_j", "net_energy_per_1000_j")

Means = Mapping[str, float | None]
"""The means of a setting, by measure."""


def hidden(means: Sequence[Means]) -> tuple[str, str]:
    """Return the measures that a table does not show: those of all settings are net, or none is."""
    measured = [mean for mean in means if mean["energy_j"] is not None]
    return GROSS if measured and all(mean["net_energy_j"] is not None for mean in measured) else NET


def per_1000(means: Sequence[Means]) -> str:
    """Return the measure of energy for 1,000 items that a table shows."""
    return (NET if hidden(means) is GROSS else GROSS)[1]


def front(means: Sequence[Means]) -> list[bool | None]:
    """Return for each setting of a table whether no other beats it in both time and energy.

    ``None`` if its speed or its energy is unknown, or if there is no other to compare with.
    """
    name = per_1000(means)
    times = [1 / speed if (speed := mean["items_per_s"]) else None for mean in means]
    found = fit.front([(time, mean[name]) for time, mean in zip(times, means, strict=True)])
    return found if len(found) - found.count(None) > 1 else [None] * len(found)


def remarks(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what a reader must know of the energy of points, each thing once."""
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
    shares = [share for energy in measured if (share := fit.disagreement(energy)) is not None]
    if shares:
        points = format_count(len(shares), "point")
        yield (
            f"energy: the counter and the sampled power differ by up to {100 * max(shares):.0f} % "
            f"({points} of at least {fit.COMPARED_S:.0f} s)"
        )
