"""The largest batch of every group of measurements: with a bound, or why not; of an old log a guess."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from jobkit.core.figures import GPU_MEMORY, MODEL, RAM
from jobkit.core.knobs import BATCH_SIZE, CPU
from jobkit.core.units import format_count
from jobkit.fit.batch_line import Estimate, estimate
from jobkit.fit.memory import Memory, Prediction, memory_by_setting
from jobkit.fit.setting import Setting, other_knobs
from jobkit.outcome.conditions import memory_condition
from jobkit.outcome.results import batches_of
from jobkit.report.rows import LOG, Row
from jobkit.report.tables import Collected, no_search_for_cycles
from jobkit.run.workloads.base import CHARACTERS, load_unit

BOUNDED = "the prediction, which has a bound, is the answer"
"""Why a run of jobkit has no straight line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEstimate:
    """The largest batch of one group, for one value of the other knobs.

    Attributes
    ----------
    group
        Its number, a row of ``Collected.groups``.
    knob
        The knob that the estimate is about.
    by_knob
        Of an old log, which has no loads: a straight line in the batch size, a guess without a bound. Of a
        run of jobkit only the reason why there is none.
    by_load
        ``None``: a log has no load. The key is kept for programs.
    prediction
        Of a run of jobkit the same as `jobkit recommend` has, or the reason why it is not known.
    run
        The folder of the first run of the group.
    unit
        What a load counts.
    others
        The values of all other knobs that it holds for, in words; empty if none varies.
    allocator
        The allocator setting that it holds for, in words after a comma.
    """

    group: int
    knob: str
    by_knob: Estimate
    by_load: Estimate | None = None
    prediction: Prediction | None = None
    run: str = ""
    unit: str = CHARACTERS
    others: str = ""
    allocator: str = ""


def estimates(collected: Collected, gpu_memory_bytes: int | None = None) -> tuple[GroupEstimate, ...]:
    """Return an estimate for each group measured on a GPU: one for each value of the other knobs.

    Parameters
    ----------
    collected
        What was read.
    gpu_memory_bytes
        The GPU to fit; by default the one that the group was measured on.
    """
    with no_search_for_cycles():
        return tuple(
            found
            for group, first in enumerate(collected.by_group)
            if first.device != CPU
            for found in _estimates(collected, group, gpu_memory_bytes)
        )


def _estimates(collected: Collected, group: int, gpu_memory_bytes: int | None) -> Iterator[GroupEstimate]:
    first = collected.by_group[group]
    if first.workload == LOG:
        guess = guess_of_log([row for row in collected.rows if row.group == group], gpu_memory_bytes)
        yield GroupEstimate(group=group, knob=BATCH_SIZE, by_knob=guess, run=first.folder)
        return
    search = collected.search(group)
    answer = next(map(other_knobs, search.records_of(search.winner)), None) if search else None
    memory = group_memory(collected, group, gpu_memory_bytes)
    if isinstance(memory, str):
        why = Prediction(capacity_bytes=0, reason=memory)
        reason = Estimate(line=None, capacity_bytes=None, reason=memory)
        yield GroupEstimate(group=group, knob=why.knob, by_knob=reason, prediction=why, run=first.folder)
        return
    alone = len(memory) == len(collected.by_group) == 1
    for words, own in memory.items():
        if answer is not None and words != answer:
            continue  # points of a search that ran once are no line of memory
        largest = own.largest
        yield GroupEstimate(
            group=group,
            knob=largest.knob,
            by_knob=Estimate(line=None, capacity_bytes=own.limit_bytes, reason=largest.reason or BOUNDED),
            prediction=largest,
            run=first.folder,
            unit=load_unit(first.workload),
            others="" if search or alone else words,
            allocator=memory_condition(own.records),
        )


def group_memory(
    collected: Collected, group: int, gpu_memory_bytes: int | None = None
) -> dict[str, Memory] | str:
    """Return memory and largest batch of a group of runs of jobkit, as `jobkit recommend` has them."""
    alone = len(collected.by_group) == 1  # then a point that failed early is of this group, too
    rows = [row for row in collected.rows if not row.trial and (alone or row.group == group)]
    folders = dict.fromkeys(row.folder for row in rows)
    return memory_by_setting(
        [row.record for row in rows if row.record],
        batches_of(row.result for row in rows if row.result),
        collected.lengths(rows),
        tuple(chain.from_iterable(collected.trials.get(folder, ()) for folder in folders)),
        gpu_bytes=gpu_memory_bytes,
    )


def guess_of_log(rows: Sequence[Row], gpu_memory_bytes: int | None = None) -> Estimate:
    """Return the straight line through the peaks of an old log, and where it meets the memory of the GPU.

    Of the log of a CPU it is that of its RAM, without a limit.
    """
    peaks, first = log_peaks(rows), rows[0]
    model = Setting(points=tuple(rows)).mean(MODEL)
    guess = estimate(
        [size for size, _ in peaks],
        [peak for _, peak in peaks],
        None if first.device == CPU else gpu_memory_bytes or first.gpu_capacity_bytes,
        model_bytes=model.value if model else 0.0,
    )
    items_total = max(row.items_total or 0 for row in rows)
    if guess.largest is None or guess.largest <= items_total:
        return guess
    text = f"the text has only {format_count(items_total, 'paragraph')}"
    beyond = f"{text}, so a larger batch cannot be tested on it"
    return replace(guess, warnings=(*guess.warnings, beyond))


def log_peaks(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Return batch size and total peak of the runs of an old log: of GPU memory, on a CPU of RAM."""
    peaks = ((row, row.value(RAM if row.device == CPU else GPU_MEMORY)) for row in rows)
    return [(row.numbers[BATCH_SIZE], peak) for row, peak in peaks if peak is not None]
