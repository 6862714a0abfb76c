"""Read a run folder: its points, the tries of each, their times, and how the entities of precisions agree."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from jobkit.core import layout
from jobkit.core.errors import JobkitError
from jobkit.core.files import open_regular, parse_object, read_text
from jobkit.core.frozen import frozen
from jobkit.core.json_codec import from_dict
from jobkit.core.knobs import CPU
from jobkit.core.measurements import NOT_ATTRIBUTABLE, Energy
from jobkit.core.records import Batch, Outcome, Point, Record
from jobkit.core.units import format_count, format_walltime, moment
from jobkit.runs.journal import Accounts, JobTask, read_accounts, read_journal
from jobkit.runs.status import PointResult, kind_for, kind_of, run_id_of
from jobkit.runs.tries import (
    TaskFacts,
    Try,
    decide_outcome,
    last_words,
    log_path,
    reported_outcome,
    try_that_counts,
)
from jobkit.schedulers.registry import runs_here
from jobkit.schedulers.types import Accounted

T = TypeVar("T")


def read_tries(home: str, point: Point, accounts: Accounts, numbers: list[int]) -> Iterator[Try]:
    """Yield a point's tries, the latest first, and then those by hand.

    If the point was submitted again and has not begun, a placeholder with number 0 comes first.
    `try_that_counts` decides which try counts.

    The scheduler may run a task again by itself: then one task has several tries and several accounts, both
    in order. Its last try goes with the last account, and so on backwards; an account of a start that failed
    (``queue_error``), or of none, goes with no try. If there are fewer accounts than times that the scheduler
    began it, the latest are still to come.
    """
    every = [read_try(home, number, point) for number in numbers]
    read = [tried for tried in every if not tried.by_hand]
    tasks = [_task_of(tried, accounts, point, latest=place == 0) for place, tried in enumerate(read)]
    superseded = bool(every) and accounts.submitted.get(point.index) not in {None, *tasks}
    if superseded:
        yield not_started(point, accounts)
    later: Counter[JobTask] = Counter()
    for tried, task in zip(read, tasks, strict=True):
        known, account = _task_facts(accounts, task, superseded=superseded), None
        if task:
            own = [one for one, its in zip(read, tasks, strict=True) if its == task]
            account = _account(accounts.runs.get(task, ()), own, later[task])
            again = later[task] > 0 and own[later[task] - 1].restart > tried.restart
            known = replace(known, requeued=again)
            later[task] += 1
        alone = _is_alone(known, point)
        tried = replace(tried, task=task, node=_node(tried, account), account=account, alone=alone)  # noqa: PLW2901
        decided = _with_log(decide_outcome(tried, known), log_path(Path(home).parents[1], point, task))
        yield _with_walltime(decided, accounts)
        superseded = True
    for tried in every:
        if tried.by_hand:
            yield decide_outcome(replace(tried, node=_node(tried, None)))


def _account(runs: Sequence[Accounted], own: Sequence[Try], later: int) -> Accounted | None:
    """Return the account of one of a task's own tries, given the number of later tries."""
    begun = [run for run in runs if run.outcome is not Outcome.QUEUE_ERROR and not run.never_began]
    late = max(0, len(own) - len(begun)) if any(tried.restart for tried in own) else 0
    return begun[late - 1 - later] if 0 <= later - late < len(begun) else None


def _task_facts(accounts: Accounts, task: JobTask | None, *, superseded: bool) -> TaskFacts:
    if task is None:
        return TaskFacts(superseded=superseded)
    return TaskFacts(
        gone=accounts.gone.get(task, ""),
        cancelled=accounts.journal.cancelled.get(task, ""),
        packed=task in accounts.packed,
        superseded=superseded,
        here=runs_here(task.scheduler),
    )


def _is_alone(task: TaskFacts, point: Point) -> bool:
    """Return whether a task runs no other point: the job of a search does, but not on this machine."""
    return task.here or (not task.packed and point.kind.own_task)


def not_started(point: Point, accounts: Accounts, earlier: JobTask | None = None) -> Try:
    """Return what is known of a point that has no try folder of its last task, or of an earlier one."""
    task = earlier or accounts.submitted.get(point.index)
    if task is None:
        return Try(number=0, evidence="not submitted")
    account, known = accounts.runs.get(task, (None,))[-1], _task_facts(accounts, task, superseded=False)
    node, alone = account.node if account else "", _is_alone(known, point)
    tried = decide_outcome(Try(number=0, task=task, node=node, account=account, alone=alone), known)
    if account is None and tried.outcome is not Outcome.CANCELLED:
        evidence = f"{task.scheduler} job {task.job_id}, task {task.task}: {tried.evidence}"
        return tried.ended(tried.outcome, evidence)
    return _with_walltime(tried, accounts)


def read_try(home: str, number: int, point: Point) -> Try:
    """Return what one try folder holds; a file that cannot be read is a `problem`, never an error."""
    folder = f"{home}/{layout.TRY_PREFIX}{number}"
    problems: list[str] = []
    # First the file that is written last: a try may end meanwhile, and one with an exit file has its record.
    exit_ = _read_file(f"{folder}/{layout.EXIT_FILE}", layout.read_exit, problems)
    record = _read_file(f"{folder}/{layout.RECORD_FILE}", lambda path: _read_record(path, point), problems)
    if record and record.outcome is Outcome.OK and not kind_for(point).is_home(home, folder):
        record = None  # it came home before the results, and these never did
    return Try(
        number=number,
        record=record,
        exit=exit_,
        # optional
        begin=None if record else _read_file(f"{folder}/{layout.BEGIN_FILE}", layout.read_begin, []),
        problem="; ".join(problems),
        folder=folder,
    )


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
    data = parse_object(read_text(path), path)
    # In old runs two trials of one batch share an id.
    identity, own = (point.run_id, point.index, point.point_id), data.get("point")
    if isinstance(own, dict) and (own.get("run_id"), own.get("index"), own.get("point_id")) == identity:
        data["point"] = point  # as already read: a third less to read
    record = from_dict(Record, data, where=path)
    of = record.point
    if (of.run_id, of.index, of.point_id) != identity:
        raise JobkitError(f"{path}: of another point ({of.run_id} {of.point_id}), number {of.index}")
    return record


def _task_of(tried: Try, accounts: Accounts, point: Point, *, latest: bool) -> JobTask | None:
    """Return the task that ran a try: by its own files, else, for the latest try, by the journal."""
    if tried.record is not None and tried.record.job.job_id:
        job = tried.record.job
        return JobTask(job.scheduler, job.job_id, int(job.task_id)) if job.task_id.isdecimal() else None
    if tried.begin is not None:
        begin = tried.begin
        return JobTask(begin.scheduler, begin.job, begin.task) if begin.task is not None else None
    return accounts.submitted.get(point.index) if latest else None


def _node(tried: Try, accounted: Accounted | None) -> str:
    record = tried.record
    names = (
        accounted.node if accounted else "",  # the scheduler's name for it, which --exclude accepts
        record.environment.get("HOSTNAME", "") if record else "",  # as in the begin file
        record.host if record else "",
        tried.begin.host if tried.begin else "",
        tried.exit.host if tried.exit else "",
    )
    return next(filter(None, names), "")


def _with_walltime(tried: Try, accounts: Accounts) -> Try:
    """Return a try that ran out of walltime with the walltime; a batch that hung did not."""
    walltime_s = accounts.walltimes_s.get(tried.task) if tried.task else None
    if tried.outcome is not Outcome.TIMEOUT or tried.hung or walltime_s is None:
        return tried
    killed = tried.account is not None and tried.account.outcome is Outcome.TIMEOUT
    words = "reached" if killed else "was warned before the end of"
    evidence = f"{words} its walltime of {format_walltime(walltime_s)}: {tried.evidence}"
    return replace(tried, evidence=evidence)


def _with_log(tried: Try, path: Path | None) -> Try:
    """Return a try that left no record with what its log reports: the last source."""
    if tried.record is not None or path is None or tried.outcome not in {Outcome.LOST, Outcome.BUG}:
        return tried
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            # the end of a log shows how the try ended
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 16 * 2**10))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return tried
    if tried.outcome is Outcome.LOST and (reported := reported_outcome(text)):
        return replace(tried, outcome=reported[0], evidence=f"{tried.evidence}; log: {reported[1]}")
    words = last_words(text)
    return replace(tried, evidence=f"{tried.evidence}; end of the log: {words}") if words else tried


@frozen
class Run:
    """A run folder as read; ``notes`` name what in it could not be read."""

    folder: Path
    points: tuple[PointResult, ...]
    accounts: Accounts
    notes: tuple[str, ...]


def read_run(folder: Path) -> Run:
    """Read all results that are home so far."""
    notes: list[str] = []
    accounts, results = _read(folder, notes)
    return Run(folder, _with_own_energy([*results]), accounts, tuple(notes))


def _with_own_energy(results: Sequence[PointResult]) -> tuple[PointResult, ...]:
    """Return points whose energy is not attributable if others ran on the GPU at the same time."""
    points = []
    for result, others in zip(results, overlaps([result.record for result in results]), strict=True):
        counts, record, tries = result.verdict, result.record, result.all_tries
        if others and record and record.energy:
            counted = replace(counts, record=replace(record, energy=attributed(record.energy, others)))
            tries = tuple(counted if tried is counts else tried for tried in tries)
        points.append(replace(result, all_tries=tries))
    return tuple(points)


def each_point(folder: Path, notes: list[str], *, void: bool = False) -> Iterator[PointResult]:
    """Yield the points of a run in turn, so that only one record need be held at a time.

    ``notes`` gets what could not be read. ``void`` includes points whose work others do
    (`jobkit.runs.journal.Journal.is_void`).
    """
    return _read(folder, notes, void=void)[1]


def _read(folder: Path, notes: list[str], *, void: bool = False) -> tuple[Accounts, Iterator[PointResult]]:
    # First what is written last: whoever adds points meanwhile writes them, and then the journal.
    unplanned, journal = kind_of(folder).unplanned(folder), read_journal(folder)
    every, unreadable = layout.read_points(folder)
    accounts = read_accounts(folder, journal=journal, name=run_id_of(folder, every))
    notes += unreadable + accounts.notes
    if not every and not unplanned:
        notes.append(f"{folder}: {layout.POINTS_FILE} holds no point")
    points = [point for point in every if void or not journal.is_void(point)]
    present = _listed(f"{folder}/{layout.RESULTS_FOLDER}", notes) if points else set()
    foreign = present - {point.point_id for point in every}
    if foreign:  # a search may have added their points meanwhile
        foreign -= {point.point_id for point in layout.read_points(folder)[0]}
    notes += [
        f"{folder / layout.RESULTS_FOLDER / name}: of no point of this run: skipped"
        for name in sorted(foreign)
    ]
    return accounts, (
        read_result(folder, point, accounts, notes, begun=point.point_id in present) for point in points
    )


def _listed(folder: str, notes: list[str]) -> set[str]:
    """Return the names in a folder, and add to the notes if it is there and cannot be read."""
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - as `jobkit.core.layout.names`
    except FileNotFoundError:
        return set()
    except OSError as error:
        notes.append(f"{folder}: cannot be read: {error.strerror}: its results are unknown")
        return set()


def read_result(
    folder: Path, point: Point, accounts: Accounts, notes: list[str], *, begun: bool = True
) -> PointResult:
    """Return the tries of a point; nothing is read if it cannot have a folder yet."""
    home = layout.point_folder(folder, point.point_id)  # a Path costs as much as to open the file
    numbers = layout.try_numbers(home) if begun else []
    if not numbers and begun:
        _listed(home, notes)
    tries = tuple(read_tries(home, point, accounts, numbers)) or (not_started(point, accounts),)
    tries = tuple(kind_for(point).judged(home, tries))
    notes += [tried.problem for tried in tries if tried.problem]
    counts = try_that_counts(tries)
    batches: Sequence[Batch] = ()
    if counts.number and counts.record is None:
        batches, unreadable = layout.read_batches(counts.folder)
        notes += unreadable
    return PointResult(point=point, all_tries=tries, batches=batches)


def batches_of(results: Iterable[PointResult]) -> dict[str, list[Batch]]:
    """Return the batches of the tries that count, by point id, if memory on a GPU was measured by them."""
    found: dict[str, list[Batch]] = {}
    for result in results:
        if result.record and result.point.device != CPU:
            found.setdefault(result.point.point_id, []).extend(layout.read_batches(result.verdict.folder)[0])
    return found


def runs_below(path: Path) -> Iterator[Path]:
    """Yield the entries of a folder in the order of their names, without what jobkit makes besides runs.

    That is hidden files, the folder ``shell`` of earlier versions, and those of jobs that checked or fetched.
    """
    try:
        for entry in sorted(path.iterdir()):
            hidden = entry.name == "shell" or entry.name.startswith(".")
            helper = re.fullmatch(r"(doctor|fetch-.+)-\d{8}-\d{6}-[0-9a-f]{4}", entry.name)
            if not hidden and (not helper or layout.is_run_folder(entry)):
                yield entry
    except OSError as error:
        raise JobkitError(f"{path}: cannot be read: {error.strerror}") from error


def overlaps(records: Sequence[Record | None]) -> list[int | None]:
    """Return for each try how many others ran at the same time at the same place; ``None`` if unknown.

    The place is its GPU, or on a CPU its host. Tries that follow each other, such as those that are packed in
    one job, do not overlap.
    """
    spans = [_span(record) if record else None for record in records]
    began: dict[str, list[datetime]] = defaultdict(list)
    ended: dict[str, list[datetime]] = defaultdict(list)
    for place, first, last in filter(None, spans):
        began[place].append(first)
        ended[place].append(last)
    for moments in (*began.values(), *ended.values()):
        moments.sort()
    return [
        bisect_left(began[span[0]], span[2]) - bisect_right(ended[span[0]], span[1]) - 1 if span else None
        for span in spans
    ]


def _span(record: Record) -> tuple[str, datetime, datetime] | None:
    began, ended = moment(record.started_at), moment(record.ended_at)
    return (_place(record), began, ended) if began and ended and began < ended else None


def _place(record: Record) -> str:
    uuid = record.gpu.uuid if record.gpu else None
    return f"GPU {uuid}" if uuid else f"host {record.host}"


def attributed(energy: Energy, others: int | None) -> Energy:
    """Return the energy of a point, not attributable if others ran on its GPU at that time, or may have."""
    return replace(energy, attribution=NOT_ATTRIBUTABLE) if others else energy


def overlap_words(records: Sequence[Record | None], others: Sequence[float | None]) -> str:
    """Return a warning if points slowed each other down, without a full stop; empty if none did."""
    places = [_place(record) for record, number in zip(records, others, strict=True) if record and number]
    if not places:
        return ""
    there = sorted(set(places))
    where = there[0] if len(there) == 1 else f"one of {len(there)} hosts or GPUs"
    return (
        f"{len(places)} of {format_count(len(records), 'point')} ran at the same time as another point on "
        f"{where}: their speeds may not be comparable; `max_parallel: 1` in the spec keeps points apart "
        "(`resources.exclusive: true` keeps other jobs away, too, and is charged as whole nodes)"
    )
