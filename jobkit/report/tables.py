"""What runs and other files hold, as tables: points, settings and groups. Submits and asks nothing."""

from __future__ import annotations

import gc
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.answers.loads import Lengths, read_lengths
from jobkit.answers.search_answer import SearchAnswer
from jobkit.answers.setting import Mean, Ratio, Setting, settings_of
from jobkit.core.errors import ExitCode
from jobkit.core.figures import AGREEMENT, F1, FIGURES, LARGEST, SPEED, SPEEDUP, Figure, own_columns, reported
from jobkit.core.knobs import (
    BATCH_SIZE,
    OFFERED,
    REFUSED,
    RUN_KNOBS,
    SHORTCUTS,
    WORKERS,
    sort_key,
    with_old_names,
)
from jobkit.core.records import Outcome
from jobkit.core.student import LEAST, TWO_SIDED
from jobkit.core.units import format_count, format_memory
from jobkit.report import energy
from jobkit.report.rows import SETTING, Row, add_energy, cells, fixed_columns
from jobkit.report.sources import MoreFigures, OtherFigures, read_sources
from jobkit.runs.journal import read_journal
from jobkit.runs.results import Span, overlap_words, overlaps, span
from jobkit.runs.status import exit_code
from jobkit.runs.trials import Trial
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import JobId

if TYPE_CHECKING:
    import pandas as pd

OF_A_SIZE = ("effective", "inert", "items_total", "gpu_instrument")
"""Values that a size takes from its first point that has them."""


@dataclass(frozen=True, kw_only=True)
class Size(Setting[Row]):
    # its speed over that of the smallest size of the group that succeeded; that size itself has no interval
    times: Ratio | None
    # whether no other size of the group beats it in both time and energy; ``None`` if not known
    front: bool | None = None

    def of(self, name: str) -> object:
        """Return a value, one of `OF_A_SIZE`, of the first point that has it."""
        return next((value for row in self.points if (value := getattr(row, name)) is not None), None)


def sizes(
    rows: Iterable[Row], knobs: Sequence[str], searches: Mapping[str, SearchAnswer] | None = None
) -> list[Size]:
    """Return the sizes of all groups in order, and give the rows their speed-up.

    ``searches``: by run folder what a search found. The phase that its answer rests on comes first, and its
    intervals are wider, because they were looked at several times.
    """
    of_folder = searches or {}

    def order(setting: Setting[Row]) -> tuple[object, ...]:
        first = setting.first  # fewer workers are smaller, whatever else differs
        workers = first.numbers.get(WORKERS, 1)
        knob_keys = (sort_key(first.params.get(knob)) for knob in knobs)
        search = of_folder.get(first.folder)
        return first.group or 0, workers, *knob_keys, -search.rank(first.phase) if search else 0

    measured = settings_of((row for row in rows if row.size is not None), lambda row: row.size)
    groups = groupby(sorted(measured, key=order), key=lambda setting: setting.first.group)
    return [*chain.from_iterable(_table(list(settings), of_folder) for _, settings in groups)]


def _table(settings: Sequence[Setting[Row]], searches: Mapping[str, SearchAnswer]) -> list[Size]:
    """Return the sizes of a group, the smallest first; the first size with a speed is the base."""
    measured: list[Size] = []
    base: Mean | None = None
    for setting in settings:
        speed, times, first = setting.mean(SPEED), None, setting.first
        if speed and base:
            search = searches.get(first.folder)
            times = speed.over(base, search.probability(first.phase) if search else TWO_SIDED)
        elif speed:
            base, times = speed, Ratio(1.0, None, None)
        for row in setting.well:
            rate = row.value(SPEED)
            row.figures[SPEEDUP.name] = rate / base.value if rate and base else None
        measured.append(Size(points=setting.points, times=times))
    return [replace(size, front=front) for size, front in zip(measured, energy.front(measured), strict=True)]


OF_DERIVED = ("group", "size", "speedup", "n", "outcomes", "front", "reserved")
"""The columns that are no field of a row or of the derived columns."""
_TEXTS = {column.name for column in fields(Row) if str(column.type).startswith(("str", "bool", "Outcome"))}
"""The columns of a frame that hold no numbers, besides ``outcomes`` and knobs that have words."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    # one a point (of several tries the one that `jobkit.runs.tries.try_that_counts` names). A trial (`jobkit
    # verify`, ``find_max``) has no size: no figure of the sweep is taken from it.
    rows: Sequence[Row]
    by_size: Sequence[Size]  # the repeats of each setting of the knobs, group by group
    # the first point of each group. Points of two groups never share a mean: they differ in GPU, model, text,
    # versions, or another column of `SETTING`.
    by_group: Sequence[Row]
    knobs: tuple[str, ...]  # the names of the knob columns, ``batch_size`` first
    notes: tuple[str, ...]  # files skipped and why, and remarks on the rows
    own: tuple[Figure, ...] = ()  # the figures that the workloads report
    # by run folder the predictions that were tried, with their outcomes
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    # the outcomes of profiled points, which are no rows
    profiled: tuple[Outcome | None, ...] = ()
    # figures of other programs on whole jobs
    jobs: tuple[OtherFigures, ...] = ()
    searches: Mapping[str, SearchAnswer] = field(default_factory=dict)  # by run folder its search's answer
    _lengths: dict[str, Lengths | None] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        return sum(
            bool(row.outcome and not row.answered)
            for row in self.rows
            if not (row.trial and row.outcome == Outcome.CANCELLED)  # the sweep itself lacks nothing
        )

    @property
    def to_come(self) -> int:
        return sum(row.outcome is None for row in self.rows)

    @property
    def outcomes(self) -> frozenset[Outcome | None]:
        """The outcomes of all points, also of those that are no rows."""
        return frozenset((*(row.outcome for row in self.rows), *self.profiled))

    @property
    def exit_code(self) -> int:
        """The exit code of `jobkit collect`: 2 nothing, 5 while points are to come, then 4 or 0."""
        if not self.rows and not self.profiled:
            return ExitCode.USAGE
        return exit_code(failed=self.failed > 0, to_come=self.to_come > 0)

    @property
    def point_columns(self) -> list[str]:
        absent = {figure.name for figure in _absent(self.rows)}
        fixed = [name for name in fixed_columns() if name not in absent]
        return [*fixed, *self._own_knobs, *(figure.name for figure in self.own), "group", "size", "speedup"]

    @property
    def _figures(self) -> list[Figure]:
        absent = _absent(self.rows)
        return [figure for figure in FIGURES.values() if figure not in absent]

    @property
    def _own_knobs(self) -> list[str]:
        fixed = set(fixed_columns())
        return [knob for knob in self._named_knobs if knob not in fixed]

    @property
    def _named_knobs(self) -> list[str]:
        """The knobs, a renamed one by its earlier name too."""
        return [*with_old_names(dict.fromkeys(self.knobs))]

    def point_records(self) -> Iterator[dict[str, object]]:
        knobs, figures = self._own_knobs, self._figures
        for row in self.rows:
            values = with_old_names(row.params)
            params = {knob: values.get(knob) for knob in knobs}
            places = {"group": row.group, "size": row.size, "speedup": row.value(SPEEDUP)}
            own = {figure.name: row.value(figure) for figure in self.own}
            yield cells(row, figures) | params | own | places

    def size_records(self) -> Iterator[dict[str, object]]:
        """Yield the sizes by column: ``*_sd`` and ``*_n`` follow the means, ends of intervals follow all."""
        figures = [*self._figures, *self.own]
        for size in self.by_size:
            means = {figure: size.mean(figure) for figure in figures}
            times = (size.times.low, size.times.high) if size.times else (None, None)
            bounded = {figure: mean for figure, mean in means.items() if figure.interval}
            ends = {figure.name: mean.ends if mean else (None, None) for figure, mean in bounded.items()}
            ends |= {"speedup": times}
            yield {
                "size": size.first.size,
                "group": size.first.group,
                "phase": size.first.phase,
                **with_old_names({knob: size.params.get(knob) for knob in self.knobs}),
                **{name: size.of(name) for name in OF_A_SIZE},
                "outcomes": size.outcomes,
                "n": size.n,
                **{figure.name: mean.value if mean else None for figure, mean in means.items()},
                **{f"{figure.name}_sd": mean.sd if mean else None for figure, mean in means.items()},
                **{f"{figure.name}_n": mean.n if mean else 0 for figure, mean in means.items()},
                "speedup": size.times.mean if size.times else None,
                "front": size.front,
                **{f"{name}_low": low for name, (low, _) in ends.items()},
                **{f"{name}_high": high for name, (_, high) in ends.items()},
            }

    def group_records(self) -> Iterator[dict[str, object]]:
        return (dict(zip(SETTING, row.fixed, strict=True)) for row in self.by_group)

    @cached_property
    def points(self) -> pd.DataFrame:
        return _frame(self.point_records(), self.point_columns)

    @cached_property
    def sizes(self) -> pd.DataFrame:
        figures = [*self._figures, *self.own]
        names = [figure.name for figure in figures]
        ended = [*(figure.name for figure in figures if figure.interval), "speedup"]
        columns = ["size", "group", "phase", *self._named_knobs, *OF_A_SIZE, "outcomes", "n", *names]
        columns += [f"{name}_{what}" for what in ("sd", "n") for name in names]
        columns += ["speedup", "front", *(f"{name}_{end}" for end in ("low", "high") for name in ended)]
        return _frame(self.size_records(), columns)

    @cached_property
    def groups(self) -> pd.DataFrame:
        return _frame(self.group_records(), SETTING)

    def lengths(self, rows: Iterable[Row]) -> Lengths | None:
        """``None`` if no run folder holds them."""
        for folder in dict.fromkeys(row.folder for row in rows):
            if folder not in self._lengths:
                self._lengths[folder] = read_lengths(Path(folder))
            if (lengths := self._lengths[folder]) is not None:
                return lengths
        return None

    def search(self, group: int) -> SearchAnswer | None:
        """Return what the search of a group's run found; ``None`` if it found no setting."""
        search = self.searches.get(self.by_group[group].folder)
        return search if search and search.setting else None

    @cached_property
    def questions(self) -> tuple[str, ...]:
        """For each run with points to come, the commands that ask its scheduler about them."""
        return tuple(_questions(self.rows))


def _frame(records: Iterable[Mapping[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame whose columns of numbers hold NaN for missing values."""
    import pandas as pd

    rows = list(records)
    words = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    frame = pd.DataFrame(rows, columns=list(columns))
    numbers = [name for name in columns if name not in {*_TEXTS, *words, "outcomes"}]
    return frame.astype(dict.fromkeys(numbers, "float64"))


def collect(paths: Sequence[Path], more_figures: MoreFigures | None = None) -> Collected:
    """Read runs and files of other programs into tables; see `jobkit.report.sources.read_sources`."""
    with no_search_for_cycles():
        sources = read_sources(paths, more_figures)
        rows = sources.rows
        knobs = _name_knobs(rows)
        by_group = _number(rows)
        own = own_columns((row.record for row in rows), _taken(rows, knobs))
    by_size = sizes(rows, knobs, sources.searches)
    return Collected(
        rows=rows,
        by_size=by_size,
        by_group=by_group,
        knobs=knobs,
        notes=(*sources.notes, *_remarks(rows, by_group), *_of_own(rows, own)),
        own=own,
        trials=sources.trials,
        profiled=tuple(sources.profiled),
        jobs=tuple(sources.jobs),
        searches=sources.searches,
    )


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Keep Python from looking for cycles: records make none, and of 10,000 it takes a sixth of the time."""
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()


def _questions(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the commands that report on points to come: a task killed before it began leaves no file."""
    waiting: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        if row.outcome is None:
            waiting.setdefault((row.folder, row.run), set()).add(row.index)
    for (folder, run), indices in waiting.items():
        jobs = _last_jobs(Path(folder), indices)
        for name in dict.fromkeys(name for name, _ in jobs):
            ids = tuple(job for scheduler, job in jobs if scheduler == name)
            yield "; ".join(shlex.join(argv) for argv in SCHEDULERS[name].diagnostic_argvs(ids, run))


def _last_jobs(folder: Path, indices: set[int]) -> tuple[tuple[str, JobId], ...]:
    """Return the jobs, each with its scheduler, in which points of a run were last submitted."""
    last: dict[int, tuple[str, JobId]] = {}
    for submission in read_journal(folder).submissions:  # its notes are among those of the run
        if submission.scheduler in SCHEDULERS:
            ran = indices.intersection(index for _, points in submission.tasks() for index in points)
            last |= dict.fromkeys(ran, (submission.scheduler, submission.job))
    return tuple(dict.fromkeys(last.values()))


def _absent(rows: Iterable[Row]) -> tuple[Figure, ...]:
    return () if any(row.value(F1) is not None for row in rows) else AGREEMENT


def _taken(rows: Iterable[Row], knobs: Iterable[str]) -> set[str]:
    """Return the names that a column of a workload's own figure cannot have."""
    return {*fixed_columns(), *OF_DERIVED, *OF_A_SIZE, *knobs} - {figure.name for figure in _absent(rows)}


def _name_knobs(rows: Iterable[Row]) -> tuple[str, ...]:
    names = sorted(dict.fromkeys(name for row in rows for name in row.params), key=lambda n: n != BATCH_SIZE)
    taken = {*fixed_columns(), *OF_DERIVED}
    taken -= {*OFFERED, *(knob.name for knob in RUN_KNOBS)}
    columns = {name: f"knob_{name}" if name in taken else name for name in names}
    for row in rows:
        row.params = {columns[name]: row.params[name] for name in names if name in row.params}
    return tuple(columns.values())


def _number(rows: Sequence[Row]) -> list[Row]:
    """Give the rows their group, their size and their overlaps; return the first row of each group.

    Only a point with figures belongs to a group: of any other point the GPU or the versions may be unknown. A
    trial makes no group and no size.
    """
    groups: dict[object, int] = {}
    sizes: dict[object, int] = {}
    firsts: list[Row] = []
    for row, number in zip(rows, overlaps([_span(row) for row in rows]), strict=True):
        row.overlaps = number
        add_energy(row)
        setting = row.fixed
        if row.trial:
            row.group = groups.get(setting)
        elif row.has_figures:
            row.group = groups.setdefault(setting, len(groups))
            row.size = sizes.setdefault((row.group, row.phase, *sorted(row.params.items())), len(sizes))
            if row.group == len(firsts):
                firsts.append(row)
    return firsts


def _span(row: Row) -> Span:
    return span(row.gpu_uuid, row.host, row.started_at, row.ended_at)


def _remarks(rows: Iterable[Row], groups: Sequence[Row]) -> Iterator[str]:
    """Yield each remark on the rows once; trials are no part of the tables."""
    rows = [row for row in rows if not row.trial]
    if len(groups) > 1:
        differ = [name for name in SETTING if len({getattr(row, name) for row in groups}) > 1]
        yield f"{len(groups)} tables, never mixed: they differ in {', '.join(differ)}"
    yield from dict.fromkeys(row.file_format.remark for row in rows if row.file_format)
    refused = {row.shortcuts or "" for row in rows if row.params.get(SHORTCUTS) == REFUSED}
    yield from (f"shortcuts refused, in effect {reason}" for reason in sorted(refused))
    effective = {row.inert: row.effective for row in reversed(rows) if row.inert not in {None, "", SHORTCUTS}}
    for knob in sorted(effective):
        yield f"{knob} did not take effect; in effect: {effective[knob]}"
    disagreements = Counter(row.disagreement for row in rows if row.disagreement)
    for sentence, number in sorted(disagreements.items()):
        yield f"instruments disagree ({format_count(number, 'point')}): {sentence}"
    if unneeded := sum(row.unneeded for row in rows):
        repeats = format_count(unneeded, "repeat")
        yield f"{repeats} skipped: the interval of the setting was short enough (`repeats` in the spec)"
        yield from _early(rows)
    yield from _shared_gpus(rows)


def _early(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a warning if repeats ended after so few that the interval was short by chance too often."""
    ended = {tuple(sorted(row.params.items())) for row in rows if row.unneeded}
    numbers = Counter(tuple(sorted(row.params.items())) for row in rows if row.has_figures)
    if early := [numbers[setting] for setting in ended if 0 < numbers[setting] < LEAST]:
        settings = format_count(len(early), "setting")
        yield f"{settings} ended after fewer than {LEAST} repeats: the interval may be short by chance"


def _shared_gpus(rows: Sequence[Row]) -> Iterator[str]:
    left = [size for row in rows if row.record and (size := row.record.memory.left_bytes)]
    if left:
        points = f"{format_count(len(left), 'point')} began with up to {format_memory(max(left))}"
        yield f"{points} more in use on the GPU than the run has seen before: distrust the memory figures"
    if shared := sum(bool(row.foreign) for row in rows):
        points = format_count(shared, "point")
        yield f"{points} ran next to other processes on the GPU: distrust speed and memory"
    if words := overlap_words([_span(row) for row in rows], [row.overlaps for row in rows]):
        yield words
    yield from energy.remarks(rows)


def _of_own(rows: Sequence[Row], own: Sequence[Figure]) -> Iterator[str]:
    records = [row.record for row in rows if row.record]
    bad = [record.metrics_bad_lines for record in records if record.metrics_bad_lines]
    if bad:
        lines, points = format_count(sum(bad), "line"), format_count(len(bad), "point")
        yield f"{lines} of the workload's own figures ({points}) could not be read, and are left out"
    if large := sum(len(record.metrics) - len(reported(record)) for record in records):
        figures = format_count(large, "figure")
        yield f"{figures} of the workload's own left out: not a number, or beyond {LARGEST:g}"
    for name, number in sorted(Counter(figure.label for figure in own).items()):
        if number > 1:
            units = ", ".join(figure.unit or "none" for figure in own if figure.label == name)
            yield f"{name} has several units, each with a column of its own: {units}"
