"""The lengths of a text's items: as the workload finds them, from the cache, or estimated."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from jobkit.errors import JobkitError
from jobkit.lengths import PUNCTUATION, Lengths
from jobkit.models import NOT_BUILT
from jobkit.places import CACHE_VARIABLE, made_folder, share
from jobkit.record_files import write_atomically
from jobkit.records import ModelRef, TextRef
from jobkit.run.order import split_sentences
from jobkit.run.paragraphs import read_paragraphs, split_paragraphs
from jobkit.run.workload import SHIPPED, workload_class
from jobkit.sample import PARAGRAPHS, sample_text
from jobkit.texts import SAMPLE
from jobkit.units import format_count

Say = Callable[[str], None]
Find = Callable[[Sequence[str], ModelRef | None], Sequence[Sequence[int]]]
"""A workload's own ``lengths``; see `jobkit.run.workload.Workload`."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def paragraphs_of(text: TextRef) -> list[str]:
    """Return the paragraphs of a text that was found; the sample need not be on disk."""
    sample = SAMPLE.fullmatch(text.name)
    if sample and not Path(text.path).exists():
        return split_paragraphs(sample_text(int(sample[1] or PARAGRAPHS)))
    return read_paragraphs(Path(text.path))


def cached_lengths(workload: str, text: TextRef, model: ModelRef | None, cache: Path) -> Lengths | None:
    """Return what `text_lengths` found earlier, ``None`` where it was never asked."""
    path = _kept_at(workload, text, model, cache)
    try:
        return Lengths.from_json(path.read_text(encoding="utf-8"), where=str(path)) if path else None
    except (OSError, UnicodeDecodeError, JobkitError):
        return None  # not there, or spoilt: it is made again


def text_lengths(
    workload: str, text: TextRef, model: ModelRef | None, *, cache: Path, say: Say, fast: bool = False
) -> Lengths:
    """Return the lengths of a text's items, in the units that a workload's framework pads to.

    A workload that does not tell them has none (`Lengths.unknown`). Where they take a model that
    is not there yet, they are estimated.

    Parameters
    ----------
    workload, text, model
        As a point names them.
    cache
        The cache folder: what a shipped workload's model found is kept in its ``lengths/``.
    say
        Told what takes time.
    fast
        Whether to estimate them rather than to use a model.

    Raises
    ------
    JobkitError
        Where the workload fails to find them.
    """
    found, paragraphs = workload_class(workload), paragraphs_of(text)
    find: Find | None = getattr(found, "lengths", None)
    if find is None:
        return Lengths.unknown(len(paragraphs))
    if found.NEEDS_MODEL and (fast or model is None or model.fingerprint == NOT_BUILT):
        return estimated_lengths(paragraphs)
    if kept := cached_lengths(workload, text, model, cache):
        return kept
    if found.NEEDS_MODEL:
        count = format_count(len(paragraphs), "paragraph")
        say(f"finding the lengths of {count} by the model's tokenizer, once")
    lengths = _checked(workload, find, paragraphs, model)
    if path := _kept_at(workload, text, model, cache):
        try:
            made_folder(path.parent)
            write_atomically(path, lengths.to_json() + "\n")
            share(path)
        except OSError as error:
            where = f"{path.parent}: {error.strerror}"
            say(f"they could not be kept in {where} ({CACHE_VARIABLE} names another place)")
    return lengths


def estimated_lengths(paragraphs: Sequence[str]) -> Lengths:
    """Return what punctuation tells of the sentences' lengths: each token and a blank, and one more."""
    rows = (
        tuple(
            1 + sum(len(token) + 1 for token in _TOKEN.findall(text)) for text in split_sentences(paragraph)
        )
        for paragraph in paragraphs
    )
    return Lengths(paragraphs=tuple(rows), source=PUNCTUATION)


def _checked(
    workload: str,
    find: Find,
    paragraphs: Sequence[str],
    model: ModelRef | None,
) -> Lengths:
    try:
        rows = tuple(map(tuple, find(paragraphs, model)))
    except Exception as error:  # a workload may be anybody's, and a framework raises what it likes
        raise JobkitError(
            f"workload {workload}: the lengths of the text could not be found: {error}",
            hint="jobkit preflight --fast estimates them without a model; batch sizes in numbers need none",
        ) from error
    if len(rows) != len(paragraphs):
        raise JobkitError(f"workload {workload}: lengths of {len(rows)} paragraphs, not {len(paragraphs)}")
    return Lengths(paragraphs=rows)


def _kept_at(workload: str, text: TextRef, model: ModelRef | None, cache: Path) -> Path | None:
    """Return where lengths are kept; ``None`` where they are quick to find, or the code may change."""
    if workload not in SHIPPED or model is None:
        return None
    parts = [workload, text.sha256, model.fingerprint, *map(metadata.version, ("jobkit", "stanza"))]
    return cache / "lengths" / f"{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.json"
