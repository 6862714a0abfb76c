"""The user's ledger of predictions, of memory and of time, with what was then measured: one JSON line each.

Standard library only: the job that tried a prediction writes its line itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jobkit.core.errors import file_error
from jobkit.core.files import append_line, read_tolerantly
from jobkit.core.json_codec import from_dict, parse_json, to_json
from jobkit.core.knobs import EXACT, FP32, renamed
from jobkit.core.records import Record
from jobkit.core.units import format_count
from jobkit.runs.trials import prediction_error

E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    at: str  # when the try ended, UTC
    run_id: str  # each run and point that tried it is written once
    index: int
    workload: str
    model: str | None  # fingerprint; ``None`` without a model
    gpu: str | None  # name; ``None`` without a GPU
    torch: str | None
    cuda: str | None
    allocator: str | None  # as in the point
    order: str
    batch_size: int  # what was tried: the knob that does not cap the batches is 0
    load: int
    capacity_bytes: float  # what it had to stay within
    expected_bytes: float  # by the line
    bound_bytes: float  # by the bound
    measured_bytes: int | None  # what it needed
    outcome: str  # of the try
    held: bool  # whether it ran and stayed within the capacity
    padded: int = 0
    precision: str | None = None  # ``None`` for fp32, or without a choice
    shortcuts: str | None = None  # ``exact``; ``None`` for off, or without a choice

    @property
    def error(self) -> float | None:
        """(expected - measured) / measured; ``None`` if nothing was measured."""
        return prediction_error(self.expected_bytes, self.measured_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusEntry:
    """The predicted time of one corpus; written when every shard is done."""

    at: str  # when the last shard ended, UTC
    run_id: str  # of the corpus: an entry is written once
    workload: str  # as in `Entry`
    model: str | None
    gpu: str | None
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


def entries(path: Path) -> list[Entry]:
    """Return the predictions of memory; lines that cannot be read are left out."""
    return list({(entry.run_id, entry.index): entry for entry in _read(Entry, path)}.values())


def corpora(path: Path) -> list[CorpusEntry]:
    """Return the predictions of time; lines that cannot be read are left out."""
    return list({entry.run_id: entry for entry in _read(CorpusEntry, path)}.values())


def _read(kind: type[E], path: Path) -> list[E]:
    return list(
        read_tolerantly(
            path, lambda line, where: from_dict(kind, renamed(parse_json(line, where)), where=where)
        )[0]
    )


def note(path: Path, entry: Entry | CorpusEntry) -> None:
    """Add an entry, once; print a message if the ledger cannot be written: the run folder has it too."""
    try:
        if _is_known(path, entry):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        append_line(path, to_json(entry))
    except OSError as error:
        reason = file_error(error, path).message
        sys.stderr.write(
            f"the ledger of predictions was not written: {reason}; the run folder keeps this prediction\n"
        )


def _is_known(path: Path, entry: Entry | CorpusEntry) -> bool:
    if isinstance(entry, CorpusEntry):
        return any(other.run_id == entry.run_id for other in corpora(path))
    return any((other.run_id, other.index) == (entry.run_id, entry.index) for other in entries(path))


def subject(record: Record) -> dict[str, Any]:
    """Return the subject of a prediction, by the names of the fields of `Entry`."""
    model = record.point.model
    return {
        "workload": record.point.workload,
        "model": model.fingerprint if model else None,
        "gpu": record.gpu.name if record.gpu else None,
        "torch": record.versions.get("torch"),
        "cuda": record.versions.get("cuda"),
        "precision": None if record.precision == FP32 else record.precision,
        "shortcuts": EXACT if record.shortcuts == EXACT else None,
    }


def summary(known: Iterable[Entry], record: Record) -> str | None:
    """Return how other runs' predictions for the subject of a record turned out; ``None`` if there was none.

    Example: ``14 predictions, 0 unsafe, worst 1.9 %, 1 above its bound``. A prediction is unsafe if the try
    took more memory than the capacity; above its bound also if it took more than predicted and still fitted.
    """
    same = subject(record).items()
    alike = [
        entry
        for entry in known
        if entry.run_id != record.point.run_id and all(getattr(entry, name) == value for name, value in same)
    ]
    if not alike:
        return None
    unsafe = sum(not entry.held for entry in alike)
    errors = [abs(entry.error) for entry in alike if entry.error is not None]
    worst = f", worst {max(errors):.1%}".replace("%", " %") if errors else ""
    above = sum(not entry.held or (entry.measured_bytes or 0) > entry.bound_bytes for entry in alike)
    bound = f"{above} above {'its' if above == 1 else 'the'} bound"
    return f"{format_count(len(alike), 'prediction')}, {unsafe} unsafe{worst}, {bound}"


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
