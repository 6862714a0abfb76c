"""One plain row per point, whatever it was read from: a run folder or an old log. Bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum

from jobkit.core.measurements import Memory
from jobkit.core.records import BATCH_SIZE, Outcome, Point, Record
from jobkit.core.units import GIB
from jobkit.outcome.results import PointResult
from jobkit.report.old_logs import LogRun

SETTING = (
    "workload",
    "text",
    "text_sha256",
    "model",
    "model_fingerprint",
    "stand_in",
    "device",
    "order",
    "allocator",
    "threads",
    "gpu",
    "gpu_capacity_bytes",
    "versions",
    "machine",
)
"""What two points must share, apart from the knobs, before a mean over both means anything.

``versions`` holds the driver's and CUDA's too. ``machine`` is the host on a CPU, where the host is
what is measured, and the file for an old log, which names neither text, model nor version."""

MEASURES = (
    "items_per_s",
    "work_s",
    "batch_mean_s",
    "batch_p95_s",
    "load_s",
    "context_bytes",
    "weights_bytes",
    "model_bytes",
    "activations_bytes",
    "gpu_peak_bytes",
    "ram_peak_bytes",
    "padding_efficiency",
    "load_max",
)
"""What is averaged over repeats. ``model_bytes`` is context and weights together."""

LOG = "tagger log"
"""The workload of a row that an old log gave."""

IDENTITY = (
    "run",
    "folder",
    "point",
    "index",
    "repeat",
    "trial",
    "tries",
    "outcome",
    "provisional",
    "evidence",
)
EXTRA = (
    "items",
    "items_total",
    "effective",
    "inert",
    "host",
    "gpu_uuid",
    "started_at",
    "ended_at",
    "overlaps",
    "gpu_instrument",
    "disagreement",
    "foreign",
)
FIXED = IDENTITY + SETTING + MEASURES + EXTRA


@dataclass(frozen=True, slots=True)
class Row:
    """A point's knobs, and its columns by the names of `FIXED`; a name left out is unknown.

    ``record`` is kept where it tells what a batch needs.
    """

    knobs: Mapping[str, int]
    columns: Mapping[str, object]
    record: Record | None = None


def row_of_point(folder: str, result: PointResult) -> Row:
    """Return the row of a point of a run folder."""
    point, verdict = result.point, result.verdict
    record = result.chosen.record if result.chosen else None
    exit_ = result.chosen.exit if result.chosen else None
    values: dict[str, object] = {
        "run": point.run_id,
        "folder": folder,
        "point": point.point_id,
        "index": point.index,
        "repeat": point.repeat,
        "trial": point.trial,
        "tries": len(result.tries),
        "outcome": None if verdict.outcome is None else str(verdict.outcome),
        "provisional": verdict.provisional,
        "evidence": verdict.evidence,
        "host": record.host if record else (exit_.host if exit_ else "") or result.node or None,
        **_asked(point),
    }
    values.update(_measured(record) if record else _progress(result))
    return Row(point.params, values, None if point.trial else _of_need(record))


def _of_need(record: Record | None) -> Record | None:
    """Return a record that a prediction rests on, else ``None``: of most rows nothing is held."""
    return record if record and (record.needs or record.outcome is Outcome.GPU_OOM) else None


def _asked(point: Point) -> dict[str, object]:
    model = point.model
    return {
        "workload": point.workload,
        "text": point.text.name,
        "text_sha256": point.text.sha256,
        "model": f"{model.name} {model.size}{' (stand-in)' if model.stand_in else ''}" if model else None,
        "model_fingerprint": model.fingerprint if model else None,
        "stand_in": model.stand_in if model else False,
        "device": point.device,
        "order": point.order,
        "allocator": point.allocator,
        "threads": point.threads,
    }


def _progress(result: PointResult) -> dict[str, object]:
    """Return how far a try without a record came, from the batches that are home."""
    batches = result.batches
    if not batches:
        return {}
    items, work_s = sum(b.items for b in batches), fsum(b.seconds for b in batches)
    return {
        "items": items,
        "work_s": work_s,
        "items_per_s": items / work_s if work_s > 0 else None,
        "batch_mean_s": work_s / len(batches),
        "load_max": max(b.load for b in batches),
    }


def _measured(record: Record) -> dict[str, object]:
    """Return what a record adds to what was asked."""
    gpu, summary = record.gpu, record.summary
    versions = dict(record.versions)
    if gpu:
        versions |= {"driver": gpu.driver or "unknown", "cuda": gpu.cuda or versions.get("cuda", "unknown")}
    values: dict[str, object] = {
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
        "machine": record.host if record.point.device == "cpu" else None,
        "gpu": gpu.name if gpu else None,
        "gpu_capacity_bytes": gpu.total_bytes if gpu else None,
        "foreign": gpu.foreign_processes if gpu else None,
        "gpu_uuid": gpu.uuid if gpu else None,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "effective": ", ".join(f"{k}={'unknown' if v is None else v}" for k, v in record.effective.items()),
        "inert": ", ".join(record.inert),
        "load_s": record.load_s,
        **_memory(record),
    }
    if summary:
        values |= {
            "items": summary.items,
            "items_total": summary.items_total,
            "items_per_s": summary.items_per_s,
            "work_s": summary.work_s,
            "batch_mean_s": summary.batch_mean_s,
            "batch_p95_s": summary.batch_p95_s,
            "padding_efficiency": summary.padding_efficiency,
            "load_max": summary.load_max,
        }
    return values


def _memory(record: Record) -> dict[str, object]:
    memory = record.memory
    peak, instrument = _gpu_peak(memory, record.gpu.foreign_processes if record.gpu else None)
    ram = [b for b in (memory.maxrss_bytes, memory.rss_peak_bytes) if b is not None]
    return {
        "context_bytes": memory.context_bytes,
        "weights_bytes": memory.weights_bytes,
        "model_bytes": _sum(memory.context_bytes, memory.weights_bytes),
        "activations_bytes": memory.activations_bytes,
        "gpu_peak_bytes": peak,
        "gpu_instrument": instrument,
        "ram_peak_bytes": max(ram, default=None),
        "disagreement": memory.disagreement,
    }


def _gpu_peak(memory: Memory, foreign: int | None) -> tuple[int | None, str | None]:
    """Return the peak of all that this process held on the card, and the instrument that saw it."""
    if memory.process_peak_bytes is not None:
        return memory.process_peak_bytes, "NVML process"
    both = _sum(memory.context_bytes, memory.reserved_peak_bytes)
    if both is not None:
        return both, "context + torch reserved"
    if foreign == 0 and memory.device_peak_bytes is not None and memory.device_idle_bytes is not None:
        return memory.device_peak_bytes - memory.device_idle_bytes, "NVML device above idle"
    return None, None


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def rows_of_log(file: str, runs: Iterable[LogRun]) -> list[Row]:
    """Return the rows of an old log; the file stands in for the text, model and versions it hides."""
    rows: list[Row] = []
    repeats: dict[int, int] = {}
    for index, run in enumerate(runs, 1):
        repeats[run.batch_size] = repeats.get(run.batch_size, 0) + 1
        identity: dict[str, object] = {
            "run": file,
            "folder": file,
            "point": f"run {index}",
            "index": index,
            "repeat": repeats[run.batch_size],
            "trial": False,
            "tries": 1,
            "outcome": str(Outcome.OK),
            "provisional": False,
            "evidence": "log of a run that ended",
        }
        rows.append(Row({BATCH_SIZE: run.batch_size}, identity | _logged(file, run)))
    return rows


def _logged(file: str, run: LogRun) -> dict[str, object]:
    capacity = run.gpu_capacity_bytes
    return {
        "workload": LOG,
        "stand_in": False,
        "device": "cpu" if capacity is None else "cuda",
        "machine": file,
        "gpu": None if capacity is None else f"unknown GPU, {capacity / GIB:.1f} GiB",
        "gpu_capacity_bytes": capacity,
        "items": run.items,
        "items_total": run.items,
        "items_per_s": run.items / run.total_s,
        "work_s": run.total_s,
        "batch_mean_s": run.batch_mean_s,
        "model_bytes": run.gpu_model_bytes,
        "activations_bytes": run.gpu_batch_peak_bytes,
        "gpu_peak_bytes": run.gpu_peak_bytes,
        "gpu_instrument": None if capacity is None else "NVML device, sampled every 50 paragraphs",
        "ram_peak_bytes": run.ram_peak_bytes,
    }
