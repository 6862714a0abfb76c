"""Read a run folder: its points, the try that counts for each, and what became of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobkit.accounts import Accounts, read_accounts
from jobkit.errors import JobkitError
from jobkit.jsonl import parse_object, read_tolerantly
from jobkit.outcomes import TryFiles, Verdict, judge
from jobkit.records import (
    BATCHES_FILE,
    EXIT_FILE,
    POINTS_FILE,
    RECORD_FILE,
    Batch,
    Exit,
    Outcome,
    Point,
    Record,
    from_dict,
    from_json,
    read_exit,
    read_text,
)
from jobkit.schedulers.base import Accounted

RESULTS_FOLDER = "results"
TRY_PREFIX = "try-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """A point and the try that counts: the one that went well, else the latest.

    Attributes
    ----------
    tries
        How many try folders there are.
    chosen
        ``None`` where there is none.
    batches
        Of the chosen try, read only where it has no record: how far it came.
    node
        Where the accounting says it ran, else empty.
    """

    point: Point
    tries: int
    chosen: TryFiles | None
    verdict: Verdict
    batches: tuple[Batch, ...] = ()
    node: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder as read; ``notes`` name what in it could not be."""

    folder: Path
    points: tuple[PointResult, ...]
    notes: tuple[str, ...]


def is_run_folder(path: Path) -> bool:
    """Tell whether a folder is a run: it lists its points."""
    listed = path / POINTS_FILE
    return listed.is_file() and (listed.stat().st_size > 0 or (path / "job.sh").is_file())


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
    points, told = read_tolerantly(folder / POINTS_FILE, _point)
    accounts = read_accounts(folder)
    notes += told + accounts.notes
    if not points:
        notes.append(f"{folder}: {POINTS_FILE} holds no point")
        return
    present = _names(folder / RESULTS_FOLDER)
    foreign = sorted(present - {point.point_id for point in points})
    notes += [f"{folder / RESULTS_FOLDER / name}: of no point of this run: skipped" for name in foreign]
    for point in points:
        yield _read_point(folder, point, accounts, present, notes)


def _point(line: str, where: str) -> Point:
    point = from_json(Point, line, where=where)
    if not all(isinstance(value, int) for value in point.params.values()):
        raise JobkitError(f"{where}: params are not whole numbers")
    return point


def _names(folder: Path | str) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - names only: 10,000 Path objects cost time
    except OSError:
        return set()


def _read_point(
    folder: Path, point: Point, accounts: Accounts, present: set[str], problems: list[str]
) -> PointResult:
    """Return a point's result, and add to ``problems`` what could not be read."""
    home = f"{folder}/{RESULTS_FOLDER}/{point.point_id}"  # a Path costs as much as to open the file
    numbers = _try_numbers(home) if point.point_id in present else []
    accounted = accounts.accounted.get(point.index)
    latest: tuple[TryFiles, Verdict] | None = None
    for tried in (_read_try(home, number, point) for number in numbers):
        if tried.problem:
            problems.append(tried.problem)
        verdict = judge(tried, _of_this_try(accounted, tried) if latest is None else None)
        if latest is None or verdict.outcome is Outcome.OK:
            latest = tried, verdict
        if verdict.outcome is Outcome.OK:
            break
    chosen, verdict = latest or (None, _not_started(point, accounts, accounted))
    return PointResult(
        point=point,
        tries=len(numbers),
        chosen=chosen,
        verdict=verdict,
        batches=() if chosen is None or chosen.record else _batches(home, chosen, problems),
        node=accounted.node if accounted else "",
    )


def _try_numbers(home: str) -> list[int]:
    """Return the numbers of a point's tries, the latest first."""
    names = (name.removeprefix(TRY_PREFIX) for name in _names(home) if name.startswith(TRY_PREFIX))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def _of_this_try(accounted: Accounted | None, tried: TryFiles) -> Accounted | None:
    """Return the accounting unless the record says that another job wrote this try."""
    if accounted is None or tried.record is None or not tried.record.job.job_id:
        return accounted
    return accounted if tried.record.job.job_id == accounted.job_id else None


def _not_started(point: Point, accounts: Accounts, accounted: Accounted | None) -> Verdict:
    verdict = judge(None, accounted)
    if accounted is not None:
        return verdict
    task = accounts.submitted.get(point.index)
    told = f"{task.scheduler} job {task.job_id}, task {task.task}" if task else "not submitted"
    return Verdict(outcome=None, evidence=f"{told}: {verdict.evidence}" if task else told)


def _read_try(home: str, number: int, point: Point) -> TryFiles:
    folder = f"{home}/{TRY_PREFIX}{number}"
    problems: list[str] = []
    record, exit_ = None, None
    try:
        record = _read_record(f"{folder}/{RECORD_FILE}", point)
    except JobkitError as error:
        problems.append(error.message)
    try:
        exit_ = _read_exit(f"{folder}/{EXIT_FILE}")
    except JobkitError as error:
        problems.append(error.message)
    # A spoilt exit file matters only where there is no record.
    return TryFiles(number=number, record=record, exit=exit_, problem="; ".join(problems))


def _read_record(path: str, point: Point) -> Record | None:
    try:
        text = read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JobkitError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        record = from_dict(Record, _with_point(parse_object(text, path), point), where=path)
    except RecursionError as error:
        raise JobkitError(f"{path}: nested too deep") from error
    if (record.point.run_id, record.point.point_id) != (point.run_id, point.point_id):
        raise JobkitError(f"{path}: of another point ({record.point.run_id} {record.point.point_id})")
    return record


def _with_point(data: dict[str, Any], point: Point) -> dict[str, Any]:
    """Return a record's JSON with its point as already read, where it is that one: a third less to read."""
    told = data.get("point")
    same = isinstance(told, dict) and (told.get("run_id"), told.get("point_id")) == (
        point.run_id,
        point.point_id,
    )
    return {**data, "point": point} if same else data


def _read_exit(path: str) -> Exit | None:
    try:
        return read_exit(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JobkitError(f"{path}: cannot be read: {error.strerror}") from error


def _batches(home: str, chosen: TryFiles, problems: list[str]) -> tuple[Batch, ...]:
    path = Path(home, f"{TRY_PREFIX}{chosen.number}", BATCHES_FILE)
    batches, notes = read_tolerantly(path, lambda line, where: from_json(Batch, line, where=where))
    problems.extend(notes)
    return tuple(batches)


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
