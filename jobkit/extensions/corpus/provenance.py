"""The facts for a methods section on a corpus that is done: ``provenance.json``, and a closing line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jobkit.answers import ledger
from jobkit.answers.speed import Speed
from jobkit.core import files
from jobkit.core.errors import JobkitError
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.knobs import CPU, OFFERED, Value
from jobkit.core.layout import PROMISE_FILE, PROVENANCE_FILE
from jobkit.core.measurements import Attribution
from jobkit.core.paths import ledger_path
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.terminal import as_json
from jobkit.core.units import format_compared, format_count, format_energy
from jobkit.extensions.corpus.plan import (
    Corpus,
    Winner,
    is_corpus_folder,
    is_unplanned,
    read_corpus,
    read_plan,
)
from jobkit.extensions.corpus.standing import settle
from jobkit.report.recommend.advice import EnergyUse
from jobkit.runs.results import each_point
from jobkit.runs.status import PointResult
from jobkit.runs.tries import Try, task_s

SCHEMA = 1
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What was measured of the setting before the corpus was planned: ``promise.json``."""

    source: str = ""  # where the setting is from, in words
    speed: Speed | None = None  # ``None`` if not measured, as is ``energy``
    energy: EnergyUse | None = None
    peak_bytes: int | None = None  # the most RAM that a try held; ``None`` if unknown
    measured: int = 0  # paragraphs of the text that was measured
    given: tuple[str, ...] = ()  # the keys that a person set: they stay as they are in a new plan
    # shares by which the predicted times of earlier corpora of this kind were off
    past: tuple[float, ...] = ()
    whole: bool = False  # whether the times are of whole jobs: earlier versions left some of each start out


def write_promise(run_dir: Path, promise: Promise) -> None:
    files.write_atomically(run_dir / PROMISE_FILE, to_json(promise) + "\n")


def read_promise(run_dir: Path) -> Promise:
    """Return what was measured of the setting; nothing if the file cannot be read."""
    path = run_dir / PROMISE_FILE
    try:
        return from_json(Promise, files.read_text(path), where=str(path))
    except (OSError, JobkitError):
        return Promise()


@dataclass(slots=True)
class _Totals:
    """Sums over the tries of a run, all of them or those that won."""

    jobs: set[tuple[str, str]] = field(default_factory=set)
    gpus: Counter[str] = field(default_factory=Counter)
    hosts: set[str] = field(default_factory=set)
    versions: dict[str, set[str]] = field(default_factory=dict)
    held_s: float = 0.0
    unknown: int = 0
    tries: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    work_s: float = 0.0
    won_s: float = 0.0
    joules: float = 0.0
    no_joules: int = 0
    began: str = ""
    ended: str = ""


def finish(run_dir: Path) -> str:
    """Write ``provenance.json`` if every shard has a winner; return the closing line, empty until then.

    It is written once, by the process that sees the end first: the content depends on the run alone.
    """
    if not is_corpus_folder(run_dir) or is_unplanned(run_dir):
        return ""
    winners = settle(run_dir)
    results = list(each_point(run_dir, [], void=True))
    live = [result for result in each_point(run_dir, []) if result.point.index not in winners]
    if live or not winners:
        return ""
    data = provenance(run_dir, results, winners)
    path = run_dir / PROVENANCE_FILE
    text = as_json(data, indent=2) + "\n"
    if not path.is_file():
        files.write_atomically(path, text)
        if entry := _entry(data):
            ledger.note(ledger_path(), entry)
    return closing_line(data)


def _entry(data: Mapping[str, Any]) -> ledger.CorpusEntry | None:
    """Return the line of the ledger for a corpus that is done; ``None`` if no time was predicted."""
    time, model = data["time"], data["model"]
    if None in (time["predicted_s"], time["predicted_low_s"], time["predicted_high_s"]):
        return None
    return ledger.CorpusEntry(
        at=data["last_ended"],
        run_id=data["run"],
        workload=data["workload"],
        model=model["sha256"] if model else None,
        gpu=next(iter(data["gpus"]), None),
        paragraphs=data["corpus"]["paragraphs"],
        shards=data["shards"],
        expected_s=time["predicted_s"],
        low_s=time["predicted_low_s"],
        high_s=time["predicted_high_s"],
        took_s=time["took_s"],
        jobs=time["whole_jobs"],
    )


def provenance(
    run_dir: Path, results: Sequence[PointResult], winners: Mapping[int, Winner]
) -> dict[str, Any]:
    corpus, promise, point = read_corpus(run_dir), read_promise(run_dir), results[0].point
    totals = _totals(results, winners)
    each = point.gpus if point.device != CPU else point.workers * point.threads
    return {
        "schema": SCHEMA,
        "run": point.run_id,
        "workload": point.workload,
        "model": _model(point),
        "setting": _setting(point, promise),
        "versions": {name: sorted(numbers) for name, numbers in sorted(totals.versions.items())},
        "gpus": dict(sorted(totals.gpus.items())),
        "hosts": sorted(totals.hosts),
        "jobs": [{"scheduler": name, "job": job} for name, job in sorted(totals.jobs)],
        "shards": len(winners),
        "tries": totals.tries,
        "tries_without_result": dict(sorted(totals.failed.items())),
        "rows": sum(winner.rows for winner in winners.values()),
        "time": _time(run_dir, winners, totals, each, device=point.device, whole=promise.whole),
        "energy": _energy(corpus, promise, totals),
        "corpus": _corpus(corpus),
        "first_began": totals.began,
        "last_ended": totals.ended,
    }


def _totals(results: Sequence[PointResult], winners: Mapping[int, Winner]) -> _Totals:
    totals = _Totals()
    for result in results:
        winner = winners.get(result.point.index)
        for tried in result.all_tries:
            if tried.number:
                _add(totals, tried, won=winner is not None and winner.try_number == tried.number)
    return totals


def _add(totals: _Totals, tried: Try, *, won: bool) -> None:
    totals.tries += 1
    if tried.task:
        totals.jobs.add((tried.task.scheduler, tried.task.job_id))
    held_s = task_s(tried)
    totals.held_s += held_s or 0.0
    totals.unknown += held_s is None
    if tried.outcome is not Outcome.OK:
        totals.failed[str(tried.outcome)] += 1
    if won and tried.record:
        _add_winner(totals, tried.record)
        totals.won_s += held_s or 0.0


def _add_winner(totals: _Totals, record: Record) -> None:
    totals.hosts.add(record.host)
    if record.gpu and record.point.device != CPU:
        totals.gpus[record.gpu.name] += 1
    for name, version in record.versions.items():
        totals.versions.setdefault(name, set()).add(version)
    totals.work_s += record.summary.work_s if record.summary else 0.0
    energy = record.energy
    known = energy and energy.attribution is not Attribution.NOT_ATTRIBUTABLE and energy.joules is not None
    totals.joules += (energy.joules or 0.0) if energy and known else 0.0
    totals.no_joules += not known
    totals.began = min(filter(None, (totals.began, record.started_at)), default="")
    totals.ended = max(totals.ended, record.ended_at)


def _model(point: Point) -> dict[str, object] | None:
    if point.model is None:
        return None
    model = point.model
    random = {"random_weights": model.architecture} if model.architecture else {}
    named = {"name": model.name, "size": model.size, "stand_in": model.stand_in, "caveat": model.label}
    return {**named, **random, "sha256": model.fingerprint}


def _setting(point: Point, promise: Promise) -> dict[str, object]:
    names = ("device", "order", "sort_window", "work_unit", "threads", "workers", "gpus", "mps", *OFFERED)
    knobs: dict[str, Value | None] = {name: getattr(point, name) for name in names}
    if point.device == CPU:
        knobs["gpus"] = 0
    return {**knobs, **point.params, "source": promise.source}


def _time(
    run_dir: Path, winners: Mapping[int, Winner], totals: _Totals, each: int, *, device: str, whole: bool
) -> dict[str, object]:
    """Return the predicted time next to the real one, and the memory that was held."""
    parts = [shard for shard in read_plan(run_dir) if shard.index in winners]
    sums = [
        None if any(value is None for value in values) else math.fsum(value or 0.0 for value in values)
        for values in (
            [part.expected_s for part in parts],
            [part.low_s for part in parts],
            [part.high_s for part in parts],
        )
    ]
    unit = "cpu" if device == CPU else "gpu"
    return {
        "predicted_s": sums[0],
        "predicted_low_s": sums[1],
        "predicted_high_s": sums[2],
        "took_s": totals.won_s,
        "whole_jobs": whole,
        "work_s": totals.work_s,
        f"{unit}_hours": totals.held_s * each / HOUR_S,
        "tries_of_unknown_time": totals.unknown,
    }


def _energy(corpus: Corpus, promise: Promise, totals: _Totals) -> dict[str, object]:
    use = promise.energy
    return {
        "joules": None if totals.no_joules else totals.joules,
        "shards_without_joules": totals.no_joules,
        "predicted_j": use.of(corpus.paragraphs, corpus.characters) if use else None,
    }


def _corpus(corpus: Corpus) -> dict[str, object]:
    return {
        "documents": corpus.documents,
        "paragraphs": corpus.paragraphs,
        "characters": corpus.characters,
        "files": [
            {"name": source.name, "size_bytes": source.size_bytes, "sha256": source.sha256}
            for source in corpus.sources
        ],
        "left_out": [asdict(bad) for bad in corpus.skipped],
        "not_read": list(corpus.unread),
    }


def _outside(time: Mapping[str, Any]) -> str:
    low, high = time["predicted_low_s"], time["predicted_high_s"]
    if None in (low, high) or low <= time["took_s"] <= high:
        return ""
    return f" (outside of its interval, {format_compared(low)} to {format_compared(high)})"


def closing_line(data: Mapping[str, Any]) -> str:
    time, corpus, energy = data["time"], data["corpus"], data["energy"]
    unit = "GPU" if "gpu_hours" in time else "CPU"
    hours = time[f"{unit.lower()}_hours"]
    parts = [
        f"{corpus['paragraphs']:,} paragraphs of {format_count(len(corpus['files']), 'file')} are done",
        f"{data['rows']:,} rows in {format_count(data['shards'], 'shard')}",
        f"{hours:,.1f} {unit}-hours" if hours >= 1 else f"{hours:.2g} {unit}-hours",
    ]
    if time["predicted_s"]:
        took, predicted = format_compared(time["took_s"]), format_compared(time["predicted_s"])
        parts.append(f"the shards took {took}, {predicted} predicted{_outside(time)}")
    if energy["joules"]:
        parts.append(format_energy(energy["joules"]))
    if data["model"] and data["model"]["caveat"]:
        parts.append(data["model"]["caveat"])
    left_out, unread = len(corpus["left_out"]), len(corpus["not_read"])
    parts += [f"{format_count(left_out, 'place')} left out"] if left_out else []
    parts += [f"{format_count(unread, 'file')} in the folders not read"] if unread else []
    return ", ".join(parts)
