"""A corpus that is done: ``provenance.json``, a closing line, and the paragraph of a methods section."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobkit.answers.speed import Speed
from jobkit.core import files
from jobkit.core.errors import JobkitError
from jobkit.core.frozen import keyed
from jobkit.core.knobs import CPU, OFFERED, TIMING, Value
from jobkit.core.layout import PROMISE_FILE, PROVENANCE_FILE
from jobkit.core.paths import ledger_path, shipped_folder
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import as_json
from jobkit.core.units import (
    format_compared,
    format_count,
    format_energy,
    format_hours,
    format_list,
    format_setting,
)
from jobkit.extensions.corpus import ledger
from jobkit.extensions.corpus.plan import Corpus, Shard, Winner, promised
from jobkit.report.recommend.advice import EnergyUse
from jobkit.runs.results import each_point
from jobkit.runs.status import PointResult
from jobkit.runs.tries import task_s

PREDICTED = ("predicted_s", "predicted_low_s", "predicted_high_s")


@keyed
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
    # without a speed the first shard measures it: how long each of the others is to take then
    minutes: float | None = None
    whole: bool = False  # whether the times are of whole jobs: earlier versions left some of each start out


def read_promise(run_dir: Path) -> Promise:
    """Return what was measured of the setting; nothing if the file cannot be read."""
    try:
        return files.read_json(Promise, run_dir / PROMISE_FILE)
    except (OSError, JobkitError):
        return Promise()


def write_provenance(
    run_dir: Path, corpus: Corpus, shards: Mapping[int, Shard], winners: Mapping[int, Winner]
) -> dict[str, Any]:
    """Write ``provenance.json`` of a corpus whose shards all have winners, and return what it has.

    It is written by the process that sees the end first, and again once the corpus has grown or other jobs
    have run; the ledger keeps the first prediction.
    """
    path = run_dir / PROVENANCE_FILE
    data = provenance(run_dir, corpus, shards, winners, list(each_point(run_dir, [], void=True)))
    before, jobs = dict[str, Any](), list[Any]()
    with suppress(OSError, ValueError, LookupError, TypeError):
        found = json.loads(files.read_text(path))
        before, jobs = found["corpus"], found["jobs"]
    grown = any(before.get(key) != data["corpus"][key] for key in ("files", "left_out"))
    if grown or any(job not in jobs for job in data["jobs"]):
        files.write_atomically(path, as_json(data, indent=2) + "\n")
        if entry := _entry(data):
            ledger.note(ledger_path(), entry)
    return data


def _entry(data: Mapping[str, Any]) -> ledger.CorpusEntry | None:
    """Return the line of the ledger for a corpus that is done; ``None`` if no time was predicted."""
    time, model = data["time"], data["model"]
    if None in (time[name] for name in PREDICTED):
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
    run_dir: Path,
    corpus: Corpus,
    shards: Mapping[int, Shard],
    winners: Mapping[int, Winner],
    results: Sequence[PointResult],
) -> dict[str, Any]:
    """Return the facts of shards that have winners, and what all tries of these results took."""
    promise, point = read_promise(run_dir), results[0].point
    pairs = [(result, tried) for result in results for tried in result.all_tries if tried.number]
    won = [
        tried
        for result, tried in pairs
        if (winner := winners.get(result.point.index)) and winner.try_number == tried.number and tried.record
    ]
    records = [tried.record for tried in won if tried.record]
    versions: dict[str, set[str]] = {}
    for name, version in (pair for record in records for pair in record.versions.items()):
        versions.setdefault(name, set()).add(version)
    predicted = promised([shard for index, shard in shards.items() if index in winners])
    failed = (tried.outcome for _, tried in pairs if tried.outcome is not Outcome.OK)
    held = [task_s(tried) for _, tried in pairs]
    used = [record.energy.joules for record in records if record.energy]
    joules = [one for one in used if one is not None]
    each = point.gpus if point.device != CPU else point.workers * point.threads
    gpus = Counter(record.gpu.name for record in records if record.gpu and record.point.device != CPU)
    jobs = sorted({(tried.task.scheduler, tried.task.job_id) for _, tried in pairs if tried.task})
    return {
        "schema": 1,
        "run": point.run_id,
        "workload": point.workload,
        "model": _model(point),
        "setting": _setting(point, promise),
        "versions": {name: sorted(numbers) for name, numbers in sorted(versions.items())},
        "gpus": dict(sorted(gpus.items())),
        "hosts": sorted({record.host for record in records}),
        "jobs": [{"scheduler": name, "job": job} for name, job in jobs],
        "shards": len(winners),
        "tries": len(pairs),
        "tries_without_result": dict(sorted(Counter(map(str, failed)).items())),
        "rows": sum(winner.kept for winner in winners.values()),
        "time": {
            **dict(zip(PREDICTED, predicted, strict=True)),
            "took_s": sum((task_s(tried) or 0.0 for tried in won), 0.0),
            "whole_jobs": promise.whole,
            "work_s": sum((record.summary.work_s for record in records if record.summary), 0.0),
            f"{'cpu' if point.device == CPU else 'gpu'}_hours": sum(filter(None, held), 0.0) * each / 3600.0,
            "tries_of_unknown_time": held.count(None),
        },
        "energy": {
            "joules": sum(joules, 0.0) if len(joules) == len(records) else None,
            "shards_without_joules": len(records) - len(joules),
            "predicted_j": promise.energy.of(corpus.paragraphs, corpus.characters)
            if promise.energy
            else None,
        },
        "corpus": {
            "documents": corpus.documents,
            "paragraphs": corpus.paragraphs,
            "empty": corpus.empty,
            "quarantined": sum(winner.quarantined for winner in winners.values()),
            "characters": corpus.characters,
            "files": [
                {"name": source.name, "size_bytes": source.size_bytes, "sha256": source.sha256}
                | ({"encoding": source.encoding} if source.encoding else {})
                | ({"columns": asdict(source.columns)} if source.columns else {})
                for source in corpus.sources
            ],
            "left_out": [asdict(bad) for bad in corpus.skipped],
            "not_read": list(corpus.unread),
        },
        "first_began": min((record.started_at for record in records if record.started_at), default=""),
        "last_ended": max((record.ended_at for record in records), default=""),
    }


def _model(point: Point) -> dict[str, object] | None:
    if point.model is None:
        return None
    model = point.model
    random = {"random_weights": model.architecture} if model.architecture else {}
    named = {"name": model.name, "size": model.size, "stand_in": model.stand_in, "caveat": model.label}
    return {**named, **random, **model.options, "sha256": model.fingerprint}


def _setting(point: Point, promise: Promise) -> dict[str, object]:
    knobs: dict[str, Value | None] = {name: getattr(point, name) for name in (*TIMING, *OFFERED)}
    if point.device == CPU:
        knobs["gpus"] = 0
    return {**knobs, "trim": point.trim, **point.params, "source": promise.source}


def closing_line(data: Mapping[str, Any]) -> str:
    time, corpus, energy = data["time"], data["corpus"], data["energy"]
    unit = "GPU" if "gpu_hours" in time else "CPU"
    files = format_count(len(corpus["files"]), "file")
    parts = [
        f"{_processed(corpus)} of {files} {'is' if corpus['paragraphs'] == 1 else 'are'} done",
        f"{format_count(data['rows'], 'row')} in {format_count(data['shards'], 'shard')}",
        f"{format_hours(time[f'{unit.lower()}_hours'])} {unit}-hours",
    ]
    if time["predicted_s"]:
        took, predicted = format_compared(time["took_s"]), format_compared(time["predicted_s"])
        low, high = time["predicted_low_s"], time["predicted_high_s"]
        outside = ""
        if None not in (low, high) and not low <= time["took_s"] <= high:
            outside = f" (outside of its interval, {format_compared(low)} to {format_compared(high)})"
        parts.append(f"the shards took {took}, {predicted} predicted{outside}")
    if energy["joules"]:
        parts.append(format_energy(energy["joules"]))
    if data["model"] and data["model"]["caveat"]:
        parts.append(data["model"]["caveat"])
    if quarantined := corpus["quarantined"]:
        parts.append(f"{format_count(quarantined, 'paragraph')} in quarantine")
    left_out, unread = len(corpus["left_out"]), len(corpus["not_read"])
    parts += [f"{format_count(left_out, 'place')} left out"] if left_out else []
    parts += [f"{format_count(unread, 'file')} in the folders not read"] if unread else []
    return ", ".join(parts)


def _processed(corpus: Mapping[str, Any]) -> str:
    every, bad = corpus["paragraphs"], corpus["quarantined"]
    return f"{f'{every - bad:,} of ' if bad else ''}{format_count(every, 'paragraph')}"


def methods(data: Mapping[str, Any]) -> str:
    """Return the paragraph of a methods section, from the data of ``provenance.json``."""
    corpus, model, versions, time = data["corpus"], data["model"], {**data["versions"]}, data["time"]
    jobkit, unit = ", ".join(versions.pop("jobkit", ())), "GPU" if "gpu_hours" in time else "CPU"
    packages = ", ".join(f"{name} {' and '.join(numbers)}" for name, numbers in versions.items())
    # parts of a setting that decide the time and not the results
    knobs = {
        name: "true" if value is True else value
        for name, value in data["setting"].items()
        if name not in (*TIMING, "source") and value
    }
    noun = ("named entity", "named entities") if data["workload"].endswith("-ner") else ("row",)
    left_out = (
        (len(corpus["left_out"]), "place", "that cannot be read"),
        (corpus["empty"], "document", "without text"),
        (corpus["quarantined"], "paragraph", "in quarantine, that the workload cannot take"),
        (len(corpus["not_read"]), "file", "of a kind that jobkit does not read"),
    )
    left = "; ".join(f"{format_count(number, noun)} {why}" for number, noun, why in left_out if number)
    named = f", the model {model['name']} {model['size']} (SHA-256 {model['sha256'][:12]})" if model else ""
    energy = f" and {format_energy(data['energy']['joules'])}" if data["energy"]["joules"] else ""
    sentences = [
        f"We processed {_processed(corpus)}",
        f"({corpus['characters']:,} characters) of {format_count(corpus['documents'], 'document')}",
        f"({format_list([_source(file) for file in corpus['files']])})",
        f"with the workload {data['workload']}{named} under jobkit {jobkit}; {format_setting(knobs)},",
        f"on {', '.join(data['gpus']) or 'CPUs'} ({packages}).",
        f"The result has {format_count(data['rows'], *noun)}.",
        f"Left out: {left}." if left else "Nothing is left out.",
        f"The jobs took {format_hours(time[f'{unit.lower()}_hours'])} {unit}-hours{energy}",
        f"({' to '.join(dict.fromkeys(data[at][:10] for at in ('first_began', 'last_ended')))}).",
        "SHA-256 of all files, and all settings, are in provenance.json.",
        f"{model['caveat']}: these are no results to publish." if model and model["caveat"] else "",
    ]
    return " ".join(sentences).strip()


def _source(file: Mapping[str, Any]) -> str:
    """Return a file as a person must read it to find the offsets."""
    column = f"column {file['columns']['text']}" if "columns" in file else ""
    how = ", ".join(filter(None, (column, file.get("encoding", ""))))
    return f"{file['name']}, {how}" if how else str(file["name"])


def bibtex(data: Mapping[str, Any]) -> str:
    """Return the entries of the page: jobkit with the version that ran, and Stanza if it ran."""
    page = files.read_text(shipped_folder("docs") / "cite.md")
    entries = [part.removeprefix("bibtex\n").rstrip() for part in page.split("```")[1::2]]
    version = ", ".join(data["versions"].get("jobkit", ()))
    return "\n\n".join(entries[: 1 + ("stanza" in data["versions"])]).replace("VERSION", version)
