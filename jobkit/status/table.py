"""A run as text: how many points stand where, a row a point, and what to type next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from jobkit.core import terminal
from jobkit.core.blocks import GAP, Column, fit_columns
from jobkit.core.blocks import table as terminal_table
from jobkit.core.layout import caveat_of_order, is_corpus_folder
from jobkit.core.records import Outcome
from jobkit.core.terminal import printable
from jobkit.core.units import format_about, format_clock
from jobkit.outcome.remedies import Step
from jobkit.status.advice import HARMLESS, Advice, advice, job_line
from jobkit.status.progress import Progress, SkippedTime
from jobkit.status.shards import corpus_lines
from jobkit.status.standing import HELD, PointStanding, RunStanding, Standing, count_by_state

MOST_OF_A_STATE = 20
MOST_ALIKE = 3
"""Of the points that wait for a person, who sees to all points of one reason at once."""
MOST_NOTES = 5
LONG_WORD = 16
LEAST_WORDS = 32
"""The least width of the last column; other columns are left out before it is narrower."""

URGENT = (Standing.STUCK, HELD, Standing.FAILED, Standing.RUNNING, Standing.UNSETTLED)
"""The points that a person wants to see, in this order."""


Row = tuple[str, ...]
"""A cell for each of `COLUMNS`."""

COLUMNS = (
    Column("point", (), left=True),
    Column("state", (), left=True),
    Column("elapsed", (), rank=1),
    Column("try", (), rank=4),
    Column("node", (), rank=2, left=True),
    Column("GPU", (), rank=3, left=True),
    Column("", (), left=True),
)


def render(run: RunStanding, folder: str, *, width: int, most: int) -> str:
    """Return how a run stands, in lines that end with a newline.

    Parameters
    ----------
    folder
        The run folder as a person types it.
    width
        Columns of the terminal.
    most
        Of more points than this, only those that a person wants to see are listed.
    """
    advised = advice(run, folder)
    lines = [headline(run), *_about(run)]
    lines += ["", *table(_rows(run, most), _gpu(run), width, run.noun)] if run.points else []
    lines += _notes(run, advised)
    lines += next_line(advised.steps[:1])
    return "".join(f"{line}\n" for line in lines)


def headline(run: RunStanding) -> str:
    """Return a run in a line: how many points stand where."""
    return f"{run.title}: {count_by_state(run)}"


def _about(run: RunStanding) -> Iterator[str]:
    """Yield what all points share: where they run, on which GPU, the time to go, what pruning saved."""
    parts = [*run.schedulers, *filter(None, [_gpu(run)])]
    if run.to_go_s is not None:
        number = max(1, run.counts[Standing.RUNNING])
        at_a_time = f"{number} run{'s' if number == 1 else ''} at a time"
        parts.append(f"about {format_about(run.to_go_s)} to go if {at_a_time}, as now")
    if parts:
        yield ", ".join(map(plain, parts))
    if warning := stand_in_warning(run):
        yield plain(warning)
    if is_corpus_folder(run.folder):
        yield from corpus_lines(run)
    if run.saved is not None:
        yield _saved(run.saved, run.requested.gpus)


def stand_in_warning(run: RunStanding) -> str:
    """Return in a line that the model of a run is a stand-in; empty if it is not."""
    if not run.points:
        caveat = caveat_of_order(run.folder)
        return f"warning: {caveat}" if caveat else ""
    model = run.points[0].point.model
    return model.warning if model else ""


def _saved(saved: SkippedTime, gpus: int) -> str:
    time = f"{format_about(saved.seconds * (gpus or 1))} of {'GPU' if gpus else 'job'} time"
    points = "1 point was" if saved.points == 1 else f"{saved.points:,} points were"
    return (
        f"pruning saved about {time}: {points} skipped, each counted with the time of the smaller load "
        "that ran out of memory, or of another repeat"
    )


def _gpu(run: RunStanding) -> str:
    """Return the GPU if all points that have one have the same; else nothing.

    The requested type counts as the GPU of a record if the record's name contains it.
    """
    gpus = {gpu for point in run.points if (gpu := run.gpu_of(point))}
    requested = run.requested.gpu_type
    if len(gpus) > 1 and all(requested.casefold() in gpu.casefold() for gpu in gpus):
        gpus.discard(requested)
    return gpus.pop() if len(gpus) == 1 else ""


def _rows(run: RunStanding, most: int) -> Iterator[Row]:
    """Yield a row a point; of many points only those that a person wants to see, and the number of others."""
    if len(run.points) <= most:
        yield from (_row(run, point) for point in run.points)
        return
    for kind in URGENT:
        points = [
            point for point in run.points if kind in {point.state, point.standing} and not point.cancelled
        ]
        listed = MOST_ALIKE if kind in {Standing.STUCK, HELD} else MOST_OF_A_STATE
        yield from (_row(run, point) for point in points[:listed])
        yield from _counted(points[listed:], "more")
    yield from _counted([point for point in run.points if _is_quiet(point)], f"{run.noun}s")


def _is_quiet(point: PointStanding) -> bool:
    """Return whether a point needs nothing from a person."""
    quiet = {Standing.DONE, Standing.WAITING, Standing.MISSING}
    return point.cancelled or (point.standing in quiet and point.state != HELD)


def _counted(points: Sequence[PointStanding], unit: str) -> Iterator[Row]:
    """Yield a row for each state, and each reason to wait, with the number of its points."""
    numbers = Counter((point.state, _reason(point)) for point in points)
    for (state, reason), number in numbers.items():
        word = unit.removesuffix("s") if number == 1 else unit
        yield f"{number:,} {word}", state, "", "", "", "", reason


def _reason(point: PointStanding) -> str:
    return point.why if point.standing in {Standing.WAITING, Standing.STUCK} else ""


def _row(run: RunStanding, point: PointStanding) -> Row:
    tries, elapsed_s = len(point.tries), point.elapsed_s
    return (
        point.point.point_id,
        point.state,
        "" if elapsed_s is None else format_clock(elapsed_s),
        str(tries) if tries > 1 else "",
        point.node or (point.queued.node if point.queued else ""),
        run.gpu_of(point).removeprefix("NVIDIA "),
        _words(point),
    )


def _words(point: PointStanding) -> str:
    if point.standing is not Standing.RUNNING:
        return point.why.removeprefix("exit file: ").removeprefix("accounting: ")
    far = far_words(point.progress) if point.progress else "no batch is copied home yet"
    return f"{far}; {point.why}" if point.why else far


def far_words(progress: Progress, *, over: bool = False) -> str:
    """Return how far a try is, or how far it came: ``12/40 batches, 24 min to go``."""
    of = f"/{progress.batches_total:,}" if progress.batches_total else ""
    far = f"{progress.batches:,}{of} batch{'es' if of or progress.batches > 1 else ''}"
    return far if over or progress.left_s is None else f"{far}, {format_about(progress.left_s)} to go"


def table(rows: Iterable[Row], alike: str, width: int, noun: str) -> list[str]:
    """Return rows as lines of at most ``width`` columns; an empty column, or a GPU that all share, is out."""
    cells = zip(*(map(plain, row) for row in rows), strict=True)
    *columns, words = [replace(column, cells=shown) for column, shown in zip(COLUMNS, cells, strict=True)]
    columns[0] = replace(columns[0], head=noun)
    columns = [column for column in columns if any(column.cells) and not (alike and column.head == "GPU")]
    room = width - min(LEAST_WORDS, max(map(len, words.cells), default=0)) - GAP
    return [cut(line, width) for line in terminal_table([*fit_columns(columns, room), words], rule=False)]


def cut(text: str, width: int) -> str:
    """Return a line no longer than ``width``, with a mark if something is left out.

    No word is cut but a long one, such as a path; and no number is left without its unit.
    """
    if len(text) <= width:
        return text
    words, _, part = text[:width].rpartition(" ")
    kept = words if words and len(part) < LONG_WORD else text[: width - 1]
    return f"{re.sub(r' [0-9.,]+$', '', kept.rstrip()).rstrip()}…"


def plain(text: str) -> str:
    """Return text as one line that a terminal shows and does not obey."""
    return printable(" ".join(text.split()))


def _notes(run: RunStanding, advised: Advice) -> list[str]:
    jobs = [line for job in run.jobs if (line := job_line(run, job))]
    notes = list(run.notes[:MOST_NOTES])
    more = len(run.notes) - len(notes)
    notes += [f"and {more} more that could not be read"] if more > 0 else []
    lines = [plain(line) for line in (*advised.notices, *jobs, *_kept(run), *notes)]
    return ["", *lines] if lines else []


def _kept(run: RunStanding) -> list[str]:
    """Return each reason why results are not home: a row cuts it, and with it the folder that has them."""
    failed = [point for point in run.points if point.state == Outcome.STAGE_OUT]
    reasons = dict.fromkeys(point.why.removeprefix("exit file: ") for point in failed)
    return [f"{Outcome.STAGE_OUT}: {reason}" for reason in list(reasons)[:MOST_NOTES]]


def next_line(listed: Sequence[Step]) -> list[str]:
    """Return the first of some steps as what to type next; before it what else changes the run."""
    if not listed:
        return []
    first, *others = listed
    changes = [step for step in others if step.kind not in HARMLESS]
    after = [f"{plain(step.does)}: {plain(step.command)}" for step in changes]
    return ["", *after, terminal.next_line(plain(first.command), plain(first.does))]
