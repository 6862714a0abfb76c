"""The text of a sweep out of a corpus: all its paragraphs, or some drawn by chance."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.units import format_bytes_gib, format_count
from jobkit.extensions.corpus.plan import Piece
from jobkit.extensions.corpus.readers import JSONL, TEXT, jsonl_columns, read_pieces
from jobkit.extensions.corpus.scan import CorpusFiles, file_kind, find_sources, grown_bytes, scan, source_at
from jobkit.extensions.corpus.streams import BrokenError
from jobkit.extensions.corpus.tables import TEXT_NAMES, USUAL

MOST_BYTES = 2**28  # of a text that is not drawn: each point reads it whole


def text_of(path: Path, number: int | None, seed: int) -> tuple[str, Callable[[], str]] | None:
    """Return what identifies the text of a corpus, and what reads it; ``None`` of a file that a job can read.

    ``number``: how many paragraphs are drawn, each with the same chance, in corpus order; ``None`` for all.
    """
    with _as_text(path):
        corpus = _files(path, number)
        if corpus is None:
            return None
        size = grown_bytes(corpus.files)
        if number is None and size > MOST_BYTES:
            files = format_count(len(corpus.files), "file")
            raise JobkitError(
                f"about {format_bytes_gib(size)} of text in {files}, which each point would read whole",
                hint="text_sample: 1000 draws so many of its paragraphs",
            )
    known = [(one.path, one.size_bytes, one.mtime_ns) for one in corpus.files]
    key = hashlib.sha256(repr((1, known, number, seed)).encode()).hexdigest()[:16]
    return key, partial(_read, path, corpus, number, seed)


def _files(path: Path, number: int | None) -> CorpusFiles | None:
    kind, compression = ("", "") if path.is_dir() else file_kind(str(path))
    plain = not path.is_dir() and not compression
    if plain and not number and kind in {"", TEXT}:
        return None
    if plain and not kind:
        return CorpusFiles([replace(source_at(str(path), path.name), kind=TEXT)], ())
    found = find_sources([str(path)])
    if plain and not number and kind == JSONL:
        with suppress(OSError, BrokenError):
            return None if jsonl_columns(found.files[0], USUAL).text == "text" else found
    return found


def _read(path: Path, corpus: CorpusFiles, number: int | None, seed: int) -> str:
    with _as_text(path):
        read = scan(corpus)
        total = read.corpus.paragraphs
        if number and number > total:
            hint = "lower text_sample, or leave it out"
            raise JobkitError(f"has {format_count(total, 'paragraph')}, not {number:,}", hint=hint)
        chosen = set(random.Random(seed).sample(range(total), number or total))  # noqa: S311 - not cryptography
        pieces, firsts, first = list[Piece](), list[int](), 0
        for piece in read.pieces:
            if not chosen.isdisjoint(range(first, first + piece.paragraphs)):
                pieces.append(piece)
                firsts.append(first)
            first += piece.paragraphs
        texts, places = list[str](), Counter(dict(enumerate(firsts)))
        for paragraph in read_pieces(read.corpus, tuple(pieces)):
            if places[paragraph.piece] in chosen:
                texts.append(paragraph.text.rstrip("\n") + "\n")
            places[paragraph.piece] += 1
    return "\n".join(texts)


@contextmanager
def _as_text(path: Path) -> Iterator[None]:
    """Let an error name the text, and no option of `jobkit apply`."""
    try:
        yield
    except JobkitError as error:
        message, hint = error.message.removeprefix(f"--corpus {path}: "), error.hint
        if "--skip-bad" in hint:
            names = ", ".join(TEXT_NAMES)
            hint = (
                "correct them, or name other files in the spec (`text`): a sweep leaves nothing out, as "
                f"jobkit apply --skip-bad does; a column of text has one of the names {names}"
            )
        raise JobkitError(f"text {path}: {message}", hint=hint) from error
