"""Read a run folder: its points, the try that counts for each, and what became of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import read_tolerantly
from jobkit.core.json_codec import from_json
from jobkit.core.layout import POINTS_FILE, RESULTS_FOLDER, point_folder, read_batches, try_numbers
from jobkit.core.records import Batch, Point, Record
from jobkit.outcome.accounting import Accounts, read_accounts
from jobkit.outcome.trials import is_trial
from jobkit.outcome.tries import counting, not_started, read_tries
from jobkit.outcome.verdict import TryFiles, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """A point and the try that counts (`jobkit.outcome.tries.counting`), begun or not.

    Attributes
    ----------
    tries
        How many tries the scheduler (or the local driver) ran.
    by_hand
        The numbers of the tries that a person ran with ``bash job.sh K``, the latest first.
    chosen
        ``None`` where there is none, or the point was submitted again and has not begun.
    batches
        Of the chosen try, read only where it has no record: how far it came.
    node
        Where it ran, as far as is known, else empty.
    """

    point: Point
    tries: int
    chosen: TryFiles | None
    verdict: Verdict
    batches: tuple[Batch, ...] = ()
    node: str = ""
    by_hand: tuple[int, ...] = ()

    @property
    def record(self) -> Record | None:
        """The record of the try that counts; ``None`` if it left none."""
        return self.chosen.record if self.chosen else None


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder as read; ``notes`` name what in it could not be."""

    folder: Path
    points: tuple[PointResult, ...]
    notes: tuple[str, ...]


def read_run(folder: Path) -> Run:
    """Read everything that a run has brought home so far."""
    notes: list[str] = []
    points = tuple(each_point(folder, notes))
    return Run(folder, points, tuple(notes))


def each_point(folder: Path, notes: list[str]) -> Iterator[PointResult]:
    """Yield the points of a run in turn, so that only one record need be held at a time.

    Parameters
    ----------
    folder
        The run folder.
    notes
        Gets, until the last point has come, what could not be read.
    """
    points, told = read_points(folder)
    accounts = read_accounts(folder, name=points[0].run_id if points else None)
    notes += told + accounts.notes
    if not points:
        notes.append(f"{folder}: {POINTS_FILE} holds no point")
        return
    present = _listed(f"{folder}/{RESULTS_FOLDER}", notes)
    foreign = sorted(present - {point.point_id for point in points})
    notes += [f"{folder / RESULTS_FOLDER / name}: of no point of this run: skipped" for name in foreign]
    for point in points:
        yield _read_point(folder, point, accounts, present, notes)


def _listed(folder: str, notes: list[str]) -> set[str]:
    """Return the names in a folder, and add to the notes where it is there and cannot be read."""
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - as `jobkit.core.layout.names`
    except FileNotFoundError:
        return set()
    except OSError as error:
        notes.append(f"{folder}: cannot be read: {error.strerror}: what is home there is not known")
        return set()


def read_points(folder: Path) -> tuple[list[Point], tuple[str, ...]]:
    """Return the points of a run, and a note on the lines that are none."""
    return read_tolerantly(folder / POINTS_FILE, _point, growing=False)


def _point(line: str, where: str) -> Point:
    point = from_json(Point, line, where=where)
    if not all(isinstance(value, int) for value in point.params.values()):
        raise JobkitError(f"{where}: params are not whole numbers")
    # Older runs name a trial in the point's id alone.
    return replace(point, trial=True) if not point.trial and is_trial(point.point_id) else point


def _read_point(
    folder: Path, point: Point, accounts: Accounts, present: set[str], problems: list[str]
) -> PointResult:
    """Return a point's result, and add to ``problems`` what could not be read."""
    home = point_folder(folder, point.point_id)  # a Path costs as much as to open the file
    numbers = try_numbers(home) if point.point_id in present else []
    if not numbers and point.point_id in present:
        _listed(home, problems)
    tries = tuple(read_tries(home, point, accounts, numbers))
    problems += [tried.files.problem for tried in tries if tried.files.problem]
    by_hand = tuple(tried.files.number for tried in tries if tried.files.by_hand)
    counts = counting(tries) or not_started(point, accounts)
    chosen = counts.files if counts.files.number else None
    return PointResult(
        point=point,
        tries=len(numbers) - len(by_hand),
        chosen=chosen,
        verdict=counts.verdict,
        batches=() if chosen is None or chosen.record else read_batches(home, chosen.number, problems),
        node=counts.node,
        by_hand=by_hand,
    )


def runs_below(path: Path) -> Iterator[Path]:
    """Yield the entries of a folder in the order of their names.

    Raises
    ------
    JobkitError
        Where the folder cannot be read.
    """
    try:
        yield from sorted(path.iterdir())
    except OSError as error:
        raise JobkitError(f"{path}: cannot be read: {error.strerror}") from error
