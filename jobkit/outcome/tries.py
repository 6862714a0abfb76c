"""Read the tries of a point, and what the scheduler knows of each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from jobkit.core.errors import JobkitError
from jobkit.core.files import open_regular, parse_object, read_text
from jobkit.core.job_files import read_begin, read_exit
from jobkit.core.json_codec import from_dict, from_json
from jobkit.core.layout import (
    BAD_ROWS,
    BEGIN_FILE,
    EXIT_FILE,
    LOGS_FOLDER,
    RECORD_FILE,
    TRY_PREFIX,
    WINNERS_FOLDER,
)
from jobkit.core.records import Outcome, Point, Record
from jobkit.core.units import format_walltime
from jobkit.corpus.plan import MANIFEST_FILE, ROWS_FILE, Winner
from jobkit.outcome.accounting import Accounts
from jobkit.outcome.journal import Task
from jobkit.outcome.log_outcome import last_words, reported_outcome
from jobkit.outcome.verdict import Circumstances, TryFiles, Verdict, decide_outcome
from jobkit.schedulers.registry import SCHEDULERS, runs_here
from jobkit.schedulers.types import Accounted

T = TypeVar("T")
LOG_TAIL_BYTES = 16 * 2**10
"""How much of a log is read: its end shows how the try ended."""


@dataclass(frozen=True, slots=True)
class TryResult:
    """A try: what it left, and its outcome.

    Attributes
    ----------
    files
        ``begin`` is read only if there is no record.
    node
        Where it ran, as far as is known.
    account
        What the scheduler's accounting, or its queue, reports of it; ``None`` if nothing.
    alone
        Whether its task ran no other point, so that the time of the account is its own.
    """

    files: TryFiles
    verdict: Verdict
    task: Task | None = None
    node: str = ""
    account: Accounted | None = None
    alone: bool = True


def read_tries(home: str, point: Point, accounts: Accounts, numbers: list[int]) -> Iterator[TryResult]:
    """Yield a point's tries, the latest first, and then those by hand.

    If the point was submitted again and has not begun, a placeholder with number 0 comes first.
    `counting` decides which try counts.

    Parameters
    ----------
    home
        The point's folder.
    numbers
        Of its tries, the latest first.

    Notes
    -----
    The scheduler may run a task again by itself: then one task has several tries and several
    accounts, both in order. Its last try goes with the last account, and so on backwards; an
    account of a start that failed (``queue_error``), or of none, goes with no try. If there are
    fewer accounts than times that the scheduler began it, the latest are still to come.
    """
    every = [read_try(home, number, point) for number in numbers]
    read = [files for files in every if not files.by_hand]
    tasks = [_task_of(files, accounts, point, latest=place == 0) for place, files in enumerate(read)]
    superseded = bool(every) and accounts.submitted.get(point.index) not in {None, *tasks}
    if superseded:
        yield not_started(point, accounts)
    later: Counter[Task] = Counter()
    for files, task in zip(read, tasks, strict=True):
        own = [one for one, its in zip(read, tasks, strict=True) if task is not None and its == task]
        accounted = _account(_begun_runs(accounts, task), own, later[task] if task else 0)
        known = _circumstances(accounts, task, superseded=superseded)
        if task:
            known = replace(known, requeued=_began_again(own, later[task]))
            later[task] += 1
        verdict = decide_outcome(files, accounted, known)
        verdict = _with_log(verdict, files, log_path(Path(home).parents[1], point, task))
        verdict = _with_walltime(verdict, accounted, accounts, task)
        yield TryResult(files, verdict, task, _node(files, accounted), accounted, _alone(point, task, known))
        superseded = True
    for files in every:
        if files.by_hand:
            yield TryResult(files, decide_outcome(files, None, Circumstances()), node=_node(files, None))


def counting(tries: Sequence[TryResult]) -> TryResult:
    """Return the try that counts: the one that succeeded, else the latest.

    A try by hand counts only while no other try of the point has begun: a person runs it where and
    when they like, so it is no measurement of the sweep.
    """
    if len(tries) == 1:
        return tries[0]
    own = [tried for tried in tries if not tried.files.by_hand]
    among = own if any(tried.files.number for tried in own) else tries
    return next((tried for tried in among if tried.verdict.outcome is Outcome.OK), among[0])


def log_path(run: Path, point: Point, task: Task | None) -> Path | None:
    """Return where the log of a point's task is, or will be; ``None`` if that is not known."""
    scheduler = SCHEDULERS.get(task.scheduler) if task else None
    name = scheduler.log_name(point.run_id, task.job_id, task.task) if scheduler and task else ""
    return run / LOGS_FOLDER / name if name else None


def _with_log(verdict: Verdict, files: TryFiles, path: Path | None) -> Verdict:
    """Return a verdict on a try that left no record, with what its log reports: the last source."""
    if files.record is not None or path is None or verdict.outcome not in {Outcome.LOST, Outcome.BUG}:
        return verdict
    text = _tail(path)
    reported = reported_outcome(text) if verdict.outcome is Outcome.LOST else None
    if reported:
        return replace(verdict, outcome=reported[0], evidence=f"{verdict.evidence}; log: {reported[1]}")
    if words := last_words(text):
        return replace(verdict, evidence=f"{verdict.evidence}; end of the log: {words}")
    return verdict


def _with_walltime(
    verdict: Verdict, accounted: Accounted | None, accounts: Accounts, task: Task | None
) -> Verdict:
    """Return a verdict on a try that ran out of walltime, with the walltime; a batch that hung did not."""
    walltime_s = accounts.walltimes_s.get(task) if task else None
    if verdict.outcome is not Outcome.TIMEOUT or verdict.hung or walltime_s is None:
        return verdict
    killed = accounted is not None and accounted.outcome is Outcome.TIMEOUT
    words = "reached" if killed else "was warned before the end of"
    evidence = f"{words} its walltime of {format_walltime(walltime_s)}: {verdict.evidence}"
    return replace(verdict, evidence=evidence)


def _tail(path: Path) -> str:
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LOG_TAIL_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _alone(point: Point, task: Task | None, known: Circumstances) -> bool:
    """Return whether a task ran one point: the job of a search runs many, but on this machine none does."""
    here = task is not None and runs_here(task.scheduler)
    return here or not (known.packed or point.phase or point.trial)


def _task_of(files: TryFiles, accounts: Accounts, point: Point, *, latest: bool) -> Task | None:
    """Return the task that ran a try: by its own files, else, for the latest try, by the journal."""
    if files.record is not None and files.record.job.job_id:
        job = files.record.job
        return Task(job.scheduler, job.job_id, int(job.task_id)) if job.task_id.isdecimal() else None
    if files.begin is not None:
        begin = files.begin
        return Task(begin.scheduler, begin.job, begin.task) if begin.task is not None else None
    return accounts.submitted.get(point.index) if latest else None


def _begun_runs(accounts: Accounts, task: Task | None) -> tuple[Accounted, ...]:
    runs = accounts.runs.get(task, ()) if task else ()
    return tuple(run for run in runs if run.outcome is not Outcome.QUEUE_ERROR and not run.never_began)


def _account(runs: Sequence[Accounted], own: Sequence[TryFiles], later: int) -> Accounted | None:
    """Return the account of one of a task's own tries, given the number of later tries."""
    late = max(0, len(own) - len(runs)) if any(files.restart for files in own) else 0
    return runs[late - 1 - later] if 0 <= later - late < len(runs) else None


def _began_again(own: Sequence[TryFiles], later: int) -> bool:
    return later > 0 and own[later - 1].restart > own[later].restart


def _circumstances(accounts: Accounts, task: Task | None, *, superseded: bool) -> Circumstances:
    if task is None:
        return Circumstances(superseded=superseded)
    return Circumstances(
        gone=accounts.gone.get(task, ""),
        cancelled=accounts.journal.cancelled.get(task, ""),
        packed=task in accounts.packed,
        superseded=superseded,
        here=runs_here(task.scheduler),
    )


def _node(files: TryFiles, accounted: Accounted | None) -> str:
    record = files.record
    names = (
        accounted.node if accounted else "",  # the scheduler's name for it, which --exclude accepts
        record.environment.get("HOSTNAME", "") if record else "",  # as in the begin file
        record.host if record else "",
        files.begin.host if files.begin else "",
        files.exit.host if files.exit else "",
    )
    return next(filter(None, names), "")


def not_started(point: Point, accounts: Accounts, earlier: Task | None = None) -> TryResult:
    """Return what is known of a point that has no try folder of its last task, or of an earlier one."""
    task = earlier or accounts.submitted.get(point.index)
    accounted = accounts.runs.get(task, (None,))[-1] if task else None
    verdict = decide_outcome(None, accounted, _circumstances(accounts, task, superseded=False))
    verdict = _with_walltime(verdict, accounted, accounts, task)
    if task is None:
        verdict = replace(verdict, evidence="not submitted")
    elif accounted is None and verdict.outcome is not Outcome.CANCELLED:
        words = f"{task.scheduler} job {task.job_id}, task {task.task}: {verdict.evidence}"
        verdict = Verdict(outcome=verdict.outcome, evidence=words)
    return TryResult(TryFiles(number=0), verdict, task, accounted.node if accounted else "", accounted)


def read_try(home: str, number: int, point: Point) -> TryFiles:
    """Return what one try folder holds; a file that cannot be read is a `problem`, never an error."""
    folder = f"{home}/{TRY_PREFIX}{number}"
    problems: list[str] = []
    # First the file that is written last: a try may end meanwhile, and one with an exit file has its record.
    exit_ = _read_file(f"{folder}/{EXIT_FILE}", read_exit, problems)
    record = _read_file(f"{folder}/{RECORD_FILE}", lambda path: _read_record(path, point), problems)
    if point.shard and record and record.outcome is Outcome.OK and not has_rows(home, folder):
        record = None  # the record came home before the rows, and these never did
    return TryFiles(
        number=number,
        record=record,
        exit=exit_,
        begin=_read_file(f"{folder}/{BEGIN_FILE}", read_begin, []) if record is None else None,  # optional
        problem="; ".join(problems),
        folder=folder,
    )


def with_winner(home: str, tries: Sequence[TryResult]) -> Iterator[TryResult]:
    """Yield the tries of a shard; the one whose rows won has succeeded, also if its record is lost."""
    won = None
    if not any(tried.verdict.outcome is Outcome.OK for tried in tries):
        path = f"{Path(home).parents[1]}/{WINNERS_FOLDER}/{Path(home).name}.json"
        won = _read_file(path, lambda path: from_json(Winner, read_text(path), where=path), [])
    for tried in tries:
        number = tried.files.number
        if won and number and number == won.try_number:
            yield replace(
                tried, verdict=Verdict(outcome=Outcome.OK, evidence="its rows are those that count")
            )
        else:
            yield tried


def has_rows(home: str, folder: str) -> bool:
    """Return whether the rows of a shard are home: another try has won already, or these are whole.

    Their digest is compared when the winner is chosen; a try whose rows failed that has `BAD_ROWS`.
    """
    if os.path.exists(f"{Path(home).parents[1]}/{WINNERS_FOLDER}/{Path(home).name}.json"):  # noqa: PTH110 - quick
        return True
    try:
        size = int(parse_object(read_text(f"{folder}/{MANIFEST_FILE}"), MANIFEST_FILE)["size_bytes"])
        whole = os.stat(f"{folder}/{ROWS_FILE}").st_size == size  # noqa: PTH116 - as above
    except (OSError, JobkitError, KeyError, TypeError, ValueError):
        return False
    return whole and not os.path.exists(f"{folder}/{BAD_ROWS}")  # noqa: PTH110 - as above


def _read_file(path: str, read: Callable[[str], T], problems: list[str]) -> T | None:
    """Return what a file holds; ``None`` if it is not home, or cannot be read: then add the problem."""
    try:
        return read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
    except JobkitError as error:
        problems.append(error.message)
    return None


def _read_record(path: str, point: Point) -> Record:
    text = read_text(path)
    try:
        record = from_dict(Record, _with_point(parse_object(text, path), point), where=path)
    except RecursionError as error:
        raise JobkitError(f"{path}: nested too deep") from error
    if _identity(record.point) != _identity(point):
        of = record.point
        raise JobkitError(f"{path}: of another point ({of.run_id} {of.point_id}), number {of.index}")
    return record


def _with_point(data: dict[str, Any], point: Point) -> dict[str, Any]:
    """Return a record's JSON with its point as already read, if it is the same: a third less to read."""
    own = data.get("point")
    if not isinstance(own, dict):
        return data
    same = (own.get("run_id"), own.get("index"), own.get("point_id")) == _identity(point)
    return {**data, "point": point} if same else data


def _identity(point: Point) -> tuple[str, int, str]:
    """Return what distinguishes points: in old runs two trials of one batch share an id."""
    return point.run_id, point.index, point.point_id
