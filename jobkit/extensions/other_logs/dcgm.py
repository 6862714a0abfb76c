"""The report that NVIDIA's DCGM prints of a job, next to the figures of the points that it ran. Pure.

What each figure counts is in the function ``JobGetStats`` of DCGM (https://github.com/NVIDIA/DCGM,
dcgmlib/src/DcgmHostEngineHandler.cpp) and in the reference of ``dcgmi stats``
(https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-stats.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import PurePath
from typing import ClassVar

from jobkit.core.blocks import Block, Column
from jobkit.core.figures import GPU_MEMORY, WORK
from jobkit.core.units import format_count, format_energy, format_memory
from jobkit.extensions.other_logs.tagger_log import LOG
from jobkit.report.rows import Row
from jobkit.runs.tries import worker_s

SUFFIX = ".gpu-report"
"""How the names of such files end at the site whose reports jobkit knows."""
_GPU = re.compile(r"^\|\s*GPU ID:\s*(\d+)\s*\|\s*$", re.MULTILINE)
_ROW = re.compile(r"^\|\s*(?:-\s+)?(\S.*?)\s*\|\s*(\S.*?)\s*\|\s*$")
_DCGM_NUMBER = r"(-?\d{1,18}(?:\.\d{1,9})?)"
_SPREAD = re.compile(rf"Avg:\s*{_DCGM_NUMBER}\s*,\s*Max:\s*{_DCGM_NUMBER}\s*,\s*Min:\s*{_DCGM_NUMBER}")


@dataclass(frozen=True, slots=True)
class Spread:
    mean: float
    most: float
    least: float

    @property
    def single(self) -> bool:
        """Whether all three are equal, as with one sample."""
        return self.most == self.least


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """DCGM's report on one GPU during a job; ``None`` for what the report does not have."""

    gpu: int  # DCGM's number of the GPU
    seconds: float | None = None  # from the start of the job to its end
    processes: int | None = None  # the number of processes that DCGM saw on the GPU
    # the difference of the GPU's energy counter between DCGM's first sample in the job and its last
    energy_j: float | None = None
    power_w: Spread | None = None
    # the largest peak of one process, by the driver's accounting of each process that DCGM saw
    memory_peak_bytes: int | None = None
    # "SM Utilization": NVML's utilisation, the share of time in which any kernel ran
    sm_percent: Spread | None = None

    @property
    def one_sample(self) -> bool:
        """Whether DCGM's figures come from one sample: power never repeats."""
        return self.power_w is not None and self.power_w.single


def is_gpu_report(text: str) -> bool:
    return bool(_GPU.search(text))


def parse_report(text: str) -> list[GpuReport]:
    found, (_, *parts) = list[GpuReport](), _GPU.split(text)
    for number, body in zip(parts[::2], parts[1::2], strict=True):
        rows: dict[str, str] = {}
        for line in body.splitlines():
            if row := _ROW.match(line):
                rows.setdefault(row[1], row[2])
        report = GpuReport(
            gpu=int(number),
            seconds=_number(rows.get("Total Execution Time (sec)")),
            processes=_whole(rows.get("No. of Processes")),
            energy_j=_number(rows.get("Energy Consumed (Joules)")),
            power_w=_spread(rows.get("Power Usage (Watts)")),
            memory_peak_bytes=_whole(rows.get("Max GPU Memory Used (bytes)")),
            sm_percent=_spread(rows.get("SM Utilization (%)")),
        )
        found.append(report)
    return found


def _number(cell: str | None) -> float | None:
    number = re.fullmatch(_DCGM_NUMBER, cell or "")
    return float(number[1]) if number and float(number[1]) >= 0 else None


def _whole(cell: str | None) -> int | None:
    number = _number(cell)
    return None if number is None else int(number)


def _spread(cell: str | None) -> Spread | None:
    spread = _SPREAD.fullmatch(cell or "")
    return Spread(*map(float, spread.groups())) if spread else None


LOG_NAME = "log"
EVEN = 0.05
"""Figures that differ by less are not called different."""


@dataclass(frozen=True, slots=True)
class DcgmFigure:
    name: str
    dcgm: float | None  # DCGM's value and ours; ``None`` if not known
    own: float | None
    unit: str  # ``s``, ``%``, ``J``, ``W``, ``bytes``, or empty for a count
    why: str = ""  # what each value counts, if they differ; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    key: ClassVar[str] = "dcgm"
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


def side_by_side(file: str, reports: Sequence[GpuReport], rows: Sequence[Row], how: str = "") -> JobFigures:
    """Return the reports on the GPUs next to the figures of the points; ``how`` says how they were found."""
    log = all(row.point.workload == LOG for row in rows)
    remarks = [how] if how else []
    if any(report.one_sample for report in reports):
        same = "DCGM's average, maximum and minimum are the same, so it took one sample"
        remarks.append(f"{same}: its interval is too long for this job")
    figures = (*_times(reports, rows, log=log), *_powers(reports, rows), *_processes(reports, rows, log=log))
    return JobFigures(
        file=file,
        source=rows[0].folder if rows else "",
        whose=LOG_NAME if log else "jobkit",
        points=len(rows),
        figures=tuple(figure for figure in figures if figure.dcgm is not None),
        remarks=tuple(remarks),
    )


def _times(reports: Sequence[GpuReport], rows: Sequence[Row], *, log: bool) -> Iterator[DcgmFigure]:
    seconds = [row.value(WORK) if log else worker_s(row.record) if row.record else None for row in rows]
    counted = "jobkit counts each point from its first step to its record"
    why = (
        "DCGM counts from the start of the job to its end, with staging, imports and loading; "
        f"{f'the {LOG_NAME} counts the loops over the text' if log else counted}"
    )
    yield _figure("time", _most([report.seconds for report in reports]), _sum(seconds), "s", why)
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
    own = _sum([energy.joules if energy else None for energy in energies])
    why = (
        "DCGM counts all that the GPU used between its first sample in the job and its last, idle time and "
        "other processes included; jobkit counts from the first batch of each point to its last"
    )
    if dcgm == 0:
        why = "DCGM takes the difference of the GPU's counter between two samples: 0 J is no measurement"
    yield _figure("energy", dcgm, own, "J", why) if dcgm else DcgmFigure("energy", dcgm, own, "J", why)
    pairs = [(energy.power_mean_w, energy.span_s) for energy in energies if energy]
    means = [report.power_w.mean if report.power_w else None for report in reports]
    whole = "DCGM's is the mean over the whole job, in which the GPU also waits"
    why = f"{whole}; jobkit's is over the batches alone"
    yield _figure("mean power", _sum(means), _weighted(pairs), "W", why)


def _processes(reports: Sequence[GpuReport], rows: Sequence[Row], *, log: bool) -> Iterator[DcgmFigure]:
    dcgm = _most([report.memory_peak_bytes for report in reports])
    mine, seen = _most([row.value(GPU_MEMORY) for row in rows]), _sum([one.processes for one in reports])
    processes, several = (
        f"{seen or 0:.0f} process{'' if seen == 1 else 'es'}",
        any(row.point.workers > 1 for row in rows),
    )
    why = (
        "DCGM has the largest peak of one process, by the driver's own count, among the "
        f"{processes if seen else 'processes'} that it saw; "
    )
    if log:
        why += "the log has the memory of the whole GPU, sampled at every 50th paragraph"
    elif several:
        why += "jobkit has the sum over the workers of a point"
    else:
        why += "jobkit has the process's memory, sampled a hundred times a second"
    if (dcgm or 0) < (mine or 0) and not several:
        more = "The log has more" if log else "Jobkit has more"
        why += f". {more}: DCGM did not see every process, or several used the GPU at once"
    elif (dcgm or 0) > (mine or 0):
        why += ". DCGM has more: samples miss a short peak, or another process used it"
    yield _figure("GPU memory, peak", dcgm, mine, "bytes", why)
    sampled = "DCGM lists the processes that were on the GPU when it took a sample"
    why = f"{sampled}; jobkit counts one for each worker of each point"
    own = None if log else _sum([row.point.workers * (row.cell("gpus") or 1) for row in rows])
    yield _figure("processes", seen, own, "", why)


def _figure(name: str, dcgm: float | None, own: float | None, unit: str, why: str) -> DcgmFigure:
    """Return a figure; without the reason if the values are alike, or one is not known."""
    known = dcgm is not None and own is not None
    differ = known and abs((dcgm or 0) - (own or 0)) > EVEN * max(dcgm or 0, own or 0)
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


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _weighted(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = [(value, weight) for value, weight in pairs if value is not None and weight]
    weight = fsum(part for _, part in known)
    return fsum(value * part for value, part in known) / weight if weight else None
