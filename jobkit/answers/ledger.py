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
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.knobs import EXACT, FP32
from jobkit.core.records import Record
from jobkit.core.units import format_count
from jobkit.runs.trials import prediction_error

E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One prediction that was tried."""

    at: str  # when the try ended, UTC
    run_id: str  # `run_id`, `index`: the run, and the point that tried it: an entry is written once
    index: int
    workload: str
    # `model`, `gpu`, `torch`, `cuda`: what the prediction is of: a model's fingerprint, a GPU's name,
    # two versions; ``None`` if there is none
    model: str | None
    gpu: str | None
    torch: str | None
    cuda: str | None
    allocator: str | None  # `allocator`, `order`: as in the point
    order: str
    batch_size: int  # `batch_size`, `padded_chars`, `load`: what was tried; of the first two the other is 0
    load: int
    # `capacity_bytes`, `expected_bytes`, `bound_bytes`, `measured_bytes`: what it had to stay within,
    # what was predicted, and what it needed
    capacity_bytes: float
    expected_bytes: float
    bound_bytes: float
    measured_bytes: int | None
    outcome: str  # of the try
    held: bool  # whether it ran and stayed within the capacity
    padded_chars: int = 0
    # `precision`, `shortcuts`: the format of numbers; ``exact``. ``None`` for fp32 and ``off``, and for
    # a workload without choice.
    precision: str | None = None
    shortcuts: str | None = None

    @property
    def error(self) -> float | None:
        """(expected - measured) / measured; ``None`` if nothing was measured."""
        return prediction_error(self.expected_bytes, self.measured_bytes)

    @property
    def above_bound(self) -> bool:
        """Whether it needed more than the bound: one in twenty may."""
        return not self.held or (self.measured_bytes or 0) > self.bound_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusEntry:
    """One corpus whose time was predicted, once every shard of it is done."""

    at: str  # when the last shard ended, UTC
    run_id: str  # of the corpus: an entry is written once
    workload: str  # `workload`, `model`, `gpu`: as in `Entry`
    model: str | None
    gpu: str | None
    paragraphs: int  # `paragraphs`, `shards`: of the corpus
    shards: int
    # `expected_s`, `low_s`, `high_s`, `took_s`: over all shards, starts included: predicted, its 95 %
    # interval, and measured
    expected_s: float
    low_s: float
    high_s: float
    took_s: float
    jobs: bool = False  # whether these are times of whole jobs: earlier versions left some of each start out

    @property
    def off(self) -> float:
        """(took - expected) / expected."""
        return self.took_s / self.expected_s - 1

    @property
    def held(self) -> bool:
        """Whether the time was within the interval."""
        return self.low_s <= self.took_s <= self.high_s


def entries(path: Path) -> list[Entry]:
    """Return the predictions of memory in the ledger; lines that cannot be read are left out."""
    return list({(entry.run_id, entry.index): entry for entry in _read(Entry, path)}.values())


def corpora(path: Path) -> list[CorpusEntry]:
    """Return the predictions of time in the ledger; lines that cannot be read are left out."""
    return list({entry.run_id: entry for entry in _read(CorpusEntry, path)}.values())


def _read(kind: type[E], path: Path) -> list[E]:
    return list(read_tolerantly(path, lambda line, where: from_json(kind, line, where=where))[0])


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
    """Return what a prediction is of, by the fields of an entry."""
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
    """Return a summary of the results of other runs' predictions for the same subject as a record.

    Returns
    -------
    str or None
        ``14 predictions, 0 unsafe, worst 1.9 %, 1 above its bound``; ``None`` if there was none.
        Unsafe is what took more memory than it may; above its bound is also what took more than
        predicted and still fit.
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
    above = sum(entry.above_bound for entry in alike)
    bound = f"{above} above {'its' if above == 1 else 'the'} bound"
    return f"{format_count(len(alike), 'prediction')}, {unsafe} unsafe{worst}, {bound}"


def offs(
    known: Iterable[CorpusEntry], workload: str, model: str | None, gpu: str | None
) -> tuple[float, ...]:
    """Return how far the times that were predicted of corpora of a kind were off, as shares."""
    alike = [entry for entry in known if (entry.workload, entry.model, entry.gpu) == (workload, model, gpu)]
    return tuple(entry.off for entry in alike if entry.jobs)


def corpus_summary(known: Iterable[CorpusEntry], workload: str, model: str | None) -> str | None:
    """Return a summary of how long earlier corpora took, of the same workload and model.

    Returns
    -------
    str or None
        ``3 corpora with this model, 1 outside of the interval, at worst 12 % longer than predicted``;
        ``None`` if there was none.
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
