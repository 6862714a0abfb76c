"""Cut pieces into shards of equal load: pure arithmetic. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jobkit.corpus.plan import Piece


def cut(pieces: Sequence[Piece], loads: Sequence[float], number: int) -> list[list[Piece]]:
    """Return the pieces in shards of nearly equal load, each of consecutive ones.

    Parameters
    ----------
    pieces
        In corpus order; after a new plan there may be gaps between them.
    loads
        The estimated load of each piece.
    number
        How many shards; fewer are made if there are fewer pieces, see `cut_loads`.
    """
    bounds = cut_loads(loads, number)
    return [list(pieces[start:end]) for start, end in pairwise(bounds)]


def cut_loads(loads: Sequence[float], number: int) -> list[int]:
    """Return the bounds of the shards: shard ``k`` has the loads from ``bounds[k]`` to ``bounds[k + 1]``.

    A load that is larger than the share of a shard is a shard of its own, and the others are equal to each
    other; then there may be a few shards more or fewer.
    """
    share = _share(loads, number)
    bounds = [0]
    start = 0
    for place, load in enumerate(loads):
        if load > share:
            bounds += _even(loads, start, place, share)
            bounds.append(place + 1)
            start = place + 1
    return sorted({*bounds, *_even(loads, start, len(loads), share)})


def _share(loads: Sequence[float], number: int) -> float:
    """Return the load of a shard, if each load larger than that is a shard of its own."""
    total, left = sum(loads), max(1, number)
    share = total / left
    for load in sorted((load for load in loads if load > share), reverse=True):
        total, left = total - load, max(1, left - 1)
        share = total / left
    return share


def _even(loads: Sequence[float], start: int, end: int, share: float) -> list[int]:
    """Return the inner bounds and the end of some loads in as many equal shards as their share says."""
    left = sum(loads[start:end])
    number = max(1, round(left / share)) if share else 1
    bounds: list[int] = []
    now = 0.0
    for place in range(start, end):
        load = loads[place]
        if now and len(bounds) < number - 1 and now + load / 2 > left / (number - len(bounds)):
            bounds.append(place)
            left, now = left - now, 0.0
        now += load
    return [*bounds, end]
