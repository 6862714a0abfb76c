"""The state of a try, and the record of it."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from jobkit.core import measurements
from jobkit.core.measurements import Summary
from jobkit.core.records import Batch, Job, Outcome, Point, Record
from jobkit.run import process
from jobkit.run.failure import Stopped, outcome_of
from jobkit.run.measure import memory
from jobkit.run.measure.sampler import Peaks, Sampling
from jobkit.run.workloads.base import Entity, Workload


def summarise(batches: Sequence[Batch], *, items_total: int, batches_total: int) -> Summary:
    """Summarise the batches of a try, complete or cut short.

    Parameters
    ----------
    batches
        The lines of ``batches.jsonl``; the warm-up is not among them.
    items_total, batches_total
        Items and batches of the whole try.
    """
    seconds = sorted(batch.seconds for batch in batches)
    work_s = math.fsum(seconds)
    items = sum(batch.items for batch in batches)
    characters = sum(batch.characters for batch in batches)
    return Summary(
        items_total=items_total,
        batches_total=batches_total,
        items=items,
        sentences=_sum(batch.sentences for batch in batches),
        characters=characters,
        batches=len(batches),
        work_s=work_s,
        items_per_s=items / work_s if work_s > 0 else None,
        batch_mean_s=work_s / len(batches) if batches else None,
        batch_p50_s=quantile(seconds, 0.50),
        batch_p95_s=quantile(seconds, 0.95),
        padding_efficiency=_efficiency(batches),
        load_max=max((batch.load for batch in batches), default=None),
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which ``share`` of the sorted values lie, linearly interpolated."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum; ``None`` if a value is unknown or there is none."""
    numbers = list(values)
    if not numbers or None in numbers:
        return None
    return sum(number for number in numbers if number is not None)


def _efficiency(batches: Sequence[Batch]) -> float | None:
    padded = _sum(batch.padded_chars for batch in batches)
    return min(1.0, sum(batch.characters for batch in batches) / padded) if padded else None


OUT_OF_MEMORY = frozenset({Outcome.GPU_OOM, Outcome.RAM_OOM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One try, as the job script passes it to the worker.

    Attributes
    ----------
    inputs
        The folder with ``text`` and ``model`` on this node.
    out
        The folder on this node that the job script copies home.
    """

    point: Point
    try_number: int
    inputs: Path
    out: Path
    job: Job


@dataclass(slots=True)
class Try:
    """The state of a try: enough to write a record at any moment.

    Attributes
    ----------
    code
        The folder of the user's own code; ``None`` with a shipped workload.
    """

    task: Task
    started_at: str
    readings: memory.Readings = field(default_factory=memory.Readings)
    batches: list[Batch] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)
    items_total: int = 0
    batches_total: int = 0
    characters_total: int = 0
    workload: Workload | None = None
    gpu: measurements.Gpu | None = None
    peaks: Peaks | None = None
    sampler: Sampling | None = None
    load_s: float | None = None
    warm_up_s: float | None = None
    needs: tuple[measurements.Need, ...] = ()
    code: str | None = None


def record_of(state: Try, error: BaseException | None) -> Record:
    """Return the record of a try that has ended, with or without an error."""
    effective, versions, fault = _workload_report(state)
    error = error or fault
    outcome, message = outcome_of(error, state.code) if error else (Outcome.OK, "")
    point = state.task.point
    return Record(
        point=point,
        try_number=state.task.try_number,
        outcome=outcome,
        provisional=isinstance(error, Stopped),
        message=message,
        signal=error.signal if isinstance(error, Stopped) else None,
        job=state.task.job,
        host=platform.node(),
        started_at=state.started_at,
        ended_at=now(),
        effective=effective,
        inert=tuple(
            knob for knob in point.params if effective.get(knob, point.params[knob]) != point.params[knob]
        ),
        versions=versions,
        gpu=state.gpu,
        memory=memory.split_memory(state.readings, state.peaks),
        sampler=_sampler(state.peaks),
        summary=summarise(state.batches, items_total=state.items_total, batches_total=state.batches_total),
        load_s=state.load_s,
        warm_up_s=state.warm_up_s,
        needs=state.needs,
        failed_load=_failed_load(state) if outcome in OUT_OF_MEMORY else None,
        retries=_retries(state.batches),
        environment=process.variables(),
    )


def _workload_report(state: Try) -> tuple[dict[str, int | None], dict[str, str], Exception | None]:
    """Return the workload's effective knobs and versions, and the exception if it raises one."""
    try:
        effective = dict(state.workload.effective()) if state.workload and state.batches else {}
        return effective, _versions(state.workload), None
    except Exception as error:  # noqa: BLE001 - the code may be the user's, and a record is always written
        return {}, _versions(None), error


def _failed_load(state: Try) -> int | None:
    """Return the load of the batch that failed, if the workload reports it."""
    attempted = getattr(state.workload, "attempted_load", None)
    return attempted() or None if attempted else None


def _retries(batches: Sequence[Batch]) -> int | None:
    retries = [batch.alloc_retries for batch in batches if batch.alloc_retries is not None]
    return sum(retries) if retries else None


def _sampler(peaks: Peaks | None) -> measurements.Sampler | None:
    if peaks is None:
        return None
    utilisation, power = peaks.utilisation_percent, peaks.power_w
    return measurements.Sampler(
        period_s=peaks.period_s,
        samples=peaks.samples,
        memory_query=peaks.memory_query,
        utilisation_mean_percent=sum(utilisation) / len(utilisation) if utilisation else None,
        power_mean_w=sum(power) / len(power) if power else None,
        power_max_w=max(power, default=None),
    )


def _versions(workload: Workload | None) -> dict[str, str]:
    own = {"python": sys.version.split()[0], "jobkit": metadata.version("jobkit")}
    return {**own, **(workload.versions() if workload else {})}


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
