"""Paragraphs that no measured batch of a setting covers: found before anything is submitted."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, CPU, PADDED, numbers
from jobkit.core.units import format_count, format_memory
from jobkit.extensions.corpus.plan import Corpus, Piece
from jobkit.extensions.corpus.readers import place_of, read_pieces
from jobkit.extensions.corpus.setting import AppliedSetting
from jobkit.planning.texts import estimated_lengths
from jobkit.runs.request import MEMORY_FACTOR, memory_request
from jobkit.schedulers.registry import runs_here

MOST_NAMED = 10
MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
CHARACTER_BYTES = 1024
"""RAM for a character of a paragraph of ordinary sentences: Stanza took 0.75 KiB in one of 400,000."""
UNMEASURED = 100_000  # a longer paragraph gets a shard of its own if nothing was measured
LENGTHS: Mapping[str, Callable[[str], Sequence[int]]] = {
    "stanza-ner": lambda text: estimated_lengths([text]).paragraphs[0],
    "count": lambda text: [len(text)],
}
"""How long the items of a paragraph are to a workload; unknown for a workload that is not here."""


@dataclass(frozen=True, slots=True)
class OversizedPiece:
    piece: Piece  # it has a shard of its own
    where: str  # the paragraph that needs most, in words
    characters: int  # of that paragraph
    longest: int  # the characters of its longest item, as the framework sees it
    load: int  # of the piece, if it is worked through alone
    known: bool  # whether what was measured says how much memory it needs


def find_heavy(corpus: Corpus, pieces: Sequence[Piece], setting: AppliedSetting) -> list[OversizedPiece]:
    """Return the pieces that must not share a shard with others, by what was measured of the setting.

    Only paragraphs that are longer than the bound allows an item to be are read.
    """
    items = longest_item(setting) if setting.point.workload in LENGTHS else None
    limit = min(covered(setting), math.inf if items is None else items)
    found = (_looked_at(corpus, piece, setting, items) for piece in pieces if piece.longest > limit)
    return [heavy for heavy in found if heavy is not None]


def covered(setting: AppliedSetting) -> int:
    """Return the longest permitted paragraph: by a measured call, or by the margin of memory."""
    if setting.peak_bytes is None:
        return UNMEASURED
    return max(setting.call_characters, int((MEMORY_FACTOR - 1) * setting.peak_bytes / CHARACTER_BYTES))


def longest_item(setting: AppliedSetting) -> int | None:
    """Return the permitted length of an item by the memory line; without a line, of an item alone.

    ``None`` if no load was measured.
    """
    if setting.memory is None:
        return setting.call_load or None
    together = numbers(setting.point.params).get(BATCH_SIZE, 1)
    if PADDED in setting.point.params:
        together = 1  # an item that is longer than the budget is a batch of its own
    return int(setting.memory.largest.safe_load // max(1, together))


def _looked_at(
    corpus: Corpus, piece: Piece, setting: AppliedSetting, items: int | None
) -> OversizedPiece | None:
    """Return a piece if a paragraph or an item in it is really too long."""
    lengths_of = LENGTHS.get(setting.point.workload, LENGTHS["count"])
    paragraphs = [(one, lengths_of(one.text)) for one in read_pieces(corpus, (piece,))]
    longest = max(max(own, default=0) for _, own in paragraphs)
    long = items is not None and longest > items
    if not long and piece.longest <= covered(setting):
        return None
    worst, _ = max(paragraphs, key=lambda pair: max(pair[1], default=0) if long else len(pair[0].text))
    number = sum(len(own) for _, own in paragraphs)
    together = numbers(setting.point.params).get(BATCH_SIZE, 1)
    together = 1 if PADDED in setting.point.params else min(together, number)
    known = setting.memory is not None if long else setting.point.workload in LENGTHS
    where = place_of(corpus, piece, worst)
    return OversizedPiece(piece, where, len(worst.text), longest, together * longest, known)


def refuse_too_large(heavy: Sequence[OversizedPiece], setting: AppliedSetting) -> None:
    """Refuse paragraphs whose shard is not known to have the memory that they need."""
    lines = list(_too_large(heavy, setting))
    if not lines:
        return
    more = [f"and {len(lines) - MOST_NAMED:,} more"] if len(lines) > MOST_NAMED else []
    head = f"{format_count(len(lines), 'paragraph')} too large for what was measured of the setting:"
    raise JobkitError(
        "\n  ".join([head, *lines[:MOST_NAMED], *more]),
        hint="put blank lines into the paragraph (sed G FILE puts one after each line); "
        "measure with a text that has such a paragraph; "
        "or name the memory of a shard: --set resources.memory=16GiB",
    )


def _too_large(heavy: Sequence[OversizedPiece], setting: AppliedSetting) -> Iterator[str]:
    given = setting.peak_bytes is None or bool({*setting.given} & {"resources", "resources.memory"})
    largest = None if setting.memory is None or setting.point.device == CPU else setting.memory.largest
    for one in heavy:
        what = f"{one.where}: {one.characters:,} characters, {one.longest:,} in a sentence"
        if not one.known:
            if not given:
                yield f"{what}: no measured batch had so many characters, so its need of memory is not known"
        elif largest and one.load > largest.safe_load:
            yield f"{what}: the bound of the GPU is {format_memory(largest.capacity_bytes)}"
        elif runs_here(setting.spec.scheduler) and (needed := memory_of(one, setting, 0)) > MACHINE_BYTES:
            yield f"{what}: {format_memory(needed)} of {format_memory(MACHINE_BYTES)} on this machine"


def memory_of(heavy: OversizedPiece, setting: AppliedSetting, usual_bytes: int) -> int:
    line, needed = setting.memory.line if setting.memory else "", setting.peak_bytes
    if needed is None or not heavy.known:
        return usual_bytes
    if not isinstance(line, str) and setting.point.device == CPU:
        needed = max(needed, math.ceil(line.upper(heavy.load)))
    if heavy.characters > covered(setting):
        needed += CHARACTER_BYTES * heavy.characters
    return max(usual_bytes, memory_request(needed))
