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
        How many shards; fewer are made if there are fewer pieces.
    """
    bounds = cut_loads(loads, number)
    return [list(pieces[start:end]) for start, end in pairwise(bounds)]


def cut_loads(loads: Sequence[float], number: int) -> list[int]:
    """Return the bounds of the shards: shard ``k`` has the loads from ``bounds[k]`` to ``bounds[k + 1]``."""
    number = max(1, min(number, len(loads)))
    total, done, bounds = sum(loads), 0.0, [0]
    for place, load in enumerate(loads):
        goal = total * len(bounds) / number
        if len(bounds) < number and place > bounds[-1] and done + load / 2 > goal:
            bounds.append(place)
        done += load
    return [*bounds, len(loads)]
