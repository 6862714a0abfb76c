"""Read a run folder: its points, the tries of each, their times, and how the entities of precisions agree."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobkit.core.errors import ExitCode, JobkitError
from jobkit.core.files import read_text
from jobkit.core.knobs import CPU, FP32, PRECISION, Value
from jobkit.core.layout import (
    BEGIN_FILE,
    ENTITIES_FILE,
    EXIT_FILE,
    POINTS_FILE,
    RESULTS_FOLDER,
    SHELL_FOLDER,
    is_run_folder,
    point_folder,
    read_batches,
    read_begin,
    read_points,
    try_numbers,
)
from jobkit.core.records import Batch, Outcome, Point, Record
from jobkit.core.units import moment
from jobkit.runs.accounting import Accounts, read_accounts
from jobkit.runs.journal import read_journal
from jobkit.runs.kinds import kind_for, kind_of, run_id_of
from jobkit.runs.overlaps import attributed, overlaps, span_of
from jobkit.runs.tries import Try, TryOutcome, not_started, read_tries, try_that_counts


def elapsed_s(tried: Try, *, shared: bool = False) -> float | None:
    """Return how long an ended try took: by its record, else by the accounting of a task of its own."""
    if tried.record is None:
        return _account_s(tried, shared=shared)
    return worker_s(tried.record)


def task_s(tried: Try, *, shared: bool = False) -> float | None:
    """Return how long an ended try took in all, staging and environment included.

    It is the longest time that any source reports. The files ``begin`` and ``exit`` report it by when they
    were written, by the clock of the file system; in a copied run folder, what ``begin`` holds reports when
    the job began, to a second.
    """
    spans = [_files_s(tried.folder), _account_s(tried, shared=shared)]
    worked_s = worker_s(tried.record) if tried.record else None
    if worked_s is not None:
        copied = all(seconds is None or seconds < worked_s for seconds in spans)
        spans += [worked_s, _until_s(tried) if copied else None]
    return max((seconds for seconds in spans if seconds is not None), default=None)


def timed(tried: Try) -> Record | None:
    """Return the record of a try with the time and the memory of its job, by which the next is planned."""
    record, rss = tried.record, tried.account.max_rss_bytes if tried.account and tried.alone else None
    return replace(record, task_s=task_s(tried), accounted_rss_bytes=rss) if record else None


def _account_s(tried: Try, *, shared: bool) -> float | None:
    return None if shared or tried.account is None or not tried.alone else tried.account.elapsed_s


def worker_s(record: Record) -> float | None:
    """Return how long the worker ran; ``None`` if its record does not report it."""
    began, ended = moment(record.started_at), moment(record.ended_at)
    return max(0.0, (ended - began).total_seconds()) if began and ended else None


def _until_s(tried: Try) -> float | None:
    """Return the time from the begin of the job to the end of the worker, by the node's clock."""
    with suppress(JobkitError, OSError):
        began = moment(read_begin(Path(tried.folder, BEGIN_FILE)).at)
        ended = moment(tried.record.ended_at) if tried.record else None
        return (ended - began).total_seconds() if began and ended else None
    return None


def _files_s(folder: str) -> float | None:
    if not folder:
        return None
    try:
        return Path(folder, EXIT_FILE).stat().st_mtime - Path(folder, BEGIN_FILE).stat().st_mtime
    except OSError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    point: Point
    # as `jobkit.runs.tries.read_tries` yields them; one of number 0 if none has begun
    all_tries: tuple[Try, ...]
    batches: Sequence[Batch] = ()  # of the try that counts, read only if it has no record: how far it came

    @property
    def tries(self) -> tuple[Try, ...]:
        """The tries that the scheduler or the local driver ran, the latest first."""
        return tuple(tried for tried in self.all_tries if tried.number and not tried.by_hand)

    @property
    def by_hand(self) -> tuple[Try, ...]:
        """The tries that a person ran with ``bash job.sh K``, the latest first."""
        return tuple(tried for tried in self.all_tries if tried.by_hand)

    @property
    def latest(self) -> Try:
        """The latest try; number 0 if the point was submitted again and has not begun."""
        return self.all_tries[0]

    @property
    def counts(self) -> Try:
        """The try that counts (`jobkit.runs.tries.try_that_counts`), begun or not."""
        return try_that_counts(self.all_tries)

    @property
    def chosen(self) -> Try | None:
        """The try that counts; ``None`` if it has not begun."""
        return self.counts if self.counts.number else None

    @property
    def record(self) -> Record | None:
        """The record of the try that counts; ``None`` if it left none."""
        return self.counts.record

    @property
    def verdict(self) -> TryOutcome:
        return self.counts.verdict

    @property
    def outcome(self) -> Outcome | None:
        return self.counts.verdict.outcome

    @property
    def node(self) -> str:
        """Where the try that counts ran, as far as is known, else empty."""
        return self.counts.node


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder as read; ``notes`` name what in it could not be read."""

    folder: Path
    points: tuple[PointResult, ...]
    accounts: Accounts
    notes: tuple[str, ...]


def read_run(folder: Path) -> Run:
    """Read all results that are home so far."""
    notes: list[str] = []
    every, accounts = _read_plan(folder, notes)
    points = _live(every, accounts)
    results = [*_read_results(folder, points, accounts, notes, every)]
    return Run(folder, _with_own_energy(results), accounts, tuple(notes))


def _with_own_energy(results: Sequence[PointResult]) -> tuple[PointResult, ...]:
    """Return points whose energy is not attributable if others ran on the GPU at the same time."""
    if not any(result.record and result.record.energy for result in results):
        return tuple(results)
    measured = [result.record for result in results if result.record]
    others = iter(overlaps([span_of(record) for record in measured]))
    return tuple(_attributed(result, next(others)) if result.record else result for result in results)


def _attributed(result: PointResult, others: int | None) -> PointResult:
    counts = result.counts
    record = counts.record
    if not others or record is None or record.energy is None:
        return result
    own = replace(record, energy=attributed(record.energy, others))
    counted = replace(counts, record=own)
    tries = (counted if tried is counts else tried for tried in result.all_tries)
    return replace(result, all_tries=tuple(tries))


def each_point(folder: Path, notes: list[str], *, void: bool = False) -> Iterator[PointResult]:
    """Yield the points of a run in turn, so that only one record need be held at a time.

    ``notes`` gets what could not be read. ``void`` includes points whose work others do
    (`jobkit.runs.journal.Journal.is_void`).
    """
    every, accounts = _read_plan(folder, notes)
    return _read_results(folder, every if void else _live(every, accounts), accounts, notes, every)


def _read_plan(folder: Path, notes: list[str]) -> tuple[list[Point], Accounts]:
    # First what is written last: whoever adds points meanwhile writes them, and then the journal.
    unplanned, journal = kind_of(folder).unplanned(folder), read_journal(folder)
    points, unreadable = read_points(folder)
    accounts = read_accounts(folder, journal=journal, name=run_id_of(folder, points))
    notes += unreadable + accounts.notes
    if not points and not unplanned:
        notes.append(f"{folder}: {POINTS_FILE} holds no point")
    return points, accounts


def _live(points: Sequence[Point], accounts: Accounts) -> list[Point]:
    """Return the points without those whose work others do: the one place that leaves them out."""
    return [point for point in points if not accounts.journal.is_void(point)]


def _read_results(
    folder: Path, points: Sequence[Point], accounts: Accounts, notes: list[str], every: Sequence[Point]
) -> Iterator[PointResult]:
    if not points:
        return
    present = _listed(f"{folder}/{RESULTS_FOLDER}", notes)
    foreign = present - {point.point_id for point in every}
    if foreign:  # a search may have added their points meanwhile
        foreign -= {point.point_id for point in read_points(folder)[0]}
    notes += [
        f"{folder / RESULTS_FOLDER / name}: of no point of this run: skipped" for name in sorted(foreign)
    ]
    for point in points:
        yield read_result(folder, point, accounts, notes, begun=point.point_id in present)


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
    home = point_folder(folder, point.point_id)  # a Path costs as much as to open the file
    numbers = try_numbers(home) if begun else []
    if not numbers and begun:
        _listed(home, notes)
    tries = tuple(read_tries(home, point, accounts, numbers)) or (not_started(point, accounts),)
    tries = tuple(kind_for(point).judged(home, tries))
    notes += [tried.problem for tried in tries if tried.problem]
    counts = try_that_counts(tries)
    batches: Sequence[Batch] = ()
    if counts.number and counts.record is None:
        batches, unreadable = read_batches(counts.folder)
        notes += unreadable
    return PointResult(point=point, all_tries=tries, batches=batches)


def batches_of(results: Iterable[PointResult]) -> dict[str, list[Batch]]:
    """Return the batches of the tries that count, by point id, if memory on a GPU was measured by them."""
    found: dict[str, list[Batch]] = {}
    for result in results:
        if result.chosen and result.record and result.point.device != CPU:
            found.setdefault(result.point.point_id, []).extend(read_batches(result.chosen.folder)[0])
    return found


def exit_code(*, failed: bool, to_come: bool) -> ExitCode:
    """Return the exit code for the points of a run: still to come goes before failed."""
    if to_come:
        return ExitCode.TO_COME
    return ExitCode.FAILED if failed else ExitCode.DONE


_HELPER = re.compile(r"(doctor|fetch-.+)-\d{8}-\d{6}-[0-9a-f]{4}")


def _is_own(entry: Path) -> bool:
    if entry.name == SHELL_FOLDER or entry.name.startswith("."):
        return True
    return bool(_HELPER.fullmatch(entry.name)) and not is_run_folder(entry)


def runs_below(path: Path) -> Iterator[Path]:
    """Yield the entries of a folder in the order of their names, without what jobkit makes besides runs.

    That is hidden files, the runs of ``jobkit shell``, and the folders of jobs that checked or fetched.
    """
    try:
        yield from (entry for entry in sorted(path.iterdir()) if not _is_own(entry))
    except OSError as error:
        raise JobkitError(f"{path}: cannot be read: {error.strerror}") from error


Rows = frozenset[tuple[str, ...]]  # the entities of a text: the rows of ``entities.tsv``
NOT_COMPARED = (
    "jobkit compared no entities: a comparison needs a point with precision fp32 that has succeeded"
)
OtherKnobs = tuple[tuple[str, Value], ...]  # the knobs of a point without its precision


@dataclass(frozen=True, slots=True)
class Agreement:
    """The entities of a point, compared with those of fp32."""

    entities: int  # how many it found
    # entities in one of the two only; an entity with other offsets or another label counts twice
    differ: int
    f1: float  # 2 x common / (its own + those of fp32); 1 if neither has any


def sweeps_precision(settings: Iterable[Mapping[str, Value]]) -> bool:
    words = {word for setting in settings if isinstance(word := setting.get(PRECISION), str)}
    return len(words) > 1


def agreements(points: Sequence[PointResult]) -> dict[int, Agreement]:
    """Return the agreement of each point of a run that succeeded, by index.

    A point is compared with the first fp32 point of the same setting, or else with the first fp32 point of
    all. Empty if the run sweeps no precision, or no fp32 point has succeeded.
    """
    well = [point for point in points if point.outcome is Outcome.OK and not point.point.trial]
    if not sweeps_precision(point.point.params for point in points):
        return {}
    found = {point.point.index: rows for point in well if (rows := _entities(point)) is not None}
    references: dict[OtherKnobs, Rows] = {}
    for point in well:
        if point.point.precision == FP32 and point.point.index in found:
            references.setdefault(_without_precision(point), found[point.point.index])
    if not references:
        return {}
    first = next(iter(references.values()))
    return {
        point.point.index: compare(rows, references.get(_without_precision(point), first))
        for point in well
        if (rows := found.get(point.point.index)) is not None
    }


def compare(entities: Rows, reference: Rows) -> Agreement:
    together = len(entities) + len(reference)
    f1 = 2 * len(entities & reference) / together if together else 1.0
    return Agreement(len(entities), len(entities ^ reference), f1)


def _without_precision(point: PointResult) -> OtherKnobs:
    return tuple(sorted((name, value) for name, value in point.point.params.items() if name != PRECISION))


def _entities(point: PointResult) -> Rows | None:
    """Return the entities of the try that counts; ``None`` if they cannot be read."""
    if point.chosen is None:
        return None
    try:
        text = read_text(Path(point.chosen.folder) / ENTITIES_FILE)
        _, *rows = csv.reader(io.StringIO(text, newline=""), dialect="excel-tab")
    except (OSError, ValueError, csv.Error):
        return None
    return frozenset(map(tuple, rows))
