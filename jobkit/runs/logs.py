"""Find the log of a point's try: through the try itself if it has begun, else through the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.layout import EXIT_FILE, LOGS_FOLDER, read_points
from jobkit.core.records import Point, PointKind
from jobkit.core.terminal import did_you_mean
from jobkit.core.units import format_list
from jobkit.runs.accounting import Accounts, read_accounts
from jobkit.runs.journal import JobTask
from jobkit.runs.kinds import kind_of
from jobkit.runs.results import read_result
from jobkit.runs.tries import Try, log_path

MOST_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Where the output of a try is, or will be."""

    point: Point
    number: int  # of the try; 0 if no try of the task has begun
    task: JobTask | None  # that runs it; ``None`` if it is not known
    path: Path | None  # ``None`` if there is no log, or it is not known
    by_hand: bool  # whether a person ran it: the output went to that terminal
    tries: tuple[int, ...]  # the numbers of all the point's tries that the log holds
    others: tuple[str, ...]  # the points that share it, because they share the task
    exit: Path | None  # the file that is there once the try has ended; ``None`` if no try has begun

    @property
    def name(self) -> str:
        return f"{self.point.point_id} try {self.number}" if self.number else self.point.point_id


def find_log(run: Path, word: str, number: int | None = None) -> Log:
    """Return the log of a try; by default of the latest, or the next if the point was submitted since."""
    kind = kind_of(run)
    if kind.unplanned(run):
        hint = f"the logs of the job that plans it are in {run / LOGS_FOLDER}"
        raise JobkitError(f"{run}: {kind.subject} is not planned yet, so there is no {kind.noun}", hint=hint)
    points, _ = read_points(run)
    if not points:
        raise JobkitError(f"{run}: not a run folder", hint="jobkit status lists the runs")
    point = point_named(points, word)
    accounts = read_accounts(run, name=point.run_id)
    tries = read_result(run, point, accounts, []).all_tries
    tried = _chosen(point, tries, number)
    same_task = (other.number for other in tries if other.task == tried.task)
    return Log(
        point=point,
        number=tried.number,
        task=tried.task,
        path=log_path(run, point, tried.task),
        by_hand=tried.by_hand,
        tries=tuple(sorted(filter(None, same_task))),
        others=_others(accounts, points, point, tried.task),
        exit=Path(tried.folder, EXIT_FILE) if tried.number else None,
    )


def point_named(points: Sequence[Point], word: str) -> Point:
    """Return the point that a word names: its index, its id, or how its id alone begins."""
    number = _number(points[0].kind, word) or word
    for point in points:
        if word == point.point_id or number == str(point.index):
            return point
    begun = [point for point in points if word and point.point_id.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    known = [point.point_id for point in points]
    noun = points[0].kind.noun
    hint = f"{noun}s are named by number, 1 to {points[-1].index}, or by id, such as {known[0]}"
    if begun:
        listed = format_list([point.point_id for point in begun], MOST_NAMES)
        raise JobkitError(f"{word!r} begins {len(begun)} {noun}s: {listed}", hint=hint)
    if 0 < int(_number(points[0].kind, word) or 0) < points[-1].index:  # left out of those that count
        message = f"{noun} {word!r} was planned again: other {noun}s do its work"
        raise JobkitError(message, hint=f"jobkit status DIR lists the {noun}s that count")
    close = did_you_mean(word, known)
    raise JobkitError(f"no {noun} {word!r}{f'; {close}' if close else ''}", hint=hint)


def _number(kind: PointKind, word: str) -> str:
    """Return the number of a point of a plan that a word names, ``2`` of ``shard-2``; empty if none."""
    digits = word.removeprefix(f"{kind.noun}-")
    return str(int(digits)) if kind.replanned and digits.isdecimal() else ""


def _chosen(point: Point, tries: Sequence[Try], number: int | None) -> Try:
    if number is None:
        return tries[0]
    for tried in tries:
        if number and tried.number == number:
            return tried
    known = ", ".join(str(tried.number) for tried in reversed(tries) if tried.number)
    there = f"there is {known}" if known else "none has begun"
    raise JobkitError(f"{point.point_id} has no try {number}: {there}", hint="leave --try out for the latest")


def _others(
    accounts: Accounts, points: Sequence[Point], point: Point, task: JobTask | None
) -> tuple[str, ...]:
    if task not in accounts.packed:
        return ()
    tasks = (pair for submission in accounts.journal.submissions for pair in submission.tasks())
    together = {index for other, indices in tasks if other == task for index in indices}
    return tuple(other.point_id for other in points if other.index in together - {point.index})
