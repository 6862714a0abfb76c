"""Paragraphs that need more memory than a measured setting may use: found before anything is submitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, CPU, PADDED, numbers
from jobkit.core.units import GIB, format_count, format_memory
from jobkit.extensions.corpus.plan import Corpus, Piece
from jobkit.extensions.corpus.reading import Paragraph, read_pieces
from jobkit.extensions.corpus.setting import AppliedSetting
from jobkit.planning.texts import estimated_lengths
from jobkit.report.recommend.request import MEMORY_FACTOR

MOST_NAMED = 10
LENGTHS: Mapping[str, Callable[[str], Sequence[int]]] = {
    "stanza-ner": lambda text: estimated_lengths([text]).paragraphs[0],
    "count": lambda text: [len(text)],
}
"""How long the items of a paragraph are to a workload; of another workload that is not known."""


@dataclass(frozen=True, slots=True)
class OversizedPiece:
    """A piece with a paragraph that needs more memory than the others may.

    Attributes
    ----------
    piece
        It has a shard of its own.
    where
        The paragraph that needs most, in words.
    longest
        The characters of its longest item, as the framework sees it.
    load
        Of the piece, if it is worked through alone.
    """

    piece: Piece
    where: str
    longest: int
    load: int


def find_heavy(corpus: Corpus, pieces: Sequence[Piece], setting: AppliedSetting) -> list[OversizedPiece]:
    """Return the pieces that must not share a batch with others, by the memory line of the setting.

    Only paragraphs that are longer than the bound allows an item to be are looked at.

    Raises
    ------
    JobkitError
        If the corpus cannot be read again.
    """
    lengths_of = LENGTHS.get(setting.point.workload)
    if setting.memory is None or lengths_of is None:
        return []
    limit = longest_item(setting)
    found = (
        _looked_at(corpus, piece, setting, lengths_of, limit) for piece in pieces if piece.longest > limit
    )
    return [heavy for heavy in found if heavy is not None]


def longest_item(setting: AppliedSetting) -> int:
    """Return how long an item may be in any company: a batch of such items keeps the bound."""
    if setting.memory is None:
        raise AssertionError  # the caller has asked; for the type checker
    together = numbers(setting.point.params).get(BATCH_SIZE, 1)
    if PADDED in setting.point.params:
        together = 1  # an item that is longer than the budget is a batch of its own
    return int(setting.memory.largest.safe_load // max(1, together))


def _looked_at(
    corpus: Corpus,
    piece: Piece,
    setting: AppliedSetting,
    lengths_of: Callable[[str], Sequence[int]],
    limit: int,
) -> OversizedPiece | None:
    """Return a piece if an item in it is really too long."""
    paragraphs = [(one, lengths_of(one.text)) for one in read_pieces(corpus, (piece,))]
    worst, lengths = max(paragraphs, key=lambda pair: max(pair[1], default=0))
    longest = max(lengths, default=0)
    if longest <= limit:
        return None
    items = sum(len(own) for _, own in paragraphs)
    together = numbers(setting.point.params).get(BATCH_SIZE, 1)
    together = 1 if PADDED in setting.point.params else min(together, items)
    return OversizedPiece(piece, _where(corpus, piece, worst), longest, together * longest)


def _where(corpus: Corpus, piece: Piece, paragraph: Paragraph) -> str:
    name = corpus.sources[piece.source].name
    document = "" if paragraph.document == name else f", document {paragraph.document}"
    return f"{name}{document}, paragraph {paragraph.number + 1:,}"


def refuse_too_large(heavy: Sequence[OversizedPiece], setting: AppliedSetting) -> None:
    """Refuse paragraphs that do not fit on the GPU of the setting even alone.

    Raises
    ------
    JobkitError
        With all of them.
    """
    if setting.memory is None or setting.point.device == CPU:
        return
    lines = list(_too_large(heavy, setting.memory.largest.safe_load))
    if not lines:
        return
    more = [f"and {len(lines) - MOST_NAMED:,} more"] if len(lines) > MOST_NAMED else []
    bound = format_memory(setting.memory.largest.capacity_bytes)
    head = f"{format_count(len(lines), 'paragraph')} too large for the GPU, by the bound of {bound}:"
    raise JobkitError(
        "\n  ".join([head, *lines[:MOST_NAMED], *more]),
        hint="cut these sentences, or measure the setting on a GPU with more memory",
    )


def _too_large(heavy: Sequence[OversizedPiece], safe_load: float) -> Iterator[str]:
    for one in heavy:
        if one.load > safe_load:
            yield f"{one.where}: a sentence of {one.longest:,} characters"


def memory_of(heavy: OversizedPiece, setting: AppliedSetting, usual_bytes: int) -> int:
    """Return the RAM that the shard of a heavy piece requests."""
    line = setting.memory.line if setting.memory else ""
    if isinstance(line, str) or setting.point.device != CPU:
        return usual_bytes
    needed = line.upper(heavy.load)
    return max(usual_bytes, math.ceil(MEMORY_FACTOR * needed / GIB) * GIB)
