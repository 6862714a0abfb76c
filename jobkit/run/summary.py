"""The batches of a try in figures. Pure, standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from jobkit.core.measured import Summary
from jobkit.core.records import Batch


def summarise(batches: Sequence[Batch], *, items_total: int, batches_total: int) -> Summary:
    """Return the summary of what was done, also where that is less than there was to do.

    Parameters
    ----------
    batches
        The lines of ``batches.jsonl``, warm-up not among them.
    items_total, batches_total
        How much there was to do.
    """
    seconds = sorted(batch.seconds for batch in batches)
    work_s = math.fsum(seconds)
    items = sum(batch.items for batch in batches)
    characters = sum(batch.characters for batch in batches)
    return Summary(
        items_total=items_total,
        batches_total=batches_total,
        items=items,
        sentences=_sum(batch.sentences for batch in batches),
        characters=characters,
        batches=len(batches),
        work_s=work_s,
        items_per_s=items / work_s if work_s > 0 else None,
        batch_mean_s=work_s / len(batches) if batches else None,
        batch_p50_s=quantile(seconds, 0.50),
        batch_p95_s=quantile(seconds, 0.95),
        padding_efficiency=_efficiency(batches),
        load_max=max((batch.load for batch in batches), default=None),
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which ``share`` of the sorted values lie, linearly interpolated."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum, or ``None`` where a value is unknown or there is none."""
    known = list(values)
    return None if not known or None in known else sum(value for value in known if value is not None)


def _efficiency(batches: Sequence[Batch]) -> float | None:
    padded = _sum(batch.padded_chars for batch in batches)
    return min(1.0, sum(batch.characters for batch in batches) / padded) if padded else None
