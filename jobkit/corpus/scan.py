"""Read a corpus once: digests, pieces, and all that is bad."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from jobkit.core.errors import JobkitError
from jobkit.corpus.plan import Bad, Corpus, Piece, Source
from jobkit.corpus.scanning.doubled import Read, doubled, hashes_of, lines_before
from jobkit.corpus.scanning.findings import Findings, refusal
from jobkit.corpus.scanning.ids import Ids
from jobkit.corpus.scanning.one_part import scan_part, scan_parts
from jobkit.corpus.scanning.parts import PieceRow
from jobkit.corpus.scanning.pool import cores, in_order
from jobkit.corpus.scanning.tasks import tasks
from jobkit.corpus.sources import JSONL, Found

_ALONE_BYTES = 2**24
"""A smaller corpus is read by this process: to start others takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What was read.

    Attributes
    ----------
    corpus
        To be written as ``corpus.json``; what was bad is in its ``skipped``.
    pieces
        In corpus order.
    """

    corpus: Corpus
    pieces: list[Piece]


def scan(
    found: Sequence[Found],
    *,
    text_field: str = "text",
    id_field: str = "id",
    skip_bad: bool = False,
    processes: int | None = None,
    seen: Callable[[int], object] = lambda _: None,
) -> Scan:
    """Read a corpus once, on all cores.

    Parameters
    ----------
    found
        Of `jobkit.corpus.sources.find_sources`.
    text_field, id_field
        Of JSONL documents.
    skip_bad
        Whether to leave out what cannot be read: a text file, an archive, or a line of JSONL.
    processes
        How many read; by default one for each core.
    seen
        Called from time to time with the bytes of files that were read since the last call.

    Raises
    ------
    JobkitError
        If something is bad and not to be skipped: the message has all of it. If no paragraph is left.
    """
    size = sum(one.size_bytes for one in found)
    number = processes or (1 if size < _ALONE_BYTES else cores())
    findings = Findings()
    findings.add_names(found)
    with closing(Ids()) as ids:
        reads = _read(found, (text_field, id_field), findings, ids, number, seen)
        for place, line, reason in doubled(reads, ids, findings.files):
            findings.add(place, reads[place][0], [(line, reason)])
    listed = findings.listed(found, reads)
    if listed and not skip_bad:
        raise refusal(listed, found)
    again = list(findings.parts_again(reads))
    for (place, part), result in zip(
        again, in_order(scan_part, [part for _, part in again], number), strict=True
    ):
        reads[place] = (part, result)
    return _result(found, reads, findings, [bad for _, bad in listed], (text_field, id_field))


def _read(
    found: Sequence[Found],
    fields: tuple[str, str],
    findings: Findings,
    ids: Ids,
    processes: int,
    seen: Callable[[int], object],
) -> list[Read]:
    """Read every part once, and note what is bad."""
    todo = list(tasks(found, fields, set(findings.files)))
    reads: list[Read] = []
    for task, results in zip(todo, in_order(scan_parts, todo, processes), strict=True):
        for part, result in zip(task, results, strict=True):
            ids.add(hashes_of(part, result))
            result.ids.clear()
            reads.append((part, result))
            seen(0 if part.digest else (part.stop or part.size_bytes) - part.start)
    for number, ((part, result), before) in enumerate(zip(reads, lines_before(reads), strict=True)):
        findings.add(number, part, result.bad, before)
    return reads


def _result(
    found: Sequence[Found],
    reads: Sequence[Read],
    findings: Findings,
    skipped: Sequence[Bad],
    fields: tuple[str, str],
) -> Scan:
    kept = [number for number in range(len(found)) if number not in findings.files]
    left = [read for read in reads if read[0].source not in findings.files]
    digests = {part.source: result.sha256 for part, result in left if result.sha256}
    sources = tuple(_source(found[number], digests[number]) for number in kept)
    pieces = list(_pieces(left, {number: place for place, number in enumerate(kept)}))
    corpus = Corpus(
        sources=sources,
        text_field=fields[0],
        id_field=fields[1],
        skipped=tuple(skipped),
        documents=sum(source.kind != JSONL for source in sources)
        + sum(result.documents for _, result in left),
        paragraphs=sum(piece.paragraphs for piece in pieces),
        characters=sum(piece.characters for piece in pieces),
    )
    if not pieces:
        raise JobkitError("the corpus holds no paragraph", hint="see --corpus and --text-field")
    return Scan(corpus=corpus, pieces=pieces)


def _source(one: Found, sha256: str) -> Source:
    return Source(
        path=one.path,
        name=one.name,
        kind=one.kind,
        compression=one.compression,
        size_bytes=one.size_bytes,
        mtime_ns=one.mtime_ns,
        sha256=sha256,
    )


def _pieces(reads: Sequence[Read], places: dict[int, int]) -> Iterator[Piece]:
    """Yield the pieces of all parts; what counted from a part counts from its file."""
    source = -1
    lines = paragraphs = given = 0
    for part, result in reads:
        if part.source != source:
            source = part.source
            lines = paragraphs = given = 0
        # Of JSONL a piece counts paragraphs and characters from its own document.
        base = (lines, 0, 0) if part.kind == JSONL else (0, paragraphs, given)
        for row in result.pieces:
            yield _piece(row, places[source], base)
        result.pieces.clear()
        lines += result.lines
        paragraphs += result.paragraphs
        given += result.given


def _piece(row: PieceRow, source: int, base: tuple[int, int, int]) -> Piece:
    return Piece(
        source=source,
        start=row.start,
        end=row.end,
        skip=row.skip,
        line=row.line and base[0] + row.line,
        first_paragraph=base[1] + row.first_paragraph,
        first_character=base[2] + row.first_character,
        paragraphs=row.paragraphs,
        characters=row.characters,
        longest=row.longest,
        sha256=row.sha256.hex(),
    )
