"""The sentences of the report: what was measured, what is missing and what to type. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from jobkit.core.records import RESULTS, Outcome
from jobkit.core.terminal import shell_quote
from jobkit.core.units import GIB, format_bytes_gib, format_count, format_memory
from jobkit.fit.batch_line import BatchLine, Estimate
from jobkit.fit.predict import Prediction
from jobkit.outcome.remedies import remedy
from jobkit.outcome.trials import answers
from jobkit.report.estimates import GroupEstimate
from jobkit.report.tables import Collected

Row = Mapping[str, object]

MOST_POINTS = 20


def heading(group: Row, sizes: Sequence[Row]) -> list[str]:
    """Return what a table is about: first its title, then the details that set it apart."""
    items = max((_integer(row["items_total"]) for row in sizes), default=0)
    paragraphs = format_count(items, "paragraph") if items else "paragraphs"
    if group["text_sha256"] is None:
        file = PurePath(str(group["machine"])).name
        title = f"{file}: {paragraphs} on {_device(group, with_machine=False)}"
        return [title, "a log of a tagger before jobkit, which names neither its text nor its model"]
    lines = [f"{group['workload']}: {group['text']} ({paragraphs}) on {_device(group)}"]
    if group["stand_in"]:
        name = str(group["model"]).removesuffix(" (stand-in)")
        lines.append(f"STAND-IN model, trained by jobkit on generated text, in place of {name}")
    elif group["model"] is not None:
        lines.append(f"model {group['model']}")
    allocator = f", allocator {group['allocator']}" if group["allocator"] else ""
    order = "largest batch first" if group["order"] == "load" else "batches as the text stands"
    lines.append(f"{order}, CPU threads: {group['threads']}{allocator}")
    if group["versions"]:
        lines.append(str(group["versions"]))
    return lines


def _device(group: Row, *, with_machine: bool = True) -> str:
    if group["device"] == "cpu":
        return f"a CPU ({group['machine']})" if with_machine else "a CPU"
    name, capacity = group["gpu"], group["gpu_capacity_bytes"]
    if name is None:
        return "a GPU of unknown name"
    if not isinstance(capacity, int | float) or "GiB" in str(name):
        return str(name)
    return f"{name} ({format_bytes_gib(capacity, 1)})"


def fastest_line(sizes: Sequence[Row], knobs: Sequence[str]) -> tuple[str, ...]:
    """Return the sentence on the fastest size, where there is more than one to compare."""
    well = [row for row in sizes if _speedup(row) > 0]  # NaN, of a size that never went well, is not
    if len(well) < 2:  # noqa: PLR2004 - nothing to compare
        return ()
    best = max(well, key=_speedup)
    if best is well[0]:
        return (f"Fastest: {setting(best, knobs)}, the smallest that succeeded.",)
    saved = f"{100 * (1 - 1 / _speedup(best)):.0f} % less time"
    than = f"{_speedup(best):.2f} times as fast as {setting(well[0], knobs)}"
    return (f"Fastest: {setting(best, knobs)}, {than}: {saved}.",)


def base_of(sizes: Sequence[Row], knobs: Sequence[str]) -> str:
    """Return the setting that speed-ups are over: the smallest that went well."""
    base = next((row for row in sizes if _speedup(row) > 0), {})
    return (setting(base, knobs) if base else "") or "the smallest size"


def _speedup(row: Row) -> float:
    speedup = row["speedup"]
    return float(speedup) if isinstance(speedup, int | float) else 0.0


def setting(row: Row, knobs: Sequence[str]) -> str:
    """Return the knobs of a row in words: ``batch_size 50``."""
    return ", ".join(f"{knob} {_integer(row[knob])}" for knob in knobs if _integer(row[knob]))


def _integer(value: object) -> int:
    """Return a whole number, 0 for one that is missing."""
    return int(value) if isinstance(value, int | float) and value == value else 0  # noqa: PLR0124 - NaN


def estimate_lines(found: GroupEstimate) -> tuple[str, ...]:
    """Return the largest batch in a sentence, and beneath it how far to trust it."""
    if found.others:
        first, *rest = estimate_lines(replace(found, others=""))
        return (f"With {found.others}: {first}", *rest)
    if found.prediction is not None:
        return tuple(_prediction_lines(found.prediction, found.run))
    by_knob = found.by_knob
    if by_knob.line is None or by_knob.capacity_bytes is None or by_knob.largest is None:
        return (f"No estimate of the largest {found.knob}: {by_knob.reason}.",)
    card = format_bytes_gib(by_knob.capacity_bytes)
    title = f"Largest {found.knob} by a straight line: near {by_knob.largest:,} on {card}"
    lines = [f"{title} ({_error_bar(by_knob)})", f"  {_equation(found.knob, by_knob.line)}"]
    lines += [f"  Beware: {warning}." for warning in by_knob.warnings if warning != by_knob.line.no_error_bar]
    if found.by_load is not None and found.by_load.largest is not None:
        load = f"a load of {found.by_load.largest:,} padded characters ({_error_bar(found.by_load)})"
        lines.append(f"  By load, which memory really follows: {load}.")
    lines.append("  A straight line is a first guess: run that size once before you rely on it.")
    return tuple(lines)


def _prediction_lines(found: Prediction, run: str) -> Iterator[str]:
    """Yield what is predicted from the need of the batches, as far as it can be."""
    if found.reason:
        yield f"No estimate of the largest batch_size: {found.reason}."
    else:
        there = format_memory(found.capacity_bytes)
        ends = "where the text ends" if found.saturated else f"by the line itself {found.largest_batch:,}"
        yield f"Largest safe batch_size: {found.safe_batch:,}, {ends}; {there} for the allocator"
        expected, bound = format_memory(found.expected_bytes), format_memory(found.bound_bytes)
        if found.safe_batch:
            yield f"  It needs {expected} by the line, and at most {bound} with 95 % confidence."
        else:
            yield f"  Not even a batch of 1 fits: with none at all it is {expected} by the line already."
        yield from (f"  Beware: {doubt}." for doubt in found.doubts)
    yield f"  Cards, time and scheduler lines: jobkit recommend {shell_quote(run)}"


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
    return f"Points: {', '.join(words) or 'without figures'}, of {len(collected.points)}"


def missing_lines(collected: Collected) -> tuple[str, ...]:
    """Return a line for each point that is not in a table: what is known, and what to type."""
    every = collected.points
    tried = every["trial"] & every["outcome"].isin([*RESULTS, Outcome.RAM_OOM])  # a note tells of these
    points = every[every["size"].isna() & ~tried]
    # Failed ones first: those to come need nothing but patience.
    ordered = points.sort_values("outcome", key=lambda column: column.isna(), kind="stable")
    lines: list[str] = []
    for row in ordered.head(MOST_POINTS).to_dict("records"):
        lines += _missing({str(name): value for name, value in row.items()}, collected.knobs)
    if len(points) > MOST_POINTS:
        lines.append(f"... and {len(points) - MOST_POINTS} more (--format csv has them all)")
    waiting = points.loc[points["outcome"].isna(), "folder"].unique()
    if len(waiting):
        lines.append(f"look again later: jobkit status {' '.join(shell_quote(str(one)) for one in waiting)}")
        lines += [f"or ask what runs them: {question}" for question in collected.questions[:MOST_POINTS]]
    return tuple(lines)


def _missing(row: Row, knobs: Sequence[str]) -> list[str]:
    name = f"{row['point']} ({setting(row, knobs)}, repeat {_integer(row['repeat'])})"
    outcome = row["outcome"]
    if not isinstance(outcome, str):
        return [f"{name}: to come: {row['evidence']}"]
    provisional = " (provisional)" if row["provisional"] else ""
    lines = [f"{name}: {outcome}{provisional}: {row['evidence']}"]
    if not answers(outcome, trial=bool(row["trial"])):
        run, point = shell_quote(str(row["folder"])), _integer(row["index"])
        steps = remedy(Outcome(outcome), str(row["evidence"]), run=run, point=point)
        lines.append("  " + "; ".join(f"{step.does}: {step.command}" for step in steps))
    return lines
