"""How large a batch of each group may be, in numbers: that of `jobkit recommend`, or of a log a guess."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from jobkit.answers.loads import NONE, read_lengths
from jobkit.answers.memory import Memory, Prediction, Wanted, memory_by_setting
from jobkit.answers.memory_line import Estimate, estimate
from jobkit.answers.setting import Setting, other_knobs
from jobkit.core.figures import GPU_MEMORY, MODEL, RAM
from jobkit.core.frozen import keyed
from jobkit.core.knobs import BATCH_SIZE, CPU
from jobkit.core.layout import SEARCH_GOAL_FILE
from jobkit.core.units import format_count
from jobkit.report.rows import Row
from jobkit.report.tables import Collected
from jobkit.runs.conditions import memory_condition
from jobkit.runs.results import batches_of
from jobkit.worker.workloads.base import CHARACTERS, SHIPPED, load_unit


@keyed
class GroupEstimate:
    group: int  # a row of ``Collected.groups``
    knob: str  # the knob whose largest value is estimated
    # in a file without records, which has no loads: a straight line in the batch size, a guess without a
    # bound. For a run of jobkit only the reason why there is no line.
    by_knob: Estimate
    by_load: Estimate | None = None  # ``None``, because a log has no load; the key is kept for programs
    # for a run of jobkit the prediction of `jobkit recommend`, or the reason why there is none
    prediction: Prediction | None = None
    run: str = ""  # the folder of the first run of the group
    unit: str = CHARACTERS  # what a load counts
    others: str = ""  # the values of all other knobs, in words; empty if none varies
    allocator: str = ""  # the allocator setting, in words after a comma
    asked: Prediction | None = None  # for the limit that the run was asked for; ``None`` without one


def estimates(collected: Collected, limit_bytes: int | None = None) -> tuple[GroupEstimate, ...]:
    """Return an estimate for each group measured on a GPU, and each value of the other knobs.

    ``limit_bytes``: the GPU to fit; by default the one that the group was measured on.
    """
    found: list[GroupEstimate] = []
    for group, first in enumerate(collected.by_group):
        if first.point.device != CPU:
            of_group = _of_file if first.file_format else _of_runs
            found += of_group(collected, group, limit_bytes)
    return tuple(found)


def _of_file(collected: Collected, group: int, limit_bytes: int | None) -> Iterator[GroupEstimate]:
    guess = guess_of_file(collected.rows_of(group), limit_bytes)
    yield GroupEstimate(group=group, run=collected.by_group[group].folder, knob=BATCH_SIZE, by_knob=guess)


def _of_runs(collected: Collected, group: int, limit_bytes: int | None) -> Iterator[GroupEstimate]:
    first = collected.by_group[group]
    of_group = partial(GroupEstimate, group=group, run=first.folder)
    memory = group_memory(collected, group, limit_bytes)
    if isinstance(memory, str):
        yield of_group(
            knob=BATCH_SIZE,
            by_knob=Estimate(line=None, capacity_bytes=None, reason=memory),
            prediction=Prediction(capacity_bytes=0, reason=memory),
        )
        return
    search = collected.search(group)
    answer = next(map(other_knobs, search.finals.winner_records), None) if search else None
    only_one = len(memory) == len(collected.by_group) == 1  # whose knobs need no words
    for words, own in memory.items():
        if answer is not None and words != answer:
            continue  # points of a search that ran once are no line of memory
        largest = own.largest
        no_line = largest.reason or "the prediction, which has a bound, is the answer"
        yield of_group(
            knob=largest.knob,
            by_knob=Estimate(line=None, capacity_bytes=own.limit_bytes, reason=no_line),
            prediction=largest,
            unit=load_of(first)[0],
            others="" if search or only_one else words,
            allocator=memory_condition(own.records),
            asked=own.asked,
        )


def group_memory(collected: Collected, group: int, limit_bytes: int | None = None) -> dict[str, Memory] | str:
    """Return memory and largest batch of a group of runs of jobkit, as `jobkit recommend` has them."""
    if (known := collected.memories.get((group, limit_bytes))) is not None:
        return known
    only_group = len(collected.by_group) == 1  # then a point that failed early is of this group, too
    rows = [row for row in collected.rows if not row.point.trial and (only_group or row.group == group)]
    folders = dict.fromkeys(row.folder for row in rows)
    searched = [Path(folder) for folder in folders if (Path(folder) / SEARCH_GOAL_FILE).is_file()]
    asked: set[int | None] = set()
    if searched:
        from jobkit.report.recommend.material import spec_of  # here: of other runs collect reads no spec

        asked = {spec.asked_bytes for folder in searched if (spec := spec_of(folder)[0])}
    found = collected.memories[group, limit_bytes] = memory_by_setting(
        [row.record for row in rows if row.record],
        batches_of(row.result for row in rows),
        collected.lengths(rows),
        Wanted(
            limit_bytes=limit_bytes,
            asked_bytes=asked.pop() if len(asked) == 1 and limit_bytes is None else None,
            tried=[trial for folder in folders for trial in collected.sources.trials.get(folder, ())],
        ),
    )
    return found


def guess_of_file(rows: Sequence[Row], limit_bytes: int | None = None) -> Estimate:
    """Return the line through the peaks of a file, and where it meets the memory of the GPU.

    On a CPU the line is that of RAM, without a limit.
    """
    peaks, first = peaks_of_file(rows), rows[0]
    model = Setting(points=tuple(rows)).mean(MODEL)
    guess = estimate(
        [size for size, _ in peaks],
        [peak for _, peak in peaks],
        None if first.point.device == CPU else limit_bytes or first.value("gpu_capacity_bytes"),
        model_bytes=model.value if model else 0.0,
    )
    items_total = max(row.value("items_total") or 0 for row in rows)
    if guess.largest is None or guess.largest <= items_total:
        return guess
    text = f"the text has only {format_count(items_total, 'paragraph')}"
    beyond = f"{text}, so a larger batch cannot be tested on it"
    return replace(guess, warnings=(*guess.warnings, beyond))


def peaks_of_file(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Return batch size and total peak of the rows of a file: of GPU memory, on a CPU of RAM."""
    peaks = ((row, row.value(RAM if row.point.device == CPU else GPU_MEMORY)) for row in rows)
    return [(row.numbers[BATCH_SIZE], peak) for row, peak in peaks if peak is not None]


def load_of(row: Row) -> tuple[str, bool]:
    """Return what the load of a point counts, and whether it is padded: of a user's workload by its run."""
    lengths = None if row.point.workload in SHIPPED else read_lengths(Path(row.folder))
    if lengths and lengths.source != NONE:
        return lengths.unit, lengths.pads
    unit = load_unit(row.point.workload)
    return unit, unit != "tokens"
