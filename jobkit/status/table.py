"""A run, or one point of it, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobkit.core.job_files import Begin, Exit
from jobkit.core.records import Outcome
from jobkit.core.terminal import GAP, Column, fit_columns, printable, shell_quote
from jobkit.core.terminal import table as terminal_table
from jobkit.core.units import format_about, format_bytes_gib, format_clock
from jobkit.outcome.journal import Task
from jobkit.outcome.remedies import Step, remedy
from jobkit.outcome.timing import moment
from jobkit.outcome.tries import TryResult
from jobkit.schedulers.types import Accounted
from jobkit.status.advice import Advice, advice, job_line
from jobkit.status.progress import Progress, SkippedTime
from jobkit.status.standing import HELD, Standing, count_by_state
from jobkit.status.summary import PointStatus, RunStatus, TryStatus

MOST_OF_A_STATE = 20
MOST_ALIKE = 3
"""Of those that wait for a person, who sees to all of one reason at once."""
MOST_NOTES = 5
LEAST_WORDS = 32
"""Columns that the last column keeps at least; others go before it is narrower."""

TELLING = (Standing.STUCK, HELD, Standing.FAILED, Standing.RUNNING, Standing.UNSETTLED)
"""What wants to be looked at, in this order."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table: cells, and the words at its end."""

    cells: tuple[str, ...]
    words: str


COLUMNS = (
    Column("point", (), left=True),
    Column("state", (), left=True),
    Column("elapsed", (), rank=1),
    Column("try", (), rank=4),
    Column("node", (), rank=2, left=True),
    Column("GPU", (), rank=3, left=True),
)


def render(status: RunStatus, folder: str, *, width: int, most: int) -> str:
    """Return how a run stands, in lines that end with a newline.

    Parameters
    ----------
    folder
        The run folder as a person types it.
    width
        Columns of the terminal.
    most
        With more points than this only those are listed that want to be looked at.
    """
    said = advice(status, folder)
    lines = [headline(status), *_about(status)]
    lines += ["", *table(_rows(status.points, most), _gpu(status), width)]
    lines += _notes(status, said)
    lines += steps(said.steps, width)
    return "".join(f"{line}\n" for line in lines)


def headline(status: RunStatus) -> str:
    """Return a run in a line: how many points stand where."""
    return f"{status.name}: {count_by_state(status.seen)}"


def _about(status: RunStatus) -> Iterator[str]:
    """Yield what is alike for all points: where it runs, on what, how long yet, what was saved."""
    parts = sorted({submission.scheduler for submission in status.seen.submissions})
    parts += [_gpu(status)] if _gpu(status) else []
    if status.to_go_s is not None:
        parts.append(
            f"about {format_about(status.to_go_s)} to go if {_run(max(1, status.running))} at a time, as now"
        )
    if parts:
        yield ", ".join(map(plain, parts))
    if status.saved is not None:
        yield _saved(status.saved, status.asked.gpus)


def _run(number: int) -> str:
    return f"{number} run{'s' if number == 1 else ''}"


def _saved(one: SkippedTime, gpus: int) -> str:
    time = f"{format_about(one.seconds * (gpus or 1))} of {'GPU' if gpus else 'job'} time"
    some = "1 point was" if one.points == 1 else f"{one.points:,} points were"
    return f"saved about {time}: {some} left out, each taken to last as long as what made it needless"


def _gpu(status: RunStatus) -> str:
    """Return the GPU where it is the same for all points that have one; else nothing.

    The type that was asked for counts as the card that a record names where its name holds it.
    """
    names = {point.gpu for point in status.points if point.gpu}
    asked = status.asked.gpu_type
    if len(names) > 1 and all(asked.casefold() in name.casefold() for name in names):
        names.discard(asked)
    return names.pop() if len(names) == 1 else ""


def _rows(points: Sequence[PointStatus], most: int) -> Iterator[Line]:
    """Yield a row a point; of many points only those that want to be looked at, and the others counted."""
    if len(points) <= most:
        yield from map(_row, points)
        return
    for kind in TELLING:
        some = [
            point
            for point in points
            if kind in {point.state, point.look.standing} and not point.look.cancelled
        ]
        listed = MOST_ALIKE if kind in {Standing.STUCK, HELD} else MOST_OF_A_STATE
        yield from map(_row, some[:listed])
        yield from _counted(some[listed:], "more")
    yield from _counted([point for point in points if _quiet(point)], "points")


def _quiet(one: PointStatus) -> bool:
    """Tell whether nobody needs to look at a point."""
    quiet = {Standing.DONE, Standing.WAITING, Standing.MISSING}
    return one.look.cancelled or (one.look.standing in quiet and one.state != HELD)


def _counted(points: Sequence[PointStatus], unit: str) -> Iterator[Line]:
    """Yield a row for each state, and each reason to wait, with how many points it is true of."""
    numbers = Counter((point.state, _reason(point)) for point in points)
    for (state, reason), number in numbers.items():
        word = "point" if unit == "points" and number == 1 else unit
        yield Line((f"{number:,} {word}", state, "", "", "", ""), reason)


def _reason(one: PointStatus) -> str:
    return one.why if one.look.standing in {Standing.WAITING, Standing.STUCK} else ""


def _row(one: PointStatus) -> Line:
    tries = len(one.look.tries)
    cells = (
        one.look.point.point_id,
        one.state,
        "" if one.elapsed_s is None else format_clock(one.elapsed_s),
        str(tries) if tries > 1 else "",
        one.look.counts.node or (one.look.queued.node if one.look.queued else ""),
        one.gpu.removeprefix("NVIDIA "),
    )
    return Line(cells, _words(one))


def _words(one: PointStatus) -> str:
    if one.look.standing is not Standing.RUNNING:
        return one.why.removeprefix("exit file: ")
    far = far_words(one.progress) if one.progress else "no batch is home yet"
    return f"{far}; {one.why}" if one.why else far


def far_words(progress: Progress, *, over: bool = False) -> str:
    """Return how far a try is: ``12/40 batches, 24 min to go``; or how far it came, where it is over."""
    of = f"/{progress.batches_total:,}" if progress.batches_total else ""
    far = f"{progress.batches:,}{of} batch{'es' if of or progress.batches > 1 else ''}"
    return far if over or progress.left_s is None else f"{far}, {format_about(progress.left_s)} to go"


def table(rows: Iterator[Line] | Sequence[Line], alike: str, width: int) -> list[str]:
    """Return rows as lines of at most ``width`` columns; what is empty, or alike in all, has no column."""
    lines = [Line(tuple(map(plain, row.cells)), plain(row.words)) for row in rows]
    cells = zip(*(line.cells for line in lines), strict=True) if lines else [()] * len(COLUMNS)
    columns = [replace(column, cells=shown) for column, shown in zip(COLUMNS, cells, strict=True)]
    columns = [one for one in columns if any(one.cells) and not (alike and one.head == "GPU")]
    words = Column("", [line.words for line in lines], left=True)
    room = width - min(LEAST_WORDS, max(map(len, words.cells), default=0)) - GAP
    return [cut(line, width) for line in terminal_table([*fit_columns(columns, room), words], rule=False)]


def cut(text: str, width: int) -> str:
    """Return a line no longer than ``width``, with a mark where something is left out."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def plain(text: str) -> str:
    """Return text as one line that a terminal shows and does not obey."""
    return printable(" ".join(text.split()))


def _notes(status: RunStatus, said: Advice) -> list[str]:
    jobs = [line for job in status.jobs if (line := job_line(status, job))]
    notes = list(status.seen.notes[:MOST_NOTES])
    more = len(status.seen.notes) - len(notes)
    notes += [f"and {more} more that could not be read"] if more > 0 else []
    lines = [plain(line) for line in (*said.notices, *jobs, *notes)]
    return ["", *lines] if lines else []


def steps(some: Sequence[Step], width: int) -> list[str]:
    """Return what to type next as lines of a shell, a comment behind each, or below where room is short."""
    longest = max((len(one.command) for one in some), default=0)
    lines = [(plain(one.command), f"# {plain(one.does)}") for one in some]
    side_by_side = [f"  {command.ljust(longest)}  {does}" for command, does in lines]
    if any(len(line) > width for line in side_by_side):
        side_by_side = [part for command, does in lines for part in (f"  {command}", f"      {does}")]
    return ["", "next", *side_by_side] if some else []


MARGIN = 12


def render_point(
    status: RunStatus, one: PointStatus, tries: Sequence[TryStatus], folder: str, *, width: int
) -> str:
    """Return all about a point, in lines that end with a newline.

    Parameters
    ----------
    tries
        Of the point, by `jobkit.status.summary.tries_of`.
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


def _as(tried: TryResult, task: Task) -> str:
    begin, record = tried.files.begin, tried.files.record
    restart = record.job.restart if record else begin.restart if begin else 0
    again = f", started again {restart} time{'s' if restart > 1 else ''}" if restart else ""
    return f"{task.scheduler} job {task.job_id}, task {task.task}{_round(begin)}{again}"


def _round(begin: Begin | None) -> str:
    return f", round {begin.round}" if begin and begin.round > 1 else ""


def _began(tried: TryResult) -> str:
    record, begin = tried.files.record, tried.files.begin
    began = moment(record.started_at if record else begin.at if begin else "")
    return f"{began:%Y-%m-%d %H:%M:%S}" if began else ""


def _record(tried: TryResult) -> str:
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
    run, index = shell_quote(folder), one.look.point.index
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
