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

MINUTES = 30.0  # time of a shard by default
UNKNOWN_BYTES = 4 * MIB  # size of a shard if no speed is known
SLOW = 0.99  # a shard that takes longer than this share of such shards is named
CHARACTER_BYTES = 4
PARAGRAPH_BYTES = 1024  # RAM of a paragraph besides its characters, its rows included
STREAM_BYTES = 64 * MIB  # RAM for the part of the corpus that is read ahead
WINDOWS = 3  # held at a time: one is read, one is worked on, one is written


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions:
    minutes: float = MINUTES  # how long each may take
    number: int | None = None  # of shards; ``None``: it follows from the time of each


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusPlan:
    shards: tuple[Shard, ...]
    each: Duration | None  # how long the largest shard takes; ``None`` if no speed is known
    whole: Duration | None  # how long all take, one after the other
    resources: Resources  # what each requests
    measured: Resources  # what each would request if a person had set nothing
    needs: Mapping[int, tuple[str, ...]]  # by index the shards that request more, as ``key=value``
    even: int  # how many shards are of equal load: the others are of a large paragraph each

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
    """Return pieces cut into shards of equal load; each heavy piece gets a shard at the end."""
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
    sizes = [memory_of(one, setting, resources.memory) for one in heavy]
    return {
        shard.index: (f"resources.memory={format_size(size)}",)
        for shard, size in zip(shards, sizes, strict=True)
        if size > resources.memory
    }


def _number(pieces: Sequence[Piece], setting: AppliedSetting, wishes: ShardOptions) -> int:
    if wishes.number:
        return wishes.number
    if setting.speed is None:
        return math.ceil(sum(piece.end - piece.start for piece in pieces) / UNKNOWN_BYTES)
    start_s, allowed_s = setting.speed.start_s, 60 * wishes.minutes
    items = sum(piece.paragraphs for piece in pieces)
    whole = duration(setting.speed, items=items, characters=sum(piece.characters for piece in pieces))
    # A start is part of a shard; if it takes most of one, the shard is longer than was wished.
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
    """Return the points of shards, made from a shard with the setting; the first plan is number 1."""
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
