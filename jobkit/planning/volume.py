"""The text of `jobkit recommend --corpus`: a number of paragraphs, a text, or what an extension reads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from jobkit.answers.loads import loads_of
from jobkit.answers.speed import CorpusVolume
from jobkit.core.errors import JobkitError
from jobkit.core.extensions import load_all
from jobkit.core.paths import cache_dir
from jobkit.core.records import Record
from jobkit.planning.texts import cached_lengths, find_text, paragraphs_of

MOST_PARAGRAPHS = 10**12
NUMBERS = "2000000, 2,000,000, 2_000_000 or 2e6"
_NUMBER = re.compile(r"-?(\d+|\d{1,3}([,_]\d{3})+)(\.\d+)?([eE][+]?\d{1,3})?", re.ASCII)
"""A number as people and programs write it; one out of range is refused as a number, not as a file."""


def read_corpora(texts: Sequence[str], records: Sequence[Record], *, skip_bad: bool = False) -> CorpusVolume:
    """Return the user's corpus: files and folders that an extension can read, else as `read_corpus`."""
    found = (read(texts, skip_bad=skip_bad) for read in load_all("volume"))
    return next(filter(None, found), None) or read_corpus(texts[0], records)


def read_corpus(text: str, records: Sequence[Record]) -> CorpusVolume:
    """Return the user's corpus: a number of paragraphs, or a file; ``records`` may tell its lengths."""
    if (number := _NUMBER.fullmatch(text)) and not Path(text).exists():
        return CorpusVolume(paragraphs=_paragraphs(number[0]))
    try:
        ref = find_text(text, base=Path(), cache=cache_dir(), write=False)
    except JobkitError as error:
        hint = f"a number of paragraphs ({NUMBERS}), a text that is here, or sample"
        if text.startswith(("http://", "https://")):
            hint = f"fetch the text first, and name the file: curl -LO {shlex.quote(text)}"
        raise JobkitError(f"--corpus {text}: {error.message}", hint=hint) from error
    paragraphs = paragraphs_of(ref)
    point = records[0].point if records else None
    lengths = cached_lengths(point.workload, ref, point.model, cache_dir()) if point else None
    return CorpusVolume(
        name=text,
        paragraphs=len(paragraphs),
        characters=sum(map(len, paragraphs)),
        loads=loads_of(lengths, [replace(record.point, every=1) for record in records]),
    )


def _paragraphs(number: str) -> int:
    count = Decimal(number.replace(",", "").replace("_", ""))
    why = "" if 1 <= count <= MOST_PARAGRAPHS else f"is not between 1 and {MOST_PARAGRAPHS:,} paragraphs"
    if not why and count % 1:
        why = "is not a whole number"
    if why:
        raise JobkitError(f"--corpus {number} {why}", hint=f"for instance {NUMBERS}; or name a file")
    return int(count)
