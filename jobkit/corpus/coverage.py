"""Which pieces of the corpus have a winner: each exactly once, or why not. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from jobkit.core.errors import JobkitError
from jobkit.corpus.plan import Corpus, Piece, Shard, Winner


class Extent(NamedTuple):
    """The rows of one piece: bytes of the ``rows.jsonl`` of the winner of a shard, by its index."""

    shard: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the winners have of a corpus.

    Attributes
    ----------
    extents
        In corpus order, those of consecutive pieces of one shard as one.
    missing
        The pieces that no winner has, and the index of the shard that was last planned for each.
    pieces
        All pieces of the corpus, in its order.
    """

    extents: tuple[Extent, ...]
    missing: tuple[tuple[int, Piece], ...]
    pieces: tuple[Piece, ...]

    @property
    def open_shards(self) -> tuple[int, ...]:
        """The shards that are last planned for the missing pieces."""
        return tuple(sorted({index for index, _ in self.missing}))


def coverage(corpus: Corpus, shards: Iterable[Shard], winners: Mapping[int, Winner]) -> Coverage:
    """Return what the winners have of a corpus.

    Parameters
    ----------
    corpus
        With the number of its paragraphs.
    shards
        All lines of the plan, also those that a later plan replaced.
    winners
        By the index of their shard.

    Raises
    ------
    JobkitError
        If two winners have the same piece, a winner has another number of paragraphs than its shard, or
        the plan does not have the whole corpus.
    """
    won: dict[tuple[int, int, int], Extent] = {}
    planned: dict[tuple[int, int, int], tuple[int, Piece]] = {}
    for shard in shards:
        winner = winners.get(shard.index)
        for piece in shard.pieces:
            planned[_key(piece)] = (shard.index, piece)
        if winner:
            _add(won, shard, winner)
    _check_whole(corpus, (piece for _, piece in planned.values()))
    missing = tuple(planned[key] for key in sorted(planned.keys() - won.keys()))
    pieces = tuple(planned[key][1] for key in sorted(planned))
    return Coverage(_joined(won[key] for key in sorted(won)), missing, pieces)


def _key(piece: Piece) -> tuple[int, int, int]:
    return piece.source, piece.start, piece.skip


def _add(won: dict[tuple[int, int, int], Extent], shard: Shard, winner: Winner) -> None:
    """Add the pieces of a shard that has a winner."""
    if winner.paragraphs != shard.paragraphs:
        numbers = f"{winner.paragraphs:,} paragraphs where the plan has {shard.paragraphs:,}"
        raise JobkitError(f"the result of shard {shard.index} has {numbers}")
    ends = list(accumulate(winner.pieces))
    ends += [winner.size_bytes] * (len(shard.pieces) - len(ends))
    if ends[-1:] != [winner.size_bytes]:
        raise JobkitError(f"the result of shard {shard.index} has rows of no piece of its plan")
    for piece, start, end in zip(shard.pieces, [0, *ends], ends, strict=False):
        key = _key(piece)
        if key in won:
            shards = f"shards {won[key].shard} and {shard.index}"
            raise JobkitError(f"{shards} both have results of the same part of the corpus")
        won[key] = Extent(shard.index, start, end)


def _check_whole(corpus: Corpus, pieces: Iterable[Piece]) -> None:
    """Refuse a plan that lacks a part of the corpus: a line is lost."""
    found = sum(piece.paragraphs for piece in pieces)
    if found != corpus.paragraphs:
        raise JobkitError(f"the plan has {found:,} paragraphs, the corpus {corpus.paragraphs:,}")


def _joined(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    """Join extents that follow each other in the same file."""
    joined: list[Extent] = []
    for extent in extents:
        last = joined[-1] if joined else None
        if last and (last.shard, last.end) == (extent.shard, extent.start):
            joined[-1] = Extent(last.shard, last.start, extent.end)
        else:
            joined.append(extent)
    return tuple(joined)
