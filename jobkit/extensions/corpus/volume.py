"""The size of a corpus that is not planned yet, for `jobkit recommend --corpus`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobkit.answers.speed import CorpusVolume
from jobkit.core.units import format_count


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
    from jobkit.corpus.scan import scan  # it brings processes, which a number does not need
    from jobkit.corpus.sources import find_sources

    read = scan(find_sources(texts)).corpus
    name = text if not more else f"{text} and {format_count(len(more), 'more path')}"
    return CorpusVolume(name=name, paragraphs=read.paragraphs, characters=read.characters)
