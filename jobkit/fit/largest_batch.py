"""The largest batch that fits a capacity: the line of memory, and the loads of the text. Pure.

Whoever names a largest batch of a run asks `memory_by_setting`: tables, recommendations and pictures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobkit.core.knobs import BATCH_SIZE, PADDED_CHARS
from jobkit.core.records import Batch, Record
from jobkit.core.units import format_bytes_gib, format_count
from jobkit.fit.lengths import Lengths
from jobkit.fit.loads import Budgets, TextLoads, agreeing, loads_of
from jobkit.fit.memory_line import CURVED, Fit, doubts
from jobkit.fit.observations import RAM, MemoryObservations, observe_memory, others
from jobkit.outcome.trials import Trial

TELLS = 2.0
"""A load this many times the largest measured distinguishes a curve from a line."""

ALIKE = 0.99
"""A trial that failed counts for capacities up to its own, and for those that differ by rounding."""

TOO_SMALL = {
    BATCH_SIZE: "not even a batch of 1 fits",
    PADDED_CHARS: "not even a batch of the longest sentence fits",
}
"""Why there is no safe batch, by knob."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How large a batch may be, or the reason why that is not known.

    Attributes
    ----------
    capacity_bytes
        What must not be exceeded: of the allocator on a GPU, of the process on a CPU.
    largest_load, safe_load
        By the line, and by its bound, which a new batch keeps with 95 % confidence.
    largest_batch, safe_batch
        The largest batch sizes of this text with such loads; 0 if not even 1 fits.
    saturated
        Whether the whole text in one batch stays within the bound: then it is the text that
        ends the batch, not the memory.
    expected_bytes, bound_bytes
        By the line and by the bound, at the load of ``safe_batch``.
    knob
        What ``largest_batch`` and ``safe_batch`` are: ``batch_size``, or ``padded_chars``.
    doubts
        Sentences without a full stop, the weightiest first.
    reason
        Why there is no prediction; empty if there is one.
    """

    capacity_bytes: float
    largest_load: float = 0.0
    safe_load: float = 0.0
    largest_batch: int = 0
    safe_batch: int = 0
    saturated: bool = False
    expected_bytes: float = 0.0
    bound_bytes: float = 0.0
    knob: str = BATCH_SIZE
    doubts: tuple[str, ...] = ()
    reason: str = ""


def predict(
    evidence: MemoryObservations, capacity_bytes: float, loads: TextLoads | None, *, margin: float = 0.0
) -> Prediction:
    """Return how large a batch may be.

    Parameters
    ----------
    evidence
        What was measured.
    capacity_bytes
        Of the allocator on a GPU (`MemoryObservations.allocator_bytes` of a GPU), of the process on a CPU.
    loads
        Of the text; if they are unknown the load is taken to grow with the batch size as it
        did at worst in the measurements, with a doubt.
    margin
        Share of the capacity to keep free besides what the bound keeps.
    """
    fit = evidence.fit
    if isinstance(fit, str):
        return Prediction(capacity_bytes=capacity_bytes, knob=evidence.knob, reason=fit)
    if evidence.check_bytes > evidence.workers * max(capacity_bytes, 0):  # it runs alone
        reason = f"the check of shortcuts alone takes {format_bytes_gib(evidence.check_bytes)}"
        return Prediction(capacity_bytes=capacity_bytes, knob=evidence.knob, reason=reason)
    largest_load = fit.largest(capacity_bytes * (1 - margin))
    safe_load = fit.safe_load(capacity_bytes, margin)
    largest, safe = (_batch(load, evidence, loads) for load in (largest_load, safe_load))
    at = loads.load(safe) if loads else safe_load
    saturated = loads is not None and safe >= loads.limit
    return Prediction(
        capacity_bytes=capacity_bytes,
        largest_load=largest_load,
        safe_load=safe_load,
        largest_batch=largest,
        safe_batch=safe,
        saturated=saturated,
        expected_bytes=fit.at(at),
        bound_bytes=fit.upper(at),
        knob=evidence.knob,
        doubts=(
            *_of_curve(evidence, fit, safe_load, loads),
            *_doubts(evidence, fit, at, loads, saturated=saturated),
        ),
    )


def capped(
    largest: Prediction, evidence: MemoryObservations, loads: TextLoads | None, tried: Iterable[Trial]
) -> Prediction:
    """Return a prediction that stays below every batch that was tried and did not fit.

    Parameters
    ----------
    found
        The prediction from the sweep.
    evidence, loads
        As for `predict`.
    tried
        The trials of the run. Those with less memory than the prediction's do not count.
    """
    failed = [
        trial for trial in tried if trial.too_large and trial.capacity_bytes >= ALIKE * largest.capacity_bytes
    ]
    smallest = min(failed, key=lambda trial: trial.size, default=None)
    if smallest is None or isinstance(evidence.fit, str):
        return largest
    load = min(largest.safe_load, min(trial.load for trial in failed) - 1)
    batch = min(_batch(load, evidence, loads), smallest.size - 1)
    if batch >= largest.safe_batch:
        return largest
    at = loads.load(batch) if loads else load
    why = f"{smallest.setting} is not safe: a trial of it did not fit into memory"
    return replace(
        largest,
        safe_load=load,
        safe_batch=batch,
        saturated=False,
        expected_bytes=evidence.fit.at(at),
        bound_bytes=evidence.fit.upper(at),
        doubts=(why, *largest.doubts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was measured of memory with one value of the other knobs, and the largest batch by it.

    Attributes
    ----------
    evidence
        What was measured.
    loads
        Of the text; ``None`` if they are not known.
    tried
        The predictions that were tested.
    limit_bytes
        What the GPU has for a program, on a CPU the requested RAM; ``None`` if that is not known.
    largest
        Within that limit.
    """

    evidence: MemoryObservations
    loads: TextLoads | None
    tried: Sequence[Trial]
    limit_bytes: float | None
    largest: Prediction

    def within(self, limit_bytes: float | None, margin: float) -> Prediction:
        """Return the largest batch within another limit; ``margin`` is as for `predict`."""
        return _largest(self.evidence, self.loads, self.tried, limit_bytes, margin)


def memory_by_setting(
    records: Iterable[Record],
    batches: Mapping[str, Sequence[Batch]],
    lengths: Lengths | None,
    tried: Sequence[Trial] = (),
    *,
    gpu_bytes: float | None = None,
    ram_bytes: float | None = None,
) -> dict[str, Memory | str]:
    """Return memory and largest batch, or why they are not known, by the values of the other knobs in words.

    Parameters
    ----------
    records
        Of the points of a run.
    batches
        By point id.
    lengths
        Of the text, if known.
    tried
        The predictions that were tested.
    gpu_bytes
        Of the GPU to fit; by default of the one that was measured.
    ram_bytes
        The limit on a CPU.
    """
    apart: dict[str, list[Record]] = {}
    for record in records:
        apart.setdefault(others(record), []).append(record)
    found: dict[str, Memory | str] = {}
    for words, part in apart.items():
        evidence = observe_memory(part, batches)
        if isinstance(evidence, str):
            found[words] = evidence
            continue
        loads = agreeing(loads_of(lengths, [record.point for record in part]), evidence.load_by_batch)
        limit = ram_bytes if evidence.kind == RAM else gpu_bytes or evidence.gpu_bytes
        largest = _largest(evidence, loads, tried, limit, 0.0)
        found[words] = Memory(evidence=evidence, loads=loads, tried=tried, limit_bytes=limit, largest=largest)
    return found


def _largest(
    evidence: MemoryObservations,
    loads: TextLoads | None,
    tried: Sequence[Trial],
    limit_bytes: float | None,
    margin: float,
) -> Prediction:
    if limit_bytes is None:
        why = "how much memory there is was not recorded: name it with --gpu-memory"
        return Prediction(capacity_bytes=0, knob=evidence.knob, reason=why)
    capacity = evidence.allocator_bytes(limit_bytes)
    if not evidence.load_by_batch:
        why = f"neither {BATCH_SIZE} nor {PADDED_CHARS} is a knob of this sweep"
        return Prediction(capacity_bytes=capacity, reason=why)
    return capped(predict(evidence, max(0.0, capacity), loads, margin=margin), evidence, loads, tried)


def _batch(load: float, evidence: MemoryObservations, loads: TextLoads | None) -> int:
    if loads is not None:
        return loads.largest_batch(load)
    if evidence.knob == PADDED_CHARS:
        return max(0, math.floor(load))  # it caps the load itself
    rates = (load / batch for batch, load in evidence.load_by_batch.items())
    return math.floor(load / max(rates, default=1.0))


def _of_curve(
    evidence: MemoryObservations, fit: Fit, safe_load: float, loads: TextLoads | None
) -> tuple[str, ...]:
    """Return that memory grows faster than a line, and which batch size would show how much faster."""
    if not fit.curves:
        return ()
    batch = _batch(min(safe_load, TELLS * fit.load_max), evidence, loads)
    new = batch > max(evidence.load_by_batch, default=0)
    return (
        f"{CURVED}: a sweep with {evidence.knob} {batch:,} as well shows how much faster" if new else CURVED,
    )


def _doubts(
    evidence: MemoryObservations, fit: Fit, load: float, loads: TextLoads | None, *, saturated: bool
) -> tuple[str, ...]:
    notes = [*doubts(fit, load), *evidence.remarks]
    if loads is None and evidence.knob == BATCH_SIZE:
        notes.append("the lengths of the text are unknown: the load is taken to grow with the batch size")
    elif loads and loads.lengths.source != "tokenizer":
        notes.append(
            "the load is the batch size, because the workload reports no lengths: it does not show long texts"
            if loads.lengths.source == "none"
            else "the lengths are estimated from punctuation"
        )
    if saturated and loads is not None:
        unit = "padded character" if isinstance(loads, Budgets) else "paragraph"
        notes.append(f"the text ends the batch at {format_count(loads.limit, unit)}: memory would allow more")
    return tuple(notes)
