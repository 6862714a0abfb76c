"""The seven wastes as text, or as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from jobkit.core import terminal
from jobkit.core.blocks import Block, Column
from jobkit.core.terminal import NoWrap
from jobkit.core.units import format_count, format_setting
from jobkit.fit.tune_steps import Answer
from jobkit.report.recommend.fix import Fix
from jobkit.report.recommend.use import RunUse
from jobkit.report.recommend.waste import Waste
from jobkit.report.tune import answer_lines, as_data
from jobkit.schedulers.registry import by_name

VERDICTS = {True: "WASTE", False: "no", None: "not measured"}


def as_json(run: RunUse, found: Sequence[Waste]) -> str:
    """Return the wastes as JSON."""
    data = {
        "run": run.run,
        "scheduler": run.scheduler,
        "points": len(run.points),
        "to_come": run.to_come,
        "wastes": [asdict(waste) for waste in found],
        "notes": run.notes,
        "search": as_data(run.search) if run.search else None,
    }
    return terminal.as_json(data, indent=2) + "\n"


def blocks(run: RunUse, found: Sequence[Waste]) -> Iterator[Block]:
    """Yield the wastes for a person: all seven, then what fixes each."""
    yield Block.of(_heading(run), _columns(found, run.noun), _summary(found))
    wasted = [waste for waste in found if waste.wasted]
    yield from (Block.of(_explained(waste, run)) for waste in wasted)
    if any(waste.fix and waste.fix.lines for waste in wasted) and not run.own:
        yield Block(after=("The header lines are for a plain site; your cluster may need others.",))
    yield Block(after=tuple(run.notes))


def _heading(run: RunUse) -> Iterator[str]:
    where = "on this machine, without a scheduler" if run.here else f"on {by_name(run.scheduler).TITLE}"
    to_come = f", {format_count(run.to_come, run.noun)} to come" if run.to_come else ""
    yield f"{run.run}: {format_count(len(run.points), run.noun)} {where}{to_come}"
    if run.unended:
        yield f"{format_count(run.unended, run.noun)} {'has' if run.unended == 1 else 'have'} not ended yet."
    yield from _of_search(run)
    if run.here:
        yield "No scheduler reserved anything for it: the lines are for a job with the same request."


def _of_search(run: RunUse) -> Iterator[str]:
    """Yield the answer of a search, which the figures are of."""
    if run.search and run.search.winner:
        yield f"The answer of the search, and its points: {format_setting(run.search.setting)}"
        yield from answer_lines(run.search)


def _columns(found: Sequence[Waste], noun: str) -> tuple[Column, ...]:
    """Return the seven as columns."""
    return (
        Column("kind", [waste.name for waste in found], left=True),
        Column("requested", [waste.requested for waste in found], left=True),
        Column("used", [waste.used for waste in found], left=True),
        Column(f"{noun}s", [str(waste.points or "") for waste in found]),
        Column("waste", [VERDICTS[waste.wasted] for waste in found], left=True),
    )


def _summary(found: Sequence[Waste]) -> Iterator[str]:
    """Yield how many of the seven are waste, and why the others are not, where that needs a reason."""
    verdicts = [waste.wasted for waste in found]
    unknown = f", and {verdicts.count(None)} not measured" if None in verdicts else ""
    yield f"Of the seven kinds, {verdicts.count(True)} are waste, {verdicts.count(False)} are not{unknown}."
    for waste in found:
        if waste.wasted is None:
            yield f"  Not measured: {waste.name}, because {waste.why}."
        elif waste.why:
            yield f"  No waste: {waste.name}, because {waste.why}."
    if True in verdicts:
        yield "Each fix below leaves the rest unchanged. Change the key in your spec, or add --set KEY=VALUE."


def _explained(waste: Waste, run: RunUse) -> Iterator[str]:
    """Yield when it is waste, and what fixes it; of what a search ended at, that it did."""
    yield f"{waste.name}: waste if {waste.limit}."
    if waste.fix:
        yield from _fix(waste.fix)
    elif run.search and isinstance(run.search.next, Answer):
        yield f"  No fix: the search found no setting that uses more. Its limit: {run.search.next.why}."


def _fix(fix: Fix) -> Iterator[str]:
    yield f"  Fix: {fix.does}."
    if fix.command:
        yield NoWrap(fix.command, "  command  ")
    if fix.keys:
        words = " ".join(f"--set {key}={value}" for key, value in fix.keys.items())
        yield NoWrap(words, "  spec     ")
    for lines in fix.lines:
        if lines.reason:
            yield f"  {lines.scheduler:7}  no line: {lines.reason}."
        yield from (NoWrap(line, f"  {lines.scheduler:7}  ") for line in lines.lines)
    for lines in fix.leave_out:
        yield from (NoWrap(line, f"  {lines.scheduler:7}  leave out: ") for line in lines.lines)
