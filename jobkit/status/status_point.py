"""All about one point, as printed: its tries with what became of each, and all that says so. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from jobkit.core.begin import Begin
from jobkit.core.records import Exit, Outcome
from jobkit.core.typed import word
from jobkit.core.units import format_bytes_gib, format_clock
from jobkit.outcome.remedies import Step, remedy
from jobkit.outcome.submissions import Task
from jobkit.outcome.tries import Tried
from jobkit.schedulers.types import Accounted
from jobkit.status.look import Standing
from jobkit.status.status import PointStatus, RunStatus
from jobkit.status.status_advice import advice
from jobkit.status.status_report import far_words, plain, steps
from jobkit.status.timing import moment
from jobkit.status.try_status import TryStatus

MARGIN = 12


def render_point(
    status: RunStatus, one: PointStatus, tries: Sequence[TryStatus], folder: str, *, width: int
) -> str:
    """Return all about a point, in lines that end with a newline.

    Parameters
    ----------
    tries
        Of the point, by `jobkit.status.try_status.tries_of`.
    folder
        The run folder as a person types it.
    width
        Columns of the terminal.
    """
    point = one.look.point
    params = ", ".join(f"{name} {value}" for name, value in point.params.items())
    lines = [
        f"{plain(point.point_id)}: point {point.index} of {len(status.points)} of {status.name}",
        f"{params}, repeat {point.repeat}",
        plain(f"{one.state}: {one.why}" if one.why else one.state),
    ]
    for tried in tries:
        lines += ["", *_told(tried, one.state, status.seen.folder)]
    lines += steps(_next(status, one, folder), width)
    return "".join(f"{line}\n" for line in lines)


def _told(one: TryStatus, state: str, run: Path) -> Iterator[str]:
    """Yield what is known of a try, source by source, in the order in which they are believed.

    One without an outcome is the latest: it stands where its point does, in the word ``state``.
    """
    tried = one.tried
    verdict = tried.verdict
    title = f"try {tried.files.number}" if tried.files.number else "no try"
    if tried.files.by_hand:
        title += ", by hand (it counts only while no other try has begun)"
    yield f"{title}: {verdict.outcome or state}{' (provisional)' if verdict.provisional else ''}"
    yield from _field("because", verdict.evidence)
    yield from _field("ran", _ran(one))
    over = state != Standing.RUNNING or verdict.outcome is not None
    yield from _field("batches", far_words(one.progress, over=over) if one.progress else "")
    yield from _field("record", _record(tried))
    yield from _field("exit file", _exit(tried.files.exit) if tried.files.exit else "")
    yield from _field("accounting", _account(tried.account) if tried.account else "")
    if tried.files.exit and tried.files.exit.scratch:
        host = f"{tried.files.exit.host}:" if tried.files.exit.host else ""
        yield from _field("kept in", f"{host}{tried.files.exit.scratch} on that node's scratch")
    yield from _field("log", _below(one.log, run))
    yield from _field("files", f"{_below(one.folder, run)}/ {' '.join(one.files)}" if one.folder else "")


def _field(name: str, text: str) -> Iterator[str]:
    if text:
        yield f"  {name.ljust(MARGIN)}{plain(text)}"


def _below(path: str, run: Path) -> str:
    return path.removeprefix(f"{run}/")


def _ran(one: TryStatus) -> str:
    """Return where, as what, when and how long a try ran."""
    tried, seconds = one.tried, one.elapsed_s
    parts = [_as(tried, tried.task)] if tried.task else []
    parts += [f"on {tried.node}"] if tried.node else []
    began = _began(tried)
    parts += [f"from {began}"] if began else []
    parts += [f"for {format_clock(seconds)}"] if seconds is not None else []
    return ", ".join(parts)


def _as(tried: Tried, task: Task) -> str:
    begin, record = tried.files.begin, tried.files.record
    restart = record.job.restart if record else begin.restart if begin else 0
    again = f", started again {restart} time{'s' if restart > 1 else ''}" if restart else ""
    return f"{task.scheduler} job {task.job_id}, task {task.task}{_round(begin)}{again}"


def _round(begin: Begin | None) -> str:
    return f", round {begin.round}" if begin and begin.round > 1 else ""


def _began(tried: Tried) -> str:
    record, begin = tried.files.record, tried.files.begin
    began = moment(record.started_at if record else begin.at if begin else "")
    return f"{began:%Y-%m-%d %H:%M:%S}" if began else ""


def _record(tried: Tried) -> str:
    record = tried.files.record
    if record is None:
        return tried.files.problem or ("none is home" if tried.files.number else "")
    words = [str(record.outcome), record.message, f"signal {record.signal}" if record.signal else ""]
    words += [f"on {record.gpu.name}"] if record.gpu else []
    return "; ".join(word for word in words if word)


def _exit(one: Exit) -> str:
    words = [f"status {one.status} in step {one.stage or 'unknown'}", str(one.outcome or ""), one.message]
    words += [f"signal {one.signal}"] if one.signal else []
    return "; ".join(word for word in words if word)


def _account(one: Accounted) -> str:
    words = [one.evidence or "no words"]
    words += [] if one.exit_status is None else [f"exit status {one.exit_status}"]
    words += [f"at most {format_bytes_gib(one.max_rss_bytes)} resident"] if one.max_rss_bytes else []
    return "; ".join(words)


def _next(status: RunStatus, one: PointStatus, folder: str) -> Sequence[Step]:
    """Return what to type next for a point: what mends it, where it waits; else its log, and another try."""
    run, index = word(folder), one.look.point.index
    standing = one.look.standing
    logs = Step(f"jobkit logs {run} {index}", "what it said")
    if standing in {Standing.STUCK, Standing.WAITING}:
        alone = advice(replace(status, points=(one,), jobs=()), folder)
        return [step for step in alone.steps if "--watch" not in step.command]
    found = [logs] if one.look.tries else []
    outcome = one.look.outcome or Outcome.LOST
    if standing is Standing.MISSING:
        found.append(Step(f"jobkit resume {run} {index}", "runs it again"))
    elif standing in {Standing.FAILED, Standing.DONE}:
        steps = remedy(outcome, one.look.counts.verdict.evidence, run=run, point=index, alone=True)
        found += [step for step in steps if step.command != logs.command]
    return [step for step in found if status.mine or not step.command.startswith("jobkit resume ")]
