"""The files of runs, and of the systems before jobkit, as two tables. Calls nothing."""

from __future__ import annotations

import gc
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from jobkit.core.errors import ExitCode
from jobkit.core.records import BATCH_SIZE, Outcome, Record
from jobkit.core.units import format_count
from jobkit.fit.speed import Span, overlap_words, overlaps, span
from jobkit.outcome.journal import read_journal
from jobkit.outcome.results import exit_code
from jobkit.outcome.trials import answers
from jobkit.report.rows import FIXED, LOG, MEASURES, SETTING, Row
from jobkit.report.sources import read_sources
from jobkit.schedulers.registry import SCHEDULERS
from jobkit.schedulers.types import JobId

LOG_REMARK = (
    "old logs: batch s is total / number of batches, where the log itself counts a partial batch as whole; "
    "their GPU peak is the largest of samples at every 50th paragraph, so the true one may be higher"
)
_NUMBERS = ("index", "repeat", "tries", "threads", "gpu_capacity_bytes", "items", "items_total", "foreign")
_OF_A_SIZE = ("effective", "inert", "items_total", "gpu_instrument")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was read, as tables in bytes and seconds.

    Attributes
    ----------
    points
        One row per point (of several tries the one that `jobkit.outcome.tries.counting` names): the columns
        of `jobkit.report.rows.FIXED`, one per knob, ``speedup``, ``group`` and ``size``. ``outcome`` is
        missing for a point still to come. A ``trial`` (`jobkit verify`, ``find_max``) has no size:
        no figure of the sweep is taken from it. ``overlaps`` is how many other points ran at the
        same time on the same card, or on a CPU on the same host; missing without a record.
    sizes
        One row per setting of the knobs within a group: ``n`` points that went well, their mean
        and, under ``*_sd``, their standard deviation, for every measure, and under ``*_n`` how many
        of them had that measure; ``speedup`` over the smallest setting of the group that went
        well; ``outcomes`` in words.
    groups
        One row per group: the columns of `jobkit.report.rows.SETTING`. Points of two groups never
        share a row: they differ in GPU, model, text, versions, or another of these columns.
    knobs
        The names of the knob columns, ``batch_size`` first.
    notes
        Files skipped and why, and what a reader must know of the rows.
    needs
        Of each group whose points tell what a batch needs, their records.
    questions
        For each run with points still to come, the commands that ask its scheduler about them.
    """

    points: pd.DataFrame
    sizes: pd.DataFrame
    groups: pd.DataFrame
    knobs: tuple[str, ...]
    notes: tuple[str, ...]
    needs: Mapping[int, tuple[Record, ...]] = field(default_factory=dict)
    questions: tuple[str, ...] = ()

    @property
    def failed(self) -> int:
        """How many points ended with neither a result nor hope of one."""
        outcomes = zip(self.points["outcome"], self.points["trial"], strict=True)
        return sum(isinstance(one, str) and not answers(one, trial=bool(trial)) for one, trial in outcomes)

    @property
    def to_come(self) -> int:
        """How many points have no outcome yet."""
        return int(self.points["outcome"].isna().sum())

    @property
    def exit_code(self) -> int:
        """The exit code of design: 2 nothing, 5 while points are to come, then 4 or 0."""
        if self.points.empty:
            return ExitCode.USAGE
        return exit_code(failed=self.failed > 0, to_come=self.to_come > 0)


def collect(paths: Sequence[Path]) -> Collected:
    """Read runs and logs into tables.

    Parameters
    ----------
    paths
        Run folders, folders of run folders (``runs/``), and logs of the systems before jobkit.

    Raises
    ------
    JobkitError
        Where a path does not exist. What lies there and cannot be read is a note instead.
    """
    with no_search_for_cycles():
        rows, notes = read_sources(paths)
        knobs = _knobs(rows)
        points, groups, needs = _points(rows, knobs)
    sizes = _sizes(points, list(knobs.values()))
    points = _with_speedup(points, sizes)
    return Collected(
        points=points,
        sizes=sizes,
        groups=groups,
        knobs=tuple(knobs.values()),
        notes=(*notes, *_remarks(points, groups)),
        needs=needs,
        questions=tuple(_questions(points)),
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


def _questions(points: pd.DataFrame) -> Iterator[str]:
    """Yield the commands that tell what became of points: a task killed before it began leaves no file."""
    waiting = points[points["outcome"].isna()]
    for (folder, run), rows in waiting.groupby(["folder", "run"], sort=False):
        jobs = _last_jobs(Path(str(folder)), {int(index) for index in rows["index"]})
        for name in dict.fromkeys(name for name, _ in jobs):
            ids = tuple(job for scheduler, job in jobs if scheduler == name)
            yield "; ".join(shlex.join(argv) for argv in SCHEDULERS[name].diagnostic_argvs(ids, str(run)))


def _last_jobs(folder: Path, indices: set[int]) -> tuple[tuple[str, JobId], ...]:
    """Return the jobs, each with its scheduler, that points of a run were last submitted in."""
    last: dict[int, tuple[str, JobId]] = {}
    for submission in read_journal(folder).submissions:  # its notes are told already
        if submission.scheduler in SCHEDULERS:
            ran = indices.intersection(index for _, points in submission.tasks() for index in points)
            last |= dict.fromkeys(ran, (submission.scheduler, submission.job))
    return tuple(dict.fromkeys(last.values()))


def _knobs(rows: list[Row]) -> dict[str, str]:
    """Return the knobs and their column names: a knob named like another column gets a prefix."""
    names = dict.fromkeys(name for row in rows for name in row.knobs)
    ordered = sorted(names, key=lambda name: name != BATCH_SIZE)
    taken = {*FIXED, "group", "size", "speedup", "n", "outcomes", "reserved"}
    return {name: f"knob_{name}" if name in taken else name for name in ordered}


def _points(
    rows: list[Row], knobs: dict[str, str]
) -> tuple[pd.DataFrame, pd.DataFrame, dict[int, tuple[Record, ...]]]:
    """Return the points, numbered by group and size, the groups, and the records of what they need.

    Only a point with figures belongs to a group: of any other one the GPU or the versions may
    be unknown. A trial makes no group and no size. Plain dicts and tuples until the one DataFrame
    at the end, so that it is linear.
    """
    groups: dict[tuple[object, ...], int] = {}
    sizes: dict[tuple[object, ...], int] = {}
    lines: list[tuple[object, ...]] = []
    needs: dict[int, list[Record]] = {}
    for row in rows:
        values, settings = row.columns, tuple(row.knobs.get(name) for name in knobs)
        group = size = None
        if values["trial"]:
            group = groups.get(_setting(values))
        elif _has_figures(values):
            group = groups.setdefault(_setting(values), len(groups))
            size = sizes.setdefault((group, *settings), len(sizes))
            if row.record is not None:
                needs.setdefault(group, []).append(row.record)
        lines.append((*(values.get(name) for name in FIXED), *settings, group, size))
    frame = pd.DataFrame(lines, columns=[*FIXED, *knobs.values(), "group", "size"])
    numbers = [*MEASURES, *_NUMBERS, *knobs.values(), "group", "size"]
    frame[numbers] = frame[numbers].astype("float64")
    frame["trial"] = frame["trial"].astype(bool)
    frame["overlaps"] = pd.Series(overlaps([*_spans(frame)]), index=frame.index, dtype="float64")
    kept = {group: tuple(records) for group, records in needs.items()}
    return frame, pd.DataFrame(list(groups), columns=list(SETTING)), kept


def _setting(values: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(values.get(name) for name in SETTING)


def _has_figures(values: Mapping[str, object]) -> bool:
    """Tell whether a point belongs in the table of sizes: what it ran on and with is known."""
    outcome = values["outcome"]
    return outcome == Outcome.OK or (outcome == Outcome.GPU_OOM and values.get("versions") is not None)


def _sizes(points: pd.DataFrame, knobs: list[str]) -> pd.DataFrame:
    """Return mean and sd over the repeats of each size that has a result, in order of size."""
    results = points[points["size"].notna()]
    sizes = results.groupby("size")[["group", *knobs, *_OF_A_SIZE]].first()
    sizes["outcomes"] = results.groupby("size")["outcome"].agg(_in_words)
    well = results[results["outcome"] == Outcome.OK].groupby("size")
    sizes["n"] = well.size().reindex(sizes.index, fill_value=0)
    sizes = sizes.join(well[list(MEASURES)].mean())
    sizes = sizes.join(well[list(MEASURES)].std().add_suffix("_sd"))
    sizes = sizes.join(well[list(MEASURES)].count().add_suffix("_n"))
    sizes = sizes.sort_values(["group", *knobs], kind="stable")
    base = sizes[sizes["n"] > 0].groupby("group")["items_per_s"].first()
    sizes["speedup"] = sizes["items_per_s"] / sizes["group"].map(base)
    return sizes.reset_index()


def _in_words(outcomes: pd.Series[str]) -> str:
    counts = Counter(outcomes)
    if len(counts) == 1:
        return str(next(iter(counts)))
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _with_speedup(points: pd.DataFrame, sizes: pd.DataFrame) -> pd.DataFrame:
    base = sizes[sizes["n"] > 0].groupby("group")["items_per_s"].first()
    well = points["size"].notna() & (points["outcome"] == Outcome.OK)
    return points.assign(speedup=(points["items_per_s"] / points["group"].map(base)).where(well))


def _remarks(points: pd.DataFrame, groups: pd.DataFrame) -> list[str]:
    """Return what a reader must know of the rows, each thing once; trials are no part of the tables."""
    points = points[~points["trial"]]
    remarks = []
    if len(groups) > 1:
        differ = [name for name in SETTING if len(set(groups[name])) > 1]
        remarks.append(f"{len(groups)} tables, never mixed: they differ in {', '.join(differ)}")
    if (points["workload"] == LOG).any():
        remarks.append(LOG_REMARK)
    for knob, rows in points[points["inert"].fillna("") != ""].groupby("inert"):
        remarks.append(f"{knob} did not take effect; in effect: {rows['effective'].iloc[0]}")
    for sentence, rows in points[points["disagreement"].fillna("") != ""].groupby("disagreement"):
        remarks.append(f"instruments disagree ({format_count(len(rows), 'point')}): {sentence}")
    shared = int((points["foreign"] > 0).sum())
    if shared:
        points_ = format_count(shared, "point")
        remarks.append(f"{points_} ran beside other processes on the card: distrust speed and memory")
    if words := overlap_words([*_spans(points)], points["overlaps"].fillna(0).tolist()):
        remarks.append(words)
    return remarks


def _spans(points: pd.DataFrame) -> Iterator[Span]:
    columns = ("gpu_uuid", "host", "started_at", "ended_at")
    for uuid, host, began, ended in zip(*(points[name] for name in columns), strict=True):
        yield span(uuid if isinstance(uuid, str) else None, host, began, ended)
