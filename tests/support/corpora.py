"""Corpora for tests: the rule of what a paragraph is, written a second time, and text that strains it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path

from hypothesis import strategies as st

from jobkit.core.json_codec import to_json
from jobkit.core.layout import POINTS_FILE, try_folder
from jobkit.core.records import Point
from jobkit.extensions.corpus.plan import Shard, cut, read_corpus, read_planned, write_plan
from jobkit.extensions.corpus.readers import Paragraph, read_pieces
from jobkit.extensions.corpus.rows import RowsFile
from jobkit.extensions.corpus.scan import Scan
from tests.support.builders import point

WHITE = [chr(code) for code in range(0x3100) if chr(code).isspace()]
NO_WHITE = ["\u2007x", "\u1680x", *"\ufeff\u200baé漢😀\0“ä\x1a\xadの"]
HARD = st.lists(
    st.sampled_from(["\n", "\n\n", "\r", "\r\n", "\r\n\r\n", " ", "\t", *WHITE, *NO_WHITE, "word " * 9]),
    max_size=40,
).map("".join)
"""Text of line ends, white space of every kind, and a few words."""


def reference(text: str) -> list[str]:
    r"""Return the paragraphs of a text with ``\n`` line ends, line by line with the standard library."""
    lines = chain(io.StringIO(text), [""])
    return [
        "".join(paragraph) for black, paragraph in groupby(lines, lambda line: bool(line.strip())) if black
    ]


def read_as_text(data: bytes) -> str:
    """Return bytes as ``Path.read_text`` with utf-8-sig does."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()


def jsonl(documents: Sequence[dict[str, object]]) -> str:
    """Return documents as JSON lines."""
    return "".join(json.dumps(document) + "\n" for document in documents)


def plan(run: Path, scan: Scan, number: int) -> list[Shard]:
    """Write a plan of so many shards into a run folder, and return them."""
    loads = [piece.characters for piece in scan.pieces]
    shards = [
        Shard(index=index, pieces=tuple(pieces), load=sum(piece.characters for piece in pieces))
        for index, pieces in enumerate(cut(scan.pieces, loads, number), 1)
    ]
    write_plan(run, scan.corpus, shards)
    return shards


def read_shard(run: Path, index: int) -> Iterator[Paragraph]:
    """Yield the paragraphs of a shard, as a node reads them."""
    return read_pieces(read_corpus(run), read_planned(run, index).pieces)


def read_all(run: Path, shards: Sequence[Shard]) -> list[Paragraph]:
    """Return the paragraphs of all shards, in their order."""
    return [paragraph for shard in shards for paragraph in read_shard(run, shard.index)]


def points_of(run: Path, shards: Sequence[Shard]) -> list[Point]:
    """Write ``points.jsonl`` with a point for each shard, and return the points."""
    points = [
        replace(point(shard.index), point_id=f"shard-{shard.index:05d}", shard=True) for shard in shards
    ]
    (run / POINTS_FILE).write_text("".join(to_json(one) + "\n" for one in points), encoding="utf-8")
    return points


def work(
    run: Path, index: int, try_number: int = 1, columns: Sequence[str] = ("label", "start", "end")
) -> Path:
    """Work through a shard as a try does: a row for each word; return the folder of the try."""
    folder = Path(try_folder(run, f"shard-{index:05d}", try_number))
    folder.mkdir(parents=True, exist_ok=True)
    rows, paragraphs = list[tuple[object, ...]](), list(read_shard(run, index))
    for number, paragraph in enumerate(paragraphs):
        for word in re.finditer(r"\w+", paragraph.text):
            values = {"label": word[0], "start": word.start(), "end": word.end(), "sentence": 0}
            values |= {"token": word[0], "tag": "O", "extra": None if len(word[0]) % 2 else len(word[0])}
            rows.append((number, *(values[name] for name in columns)))
    write_result(folder, columns, rows, paragraphs)
    return folder


def write_result(
    folder: Path, columns: Sequence[str], rows: list[tuple[object, ...]], paragraphs: Sequence[Paragraph]
) -> None:
    """Write the result of a shard, in one part."""
    output = RowsFile(folder)
    output.open(columns)
    failed = True
    try:
        output.write([*output.encode(rows, 0, paragraphs)], 0, paragraphs)
        failed = False
    finally:
        output.close((), failed=failed)
