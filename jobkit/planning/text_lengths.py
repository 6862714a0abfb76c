"""The lengths of a text's items: as the workload finds them, from the cache, or estimated."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import write_atomically
from jobkit.core.paths import CACHE_VARIABLE, make_folder, share_with_group
from jobkit.core.records import ModelRef, TextRef
from jobkit.core.terminal import Say
from jobkit.core.units import format_count
from jobkit.corpus.paragraphs import split_paragraphs
from jobkit.fit.lengths import PUNCTUATION, Lengths
from jobkit.planning.child_process import run_in_child
from jobkit.planning.models.stanza import NOT_BUILT
from jobkit.planning.sample import PARAGRAPHS, sample_text
from jobkit.planning.texts import SAMPLE
from jobkit.planning.workload_traits import Traits, traits
from jobkit.run.paragraphs import read_paragraphs, split_sentences
from jobkit.run.workloads import own
from jobkit.run.workloads.base import CHARACTERS, EXTRAS, SHIPPED, missing_framework

_TOKEN = re.compile(r"\w+|[^\w\s]")


def paragraphs_of(text: TextRef) -> list[str]:
    """Return the paragraphs of a text that was found; the sample need not be on disk."""
    sample = SAMPLE.fullmatch(text.name)
    if sample and not Path(text.path).exists():
        return split_paragraphs(sample_text(int(sample[1] or PARAGRAPHS)))
    return read_paragraphs(Path(text.path))


def cached_lengths(workload: str, text: TextRef, model: ModelRef | None, cache: Path) -> Lengths | None:
    """Return what `text_lengths` found earlier, ``None`` if it was never asked."""
    path = _kept_at(workload, text, model, cache)
    try:
        return Lengths.from_json(path.read_text(encoding="utf-8"), where=str(path)) if path else None
    except (OSError, UnicodeDecodeError, JobkitError):
        return None  # missing, or damaged: it is made again


def text_lengths(  # noqa: PLR0913 - all of them say which lengths are meant
    workload: str,
    text: TextRef,
    model: ModelRef | None,
    *,
    cache: Path,
    say: Say,
    fast: bool = False,
    folder: str | None = None,
) -> Lengths:
    """Return the lengths of a text's items, in the units that a workload's framework pads to.

    A workload that does not report them has none (`Lengths.unknown`). If they need a model that
    is not there yet, they are estimated.

    Parameters
    ----------
    workload, text, model
        As a point names them.
    cache
        The cache folder: the lengths found by a shipped workload's model are kept in its ``lengths/``.
    say
        Prints a line about work that takes time.
    fast
        Whether to estimate them rather than to use a model.
    folder
        The folder in which jobkit looks for the user's own workload: the spec's.

    Raises
    ------
    JobkitError
        If the workload fails to find them.
    """
    known, paragraphs = traits(workload, folder), paragraphs_of(text)
    if not known.reports_lengths:
        return Lengths.unknown(len(paragraphs))
    if known.needs_model and (fast or model is None or model.fingerprint == NOT_BUILT):
        return estimated_lengths(paragraphs, known)
    if kept := cached_lengths(workload, text, model, cache):
        return kept
    if known.needs_model:
        count = format_count(len(paragraphs), "paragraph")
        say(f"finding the lengths of {count} by the model's tokenizer, once")
    rows = _asked(workload, folder, paragraphs, model, say)
    lengths = Lengths(paragraphs=tuple(map(tuple, rows)), unit=known.unit, padded=known.pads)
    if path := _kept_at(workload, text, model, cache):
        try:
            make_folder(path.parent)
            write_atomically(path, lengths.to_json() + "\n")
            share_with_group(path)
        except OSError as error:
            where = f"{path.parent}: {error.strerror}"
            say(f"they could not be kept in {where} ({CACHE_VARIABLE} names another place)")
    return lengths


def lengths_or_estimate(
    workload: str,
    text: TextRef,
    model: ModelRef | None,
    *,
    cache: Path,
    say: Say,
    folder: str | None = None,
) -> Lengths:
    """Return what `text_lengths` finds; an estimate if a shipped workload cannot find them.

    Raises
    ------
    JobkitError
        If a workload of the user's own fails: the fault is in the user's code, and is reported
        before anything is submitted.
    """
    try:
        return text_lengths(workload, text, model, cache=cache, say=say, folder=folder)
    except JobkitError as error:
        if workload not in SHIPPED:
            raise
        say(f"{error.message}; they are estimated from punctuation")
        return estimated_lengths(paragraphs_of(text), traits(workload, folder))


def estimated_lengths(paragraphs: Sequence[str], known: Traits | None = None) -> Lengths:
    """Return the sentences' lengths judged by punctuation: each token and a blank, and one more.

    Of a workload that counts tokens, the words and punctuation marks of each paragraph, and two more.
    """
    if known and known.unit != CHARACTERS:
        tokens = tuple((len(_TOKEN.findall(paragraph)) + 2,) for paragraph in paragraphs)
        return Lengths(paragraphs=tokens, source=PUNCTUATION, unit=known.unit, padded=known.pads)
    rows = (
        tuple(
            1 + sum(len(token) + 1 for token in _TOKEN.findall(text)) for text in split_sentences(paragraph)
        )
        for paragraph in paragraphs
    )
    return Lengths(paragraphs=tuple(rows), source=PUNCTUATION)


def _asked(
    workload: str, folder: str | None, paragraphs: Sequence[str], model: ModelRef | None, say: Say
) -> list[list[int]]:
    """Return what the workload finds: a child process asks a framework, or the user's code."""
    if workload in SHIPPED and model is None:
        return own.lengths(workload, None, paragraphs, None, say=say)
    if lacking := missing_framework(workload):
        raise lacking
    asked = (workload, folder, paragraphs, asdict(model) if model else None)
    rows: list[list[int]] = run_in_child(
        "jobkit.run.workloads.own:lengths", *asked, say=say, what="finding the lengths of the text"
    )
    return rows


def _kept_at(workload: str, text: TextRef, model: ModelRef | None, cache: Path) -> Path | None:
    """Return the file that keeps lengths; ``None`` if they are quick to find, or the code may change."""
    if workload not in SHIPPED or model is None:
        return None
    framework, _ = EXTRAS.get(workload, ("stanza", ""))
    parts = [workload, text.sha256, model.fingerprint, *map(metadata.version, ("jobkit", framework))]
    return cache / "lengths" / f"{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.json"
