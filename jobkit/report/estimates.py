"""The largest batch of every group of measurements, and the sentences of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import PurePath

from jobkit.answers.memory import Memory, Prediction, memory_by_setting
from jobkit.answers.memory_line import BatchLine, Estimate, estimate
from jobkit.answers.setting import Setting, other_knobs
from jobkit.core.figures import DIFFER, GPU_MEMORY, MODEL, RAM
from jobkit.core.knobs import (
    BATCH_SIZE,
    CPU,
    FP32,
    GPUS,
    MPS,
    OFF,
    ORDER,
    PRECISION,
    SHORTCUTS,
    THREADS,
    WORKERS,
)
from jobkit.core.records import Outcome
from jobkit.core.terminal import NoWrap, shell_quote
from jobkit.core.units import GIB, format_bytes_gib, format_count, format_list, format_memory, format_setting
from jobkit.report.rows import Row
from jobkit.report.tables import Collected, Size, no_search_for_cycles
from jobkit.runs.conditions import ORDERS, memory_condition
from jobkit.runs.hints import Step, remedy
from jobkit.runs.results import batches_of
from jobkit.worker.workloads.base import CHARACTERS, load_unit

BOUNDED = "the prediction, which has a bound, is the answer"
"""The reason why a run of jobkit has no straight line."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


def estimates(collected: Collected, gpu_memory_bytes: int | None = None) -> tuple[GroupEstimate, ...]:
    """Return an estimate for each group measured on a GPU, and each value of the other knobs.

    ``gpu_memory_bytes``: the GPU to fit; by default the one that the group was measured on.
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
    if first.file_format:
        guess = guess_of_file([row for row in collected.rows if row.group == group], gpu_memory_bytes)
        yield GroupEstimate(group=group, knob=BATCH_SIZE, by_knob=guess, run=first.folder)
        return
    search = collected.search(group)
    answer = next(map(other_knobs, search.winner_records), None) if search else None
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


def guess_of_file(rows: Sequence[Row], gpu_memory_bytes: int | None = None) -> Estimate:
    """Return the line through the peaks of a file, and where it meets the memory of the GPU.

    On a CPU the line is that of RAM, without a limit.
    """
    peaks, first = peaks_of_file(rows), rows[0]
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


def peaks_of_file(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Return batch size and total peak of the rows of a file: of GPU memory, on a CPU of RAM."""
    peaks = ((row, row.value(RAM if row.device == CPU else GPU_MEMORY)) for row in rows)
    return [(row.numbers[BATCH_SIZE], peak) for row, peak in peaks if peak is not None]


MOST_POINTS = 20
MOST_NAMES = 3
MOST_ON_FRONT = 8


def heading(group: Row, sizes: Sequence[Size]) -> list[str]:
    items = max((row.items_total or 0 for size in sizes for row in size.points), default=0)
    paragraphs = format_count(items, "paragraph") if items else "paragraphs"
    if group.file_format:
        file = PurePath(group.folder).name
        title = f"{file}: {paragraphs} on {_device(group, with_machine=False)}"
        return [title, group.file_format.about]
    lines = [f"{group.workload}: {group.text} ({paragraphs}) on {_device(group)}"]
    if group.stand_in and group.model:
        name = group.model.removesuffix(" (stand-in)")
        what = "STAND-IN model, trained by jobkit on generated text"
        if group.architecture:
            what = f"RANDOM weights: architecture {group.architecture}, not trained"
        lines.append(f"{what}, in place of {name}")
    elif group.model is not None:
        lines.append(f"model {group.model}")
    allocator = f", allocator {group.allocator}" if group.allocator else ""
    order = ORDERS.get(group.order or "", group.order or "")
    numbers = {"CPU threads": THREADS, "workers": WORKERS, "GPUs": GPUS}
    counts = {words: getattr(group, name) for words, name in numbers.items() if name not in group.params}
    shared = [] if ORDER in group.params else [order]
    shared += [f"{words}: {n}" for words, n in counts.items() if n and (n > 1 or words == "CPU threads")]
    shared += (
        [f"MPS: {group.sharing}"] if group.sharing not in {None, OFF} and MPS not in group.params else []
    )
    if group.precision not in {None, FP32} and PRECISION not in group.params:
        shared.append(f"precision: {group.precision}")
    if group.shortcuts not in {None, OFF} and SHORTCUTS not in group.params:
        shared.append(f"shortcuts: {group.shortcuts}")
    lines.append(f"{', '.join(shared)}{allocator}".removeprefix(", "))
    if group.versions:
        lines.append(group.versions)
    return lines


def _device(group: Row, *, with_machine: bool = True) -> str:
    if group.device == "cpu":
        return f"a CPU ({group.machine})" if with_machine else "a CPU"
    name, capacity = group.gpu, group.gpu_capacity_bytes
    if name is None:
        return "a GPU of unknown name"
    return name if capacity is None or "GiB" in name else f"{name} ({format_bytes_gib(capacity, 1)})"


def fastest_line(sizes: Sequence[Size]) -> tuple[str, ...]:
    well = [(size.times.mean, size) for size in sizes if size.times]
    if len(well) < 2:  # noqa: PLR2004 - nothing to compare
        return ()
    (_, first), (speedup, best) = well[0], max(well, key=itemgetter(0))
    if best is first:
        return (f"Fastest: {format_setting(best.params)}, the smallest that succeeded.",)
    than = f"{speedup:.2f} times as fast as {format_setting(first.params)}{_sure(best)}"
    real = best.times is None or best.times.differs is not False
    result = f"{100 * (1 - 1 / speedup):.0f} % less time" if real else "no difference is shown"
    line = f"Fastest: {format_setting(best.params)}, {than}: {result}."
    differ = best.mean(DIFFER)
    return (f"{line} Its entities differ from those of fp32." if differ and differ.value else line,)


def front_line(sizes: Sequence[Size]) -> tuple[str, ...]:
    best = [format_setting(size.params) for size in sizes if size.front]
    if not best:
        return ()
    if len(best) == 1:
        return (f"Time and energy: no other setting beats {best[0]} in either.",)
    names = format_list([f"({name})" for name in best], MOST_ON_FRONT)
    return (f"Time and energy: no other setting beats one of these in both: {names}.",)


def _sure(size: Size) -> str:
    """Return the interval of a speed-up in brackets; empty without one."""
    times = size.times
    if times is None or times.low is None:
        return ""
    return f" ({times.low:.2f} to {times.high:.2f} with 95 % confidence)"


def estimate_lines(estimates: Sequence[GroupEstimate]) -> Iterator[str]:
    known = [found for found in estimates if found.prediction is None or not found.prediction.reason]
    for found in known:
        first, *rest = (
            _guess_lines(found)
            if found.prediction is None
            else _prediction_lines(found.prediction, found.allocator)
        )
        yield f"With {found.others}: {first}" if found.others else first
        yield from rest
    unknown = [found for found in estimates if found not in known]
    if unknown:
        yield _not_known(unknown, of=len(estimates))
    if any(found.prediction for found in known):
        command = f"jobkit recommend {shell_quote(estimates[0].run)}"
        yield NoWrap(command, "  GPUs, time and scheduler lines: ")


def _not_known(unknown: Sequence[GroupEstimate], of: int) -> str:
    """Return in one sentence why the largest batch is not known, for the values of the other knobs."""
    reasons = "; ".join(dict.fromkeys(found.by_knob.reason for found in unknown))
    number = len(unknown)
    with_ = f" with {unknown[0].others}" if unknown[0].others else ""
    if number > 1:
        values = format_count(number, "value")
        with_ = f" with any of the {values}" if number == of else f" with {values}"
        with_ += " of the other knobs"
    return f"No estimate of the largest {unknown[0].knob}{with_}: {reasons}."


def _guess_lines(estimate: GroupEstimate) -> Iterator[str]:
    guess = estimate.by_knob
    if guess.line is None or guess.capacity_bytes is None or guess.largest is None:
        yield f"No estimate of the largest {estimate.knob}: {guess.reason}."
        return
    there = f"near {guess.largest:,} on {format_bytes_gib(guess.capacity_bytes)}"
    title = f"Largest {estimate.knob}, a guess without a bound, by a straight line: {there}"
    yield f"{title} ({_error_bar(guess.line)})"
    yield f"  {_equation(estimate.knob, guess.line)}"
    yield from (f"  Beware: {warning}." for warning in guess.warnings if warning != guess.line.no_error_bar)
    yield "  Run that size once before you rely on it."


def _prediction_lines(batch: Prediction, allocator: str) -> Iterator[str]:
    there = format_memory(batch.capacity_bytes)
    ends = "which is the whole text"
    if not batch.saturated:
        ends = f"without the safety bound: {batch.largest_batch:,}"
    yield f"Largest safe {batch.knob}: {batch.safe_batch:,}, {ends}; {there} for the allocator{allocator}"
    expected, bound = format_memory(batch.expected_bytes), format_memory(batch.bound_bytes)
    if batch.safe_batch:
        yield f"  It needs {expected} by the line, and at most {bound} with 95 % confidence."
    else:
        yield f"  Not even a batch of 1 fits: with none at all it is {expected} by the line already."
    yield from (f"  Beware: {doubt}." for doubt in batch.doubts)


def _error_bar(line: BatchLine) -> str:
    if line.residual_bytes is None:
        return line.no_error_bar
    return f"{line.points} points, {format_bytes_gib(line.residual_bytes, 3)} sd about the line"


def _equation(knob: str, line: BatchLine) -> str:
    slope, intercept = line.slope_bytes / GIB, line.intercept_bytes / GIB
    sign = "-" if intercept < 0 else "+"
    there = f"{format_bytes_gib(line.at(line.size_max), 4)} at {line.size_max:,.0f}, the largest measured"
    return f"GPU total in GiB = {slope:.6f} x {knob} {sign} {abs(intercept):.4f}: {there}"


def count_lines(collected: Collected) -> str:
    cancelled = sum(row.outcome == Outcome.CANCELLED and not row.trial for row in collected.rows)
    failed = collected.failed - cancelled
    counts = {"failed": failed, "cancelled": cancelled, "still to come": collected.to_come}
    words = [f"{count} {name}" for name, count in counts.items() if count]
    return f"Points: {', '.join(words) or 'without figures'}, of {len(collected.rows)}"


def missing_lines(collected: Collected) -> tuple[str, ...]:
    points = without_figures(collected)
    failed = [row for row in points if row.outcome is not None]
    lines = [line for row in failed[:MOST_POINTS] for line in _missing(row)]
    if len(failed) > MOST_POINTS:
        lines.append(f"... and {len(failed) - MOST_POINTS} more (--format csv has them all)")
    to_come = [row for row in points if row.outcome is None]
    if to_come:
        lines.append(f"to come: {format_list([row.point for row in to_come], MOST_NAMES)}")
        folders = dict.fromkeys(shell_quote(row.folder) for row in to_come)
        lines.append(NoWrap(f"jobkit status {' '.join(folders)}", "look again later: "))
    return tuple(lines)


def without_figures(collected: Collected) -> list[Row]:
    """Return the points that are not in a table, first those that failed.

    Conclusive trials, which notes name, and repeats that were not needed are not among them.
    """
    return sorted(
        (
            row
            for row in collected.rows
            if row.size is None and not row.unneeded and not (row.trial and row.answered)
        ),
        key=lambda row: row.outcome is None,
    )


def _missing(row: Row) -> list[str]:
    name = f"{row.point} ({format_setting(row.params)}, repeat {row.repeat})"
    lines = [f"{name}: {row.outcome}{' (provisional)' if row.provisional else ''}: {row.evidence}"]
    return [*lines, *(NoWrap(step.command, f"  {step.does}: ") for step in steps_of(row))]


def steps_of(row: Row) -> tuple[Step, ...]:
    """Return what to do about a point that failed; empty for any other point."""
    if row.outcome is None or row.answered:
        return ()
    return remedy(row.outcome, row.evidence, run=shell_quote(row.folder), point=row.index)
