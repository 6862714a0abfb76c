"""Name the documents whose id another document has."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress

from jobkit.corpus.decompress import open_stream, skip
from jobkit.corpus.documents import BOM, BadLineError, Fields, generated_id, parse_line
from jobkit.corpus.scanning.ids import Ids
from jobkit.corpus.scanning.jsonl import id_hash, lines_of, source_of
from jobkit.corpus.scanning.parts import Part, PartResult

Read = tuple[Part, PartResult]


def hashes_of(part: Part, result: PartResult) -> bytes:
    """Return the hashes of the ids of a part; a text file's id is its name."""
    if part.kind == "jsonl":
        return bytes(result.ids)
    return b"" if part.digest or part.start else id_hash(part.name)


def lines_before(reads: Sequence[Read]) -> list[int]:
    """Return for each part how many lines of its file are before it."""
    found: list[int] = []
    source, lines = -1, 0
    for part, result in reads:
        lines = lines if part.source == source else 0
        source = part.source
        found.append(lines)
        lines += result.lines
    return found


def doubled(reads: Sequence[Read], ids: Ids, dropped: Container[int]) -> Iterator[tuple[int, int, str]]:
    """Yield the part, the line in it and the reason of each document whose id an earlier one has.

    Parameters
    ----------
    reads
        The parts, in corpus order.
    ids
        To which `hashes_of` each part was added.
    dropped
        The sources that are left out.
    """
    repeated, sources = ids.repeated(), _likened(reads)
    first: dict[str, str] = {}
    before = lines_before(reads)
    for number in sorted({*(ids.parts_with(repeated) if repeated else ()), *_parts_of(reads, sources)}):
        part, result = reads[number]
        if part.source in dropped:
            continue
        for line, name in _names(part, result, before[number]):
            if id_hash(name) not in repeated and source_of(name) not in sources:
                continue
            place = f"{part.name}:{before[number] + line}" if line else part.name
            if name in first:
                yield number, line, f"the id {name!r} is also that of {first[name]}"
            first.setdefault(name, place)


def _likened(reads: Sequence[Read]) -> set[str]:
    """Return the files with documents without an id whose ids others may have been given."""
    unnamed = {part.name for part, result in reads if result.unnamed}
    texts = {source_of(part.name) for part, _ in reads if part.kind != "jsonl"} if unnamed else set()
    return unnamed & texts.union(*(result.likened for _, result in reads))


def _parts_of(reads: Sequence[Read], sources: set[str]) -> Iterator[int]:
    """Yield the number of each part with an id that one without an id may have."""
    for number, (part, result) in enumerate(reads):
        unnamed = result.unnamed and part.name in sources
        if unnamed or not sources.isdisjoint(result.likened) or source_of(part.name) in sources:
            yield number


def _names(part: Part, result: PartResult, before: int) -> Iterator[tuple[int, str]]:
    """Yield line and id of the documents of a part, which has so many lines of its file before it."""
    if part.kind != "jsonl":
        yield 0, part.name
        return
    fields = Fields(part.text_field, part.id_field)
    with open_stream(part.path, part.compression) as stream:
        skip(stream, result.start)
        place = result.start
        for number, line in enumerate(lines_of(stream), 1):
            if place >= result.end:
                return
            with suppress(BadLineError):  # it is reported, or blank
                name = parse_line(line.removeprefix(BOM) if place == 0 else line, fields).id
                yield number, generated_id(part.name, before + number) if name is None else name
            place += len(line)
