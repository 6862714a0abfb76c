"""A corpus, and its plan by hand: the shards of a run folder without `jobkit apply`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from jobkit.core.json_codec import to_json
from jobkit.core.layout import CORPUS_FILE, POINTS_FILE
from jobkit.core.records import Point, TextRef
from jobkit.extensions.corpus.plan import ROWS_FILE, Corpus, Piece, Shard, Source, write_plan
from jobkit.extensions.corpus.readers import Paragraph, given_offset, numbered

PIECE = 10
"""Paragraphs of a piece; of a long text more, so that there are at most a hundred."""


def write_shards(run: Path, documents: Mapping[str, str], setting: Point, shards: int = 1) -> list[Point]:
    """Write documents next to a run folder, and the plan of their shards in it; return the points."""
    sources, pieces, run_path = [], list[Piece](), run / CORPUS_FILE
    for name, text in documents.items():
        path = run.parent / name
        path.write_bytes(text.encode())
        sources.append(_source(path))
        pieces += _pieces(len(sources) - 1, name, text)
    total = sum(piece.characters for piece in pieces)
    paragraphs = sum(piece.paragraphs for piece in pieces)
    corpus = Corpus(sources=tuple(sources), documents=len(sources), paragraphs=paragraphs, characters=total)
    per_shard = -(-len(pieces) // shards)
    cuts = [tuple(pieces[at : at + per_shard]) for at in range(0, len(pieces), per_shard)]
    write_plan(run, corpus, [Shard(index=n, pieces=cut, load=1) for n, cut in enumerate(cuts, 1)])
    points = [shard_point(setting, n, run_path) for n in range(1, len(cuts) + 1)]
    (run / POINTS_FILE).write_text("".join(f"{to_json(one)}\n" for one in points), encoding="utf-8")
    return points


def shard_point(setting: Point, index: int, corpus: Path) -> Point:
    """Return the point of a shard."""
    text = TextRef(path=str(corpus), sha256="", size_bytes=1000, name="corpus")
    return replace(setting, index=index, point_id=f"shard-{index:05d}", shard=True, text=text)


def _source(path: Path) -> Source:
    data, status = path.read_bytes(), path.stat()
    return Source(
        path=str(path),
        name=path.name,
        kind="text",
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _pieces(source: int, name: str, given: str) -> Iterator[Piece]:
    paragraphs, place, start = numbered(name, given, 0, 0), 0, 0
    size = max(PIECE, given.count("\n\n") // 100)
    while some := list(islice(paragraphs, size)):
        first, last = some[0].offset, given_offset(some[-1], len(some[-1].text))
        start += len(given[place:first].encode())
        data = given[first:last].encode()
        yield Piece(
            source=source,
            start=start,
            end=start + len(data),
            first_paragraph=some[0].number,
            first_character=first,
            paragraphs=len(some),
            characters=_characters(some),
            longest=max(len(one.text) for one in some),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        place, start = last, start + len(data)


def _characters(paragraphs: Sequence[Paragraph]) -> int:
    return sum(len(one.text) for one in paragraphs)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a try."""
    lines = (folder / ROWS_FILE).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
