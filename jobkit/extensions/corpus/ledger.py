"""The user's ledger: the predicted time of each corpus, with what it then took, one JSON line each."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from jobkit.core.errors import file_error
from jobkit.core.files import append_line, read_tolerantly
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.units import format_count


@keyed
class CorpusEntry:
    """The predicted time of one corpus; written when every shard is done."""

    at: str  # when the last shard ended, UTC
    run_id: str  # of the corpus: an entry is written once
    workload: str
    model: str | None  # fingerprint; ``None`` without a model
    gpu: str | None  # name; ``None`` without a GPU
    paragraphs: int
    shards: int
    expected_s: float  # over all shards, starts included
    low_s: float  # 95 % interval
    high_s: float
    took_s: float  # measured
    jobs: bool = False  # whether these are times of whole jobs: earlier versions left some of each start out

    @property
    def off(self) -> float:
        """(took - expected) / expected."""
        return self.took_s / self.expected_s - 1

    @property
    def held(self) -> bool:
        return self.low_s <= self.took_s <= self.high_s


def corpora(path: Path) -> list[CorpusEntry]:
    """Return the entries; lines that cannot be read, and an earlier version's on memory, are left out."""
    read = read_tolerantly(path, lambda line, where: from_json(CorpusEntry, line, where=where))[0]
    return list({entry.run_id: entry for entry in read}.values())


def note(path: Path, entry: CorpusEntry) -> None:
    """Add an entry, once; print a message if the ledger cannot be written: the run folder has it too."""
    try:
        if any(other.run_id == entry.run_id for other in corpora(path)):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        append_line(path, to_json(entry))
    except OSError as error:
        reason = file_error(error, path).message
        sys.stderr.write(
            f"the ledger of predictions was not written: {reason}; the run folder keeps this prediction\n"
        )


def offs(
    known: Iterable[CorpusEntry], workload: str, model: str | None, gpu: str | None
) -> tuple[float, ...]:
    """Return by which shares of the predicted time earlier corpora were off."""
    alike = [entry for entry in known if (entry.workload, entry.model, entry.gpu) == (workload, model, gpu)]
    return tuple(entry.off for entry in alike if entry.jobs)


def corpus_summary(known: Iterable[CorpusEntry], workload: str, model: str | None) -> str | None:
    """Return how long earlier corpora with this workload and model took; ``None`` if there was none.

    Example: ``3 corpora with this model, 1 outside of the interval, at worst 12 % longer than predicted``.
    """
    alike = [entry for entry in known if (entry.workload, entry.model) == (workload, model)]
    if not alike:
        return None
    worst = max((entry.off for entry in alike), key=abs)
    outside = sum(not entry.held for entry in alike)
    number = format_count(len(alike), "corpus", "corpora")
    return (
        f"{number} with this model, {outside} outside of the interval, "
        f"at worst {abs(worst):.0%} {'longer' if worst > 0 else 'shorter'} than predicted"
    ).replace("%", " %")
