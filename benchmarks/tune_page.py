"""What `jobkit tune` finds on a GPU, a corpus, limits of memory, precision: tables of their records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean

from benchmarks.archives import RECORDS, group
from benchmarks.gpu_page import GIB
from benchmarks.markdown import table
from jobkit.answers.setting import key_of
from jobkit.core.json_codec import from_json
from jobkit.core.knobs import PADDED, WORKERS, numbers
from jobkit.core.records import Record
from jobkit.core.student import deviation, half_width
from jobkit.extensions.tune.goal import whole
from jobkit.extensions.tune.search import Tuning

TUNE = group("tune") / "tune-20261123-101748-667c"
"""The search without shortcuts that had the most time."""
SECOND = TUNE.with_name("tune-20261122-213355-f020")
"""The search whose setting the corpus has, and the finals of the grid."""
MACHINES = {
    "tune-20261122-180438-5f62": "one H200",
    SECOND.name: "half of two H200s, other busy",
    "tune-20261123-042039-9490": "two H200s, one idle",
    "tune-20261123-074302-a544": "half of two H200s, other idle",
    "tune-20261123-075119-ff54": "the same",
    TUNE.name: "half of two H200s, other idle",
}
"""Where each search ran."""
PRECISION = next(group("precision").glob("precision-2*"))
CORPUS = group("apply") / "tagged"
CAPPED = (4, 12)
"""The workers, with MPS, of the runs with a limit for the whole GPU."""
CAPS_GIB = (8, 16)
"""The memory of the whole GPU that each of these had."""
CLOSE_GIB = 0.01
"""How far below its share the limit of an allocator may lie, which was rounded down to a MiB."""
SEARCH_HEADS = ("search on", "CPUs", "workers, size", "times the loop", "J: loop, found", "minutes")
SHORT_HEADS = ("`tune.budget`", "seconds", "settings", "workers, size", "paragraphs/s", "times the loop")
SHORT = (
    "newest-150s",
    "next-to-newest-320s",
    "vectors-last-90s",
    "entities-fp32-90s",
    "entities-bf16-90s",
)
"""The latest searches with short budgets, and the long one next to the first."""
CORPUS_HEADS = ("setting", "paragraphs", "predicted", "95 % interval", "took", "paragraphs/s")


def read(run: Path) -> list[Record]:
    """Return the records of a run, in the order in which they began."""
    paths = run.glob("results/*/try-*/record.json")
    found = [from_json(Record, path.read_text(encoding="utf-8"), where=str(path)) for path in paths]
    return sorted(found, key=lambda record: record.started_at or "")


def speeds(records: Sequence[Record]) -> list[float]:
    """Return the paragraphs a second of some points."""
    return [record.summary.items_per_s or 0.0 for record in records if record.summary]


def listed(values: Sequence[float], style: str = ",.0f") -> str:
    """Return numbers in a sentence."""
    *first, last = (f"{value:{style}}" for value in values)
    return f"{', '.join(first)} and {last}"


def searches() -> Iterator[tuple[str, ...]]:
    """Yield a row for each search without shortcuts, and one for their mean."""
    found = [Tuning.read(TUNE.parent / run) for run in MACHINES]
    for tuning, machine in zip(found, MACHINES.values(), strict=True):
        yield search_row(machine, tuning)
    logs = [math.log(one.gain.mean) for one in found if one.gain]
    mean, half = fmean(logs), half_width(deviation(logs), len(logs)) or 0.0
    low, high = math.exp(mean - half), math.exp(mean + half)
    yield "mean", "", "", f"{math.exp(mean):.1f} ({low:.1f} to {high:.1f})", "", ""


def search_row(machine: str, tuning: Tuning) -> tuple[str, ...]:
    """Return what a search found, as a row."""
    best, gain = tuning.winner, tuning.gain
    if best is None or gain is None:
        raise ValueError(machine)
    found = numbers(best.params)
    both = [speed for speed in (tuning.finals.plain, best) if speed]
    joules = (_per_1000(tuning.finals.setting(speed).points) for speed in both)
    return (
        machine,
        str(tuning.goal.workers),
        f"{found[WORKERS]}, {found[PADDED]:,}",
        f"{gain.mean:.1f} ({gain.low:.1f} to {gain.high:.1f})",
        ", ".join(f"{one:.0f}" for one in joules),
        f"{_minutes(tuning):.1f}",
    )


def short_searches() -> Iterator[tuple[str, ...]]:
    """Yield a row for each short search, and for each long one next to it."""
    for name in SHORT:
        run = group("tune-short") / name
        tuning = Tuning.read(run)
        best, gain = tuning.winner, tuning.gain
        if best is None or gain is None:
            raise ValueError(name)
        found = numbers(best.params)
        yield (
            f"{tuning.goal.budget_s:.0f}",
            f"{_seconds(run, tuning):.0f}",
            str(len({key_of(whole(one.params)) for one, _ in tuning.results})),
            f"{found[WORKERS]}, {found[PADDED]:,}",
            f"{best.rate:,.0f}",
            f"{gain.mean:.1f} ({gain.low:.1f} to {gain.high:.1f})",
        )


def _seconds(run: Path, tuning: Tuning) -> float:
    """Return the time from the submission of a search to the end of its last record."""
    journal = (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    sent = min(entry["at"] for entry in map(json.loads, journal) if entry["event"] == "submitted")
    ended = max(one.record.ended_at or "" for _, one in tuning.results if one.record)
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(sent)).total_seconds()


def _per_1000(records: Sequence[Record]) -> float:
    """Return the mean joules for 1,000 paragraphs."""
    return fmean(
        1000 * (record.energy.counter_j or 0) / record.summary.items
        for record in records
        if record.energy and record.summary
    )


def _minutes(tuning: Tuning) -> float:
    """Return the time from the first to the last record of a search."""
    records = [result.record for _, result in tuning.results if result.record]
    began = min(record.started_at or "" for record in records)
    ended = max(record.ended_at or "" for record in records)
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds() / 60


def corpus_row(setting: str, tagged: Path) -> tuple[str, ...]:
    """Return the promise and the truth of a corpus, as a row."""
    whole = json.loads((tagged / "provenance.json").read_text(encoding="utf-8"))
    time = whole["time"]
    items = sum(one.summary.items for one in read(tagged) if one.summary)
    return (
        setting,
        f"{whole['corpus']['paragraphs']:,}",
        f"{time['predicted_s']:.0f} s",
        f"{time['predicted_low_s']:.0f} to {time['predicted_high_s']:.0f} s",
        f"{time['took_s']:.0f} s",
        f"{items / time['work_s']:,.0f}",
    )


def caps() -> str:
    """Return the table of the batches that jobkit named as safe for several workers, and what they needed."""
    heads = ("workers", "GPU", "largest safe batch", "peak of the GPU")
    rows = []
    for workers in CAPPED:
        run = next(group("caps").glob(f"caps-{workers}-on-2*"))
        context = max(record.memory.context_bytes or 0 for record in read(run)) / GIB
        rows += [(workers, f"{cap} GiB", *_cap(run, (cap - workers * context) / workers)) for cap in CAPS_GIB]
    return table(heads, rows)


def _cap(run: Path, share_gib: float) -> tuple[str, str]:
    """Return the batch that a run tried within a share of the GPU for each allocator, and its peak."""
    trials = [
        trial
        for trial in map(json.loads, (run / "trials.jsonl").read_text(encoding="utf-8").splitlines())
        if trial["outcome"] and 0 <= share_gib - trial["capacity_bytes"] / GIB < CLOSE_GIB
    ]
    if not trials:
        return "none: refused", ""
    [trial] = trials
    [record] = [one for one in read(run) if one.point.index == trial["index"]]
    return str(trial["batch_size"]), f"{(record.memory.device_peak_bytes or 0) / GIB:.2f} GiB"


def precision() -> str:
    """Return the table of speed, memory, energy and entities for each precision."""
    heads = ("precision", "paragraphs/s", "activations", "net J for 1,000", "entities that differ")
    text = (RECORDS / "precision" / "collected.json").read_text(encoding="utf-8")
    rows = (
        (
            size["precision"],
            f"{size['items_per_s']:.0f}",
            f"{size['activations_bytes'] / GIB:.2f} GiB",
            f"{size['net_energy_per_1000_j']:.0f}",
            f"{size['differ']:.0f} of {size['entities']:,.0f}",
        )
        for size in json.loads(text)["sizes"]
    )
    return table(heads, rows)
