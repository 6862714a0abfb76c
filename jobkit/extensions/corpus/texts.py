"""What a person names as a corpus: its paths, and its size before it is planned."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jobkit.answers.speed import CorpusVolume
from jobkit.core.units import format_count
from jobkit.planning.texts import SAMPLE, find_text


def volume(texts: Sequence[str]) -> CorpusVolume | None:
    """Return the size of all that ``jobkit apply`` would read; ``None`` of one that may be a plain text.

    Parameters
    ----------
    texts
        Files and folders of any kind that a corpus may have.

    Raises
    ------
    JobkitError
        With all that cannot be read.
    """
    text, *more = texts
    if not (more or Path(text).is_dir() or text.endswith((".gz", ".zst", ".jsonl"))):
        return None
    from jobkit.extensions.corpus.scan import scan  # it brings processes, which a number does not need
    from jobkit.extensions.corpus.sources import find_sources

    read = scan(find_sources(texts)).corpus
    name = text if not more else f"{text} and {format_count(len(more), 'more path')}"
    return CorpusVolume(name=name, paragraphs=read.paragraphs, characters=read.characters)


def corpus_path(word: str, cache: Path) -> str:
    """Return the path of a corpus that a person names; of ``sample``, unless a file has that name, its file.

    Raises
    ------
    JobkitError
        As `find_text`.
    """
    if Path(word).exists() or not SAMPLE.fullmatch(word):
        return os.path.expanduser(word)  # noqa: PTH111 - it leaves the ~ of an unknown user as it is
    return find_text(word, base=Path(), cache=cache).path
