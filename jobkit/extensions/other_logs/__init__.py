"""Logs that jobkit did not write: of the taggers before it, and DCGM's report of a job next to its points."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import fsum
from pathlib import Path, PurePath

from jobkit.core.blocks import Block, Column
from jobkit.core.errors import JobkitError
from jobkit.core.figures import GPU_MEMORY, WORK
from jobkit.core.files import read_text
from jobkit.core.frozen import frozen, keyed
from jobkit.core.measurements import largest
from jobkit.core.units import format_count, format_energy, format_list, format_memory
from jobkit.extensions.other_logs.dcgm import SUFFIX, GpuReport, is_gpu_report, parse_report
from jobkit.extensions.other_logs.tagger_log import LOG, parse_log, rows_of_log
from jobkit.report.rows import LOG_LIMIT_BYTES, Row, Sources
from jobkit.runs.tries import worker_s


@frozen
class DcgmFigure:
    name: str
    dcgm: float | None  # DCGM's value and ours; ``None`` if not known
    own: float | None
    unit: str  # ``s``, ``%``, ``J``, ``W``, ``bytes``, or empty for a count
    why: str = ""  # what each value counts, if they differ; else empty


@keyed
class JobFigures:
    file: str  # the report
    source: str  # the run folder, or the log, with the other figures
    whose: str  # ``jobkit`` or ``log``
    points: int  # the number of points with the other figures
    figures: tuple[DcgmFigure, ...]  # the figures that DCGM has
    remarks: tuple[str, ...]  # remarks on the report, in sentences without a full stop

    def block(self) -> Block:
        columns = (
            Column("figure", [figure.name for figure in self.figures], left=True),
            Column("DCGM", [shown(figure.dcgm, figure.unit) for figure in self.figures]),
            Column(self.whose, [shown(figure.own, figure.unit) for figure in self.figures]),
        )
        file, points = PurePath(self.file).name, format_count(self.points, "point")
        title = f"DCGM's report {file} next to {points} of {PurePath(self.source).name}"
        return Block(title=title, columns=columns, after=tuple(self.lines()))

    def lines(self) -> Iterator[str]:
        """Yield what each figure counts, where the two differ, and what to know of the report."""
        yield from (f"{figure.name}: {figure.why}." for figure in self.figures if figure.why)
        yield from (f"{remark[0].upper()}{remark[1:]}." for remark in self.remarks)


def belongs(report: str, log: str) -> bool:
    """Return whether a report belongs to the job that wrote a log: one name, and no other number.

    The files are ``tag.gpu-report`` or ``tag.2650.gpu-report``, and ``tag.o2650``.
    """
    name, _, rest = PurePath(report).name.removesuffix(SUFFIX).partition(".")
    same, _, job = PurePath(log).name.partition(".")
    numbers = re.findall(r"\d+", rest)
    return name == same and set(numbers) <= set(re.findall(r"\d+", job))


def points_of(report: str, rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Return the points that a report is about, and how they were found, if a reader must know.

    In a run they are found by the numbers in its name; a report without a job number is taken to be about all
    points. In a log they are all points.
    """
    if all(row.point.workload == LOG for row in rows):
        return list(rows), ""
    numbers = set(re.findall(r"\d+", PurePath(report).name.removesuffix(SUFFIX)))
    recorded = [row for row in rows if row.record]
    of_job = [row for row in recorded if row.record and row.record.job.job_id in numbers]
    if not of_job:
        return (
            recorded,
            "the name of the report has no job of the run: jobkit takes the report to be of all points",
        )
    of_task = [row for row in of_job if row.record and row.record.job.task_id in numbers]
    return of_task or of_job, ""


def _times(reports: Sequence[GpuReport], rows: Sequence[Row], *, log: bool) -> Iterator[DcgmFigure]:
    seconds = [row.value(WORK) if log else worker_s(row.record) if row.record else None for row in rows]
    counted = "jobkit counts each point from its first step to its record"
    why = (
        "DCGM counts from the start of the job to its end, with staging, imports and loading; "
        f"{'the log counts the loops over the text' if log else counted}"
    )
    yield _figure("time", largest([report.seconds for report in reports]), _sum(seconds), "s", why)
    why = (
        "both are the share of time in which any kernel ran; DCGM's is the mean over the whole job, in which "
        "the GPU also waits for loading, and jobkit's over the batches alone"
    )
    pairs = [
        (row.record.sampler.utilisation_mean_percent, row.value(WORK))
        for row in rows
        if row.record and row.record.sampler
    ]
    means = _sum([report.sm_percent.mean if report.sm_percent else None for report in reports])
    busy = None if means is None else means / len(reports)
    yield _figure("GPU busy", busy, _weighted(pairs), "%", why)


def _powers(reports: Sequence[GpuReport], rows: Sequence[Row]) -> Iterator[DcgmFigure]:
    energies = [row.record.energy if row.record else None for row in rows]
    dcgm = _sum([report.energy_j for report in reports])
    own = _sum([energy.counter_j if energy else None for energy in energies])
    if dcgm == 0:
        why = "DCGM takes the difference of the GPU's counter between two samples: 0 J is no measurement"
        yield DcgmFigure("energy", dcgm, own, "J", why)
    else:
        why = (
            "DCGM counts all that the GPU used between its first sample in the job and its last, idle "
            "time and other processes included; jobkit counts from the first batch of each point to its last"
        )
        yield _figure("energy", dcgm, own, "J", why)
    pairs = [(energy.power_mean_w, energy.span_s) for energy in energies if energy]
    means = [report.power_w.mean if report.power_w else None for report in reports]
    whole = "DCGM's is the mean over the whole job, in which the GPU also waits"
    why = f"{whole}; jobkit's is over the batches alone"
    yield _figure("mean power", _sum(means), _weighted(pairs), "W", why)


def _memory_peak(reports: Sequence[GpuReport], rows: Sequence[Row], *, log: bool) -> DcgmFigure:
    dcgm = largest([report.memory_peak_bytes for report in reports])
    own = largest([row.value(GPU_MEMORY) for row in rows])
    seen = _sum([report.processes for report in reports])
    processes = f"{seen:.0f} process{'' if seen == 1 else 'es'}" if seen else "processes"
    several = any(row.point.workers > 1 for row in rows)
    why = _why_memory(dcgm or 0, own or 0, processes, several=several, log=log)
    return _figure("GPU memory, peak", dcgm, own, "bytes", why)


def _why_memory(dcgm: float, own: float, processes: str, *, several: bool, log: bool) -> str:
    """Return what each peak counts, and why one is larger; ``several``: workers of a point."""
    if log:
        counted = "the log has the memory of the whole GPU, sampled at every 50th paragraph"
    elif several:
        counted = "jobkit has the sum over the workers of a point"
    else:
        counted = "jobkit has the process's memory, sampled a hundred times a second"
    more = ""
    if dcgm < own and not several:
        whose = "The log" if log else "Jobkit"
        more = f". {whose} has more: DCGM did not see every process, or several used the GPU at once"
    elif dcgm > own:
        more = ". DCGM has more: samples miss a short peak, or another process used it"
    peak = "DCGM has the largest peak of one process, by the driver's own count"
    return f"{peak}, among the {processes} that it saw; {counted}{more}"


def _figure(name: str, dcgm: float | None, own: float | None, unit: str, why: str) -> DcgmFigure:
    """Return a figure; without the reason if the values are alike, or one is not known."""
    # Figures that differ by less are not called different
    differ = dcgm is not None and own is not None and abs(dcgm - own) > 0.05 * max(dcgm, own)
    return DcgmFigure(name, dcgm, own, unit, why if differ else "")


def shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "bytes":
        return format_memory(value)
    if unit == "J":
        return format_energy(value)
    return f"{value:,.1f} {unit}" if unit else f"{value:,.0f}"


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) if known and len(known) == len(values) else None


def _weighted(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = [(value, weight) for value, weight in pairs if value is not None and weight]
    weight = fsum(part for _, part in known)
    return fsum(value * part for value, part in known) / weight if weight else None


def read(path: Path, text: str) -> Sources | None:
    """Return the rows of a tagger's log, or the place where a report of DCGM is shown."""
    runs, left_out = parse_log(text)
    of_job = not runs and is_gpu_report(text)
    if not (runs or left_out or of_job):
        return None
    notes = [f"{path}: {left_out} of its runs cut short: left out"] if left_out else []
    notes += [f"{path}: a DCGM report of a whole job: {_where(path)}"] if of_job else []
    rows, near = rows_of_log(str(path), runs), path.parent.glob(f"*{SUFFIX}") if runs else ()
    reports = sorted(report for report in near if belongs(report.name, path.name))
    return Sources(rows, notes, jobs=list(more_figures(reports, rows, notes)))


def more_figures(logs: Iterable[Path], rows: Sequence[Row], notes: list[str]) -> Iterator[JobFigures]:
    """Yield the reports of DCGM that can be read; add to the notes why others cannot."""
    for path in logs:
        try:
            yield _read_report(path, rows)
        except JobkitError as error:
            notes.append(f"{error.message}: skipped")


def dcgm_reports(paths: Iterable[Path], rows: Sequence[Row]) -> list[JobFigures]:
    """Return reports of DCGM that a person names, each next to its points."""
    return [_read_report(path, rows) for path in paths]


def _read_report(path: Path, rows: Sequence[Row]) -> JobFigures:
    """Return the reports on the GPUs of a job next to the figures of its points."""
    try:
        text = read_text(path) if path.stat().st_size <= LOG_LIMIT_BYTES else ""
    except OSError as error:
        raise JobkitError(f"{path}: cannot be read: {error.strerror}") from error
    if not is_gpu_report(text):
        hint = "such a report is what `dcgmi stats --verbose --job ID` prints"
        raise JobkitError(f"{path}: not a DCGM report of a job", hint=hint)
    reports, (points, how) = parse_report(text), points_of(path.name, rows)
    log = all(row.point.workload == LOG for row in points)
    remarks = [how] if how else []
    if any(report.one_sample for report in reports):
        same = "DCGM's average, maximum and minimum are the same, so it took one sample"
        remarks.append(f"{same}: its interval is too long for this job")
    figures = (
        *_times(reports, points, log=log),
        *_powers(reports, points),
        _memory_peak(reports, points, log=log),
        _figure(
            "processes",
            _sum([report.processes for report in reports]),
            None if log else _sum([row.point.workers * (row.value("gpus") or 1) for row in points]),
            "",
            "DCGM lists the processes that were on the GPU when it took a sample; "
            "jobkit counts one for each worker of each point",
        ),
    )
    return JobFigures(
        file=str(path),
        source=points[0].folder if points else "",
        whose="log" if log else "jobkit",
        points=len(points),
        figures=tuple(figure for figure in figures if figure.dcgm is not None),
        remarks=tuple(remarks),
    )


def _where(report: Path) -> str:
    logs = [path for path in report.parent.iterdir() if path != report and belongs(report.name, path.name)]
    if not logs:
        return "the report names no batch size, and no log of its name is next to it: skipped"
    return f"the report is shown next to {format_list([path.name for path in sorted(logs)])}"
