"""What a person names as a corpus: its paths, and its size before it is planned."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jobkit.answers.speed import CorpusVolume
from jobkit.core.units import format_count
from jobkit.extensions.corpus.sources import TEXT, find_sources, kind_of
from jobkit.planning.texts import SAMPLE, find_text


def volume(texts: Sequence[str], *, skip_bad: bool) -> CorpusVolume | None:
    """Return the size of all that ``jobkit apply`` would read; ``None`` if it may be a plain text."""
    text, *more = texts
    plain = kind_of(text) == (TEXT, "") and not Path(text).is_dir()
    if not more and (not Path(text).exists() or (plain and not skip_bad)):
        return None
    from jobkit.extensions.corpus.scan import scan  # it brings processes, which a number does not need

    read = scan(find_sources(texts), skip_bad=skip_bad).corpus
    name = text if not more else f"{text} and {format_count(len(more), 'more path')}"
    return CorpusVolume(name=name, paragraphs=read.paragraphs, characters=read.characters)


def corpus_path(word: str, cache: Path) -> str:
    """Return the path of a corpus; ``sample`` names the shipped text, unless a file has that name."""
    if Path(word).exists() or not SAMPLE.fullmatch(word):
        return os.path.expanduser(word)  # noqa: PTH111 - it leaves the ~ of an unknown user as it is
    return find_text(word, base=Path(), cache=cache).path
