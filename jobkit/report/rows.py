"""One row a point, from the run folders and files of other programs that a user names. Bytes and seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum
from pathlib import Path
from typing import Any, Protocol

from jobkit.answers.objective import SearchAnswer, read_search
from jobkit.core import layout
from jobkit.core.blocks import Block
from jobkit.core.errors import JobkitError
from jobkit.core.extensions import EXTENSIONS, each
from jobkit.core.figures import (
    AGREEMENT,
    BATCH_MEAN,
    FIGURES,
    LOAD,
    SPEED,
    WORK,
    Figure,
    gpu_memory,
)
from jobkit.core.files import read_text
from jobkit.core.frozen import frozen
from jobkit.core.knobs import AUTO, CPU, CUDA, FP32, ON, PRECISIONS, REPORTED, SHARING, Knob, Value, numbers
from jobkit.core.records import SWEPT, TRIAL, Outcome, Point, Record
from jobkit.core.terminal import shell_path
from jobkit.core.units import format_count, format_f1, format_list
from jobkit.runs.agreement import (
    Agreement,
    agreements,
    changing_knobs,
    changing_words,
    sweeps_precision,
)
from jobkit.runs.driver_lock import is_held, last_driver
from jobkit.runs.journal import SEARCHES, read_accounts
from jobkit.runs.results import each_point, runs_below
from jobkit.runs.status import PointResult, kind_of
from jobkit.runs.trials import Trial, describe_trials, settled_trials, trials
from jobkit.runs.tries import Try


@frozen
class FileFormat:
    """What rows of a file that jobkit did not write have in common: they have figures, but no record."""

    about: str  # a line on the file, below the title of its table
    remark: str  # a remark on its figures


@dataclass(frozen=True, kw_only=True)
class Row:
    """A point of a run, or a run in a file of another program, and its place in the tables."""

    folder: str  # the run folder, or the file
    result: PointResult  # the point as planned, and its tries
    record: Record | None = None  # of the try that counts; its energy is attributed by all rows collected
    params: Mapping[str, Value]  # the knobs, by the names of their columns
    # by name the columns that are not read from the record: those of another program's file, how far a try
    # without a record came, and how its entities agree with those of fp32
    given: Mapping[str, object] = field(default_factory=dict)
    file_format: FileFormat | None = None  # of the file that it comes from; ``None`` for a run folder
    # how many other points ran at the same time on its GPU, or for a point on a CPU on its host
    overlaps: int | None = None
    # numbers of its group and of its size in the tables; ``None`` for a point without figures
    group: int | None = None
    size: int | None = None

    @cached_property
    def point(self) -> Point:
        return self.result.point

    @cached_property
    def tried(self) -> Try:
        """The try that counts, begun or not."""
        return self.result.verdict

    @cached_property
    def outcome(self) -> Outcome | None:
        return self.tried.outcome

    @property
    def answered(self) -> bool:
        return self.outcome in (TRIAL if self.point.trial else SWEPT).answers

    def value(self, column: Figure | str) -> Any:  # noqa: ANN401 - a number of a figure; else each has its type
        """Return a figure, or another column by its name in `COLUMNS`; ``None`` if it is not known."""
        name = column if isinstance(column, str) else column.name
        if name in self.given:
            return self.given[name]
        if isinstance(column, str):
            return COLUMNS[name](self)
        return column.read(self.record) if self.record else None

    @property
    def numbers(self) -> Mapping[str, int]:
        return numbers(self.params)

    @cached_property
    def fixed(self) -> tuple[Any, ...]:
        """Its values of `SETTING`; ``None`` in place of a value that is a knob of the sweep."""
        return tuple(
            None if name in self.params else self.sharing if name == SHARING.name else self.value(name)
            for name in SETTING
        )

    @property
    def sharing(self) -> str | None:
        """The MPS that it ran with, if that differs from what its number of workers and the spec mean.

        ``None`` on a CPU.
        """
        ran = self.value(SHARING.name)
        as_meant = ran and (ran == ON or self.point.workers == 1)
        return str(getattr(self.point, SHARING.name)) if as_meant else ran

    @property
    def unneeded(self) -> bool:
        """Whether it was skipped because other repeats of its setting were enough (`repeats: auto`)."""
        exit_ = self.tried.exit if self.outcome is Outcome.PRUNED else None
        return layout.repeat_id(exit_.because if exit_ else "", self.point.repeat) == self.point.point_id

    @property
    def has_figures(self) -> bool:
        """Whether it belongs in the tables of sizes: what it ran on and with is known."""
        return self.outcome is Outcome.OK or (self.outcome is Outcome.GPU_OOM and self.record is not None)


def _at(path: str) -> Callable[[Row], Any]:
    """Return what reads attributes of a row one after the other; the first that is ``None`` ends it."""
    names = path.split(".")

    def read(row: Row) -> object:
        found: object = row
        for name in names:
            found = None if found is None else getattr(found, name)
        return found

    return read


def _ran(knob: Knob) -> Callable[[Row], Any]:
    """Return what reads a value as it ran; without a record as planned, if nothing decides it later."""

    def read(row: Row) -> str | None:
        if row.point.device not in knob.devices or (row.record is None and AUTO in knob.words):
            return None
        return row.record.ran(knob.name) if row.record else getattr(row.point, knob.name)

    return read


def _versions(row: Row) -> str | None:
    if row.record is None:
        return None
    versions, gpu = dict(row.record.versions), row.record.gpu
    if gpu:
        versions |= {"driver": gpu.driver or "unknown", "cuda": gpu.cuda or versions.get("cuda", "unknown")}
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _effective(row: Row) -> str | None:
    values = row.record.effective.items() if row.record else ()
    words = (f"{name}={'unknown' if value is None else value}" for name, value in values)
    return ", ".join(words) if row.record else None


def _items(row: Row) -> int | None:
    if row.record:
        return row.record.summary.items if row.record.summary else None
    return sum(batch.items for batch in row.result.batches) if row.result.batches else None


def _host(row: Row) -> str | None:
    tried = row.tried
    return row.record.host if row.record else (tried.exit.host if tried.exit else "") or tried.node or None


COLUMNS: Mapping[str, Callable[[Row], Any]] = {
    "run": _at("point.run_id"),
    "folder": _at("folder"),
    "point": _at("point.point_id"),
    "index": _at("point.index"),
    "repeat": _at("point.repeat"),
    "phase": lambda row: row.point.phase or None,  # of a search (`jobkit.answers.objective`)
    "trial": _at("point.trial"),
    "tries": lambda row: len(row.result.tries),
    "outcome": _at("outcome"),
    "provisional": _at("tried.provisional"),
    "evidence": _at("tried.evidence"),
    "workload": _at("point.workload"),
    "text": _at("point.text.name"),
    "text_sha256": _at("point.text.sha256"),
    "model": lambda row: (model := row.point.model) and f"{model.title}{' (stand-in)' * model.stand_in}",
    "model_fingerprint": _at("point.model.fingerprint"),
    "stand_in": lambda row: row.point.model is not None and row.point.model.stand_in,
    "architecture": lambda row: row.point.model.architecture if row.point.model else "",
    "device": _at("point.device"),
    "order": lambda row: None if row.point.command else row.point.order,
    "allocator": _at("point.allocator"),
    "threads": _at("point.threads"),
    "workers": _at("point.workers"),
    "gpus": lambda row: row.point.gpus if row.point.device == CUDA else None,
    **{knob.name: _ran(knob) for knob in REPORTED},
    "gpu": _at("record.gpu.name"),
    "gpu_capacity_bytes": _at("record.gpu.total_bytes"),
    "versions": _versions,
    # of a point on a CPU, because the CPU is measured
    "machine": lambda row: row.record.host if row.record and row.point.device == CPU else None,
    "items": _items,
    "items_total": _at("record.summary.items_total"),
    "effective": _effective,
    "inert": lambda row: ", ".join(row.record.inert) if row.record else None,
    "host": _host,
    "gpu_uuid": _at("record.gpu.uuid"),
    "started_at": _at("record.started_at"),
    "ended_at": _at("record.ended_at"),
    "overlaps": _at("overlaps"),
    "gpu_instrument": lambda row: gpu_memory(row.record)[1] if row.record else None,
    "disagreement": _at("record.memory.disagreement"),
    "foreign": _at("record.gpu.foreign_processes"),
    # as in `jobkit.core.measurements.Energy`, whoever used the energy
    "energy_counter_j": _at("record.energy.counter_j"),
    "energy_span_s": _at("record.energy.span_s"),
    "idle_w": _at("record.energy.idle_w"),
}
"""By name how the columns of ``jobkit collect --format csv`` read a row; ``None`` is not known."""
_NAMES = tuple(COLUMNS)
_FIGURES_AT = _NAMES.index("items")
SETTING = _NAMES[_NAMES.index("workload") : _FIGURES_AT]
"""Columns, besides the knobs, that two points must share before a mean over both means anything."""


def fixed_columns() -> list[str]:
    """Return the columns that every table of points has, in order."""
    return [*_NAMES[:_FIGURES_AT], *FIGURES, *_NAMES[_FIGURES_AT:]]


def row_of_point(folder: str, result: PointResult, compared: Agreement | None = None) -> Row:
    """Return the row of a point; ``compared``: how its entities agree with those of fp32."""
    record, batches, given = result.record, result.batches, dict[str, object]()
    if batches and not record:  # how far it came
        items, work_s = sum(batch.items for batch in batches), fsum(batch.seconds for batch in batches)
        given = {
            SPEED.name: items / work_s if items and work_s > 0 else None,
            WORK.name: work_s or None,
            BATCH_MEAN.name: work_s / len(batches),
            LOAD.name: max(batch.load for batch in batches),
        }
    if compared:
        counts = (compared.entities, compared.differ, compared.f1)
        given |= {figure.name: count for figure, count in zip(AGREEMENT, counts, strict=True)}
    params = record.params if record else result.point.params
    return Row(folder=folder, result=result, record=record, params=params, given=given)


LOG_LIMIT_BYTES = 16 * 2**20
"""A larger file is no log of a job: the log of a day is a few MiB."""


class OtherFigures(Protocol):
    """Figures of another program on a job; the hook ``figures`` finds them in the logs of a run."""

    def block(self) -> Block:
        """Return them for a person."""


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


ReadFile = Callable[[Path, str], Sources | None]
"""The hook ``read``: reads a file that is named in place of a run; ``None`` if its form is not known."""


def read_sources(paths: Sequence[Path], more_figures: MoreFigures | None = None) -> Sources:
    """Read all runs and files under the paths: run folders, folders of run folders, files, in any mixture.

    ``more_figures``: figures of other programs that a person names, besides those in the folder of the run.
    """
    sources, read, entries = Sources(), dict[str, Path](), dict[Path, Path]()
    for path in paths:
        if not path.exists():
            raise JobkitError(
                f"{path}: no such file or folder", hint="jobkit collect --help shows what to name"
            )
        inside = [path] if path.is_file() or layout.is_run_folder(path) else runs_below(path)
        entries.update((entry.resolve(), entry) for entry in inside)
    for path in entries.values():
        source = _read_run(path) if path.is_dir() else _read_file(path)
        if source.rows and (first := read.setdefault(source.rows[0].point.run_id, path)) != path:
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


def _read_run(path: Path) -> Sources:
    if not layout.is_run_folder(path):
        return Sources(notes=[f"{path}: not a run folder (no points in points.jsonl): skipped"])
    if why := kind_of(path).untabled:
        return Sources(notes=[f"{path}: {why}: skipped"])
    found, alone, also = Sources(), list[str](), list[str]()
    results, notes, profiled = list[PointResult](), found.notes, list[str]()
    for result in each_point(path, notes):
        point = result.point
        if not point.kind.tabled:
            found.profiled.append(result.outcome)
            profiled.append(f"{point.point_id} ({result.outcome or 'to come'})")
            continue
        results.append(result)
        if result.by_hand:
            numbers = ", ".join(str(tried.number) for tried in reversed(result.by_hand))
            (alone if result.verdict.by_hand else also).append(f"{point.point_id} (try {numbers})")
    compared = agreements(results)
    found.rows = [row_of_point(str(path), one, compared.get(one.point.index)) for one in results]
    found.trials[str(path)] = settled = trials_of(path, results)
    tried = describe_trials(settled)
    changing = changing_words(changing_knobs(results))
    notes += [f"{path}: {line}" for line in (*_agreement_words(found.rows, compared), *changing)]
    if not tried and (path / layout.SEARCH_GOAL_FILE).is_file():
        tried = ("the largest batch has not been tested yet: its job is to come, or its log has the reason",)
    apart = (
        (also, "also run by hand, which no figure includes", ""),
        (alone, "run only by hand, so that try counts until another try begins", ""),
        (profiled, "profiled, and in no table", f"; jobkit profile {shell_path(path)} POINT prints it"),
    )
    for named, what, more in apart:
        notes += [f"{path}: {what}: {format_list(named)}{more}"] if named else []
    notes += [f"{path}: {line}" for line in tried]
    for extension in EXTENSIONS.values():
        logs = sorted((path / layout.LOGS_FOLDER).glob(extension.logs)) if extension.logs else []
        if logs and (figures := extension.figures()):
            found.jobs += figures(logs, found.rows, notes)
    if search := read_search(path):
        found.searches[str(path)] = search
    return found


def _agreement_words(rows: Sequence[Row], compared: Mapping[int, Agreement]) -> Iterator[str]:
    """Yield how the entities of each precision agree with those of fp32, if the precision is swept."""
    worst: dict[str, Agreement] = {}  # of the point of each precision that agrees least
    for row in rows:
        if agreement := compared.get(row.point.index):
            name = str(row.params[PRECISIONS.name])
            worst[name] = min(agreement, worst.get(name, agreement), key=lambda one: one.f1)
    if not compared and sweeps_precision(row.params for row in rows):
        why = "none were found, or no point with fp32 has succeeded"
        yield f"jobkit compared no entities with those of fp32: {why}"
    for name, least in worst.items():
        if name != FP32 and not least.differ:
            yield f"precision {name} found the entities of fp32, {least.entities:,} in all"
        elif name != FP32:
            yield (
                f"{format_count(least.differ, 'entity', 'entities')} of precision {name} or of fp32 are not "
                f"in the other (F1 {format_f1(least.f1)}): F1 is the agreement with fp32 and not with the "
                "truth, so compare with annotated text before you use it"
            )


def trials_of(folder: Path, results: Sequence[PointResult]) -> list[Trial]:
    """Return the trials of a run with the outcomes of its points, or how to run those that never began."""
    waiting = [result.point for result in results if result.point.trial and not result.tries]
    outcomes = {result.point.index: result.outcome for result in results}
    return settled_trials(trials(folder), outcomes, never_began(folder, waiting))


def never_began(folder: Path, waiting: Sequence[Point]) -> dict[int, str]:
    """Return how to run each trial without a try that nothing will begin any more, by its index."""
    accounts = read_accounts(folder) if waiting else None
    if accounts is None:
        return {}
    journal, driver = accounts.journal, last_driver(folder)
    searches = [submission for submission in journal.submissions if submission.role in SEARCHES]
    if finds := [task for submission in searches for task, _ in submission.tasks()]:
        over = finds[-1] in accounts.ended | journal.cancelled.keys()
    else:
        over = driver is not None and driver.reachable and is_held(folder) is False
    how = "the job that should run it has ended; jobkit resume {} {} runs it"
    return {
        point.index: how.format(shell_path(folder), point.point_id)
        for point in waiting
        if over
        and point.index not in accounts.submitted
        # it may have begun since it was read
        and not layout.try_numbers(layout.point_folder(folder, point.point_id))
    }


def _read_file(path: Path) -> Sources:
    try:
        if not path.is_file() or path.stat().st_size > LOG_LIMIT_BYTES:
            return Sources(notes=[f"{path}: not a log (not a plain file, or too large): skipped"])
        text = read_text(path)
    except OSError as error:
        return Sources(notes=[f"{path}: cannot be read: {error.strerror}: skipped"])
    if not text.strip():
        return Sources(notes=[f"{path}: empty: skipped"])
    known = (source for read in each(lambda one: one.read) if (source := read(path, text)))
    unknown = Sources(notes=[f"{path}: neither a run folder nor a log that jobkit knows: skipped"])
    return next(known, unknown)
