"""What the pictures of ``jobkit collect --plot`` show, as data: points, lines, bounds, the knee.

Reads the records behind the tables, group by group as the tables are: points of two groups are
never in one panel. Knows nothing of how it is drawn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd

from jobkit.core.layout import read_batches
from jobkit.core.records import BATCH_SIZE, Batch, Outcome, Record
from jobkit.fit.loads import loads_of, read_lengths
from jobkit.fit.observations import others
from jobkit.fit.speed import SPEED_TOLERANCE
from jobkit.outcome.results import PointResult, read_run
from jobkit.outcome.trials import Trial, trials
from jobkit.report.plot.memory_data import NOTHING, MemoryPanel, memory_of_log, memory_of_records, together
from jobkit.report.rows import LOG
from jobkit.report.tables import Collected


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSeries:
    """Speed over the first knob, all other knobs the same.

    Attributes
    ----------
    name
        The other knobs in words; empty where none varies by itself.
    sizes
        Values of the knob, ascending.
    items_per_s, items_per_s_sd
        Paragraphs a second, mean and standard deviation over the repeats; ``None`` for the latter
        of one repeat.
    repeats
        How many there were of each.
    """

    name: str
    sizes: tuple[int, ...]
    items_per_s: tuple[float, ...]
    items_per_s_sd: tuple[float | None, ...]
    repeats: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPanel:
    """Speed against the batch size.

    Attributes
    ----------
    knob
        The name of the knob.
    series
        One for each setting of the other knobs; empty where no speed is known.
    fastest_items_per_s
        The highest mean.
    knee
        The smallest value whose mean is within `jobkit.fit.speed.SPEED_TOLERANCE` of that, and its mean.
    """

    knob: str
    series: tuple[SpeedSeries, ...]
    fastest_items_per_s: float = 0.0
    knee: tuple[int, float] | None = None


@dataclass(frozen=True, slots=True)
class GroupPlot:
    """The two panels of a group: a row of ``Collected.groups``."""

    group: int
    memory: MemoryPanel
    speed: SpeedPanel


def group_plots(collected: Collected, gpu_memory_bytes: int | None = None) -> list[GroupPlot]:
    """Return what to draw of each group, in the order of the tables.

    Parameters
    ----------
    collected
        What was read; the records of its run folders are read again.
    gpu_memory_bytes
        The card to draw the capacity of; by default the one measured on.
    """
    results = _results(collected.points)
    return [
        _group(collected, int(group), results, gpu_memory_bytes) for group in sorted(collected.groups.index)
    ]


Results = Mapping[tuple[str, str], PointResult]
"""By folder and point id."""


def _results(points: pd.DataFrame) -> Results:
    measured = points[points["group"].notna() & (points["workload"] != LOG)]
    return {
        (folder, result.point.point_id): result
        for folder in measured["folder"].unique()
        for result in read_run(Path(folder)).points
    }


def _group(collected: Collected, group: int, results: Results, gpu_memory_bytes: int | None) -> GroupPlot:
    rows = collected.points[collected.points["group"] == group]
    if (rows["workload"] == LOG).any():
        return GroupPlot(group, _memory_of_log(rows, gpu_memory_bytes), _speed(rows, collected.knobs))
    keys = list(zip(rows["folder"], rows["point"], strict=True))
    found = {key: results[key] for key in keys if key in results}
    tries = {key for key, one in found.items() if is_verification(one)}
    if len(tries) == len(found):  # a sweep under a cap: nothing else is there to be verified
        tries = set()
    records = {key: one.chosen.record for key, one in found.items() if one.chosen and one.chosen.record}
    measured = {key: record for key, record in records.items() if key not in tries}
    lengths = (read_lengths(Path(folder)) for folder in rows["folder"].unique())
    known = next((length for length in lengths if length is not None), None)
    apart: dict[str, dict[tuple[str, str], Record]] = defaultdict(dict)
    for key, record in measured.items():
        apart[others(record.point.params, record.inert)][key] = record
    panels = {
        words: memory_of_records(
            list(part.values()),
            [record for key, record in records.items() if key in tries],
            _batches(part, found),
            loads_of(known, [record.point for record in part.values()]),
            _trials({key: found[key] for key in tries}),
            gpu_memory_bytes,
        )
        for words, part in apart.items()
    }
    memory = together(panels) if len(panels) > 1 else next(iter(panels.values()), NOTHING)
    swept = rows[[key not in tries for key in keys]]
    return GroupPlot(group, memory, _speed(swept, collected.knobs))


def _trials(tried: Results) -> list[Trial]:
    """Return what was predicted for the points that tried it."""
    predicted = {
        (folder, trial.index): trial
        for folder in {name for name, _ in tried}
        for trial in trials(Path(folder))
    }
    found = (
        predicted.get((folder, one.point.index)) for (folder, _), one in sorted(tried.items(), key=_order)
    )
    return [trial for trial in found if trial is not None]


def _order(item: tuple[tuple[str, str], PointResult]) -> tuple[str, int]:
    return item[0][0], item[1].point.index


def _memory_of_log(rows: pd.DataFrame, gpu_memory_bytes: int | None) -> MemoryPanel:
    on_gpu = (rows["device"] != "cpu").any()
    column = "gpu_peak_bytes" if on_gpu else "ram_peak_bytes"
    well = rows[rows[column].notna()]
    model = float(well["model_bytes"].mean())
    capacity = float(gpu_memory_bytes or well["gpu_capacity_bytes"].max())
    return memory_of_log(
        well[BATCH_SIZE].tolist(),
        well[column].tolist(),
        up="GPU memory, total" if on_gpu else "RAM",
        capacity_bytes=None if math.isnan(capacity) or not on_gpu else capacity,
        model_bytes=0.0 if math.isnan(model) else model,
    )


def is_verification(result: PointResult) -> bool:
    """Tell whether a point tries a prediction and is none of the sweep."""
    return result.point.trial


def _batches(measured: Mapping[tuple[str, str], Record], found: Results) -> dict[str, Sequence[Batch]]:
    """Return the batch lines by point id; of two runs in a group both, one after the other."""
    lines: dict[str, list[Batch]] = defaultdict(list)
    for (folder, name), record in measured.items():
        chosen = found[folder, name].chosen
        if chosen and record.point.device != "cpu":
            lines[name] += read_batches(chosen.folder)[0]
    return dict(lines)


def _speed(rows: pd.DataFrame, knobs: Sequence[str]) -> SpeedPanel:
    """Return the speed over the first knob that is there, those that went well alone."""
    well = rows[(rows["outcome"] == Outcome.OK) & rows["items_per_s"].notna()]
    used = [knob for knob in knobs if well[knob].notna().any()]
    knob = used[0] if used else BATCH_SIZE
    if well.empty or not used:
        return SpeedPanel(knob=knob, series=())
    others = used[1:] if _ambiguous(well, knob, used[1:]) else []
    by_setting: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in well.sort_values(used).to_dict("records"):
        name = ", ".join(f"{other} {row[other]:,.0f}" for other in others)
        by_setting[name][int(row[knob])].append(float(row["items_per_s"]))
    series = tuple(_series(name, repeats) for name, repeats in by_setting.items())
    fastest = max(max(one.items_per_s) for one in series)
    return SpeedPanel(knob=knob, series=series, fastest_items_per_s=fastest, knee=_knee(series, fastest))


def _ambiguous(well: pd.DataFrame, knob: str, others: Sequence[str]) -> bool:
    """Tell whether one value of the knob stands for several settings of the others."""
    return len(well[[knob, *others]].drop_duplicates()) > well[knob].nunique()


def _series(name: str, repeats: Mapping[int, Sequence[float]]) -> SpeedSeries:
    return SpeedSeries(
        name=name,
        sizes=tuple(repeats),
        items_per_s=tuple(fmean(speeds) for speeds in repeats.values()),
        items_per_s_sd=tuple(stdev(speeds) if len(speeds) > 1 else None for speeds in repeats.values()),
        repeats=tuple(len(speeds) for speeds in repeats.values()),
    )


def _knee(series: Sequence[SpeedSeries], fastest: float) -> tuple[int, float]:
    """Return the smallest size within reach of the fastest, and its mean."""
    return min(
        (size, mean)
        for one in series
        for size, mean in zip(one.sizes, one.items_per_s, strict=True)
        if mean >= (1 - SPEED_TOLERANCE) * fastest
    )
