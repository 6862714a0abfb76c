"""Corpora for tests: the rule of what a paragraph is, written a second time, and text that strains it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from hypothesis import strategies as st

from jobkit.corpus.plan import Shard, write_plan
from jobkit.corpus.reading import Paragraph, read_shard
from jobkit.corpus.scan import Scan
from jobkit.corpus.shards import cut

WHITE = [chr(code) for code in range(0x3100) if chr(code).isspace()]
NO_WHITE = [
    "\ufeff",
    "\u200b",
    "\u2007x",
    "a",
    "é",
    "漢",
    "😀",
    "\0",
    "“",
    "ä",
    "\u1680x",
    "\x1a",
    "\xad",
    "の",
]
HARD = st.lists(
    st.sampled_from(["\n", "\n\n", "\r", "\r\n", "\r\n\r\n", " ", "\t", *WHITE, *NO_WHITE, "word " * 9]),
    max_size=40,
).map("".join)
"""Text of line ends, white space of every kind, and a few words."""


def reference(text: str) -> list[str]:
    r"""Return the paragraphs of a text with ``\n`` line ends, line by line with the standard library."""
    paragraphs: list[str] = []
    paragraph = ""
    for line in chain(io.StringIO(text), [""]):
        if line.strip():
            paragraph += line
        elif paragraph:
            paragraphs.append(paragraph)
            paragraph = ""
    return paragraphs


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


def read_all(run: Path, shards: Sequence[Shard]) -> list[Paragraph]:
    """Return the paragraphs of all shards, in their order."""
    return [paragraph for shard in shards for paragraph in read_shard(run, shard.index)]
