"""What each command would request for one setting and one amount of work."""

from __future__ import annotations

from dataclasses import replace

from jobkit.answers.speed import CorpusVolume
from jobkit.core.units import parse_duration, parse_size
from jobkit.extensions.corpus.plan import Piece
from jobkit.extensions.corpus.setting import AppliedSetting
from jobkit.extensions.corpus.shards import ShardOptions, plan_shards
from jobkit.report.recommend.request import RunUse
from jobkit.report.recommend.waste import unused_memory, unused_walltime


def by_apply(setting: AppliedSetting, text: CorpusVolume) -> tuple[int, int]:
    """Return the memory and the walltime that a shard with all of a text requests."""
    assert text.characters
    piece = Piece(
        source=0, start=0, end=1, paragraphs=text.paragraphs, characters=text.characters, longest=1, sha256=""
    )
    found = plan_shards([piece], replace(setting, past=()), ShardOptions(number=1)).measured
    return found.memory, found.walltime


def by_waste(run: RunUse) -> tuple[int | None, int | None]:
    """Return what a run is to request; ``None`` where it wastes nothing."""
    memory, walltime = (
        waste.fix.keys if waste.fix else {} for waste in (unused_memory(run), unused_walltime(run))
    )
    size, clock = memory.get("resources.memory"), walltime.get("resources.walltime")
    return parse_size(str(size)) if size else None, parse_duration(str(clock)) if clock else None
