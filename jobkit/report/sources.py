"""Find what can be collected under the paths that a user names; name and skip the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from jobkit.answers.search_answer import SearchAnswer, read_search
from jobkit.core.blocks import Block
from jobkit.core.errors import JobkitError
from jobkit.core.extensions import EXTENSIONS, load, load_all
from jobkit.core.figures import AGREEMENT
from jobkit.core.files import read_text
from jobkit.core.knobs import FP32, PRECISION
from jobkit.core.layout import (
    LOGS_FOLDER,
    SEARCH_GOAL_FILE,
    is_run_folder,
    point_folder,
    try_numbers,
)
from jobkit.core.records import Outcome, Point
from jobkit.core.terminal import shell_path
from jobkit.core.units import format_count, format_f1, format_list
from jobkit.report.rows import Row, row_of_point
from jobkit.runs.driver_lock import is_held, last_driver
from jobkit.runs.journal import SEARCHES, Accounts, read_accounts
from jobkit.runs.results import NOT_COMPARED, Agreement, agreements, each_point, runs_below, sweeps_precision
from jobkit.runs.status import PointResult, kind_of
from jobkit.runs.trials import Trial, describe_trials, settled_trials, trials

MOST_NAMED = 5
"""Points named in one note."""
LOG_LIMIT_BYTES = 16 * 2**20
"""A larger file is no log of a job: the log of a day is a few MiB."""


class OtherFigures(Protocol):
    """Figures of another program on a job, next to those of its points; ``key`` is their key in JSON."""

    key: ClassVar[str]

    def block(self) -> Block:
        """Return them for a person."""

    def data(self) -> Mapping[str, object]:
        """Return them for a program."""


MoreFigures = Callable[[Sequence[Row]], Iterable[OtherFigures]]


@dataclass(slots=True)
class Sources:
    """What was read: rows, notes on what was skipped, and by run folder the trials with their outcomes.

    ``profiled`` are the outcomes of profiled points, which are no rows; ``jobs`` are figures of other
    programs next to those of the points, ``searches`` by run folder what a search found.
    """

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    profiled: list[Outcome | None] = field(default_factory=list)
    jobs: list[OtherFigures] = field(default_factory=list)
    searches: dict[str, SearchAnswer] = field(default_factory=dict)


class FileReader(Protocol):
    """The hook ``files``: how an extension reads files of other programs; ``key`` is its key in JSON."""

    key: ClassVar[str]

    def read(self, path: Path, text: str) -> Sources | None:
        """Return the content of a file named in place of a run; ``None`` if its form is not known."""

    def more_figures(
        self, logs: Iterable[Path], rows: Sequence[Row], notes: list[str]
    ) -> Iterator[OtherFigures]:
        """Yield the figures in logs on the jobs of some points; add to the notes which logs are skipped."""


def read_sources(paths: Sequence[Path], more_figures: MoreFigures | None = None) -> Sources:
    """Read all runs and files under the paths: run folders, folders of run folders, files, in any mixture.

    ``more_figures``: figures of other programs that a person names, besides those in the folder of the run.
    """
    sources = Sources()
    read: dict[str, Path] = {}
    for path in _entries(paths):
        source = _read(path)
        if source.rows and (first := read.setdefault(source.rows[0].run, path)) != path:
            sources.notes.append(f"{path}: the same run as {first}: skipped")
            continue
        sources.rows += source.rows
        sources.notes += source.notes
        sources.trials |= source.trials
        sources.profiled += source.profiled
        sources.jobs += source.jobs
        sources.searches |= source.searches
    sources.jobs += more_figures(sources.rows) if more_figures else ()
    return sources


def _entries(paths: Iterable[Path]) -> list[Path]:
    """Return the run folders and files. A folder that is no run stands for its contents."""
    entries: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise JobkitError(
                f"{path}: no such file or folder", hint="jobkit collect --help shows what to name"
            )
        inside = [path] if path.is_file() or is_run_folder(path) else runs_below(path)
        entries.update((entry.resolve(), entry) for entry in inside)
    return list(entries.values())


def _read(path: Path) -> Sources:
    if not path.is_dir():
        return _read_file(path)
    if not is_run_folder(path):
        return Sources(notes=[f"{path}: not a run folder (no points in points.jsonl): skipped"])
    if why := kind_of(path).untabled:
        return Sources(notes=[f"{path}: {why}: skipped"])
    return _read_run(path)


def _read_run(path: Path) -> Sources:
    notes: list[str] = []
    rows, waiting = [], []
    also: list[str] = []
    alone: list[str] = []
    profiled: list[PointResult] = []
    for result in each_point(path, notes):
        if not result.point.kind.tabled:
            profiled.append(result)
            continue
        rows.append(row_of_point(str(path), result))
        if result.point.trial and not result.tries:
            waiting.append(result.point)
        if result.by_hand:
            counts = result.chosen is not None and result.chosen.by_hand
            (alone if counts else also).append(_by_hand(result))
    outcomes = {row.index: row.outcome for row in rows}
    settled = settled_trials(trials(path), outcomes, never_began(path, waiting))
    tried = describe_trials(settled)
    notes += [f"{path}: {line}" for line in _add_agreement(rows)]
    if not tried and (path / SEARCH_GOAL_FILE).is_file():
        tried = ("the largest batch has not been tested yet: its job is to come, or its log has the reason",)
    if also:
        notes.append(f"{path}: also run by hand, which no figure includes: {format_list(also, MOST_NAMED)}")
    if alone:
        named = format_list(alone, MOST_NAMED)
        notes.append(f"{path}: run only by hand, so that try counts until another try begins: {named}")
    if profiled:
        names = [f"{result.point.point_id} ({result.outcome or 'to come'})" for result in profiled]
        shown = f"jobkit profile {shell_path(path)} POINT prints it"
        notes.append(f"{path}: profiled, and in no table: {format_list(names, MOST_NAMED)}; {shown}")
    notes += [f"{path}: {line}" for line in tried]
    jobs = list(_in_logs(path, rows, notes))
    searches = {str(path): search} if (search := read_search(path)) else {}
    return Sources(rows, notes, {str(path): settled}, [point.outcome for point in profiled], jobs, searches)


def _in_logs(run: Path, rows: Sequence[Row], notes: list[str]) -> Iterator[OtherFigures]:
    for name, extension in EXTENSIONS.items():
        logs = sorted((run / LOGS_FOLDER).glob(extension.logs)) if extension.logs else []
        if logs and (reader := load(name, "files")):
            yield from reader.more_figures(logs, rows, notes)


def _add_agreement(rows: Sequence[Row]) -> Iterator[str]:
    """Add to the rows how their entities agree with fp32, if the precision is swept; yield what it means."""
    if not sweeps_precision(row.params for row in rows):
        return
    by_index = agreements([row.result for row in rows if row.result])
    worst: dict[str, Agreement] = {}
    for row in rows:
        if agreement := by_index.get(row.index):
            counts = (agreement.entities, agreement.differ, agreement.f1)
            row.figures |= {figure.name: value for figure, value in zip(AGREEMENT, counts, strict=True)}
            name = str(row.params[PRECISION])
            worst[name] = min(agreement, worst.get(name, agreement), key=lambda compared: compared.f1)
    if not by_index:
        yield NOT_COMPARED
    yield from (_differences(name, agreement) for name, agreement in worst.items() if name != FP32)


def _differences(precision: str, worst: Agreement) -> str:
    """Return how the entities of a precision agree with those of fp32, by its point that agrees least."""
    if not worst.differ:
        return f"precision {precision} found the entities of fp32, {worst.entities:,} in all"
    counts = f"{format_count(worst.differ, 'entity', 'entities')} of precision {precision}"
    return (
        f"{counts} or of fp32 are not in the other (F1 {format_f1(worst.f1)}): F1 is the agreement with fp32 "
        "and not with the truth, so compare with annotated text before you use it"
    )


def never_began(folder: Path, waiting: Sequence[Point]) -> dict[int, str]:
    """Return how to run each trial without a try that nothing will begin any more, by its index."""
    accounts = read_accounts(folder) if waiting else None
    if accounts is None or not _search_over(folder, accounts):
        return {}
    how = "the job that should run it has ended; jobkit resume {} {} runs it"
    return {
        point.index: how.format(shell_path(folder), point.point_id)
        for point in waiting
        if point.index not in accounts.submitted
        and not try_numbers(point_folder(folder, point.point_id))  # it may have begun since it was read
    }


def _search_over(folder: Path, accounts: Accounts) -> bool:
    """Return whether the search for the largest batch is known to have ended: its job, or the driver here."""
    finds = [
        task
        for submission in accounts.journal.submissions
        if submission.role in SEARCHES
        for task, _ in submission.tasks()
    ]
    if finds:
        return finds[-1] in accounts.ended | accounts.journal.cancelled.keys()
    driver = last_driver(folder)
    return driver is not None and driver.reachable and is_held(folder) is False


def _by_hand(result: PointResult) -> str:
    numbers = ", ".join(str(tried.number) for tried in reversed(result.by_hand))
    return f"{result.point.point_id} (try {numbers})"


def _read_file(path: Path) -> Sources:
    try:
        if not path.is_file() or path.stat().st_size > LOG_LIMIT_BYTES:
            return Sources(notes=[f"{path}: not a log (not a plain file, or too large): skipped"])
        text = read_text(path)
    except OSError as error:
        return Sources(notes=[f"{path}: cannot be read: {error.strerror}: skipped"])
    if not text.strip():
        return Sources(notes=[f"{path}: empty: skipped"])
    readers: list[FileReader] = load_all("files")
    known = (source for reader in readers if (source := reader.read(path, text)))
    unknown = Sources(notes=[f"{path}: neither a run folder nor a log that jobkit knows: skipped"])
    return next(known, unknown)
