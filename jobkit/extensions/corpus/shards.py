"""Cut a corpus into shards: how many, how long each takes, and what it requests. Pure but for the corpus."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from jobkit.answers.speed import Duration, duration, total, upper
from jobkit.core.errors import JobkitError
from jobkit.core.layout import CORPUS_FILE
from jobkit.core.records import Point, TextRef
from jobkit.core.units import MIB, format_size
from jobkit.extensions.corpus.oversized import OversizedPiece, memory_of
from jobkit.extensions.corpus.plan import Corpus, Piece, Shard, cut
from jobkit.extensions.corpus.setting import AppliedSetting
from jobkit.runs.request import enough
from jobkit.spec.sweep_spec import Resources, SweepSpec

MINUTES = 30.0
"""How long a shard takes if no one says."""
UNKNOWN_BYTES = 4 * MIB
"""Of a shard if no speed is known."""
SLOW = 0.99
"""A shard that takes longer than this part of such shards is named."""
CHARACTER_BYTES = 4
PARAGRAPH_BYTES = 1024
"""Of a paragraph in Python besides its characters, its rows included."""
STREAM_BYTES = 64 * MIB
"""For the part of the corpus that is read ahead."""
WINDOWS = 3
"""So many windows are held at a time: one that is read, one that is worked on, one that is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions:
    """What a person wants of the shards.

    Attributes
    ----------
    minutes
        How long each may take.
    number
        How many there are; ``None`` for as many as the time of each makes.
    """

    minutes: float = MINUTES
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusPlan:
    """A corpus cut into shards.

    Attributes
    ----------
    each
        How long the largest shard takes; ``None`` if no speed is known.
    whole
        How long all take, one after the other.
    resources
        What each requests.
    measured
        What each would request if a person had set nothing.
    needs
        By index the shards that request more, as ``key=value``.
    even
        How many shards are of equal load: the others are of a large paragraph each.
    """

    shards: tuple[Shard, ...]
    each: Duration | None
    whole: Duration | None
    resources: Resources
    measured: Resources
    needs: Mapping[int, tuple[str, ...]]
    even: int

    @property
    def spread(self) -> float:
        """How far the loads differ at most, as a share of the largest."""
        loads = [shard.load for shard in self.shards[: self.even]]
        largest = max(loads, default=0)
        return 1 - min(loads) / largest if largest else 0.0


def plan_shards(
    pieces: Sequence[Piece],
    setting: AppliedSetting,
    wishes: ShardOptions,
    *,
    first: int = 1,
    heavy: Sequence[OversizedPiece] = (),
) -> CorpusPlan:
    """Return a corpus, or the rest of one, cut into shards of equal load.

    Parameters
    ----------
    pieces
        Of the corpus, in its order.
    setting
        That works through it.
    wishes
        How long a shard may take, or how many there are to be.
    first
        The index of the first shard.
    heavy
        Pieces with a shard of their own, behind the others.
    """
    if not pieces:
        raise JobkitError("the corpus holds no paragraph", hint="name the files with --corpus")
    alone = [one.piece for one in heavy]
    pieces = [piece for piece in pieces if piece not in alone] if alone else pieces
    loads = [max(1, piece.characters) for piece in pieces]
    number = min(_number(pieces, setting, wishes), len(pieces))
    parts = [part for part in cut(pieces, loads, number) if part] if pieces else []
    parts += [[piece] for piece in alone]
    times = [
        _time(part, setting, forked=setting.spares_import and place > 0) for place, part in enumerate(parts)
    ]
    shards = tuple(map(_shard, count(first), parts, times))
    known = [time for time in times if time]
    each = max(known, key=lambda time: time.expected_s, default=None)
    measured = enough(
        setting.spec.resources,
        held_bytes=setting.peak_bytes,
        longest_s=each.longest_s if each else None,
        warning_s=setting.site.warning_s,
        text_bytes=window_bytes(shards, setting.spec),
    )
    resources = _resources(measured, setting)
    return CorpusPlan(
        shards=shards,
        each=each,
        whole=total(known) if known else None,
        resources=resources,
        measured=measured,
        needs=_needs(shards[len(shards) - len(heavy) :], heavy, setting, resources),
        even=len(shards) - len(heavy),
    )


def _needs(
    shards: Sequence[Shard], heavy: Sequence[OversizedPiece], setting: AppliedSetting, resources: Resources
) -> dict[int, tuple[str, ...]]:
    """Return what the shards of heavy pieces request beyond the others."""
    sizes = [memory_of(one, setting, resources.memory) for one in heavy]
    return {
        shard.index: (f"resources.memory={format_size(size)}",)
        for shard, size in zip(shards, sizes, strict=True)
        if size > resources.memory
    }


def _number(pieces: Sequence[Piece], setting: AppliedSetting, wishes: ShardOptions) -> int:
    """Return how many shards there are to be."""
    if wishes.number:
        return wishes.number
    if setting.speed is None:
        return math.ceil(sum(piece.end - piece.start for piece in pieces) / UNKNOWN_BYTES)
    start_s, allowed_s = setting.speed.start_s, 60 * wishes.minutes
    items = sum(piece.paragraphs for piece in pieces)
    whole = duration(setting.speed, items=items, characters=sum(piece.characters for piece in pieces))
    # A start is part of a shard; where it takes most of one, the shard is longer than was wished.
    return math.ceil((whole.expected_s - start_s) / max(allowed_s - start_s, allowed_s / 2))


def _shard(index: int, pieces: Sequence[Piece], time: Duration | None) -> Shard:
    load = sum(piece.characters for piece in pieces)
    shard = Shard(index=index, pieces=tuple(pieces), load=load)
    if time is None:
        return shard
    return replace(
        shard, expected_s=time.expected_s, low_s=time.low_s, high_s=time.high_s, slow_s=upper(time, SLOW)
    )


def _time(pieces: Sequence[Piece], setting: AppliedSetting, *, forked: bool) -> Duration | None:
    if setting.speed is None:
        return None
    items, characters = (
        sum(getattr(piece, name) for piece in pieces) for name in ("paragraphs", "characters")
    )
    return duration(setting.speed, items=items, characters=characters, forked=forked, past=setting.past)


def _resources(measured: Resources, setting: AppliedSetting) -> Resources:
    """Return what a shard requests: as a person has set it, else by what was measured."""
    given = set(setting.given)
    keys = [key for key in ("memory", "walltime") if given & {"resources", f"resources.{key}"}]
    return measured.model_copy(update={key: getattr(setting.spec.resources, key) for key in keys})


def window_bytes(shards: Sequence[Shard], spec: SweepSpec) -> int:
    """Return the RAM for the paragraphs that a worker holds at a time, and for what is read ahead."""
    number = sum(shard.paragraphs for shard in shards)
    mean = sum(shard.characters for shard in shards) / max(1, number)
    window = min(spec.sort_window or number, max(shard.paragraphs for shard in shards))
    return STREAM_BYTES + round(WINDOWS * window * (CHARACTER_BYTES * mean + PARAGRAPH_BYTES))


def points_of(
    shards: Sequence[Shard],
    template: Point,
    run_dir: Path,
    run_id: str,
    corpus: Corpus,
    *,
    plan_number: int = 1,
) -> tuple[Point, ...]:
    """Return the points of shards.

    Parameters
    ----------
    template
        A shard with the setting.
    run_dir
        The run folder to be.
    run_id
        The name of its jobs.
    corpus
        What they are part of.
    plan_number
        1 for the first plan, 2 for the first that was made again.
    """
    path, name = str(run_dir / CORPUS_FILE), corpus.sources[0].name
    return tuple(
        replace(
            template,
            run_id=run_id,
            index=shard.index,
            point_id=f"shard-{shard.index:05d}",
            repeat=plan_number,
            text=TextRef(
                path=path,
                sha256="",
                size_bytes=sum(piece.end - piece.start for piece in shard.pieces),
                name=name,
            ),
        )
        for shard in shards
    )
