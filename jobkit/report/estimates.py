"""The largest batch of every group of measurements: predicted with a bound, else by a straight line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from jobkit.core.records import BATCH_SIZE, Outcome
from jobkit.core.units import format_count
from jobkit.fit.batch_line import Estimate, largest_batch
from jobkit.fit.gpus import usable_bytes
from jobkit.fit.line import MIN_DISTINCT_LOADS
from jobkit.fit.loads import agreeing, loads_of, read_lengths
from jobkit.fit.observations import observe_memory, others
from jobkit.fit.predict import Prediction, capped, predict
from jobkit.outcome.trials import Trial, settled_trials, trials
from jobkit.report.tables import Collected, no_search_for_cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEstimate:
    """The estimate of one group.

    Attributes
    ----------
    group
        Its number, a row of ``Collected.groups``.
    knob
        The knob that the estimate is about.
    by_knob
        The line in the knob: the answer that a user asks for.
    by_load
        The line in the load, what the framework pads to: ``None`` where a point has no load.
    prediction
        What to go by instead: from what the batches need; ``None`` where too few points tell.
    run
        The folder of the first run of the group.
    others
        The values of all other knobs that it holds for, in words; empty where none varies.
    """

    group: int
    knob: str
    by_knob: Estimate
    by_load: Estimate | None
    prediction: Prediction | None = None
    run: str = ""
    others: str = ""


def estimates(collected: Collected, gpu_memory_bytes: int | None = None) -> tuple[GroupEstimate, ...]:
    """Return an estimate for each group measured on a GPU: one for each value of the other knobs.

    Parameters
    ----------
    collected
        What was read.
    gpu_memory_bytes
        The card to fit; by default the one that the group was measured on.
    """
    on_gpu = collected.groups[collected.groups["device"] != "cpu"]
    with no_search_for_cycles():
        return tuple(
            _estimate(collected, int(group), words, rows, gpu_memory_bytes)
            for group in on_gpu.index
            for words, rows in _apart(collected, int(group))
        )


def _apart(collected: Collected, group: int) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of a group's sweep by the values of the other knobs; all, if no line is gained."""
    points = collected.points
    rows = points[(points["group"] == group) & ~points["trial"]]
    known = rows[list(collected.knobs)].to_dict("records")
    inert = rows["inert"].fillna("")
    words = pd.Series(
        [
            others({str(k): int(v) for k, v in params.items() if v == v}, names.split(", "))  # noqa: PLR0124 - NaN
            for params, names in zip(known, inert, strict=True)
        ],
        index=rows.index,
        dtype=object,
    )
    parts = [(str(name), part) for name, part in rows.groupby(words, sort=False)]
    if len(parts) > 1 and any(len(part[list(collected.knobs)].drop_duplicates()) > 1 for _, part in parts):
        return parts
    return [("", rows)]


def _estimate(
    collected: Collected, group: int, words: str, rows: pd.DataFrame, gpu_memory_bytes: int | None
) -> GroupEstimate:
    knob = _the_knob(rows, collected.knobs)
    recorded = rows["gpu_capacity_bytes"].max()  # one value: it is part of what makes the group
    capacity = float(recorded if gpu_memory_bytes is None else gpu_memory_bytes)
    prediction = _predicted(collected, group, words, rows, gpu_memory_bytes)
    run = str(rows["folder"].iloc[0])
    measured = rows[(rows["outcome"] == Outcome.OK) & rows["gpu_peak_bytes"].notna()]
    if reason := _why_not(knob, capacity, measured):
        none = Estimate(line=None, capacity_bytes=None if math.isnan(capacity) else capacity, reason=reason)
        return GroupEstimate(
            group=group,
            knob=knob or BATCH_SIZE,
            by_knob=none,
            by_load=None,
            prediction=prediction,
            run=run,
            others=words,
        )
    assert knob is not None  # noqa: S101 - _why_not has a reason for None
    too_large = rows.loc[rows["outcome"] == Outcome.GPU_OOM]
    fits = not measured["load_max"].isna().any()
    return GroupEstimate(
        group=group,
        knob=knob,
        by_knob=_line(measured, knob, capacity, too_large, measured["items_total"].max()),
        by_load=_line(measured, "load_max", capacity, too_large) if fits else None,
        prediction=prediction,
        run=run,
        others=words,
    )


def _predicted(
    collected: Collected, group: int, words: str, rows: pd.DataFrame, gpu_memory_bytes: int | None
) -> Prediction | None:
    """Return the prediction from what the batches need, ``None`` where too few loads tell it."""
    records = [
        one
        for one in collected.needs.get(group, ())
        if not words or others(one.point.params, one.inert) == words
    ]
    if len({need.load for record in records for need in record.needs}) < MIN_DISTINCT_LOADS:
        return None
    evidence = observe_memory(records)
    if isinstance(evidence, str) or not evidence.load_by_batch:
        return None
    card = gpu_memory_bytes or (evidence.card_bytes and usable_bytes(evidence.gpu, evidence.card_bytes))
    if not card:
        return None
    found = (read_lengths(Path(folder)) for folder in rows["folder"].unique())
    lengths = next((one for one in found if one is not None), None)
    loads = agreeing(loads_of(lengths, (record.point for record in records)), evidence.load_by_batch)
    prediction = predict(evidence, max(0.0, evidence.allocator_bytes(card)), loads)
    return capped(prediction, evidence, loads, _tried(collected, rows["folder"].unique()))


def _tried(collected: Collected, folders: Iterable[str]) -> list[Trial]:
    """Return the trials of some runs, with the outcomes of their points."""
    found: list[Trial] = []
    for folder in folders:
        points = collected.points[(collected.points["folder"] == folder) & collected.points["trial"]]
        known = points[points["outcome"].notna()]
        outcomes = zip(known["index"].astype(int), known["outcome"].map(Outcome), strict=True)
        found += settled_trials(trials(Path(folder)), dict(outcomes))
    return found


def _the_knob(rows: pd.DataFrame, knobs: tuple[str, ...]) -> str | None:
    """Return the one knob that varies, knobs that always move together counted once."""
    distinct: list[str] = []
    for knob in knobs:
        varies = len(set(rows[knob])) > 1
        if varies and not any(rows[knob].equals(rows[other]) for other in distinct):
            distinct.append(knob)
    if len(distinct) > 1:
        return None
    return distinct[0] if distinct else knobs[0] if knobs else None


def _why_not(knob: str | None, capacity: float, measured: pd.DataFrame) -> str:
    if measured.empty:
        return "no GPU memory was measured"
    if knob is None:
        return "more than one knob varies, or none is named"
    return "the card's size is not recorded: give it with --gpu-memory" if math.isnan(capacity) else ""


def _line(
    measured: pd.DataFrame,
    column: str,
    capacity_bytes: float,
    too_large: pd.DataFrame,
    items_total: float = math.inf,
) -> Estimate:
    """Return the estimate in one column; a batch beyond the whole text gets a warning."""
    model, failed = float(measured["model_bytes"].mean()), float(too_large[column].min())
    found = largest_batch(
        measured[column].tolist(),
        measured["gpu_peak_bytes"].tolist(),
        capacity_bytes,
        model_bytes=0.0 if math.isnan(model) else model,
        failed_at=None if math.isnan(failed) else failed,
    )
    if found.largest is None or not found.largest > items_total:
        return found
    text = f"the text has only {format_count(round(items_total), 'paragraph')}"
    beyond = f"{text}, so a larger batch cannot be exercised on it"
    return Estimate(
        line=found.line,
        capacity_bytes=capacity_bytes,
        largest=found.largest,
        warnings=(*found.warnings, beyond),
    )
