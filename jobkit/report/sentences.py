"""The sentences of the report: what was measured, what is missing and what to type. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import PurePath

from jobkit.core.knobs import FP32, GPUS, MPS, OFF, ORDER, PRECISION, THREADS, WORKERS
from jobkit.core.terminal import NoWrap, shell_quote
from jobkit.core.units import GIB, format_bytes_gib, format_count, format_list, format_memory, format_setting
from jobkit.fit.batch_line import BatchLine, Estimate
from jobkit.fit.largest_batch import Prediction
from jobkit.outcome.conditions import ORDERS
from jobkit.outcome.remedies import Step, remedy
from jobkit.outcome.trials import answers
from jobkit.report.estimates import GroupEstimate
from jobkit.report.rows import LOG, Row
from jobkit.report.sizes import Size
from jobkit.report.tables import Collected

MOST_POINTS = 20
MOST_ON_FRONT = 8


def heading(group: Row, sizes: Sequence[Size]) -> list[str]:
    """Return what a table is about: first its title, then the details that set it apart."""
    items = max((size.items_total or 0 for size in sizes), default=0)
    paragraphs = format_count(items, "paragraph") if items else "paragraphs"
    if group.workload == LOG:
        file = PurePath(group.folder).name
        title = f"{file}: {paragraphs} on {_device(group, with_machine=False)}"
        return [title, "a log of a tagger before jobkit, which names neither its text nor its model"]
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
    """Return the sentence on the fastest size, if there are two to compare."""
    well = [(size.speedup, size) for size in sizes if size.speedup]
    if len(well) < 2:  # noqa: PLR2004 - nothing to compare
        return ()
    (_, first), (speedup, best) = well[0], max(well, key=itemgetter(0))
    if best is first:
        return (f"Fastest: {format_setting(best.params)}, the smallest that succeeded.",)
    than = f"{speedup:.2f} times as fast as {format_setting(first.params)}{_sure(best)}"
    real = best.times is None or best.times.differs is not False
    result = f"{100 * (1 - 1 / speedup):.0f} % less time" if real else "no difference is shown"
    line = f"Fastest: {format_setting(best.params)}, {than}: {result}."
    return (f"{line} Its entities differ from those of fp32." if best.mean["differ"] else line,)


def front_line(sizes: Sequence[Size]) -> tuple[str, ...]:
    """Return the sentence on time and energy, if there are two sizes to compare."""
    best = [format_setting(size.params) for size in sizes if size.front]
    if not best:
        return ()
    if len(best) == 1:
        return (f"Time and energy: no other setting beats {best[0]} in either.",)
    names = format_list([f"({name})" for name in best], MOST_ON_FRONT)
    return (f"Time and energy: no other setting beats one of these in both: {names}.",)


def _sure(size: Size) -> str:
    """Return the interval of a speed-up in brackets; nothing without one."""
    times = size.times
    if times is None or times.low is None:
        return ""
    return f" ({times.low:.2f} to {times.high:.2f} with 95 % confidence)"


def base_of(sizes: Sequence[Size]) -> str:
    """Return the setting that speed-ups are over: the smallest that succeeded."""
    base = next((size for size in sizes if size.speedup), None)
    return (format_setting(base.params) if base else "") or "the smallest size"


def estimate_lines(estimate: GroupEstimate) -> tuple[str, ...]:
    """Return the largest batch in a sentence, and beneath it how far to trust it."""
    if estimate.others:
        first, *rest = estimate_lines(replace(estimate, others=""))
        return (f"With {estimate.others}: {first}", *rest)
    if estimate.prediction is not None:
        return tuple(_prediction_lines(estimate.prediction, estimate.run, estimate.allocator))
    by_knob = estimate.by_knob
    if by_knob.line is None or by_knob.capacity_bytes is None or by_knob.largest is None:
        return (f"No estimate of the largest {estimate.knob}: {by_knob.reason}.",)
    gpu = format_bytes_gib(by_knob.capacity_bytes)
    title = f"Largest {estimate.knob} by a straight line: near {by_knob.largest:,} on {gpu}"
    lines = [f"{title} ({_error_bar(by_knob)})", f"  {_equation(estimate.knob, by_knob.line)}"]
    lines += [f"  Beware: {warning}." for warning in by_knob.warnings if warning != by_knob.line.no_error_bar]
    if estimate.by_load is not None and estimate.by_load.largest is not None:
        load = f"a load of {estimate.by_load.largest:,} {estimate.unit} ({_error_bar(estimate.by_load)})"
        lines.append(f"  By load, which memory really follows: {load}.")
    lines.append("  A straight line is a first guess: run that size once before you rely on it.")
    return tuple(lines)


def _prediction_lines(batch: Prediction, run: str, allocator: str) -> Iterator[str]:
    """Yield what is predicted from the need of the batches, as far as it can be, and with what allocator."""
    if batch.reason:
        yield f"No estimate of the largest {batch.knob}: {batch.reason}."
    else:
        there = format_memory(batch.capacity_bytes)
        ends = (
            "which is the whole text"
            if batch.saturated
            else f"without the safety bound: {batch.largest_batch:,}"
        )
        yield f"Largest safe {batch.knob}: {batch.safe_batch:,}, {ends}; {there} for the allocator{allocator}"
        expected, bound = format_memory(batch.expected_bytes), format_memory(batch.bound_bytes)
        if batch.safe_batch:
            yield f"  It needs {expected} by the line, and at most {bound} with 95 % confidence."
        else:
            yield f"  Not even a batch of 1 fits: with none at all it is {expected} by the line already."
        yield from (f"  Beware: {doubt}." for doubt in batch.doubts)
    yield NoWrap(f"  GPUs, time and scheduler lines: jobkit recommend {shell_quote(run)}")


def _error_bar(estimate: Estimate) -> str:
    line = estimate.line
    if line is None or line.residual_bytes is None:
        return line.no_error_bar if line else "no error bar"
    return f"{line.points} points, {format_bytes_gib(line.residual_bytes, 3)} sd about the line"


def _equation(knob: str, line: BatchLine) -> str:
    slope, intercept = line.slope_bytes / GIB, line.intercept_bytes / GIB
    sign = "-" if intercept < 0 else "+"
    there = f"{format_bytes_gib(line.at(line.size_max), 4)} at {line.size_max:,.0f}, the largest measured"
    return f"GPU total in GiB = {slope:.6f} x {knob} {sign} {abs(intercept):.4f}: {there}"


def count_lines(collected: Collected) -> str:
    """Return how many points are without figures, in words."""
    counts = {"failed": collected.failed, "still to come": collected.to_come}
    words = [f"{count} {name}" for name, count in counts.items() if count]
    return f"Points: {', '.join(words) or 'without figures'}, of {len(collected.rows)}"


def missing_lines(collected: Collected) -> tuple[str, ...]:
    """Return a line for each point that is not in a table: what is known, and what to type."""
    points = without_figures(collected)
    lines = [line for row in points[:MOST_POINTS] for line in _missing(row)]
    if len(points) > MOST_POINTS:
        lines.append(f"... and {len(points) - MOST_POINTS} more (--format csv has them all)")
    waiting = dict.fromkeys(shell_quote(row.folder) for row in points if row.outcome is None)
    if waiting:
        lines.append(NoWrap(f"look again later: jobkit status {' '.join(waiting)}"))
        lines += [NoWrap(f"or ask what runs them: {line}") for line in collected.questions[:MOST_POINTS]]
    return tuple(lines)


def without_figures(collected: Collected) -> list[Row]:
    """Return the points that are not in a table: first those that failed, which need more than time.

    Trials that were conclusive are not among them, because notes name these; nor are repeats that
    were not needed.
    """
    return sorted(
        (
            row
            for row in collected.rows
            if row.size is None
            and not row.unneeded
            and not (row.trial and row.outcome and answers(row.outcome, trial=True))
        ),
        key=lambda row: row.outcome is None,
    )


def _missing(row: Row) -> list[str]:
    name = f"{row.point} ({format_setting(row.params)}, repeat {row.repeat})"
    if row.outcome is None:
        return [f"{name}: to come: {row.evidence}"]
    lines = [f"{name}: {row.outcome}{' (provisional)' if row.provisional else ''}: {row.evidence}"]
    if steps := steps_of(row):
        lines.append(NoWrap("  " + "; ".join(f"{step.does}: {step.command}" for step in steps)))
    return lines


def steps_of(row: Row) -> tuple[Step, ...]:
    """Return what to do about a point that failed; nothing for any other point."""
    if row.outcome is None or answers(row.outcome, trial=row.trial):
        return ()
    return remedy(row.outcome, row.evidence, run=shell_quote(row.folder), point=row.index)
