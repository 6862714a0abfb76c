"""What runs and other files hold, as tables: points, settings and groups. Submits and asks nothing."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from jobkit.answers.loads import Lengths, read_lengths
from jobkit.answers.memory import Memory
from jobkit.answers.objective import SearchAnswer
from jobkit.answers.setting import Mean, Ratio, Setting, key_of, settings_of
from jobkit.core.errors import ExitCode
from jobkit.core.figures import (
    AGREEMENT,
    ENERGY,
    ENERGY_PER_1000,
    F1,
    FIGURES,
    LARGEST,
    NET_ENERGY,
    NET_PER_1000,
    SPEED,
    SPEEDUP,
    Figure,
    own_columns,
    reported,
)
from jobkit.core.knobs import (
    BATCH_SIZE,
    OFFERED,
    REFUSED,
    RUN_KNOBS,
    SHORTCUTS,
    WORKERS,
    sort_key,
)
from jobkit.core.records import Outcome
from jobkit.core.student import LEAST, TWO_SIDED
from jobkit.core.units import format_count, format_memory
from jobkit.report.rows import COLUMNS, SETTING, MoreFigures, Row, Sources, fixed_columns, read_sources
from jobkit.runs.journal import read_journal
from jobkit.runs.results import attributed, overlap_words, overlaps
from jobkit.runs.status import exit_code
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import JobId

if TYPE_CHECKING:
    import pandas as pd

GROSS, NET = (ENERGY, ENERGY_PER_1000), (NET_ENERGY, NET_PER_1000)
OF_A_SIZE = ("effective", "inert", "items_total", "gpu_instrument")
"""Values that a size takes from its first point that has them."""
OF_DERIVED = ("group", "size", "speedup", "n", "outcomes", "front", "reserved")
"""The columns that are no column of a row."""
COUNTS = (
    *("index", "repeat", "tries", "threads", "workers", "gpus"),
    *("items", "items_total", "overlaps", "foreign"),
)
UNITS = ("_bytes", "_j", "_s", "_w")
"""The columns of a row that hold numbers, and how the names of others end."""
WORDS = {name for name in COLUMNS if name not in COUNTS and not name.endswith(UNITS)}
"""All other columns of a row."""


def shown_energy(sizes: Iterable[Setting[Row]]) -> tuple[Figure, Figure]:
    """Return the figures that a table shows: the energies of all settings are net, or none is."""
    measured = [size for size in sizes if size.mean(ENERGY)]
    return NET if measured and all(size.mean(NET_ENERGY) for size in measured) else GROSS


def unbeaten(settings: Sequence[tuple[float | None, float | None]]) -> list[bool | None]:
    """Return for each setting (time and energy) whether no other beats it; ``None`` if that is not known.

    A setting beats another if it is at least as good in both, and better in one of them; less is better.
    """
    known = [(time, energy) for time, energy in settings if time is not None and energy is not None]
    return [
        None
        if len(known) < 2 or time is None or energy is None
        else not any((other != (time, energy)) and other[0] <= time and other[1] <= energy for other in known)
        for time, energy in settings
    ]


@dataclass(frozen=True, kw_only=True)
class Size(Setting[Row]):
    base: Mean | None  # the speed of the smallest size of the group that succeeded
    times: Ratio | None  # its speed over ``base``; the size of that itself has no interval
    # whether no other size of the group beats it in both time and energy; ``None`` if not known
    front: bool | None

    def values(self, figure: Figure) -> tuple[float, ...]:
        if figure is SPEEDUP:
            return tuple(rate / self.base.value for rate in super().values(SPEED) if self.base)
        return super().values(figure)

    def of(self, name: str) -> object:
        """Return a value, one of `OF_A_SIZE`, of the first point that has it."""
        return next((value for row in self.points if (value := row.value(name)) is not None), None)


def sizes(
    rows: Iterable[Row], knobs: Sequence[str], searches: Mapping[str, SearchAnswer] | None = None
) -> list[Size]:
    """Return the sizes of all groups in order.

    ``searches``: by run folder what a search found. The phase that its answer rests on comes first, and its
    intervals are wider, because they were looked at several times.
    """
    of_folder, found = searches or {}, list[Size]()

    def order(setting: Setting[Row]) -> tuple[object, ...]:
        first = setting.first  # fewer workers are smaller, whatever else differs
        workers = first.numbers.get(WORKERS, 1)
        knob_keys = (sort_key(first.params.get(knob)) for knob in knobs)
        search = of_folder.get(first.folder)
        return first.group or 0, workers, *knob_keys, -search.rank(first.point.phase) if search else 0

    measured = settings_of((row for row in rows if row.size is not None), lambda row: row.size)
    for _, group in groupby(sorted(measured.values(), key=order), key=lambda setting: setting.first.group):
        settings, base = list(group), None  # the first speed is the base
        joules = shown_energy(settings)[1]
        means = [(setting.mean(SPEED), setting.mean(joules)) for setting in settings]
        fronts = unbeaten([(1 / a.value if a else None, b.value if b else None) for a, b in means])
        for setting, (speed, _), front in zip(settings, means, fronts, strict=True):
            times, first = None, setting.first
            if speed and base:
                search = of_folder.get(first.folder)
                times = speed.over(base, search.probability(first.point.phase) if search else TWO_SIDED)
            elif speed:
                base, times = speed, Ratio(1.0, None, None)
            found.append(Size(points=setting.points, base=base, times=times, front=front))
    return found


@dataclass(frozen=True, kw_only=True)
class Collected:
    sources: Sources
    # Each is of one point (of several tries the one that `jobkit.runs.tries.try_that_counts` names). A trial
    # (`jobkit verify`, ``find_max``) has no size: no figure of the sweep is taken from it.
    rows: Sequence[Row]
    by_size: Sequence[Size]  # the repeats of each setting of the knobs, group by group
    # the first point of each group. Points of two groups never share a mean: they differ in GPU, model, text,
    # versions, or another column of `SETTING`.
    by_group: Sequence[Row]
    knobs: tuple[str, ...]  # the names of the knob columns, ``batch_size`` first
    notes: tuple[str, ...]  # files skipped and why, and remarks on the rows
    figures: tuple[Figure, ...]  # that the tables have; those that the workloads report come last
    # by group and memory of the GPU, as `jobkit.report.predictions.group_memory` has found them
    memories: dict[tuple[int, int | None], dict[str, Memory] | str] = field(default_factory=dict)

    @property
    def own(self) -> tuple[Figure, ...]:
        """The figures that the workloads report."""
        return tuple(figure for figure in self.figures if figure.own)

    def rows_of(self, group: int) -> list[Row]:
        return [row for row in self.rows if row.group == group]

    def sizes_of(self, group: int) -> list[Size]:
        return [size for size in self.by_size if size.first.group == group]

    @property
    def failed(self) -> int:
        return sum(
            bool(row.outcome and not row.answered)
            for row in self.rows
            if not (row.point.trial and row.outcome == Outcome.CANCELLED)  # the sweep itself lacks nothing
        )

    @property
    def to_come(self) -> int:
        return sum(row.outcome is None for row in self.rows)

    @property
    def outcomes(self) -> frozenset[Outcome | None]:
        """The outcomes of all points, also of those that are no rows."""
        return frozenset((*(row.outcome for row in self.rows), *self.sources.profiled))

    @property
    def exit_code(self) -> int:
        """The exit code of `jobkit collect`: 2 nothing, 5 while points are to come, then 4 or 0."""
        if not self.rows and not self.sources.profiled:
            return ExitCode.USAGE
        return exit_code(failed=self.failed > 0, to_come=self.to_come > 0)

    @property
    def point_columns(self) -> list[str]:
        figures = [figure.name for figure in self.figures]
        fixed = [name for name in fixed_columns() if name in COLUMNS or name in figures]
        own = (name for name in (*self.knobs, *figures) if name not in fixed)
        return [*fixed, *own, "group", "size", "speedup"]

    def point_records(self) -> Iterator[dict[str, object]]:
        columns = self.point_columns
        read: dict[str, Figure | str] = {figure.name: figure for figure in self.figures}
        read |= {name: name for name in COLUMNS}
        bases = {size.first.size: size.base for size in self.by_size}
        for row in self.rows:
            rate, base = row.value(SPEED), bases.get(row.size) if row.outcome is Outcome.OK else None
            values = {**row.params, "group": row.group, "size": row.size}
            values["speedup"] = rate / base.value if rate and base else None
            values |= {name: row.value(column) for name, column in read.items()}
            yield {name: values.get(name) for name in columns}

    def size_records(self) -> Iterator[dict[str, object]]:
        """Yield the sizes by column: ``*_sd`` and ``*_n`` follow the means, ends of intervals follow all."""
        for size in self.by_size:
            means = {figure.name: size.mean(figure) for figure in self.figures}
            bounded = {figure.name: means[figure.name] for figure in self.figures if figure.interval}
            ends = {name: mean.ends if mean else (None, None) for name, mean in bounded.items()}
            ends["speedup"] = (size.times.low, size.times.high) if size.times else (None, None)
            yield {
                "size": size.first.size,
                "group": size.first.group,
                "phase": size.first.value("phase"),
                **{knob: size.params.get(knob) for knob in self.knobs},
                **{name: size.of(name) for name in OF_A_SIZE},
                "outcomes": size.outcomes,
                "n": size.n,
                **{name: mean.value if mean else None for name, mean in means.items()},
                **{f"{name}_sd": mean.sd if mean else None for name, mean in means.items()},
                **{f"{name}_n": mean.n if mean else 0 for name, mean in means.items()},
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
        names = [figure.name for figure in self.figures]
        ended = [*(figure.name for figure in self.figures if figure.interval), "speedup"]
        columns = ["size", "group", "phase", *self.knobs, *OF_A_SIZE, "outcomes", "n", *names]
        columns += [f"{name}_{what}" for what in ("sd", "n") for name in names]
        columns += ["speedup", "front", *(f"{name}_{end}" for end in ("low", "high") for name in ended)]
        return _frame(self.size_records(), columns)

    @cached_property
    def groups(self) -> pd.DataFrame:
        return _frame(self.group_records(), SETTING)

    def lengths(self, rows: Iterable[Row]) -> Lengths | None:
        """``None`` if no run folder holds them."""
        folders = dict.fromkeys(row.folder for row in rows)
        return next(filter(None, (read_lengths(Path(folder)) for folder in folders)), None)

    def search(self, group: int) -> SearchAnswer | None:
        """Return what the search of a group's run found; ``None`` if it found no setting."""
        search = self.sources.searches.get(self.by_group[group].folder)
        return search if search and search.setting else None

    @cached_property
    def questions(self) -> tuple[str, ...]:
        """For each run with points to come, the commands that ask its scheduler about them.

        A task killed before it began leaves no file. The jobs are those that last had the points.
        """
        waiting: dict[tuple[str, str], set[int]] = {}
        for row in self.rows:
            if row.outcome is None:
                waiting.setdefault((row.folder, row.point.run_id), set()).add(row.point.index)
        found = []
        for (folder, run), indices in waiting.items():
            last: dict[int, tuple[str, JobId]] = {}
            for submission in read_journal(Path(folder)).submissions:  # its notes are among those of the run
                if submission.scheduler in SCHEDULERS:
                    ran = indices.intersection(index for _, points in submission.tasks() for index in points)
                    last |= dict.fromkeys(ran, (submission.scheduler, submission.job))
            jobs = dict.fromkeys(last.values())
            for name in dict.fromkeys(name for name, _ in jobs):
                ids = tuple(job for scheduler, job in jobs if scheduler == name)
                found.append("; ".join(map(shlex.join, SCHEDULERS[name].diagnostic_argvs(ids, run))))
        return tuple(found)


def _frame(records: Iterable[Mapping[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame whose columns of numbers hold NaN for missing values."""
    import pandas as pd

    rows = list(records)
    words = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    words |= {"outcomes", *WORDS}
    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.astype(dict.fromkeys((name for name in columns if name not in words), "float64"))


def typed(records: Sequence[Mapping[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame with one type a column, never ``object``; figures have theirs without a value, too."""
    import pandas as pd

    def column(name: str) -> pd.Series:
        values = [value for record in records if (value := record.get(name)) is not None]
        kinds = {*map(type, values)}
        whole = name in {*COUNTS, "group", "size", "load_max"} or name.endswith("_bytes")
        if kinds == {bool}:
            kind = "boolean"
        elif not (kinds <= {int, float} if kinds else name not in WORDS):
            kind = "string"
        elif whole if not kinds else kinds == {int} and (whole or not name.endswith(UNITS)):
            kind = "Int64"
        else:
            kind = "Float64"
        every = (record.get(name) for record in records)
        texts = [value if value is None or kind != "string" else str(value) for value in every]
        return pd.Series(texts, dtype=kind)

    return pd.DataFrame({name: column(name) for name in columns})


def collect(paths: Sequence[Path], more_figures: MoreFigures | None = None) -> Collected:
    """Read runs and files of other programs into tables; see `jobkit.report.rows.read_sources`."""
    sources = read_sources(paths, more_figures)
    names = dict.fromkeys(name for row in sources.rows for name in row.params)
    taken = {*fixed_columns(), *OF_DERIVED} - {*OFFERED, *(knob.name for knob in RUN_KNOBS)}
    columns = {
        name: f"knob_{name}" if name in taken else name
        for name in sorted(names, key=lambda n: n != BATCH_SIZE)
    }
    knobs = tuple(columns.values())
    rows = _placed(sources.rows, columns)
    firsts = {row.group: row for row in reversed(rows) if row.size is not None}
    by_group = [firsts[group] for group in range(len(firsts))]
    absent = () if any(row.value(F1) is not None for row in rows) else AGREEMENT
    figures = [figure for figure in FIGURES.values() if figure not in absent]
    taken = {*COLUMNS, *(figure.name for figure in figures), *OF_DERIVED, *OF_A_SIZE, *knobs}
    own = own_columns((row.record for row in rows), taken)
    return Collected(
        sources=sources,
        rows=rows,
        by_size=sizes(rows, knobs, sources.searches),
        by_group=by_group,
        knobs=knobs,
        notes=(*sources.notes, *_remarks(rows, by_group), *_of_own(rows, own)),
        figures=(*figures, *own),
    )


def _placed(rows: Sequence[Row], columns: Mapping[str, str]) -> list[Row]:
    """Return the rows with their group, size, overlaps and own energy; knobs have the names of their columns.

    Only a point with figures belongs to a group: of any other point the GPU or the versions may be unknown. A
    trial makes no group and no size.
    """
    groups: dict[object, int] = {}
    sizes: dict[object, int] = {}
    placed: list[Row] = []
    for row, number in zip(rows, overlaps([row.record for row in rows]), strict=True):
        record, group, size = row.record, None, None
        if record and record.energy:
            record = replace(record, energy=attributed(record.energy, number))
        params = {column: row.params[name] for name, column in columns.items() if name in row.params}
        own = replace(row, record=record, params=params, overlaps=number)
        if own.point.trial:
            group = groups.get(own.fixed)
        elif own.has_figures:
            group = groups.setdefault(own.fixed, len(groups))
            size = sizes.setdefault((group, own.point.phase, *sorted(params.items())), len(sizes))
        placed.append(replace(own, group=group, size=size))
    return placed


def _remarks(rows: Iterable[Row], groups: Sequence[Row]) -> Iterator[str]:
    """Yield each remark on the rows once; trials are no part of the tables."""
    rows = [row for row in rows if not row.point.trial]
    if len(groups) > 1:
        differ = [name for name in SETTING if len({row.value(name) for row in groups}) > 1]
        yield f"{len(groups)} tables, never mixed: they differ in {', '.join(differ)}"
    yield from dict.fromkeys(row.file_format.remark for row in rows if row.file_format)
    refused = {row.value("shortcuts") or "" for row in rows if row.params.get(SHORTCUTS) == REFUSED}
    yield from (f"shortcuts refused, in effect {reason}" for reason in sorted(refused))
    effective = {row.value("inert"): row.value("effective") for row in reversed(rows)}
    for knob in sorted({*effective} - {None, "", SHORTCUTS}):
        yield f"{knob} did not take effect; in effect: {effective[knob]}"
    disagreements = Counter(row.value("disagreement") for row in rows)
    for sentence in sorted({*disagreements} - {None, ""}):
        points = format_count(disagreements[sentence], "point")
        yield f"instruments disagree ({points}): {sentence}"
    if ended := [key_of(row.params) for row in rows if row.unneeded]:
        repeats = format_count(len(ended), "repeat")
        yield f"{repeats} skipped: the interval of the setting was short enough (`repeats` in the spec)"
        numbers = Counter(key_of(row.params) for row in rows if row.has_figures)
        if early := [setting for setting in {*ended} if 0 < numbers[setting] < LEAST]:
            settings = format_count(len(early), "setting")
            yield f"{settings} ended after fewer than {LEAST} repeats: the interval may be short by chance"
    if left := [size for row in rows if row.record and (size := row.record.memory.left_bytes)]:
        points = f"{format_count(len(left), 'point')} began with up to {format_memory(max(left))}"
        yield f"{points} more in use on the GPU than the run has seen before: distrust the memory figures"
    if shared := sum(bool(row.value("foreign")) for row in rows):
        points = format_count(shared, "point")
        yield f"{points} ran next to other processes on the GPU: distrust speed and memory"
    notes = Counter(note for row in rows if row.record for note in row.record.notes)
    yield from (f"{note} ({format_count(number, 'point')})" for note, number in sorted(notes.items()))
    if words := overlap_words([row.record for row in rows], [row.overlaps for row in rows]):
        yield words


def _of_own(rows: Sequence[Row], own: Sequence[Figure]) -> Iterator[str]:
    records = [row.record for row in rows if row.record]
    if bad := [record.metrics_bad_lines for record in records if record.metrics_bad_lines]:
        lines, points = format_count(sum(bad), "line"), format_count(len(bad), "point")
        yield f"{lines} of the workload's own figures ({points}) could not be read, and are left out"
    if large := sum(len(record.metrics) - len(reported(record)) for record in records):
        figures = format_count(large, "figure")
        yield f"{figures} of the workload's own left out: not a number, or beyond {LARGEST:g}"
    for name, number in sorted(Counter(figure.label for figure in own).items()):
        if number > 1:
            units = ", ".join(figure.unit or "none" for figure in own if figure.label == name)
            yield f"{name} has several units, each with a column of its own: {units}"
