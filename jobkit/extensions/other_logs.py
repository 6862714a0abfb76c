"""Logs that jobkit did not write: of the taggers before it, and the reports that DCGM prints of jobs.

The taggers' line is ``<time> - <logger> - <LEVEL> - <message>``; a log has two runs or more. All lines of a
run come at its end, a run starts at ``Total time:``, and only the ``Mean batch time`` line names the batch
size. Their "GB" is 2**30 bytes.

What each figure of DCGM counts is in the function ``JobGetStats`` of DCGM (https://github.com/NVIDIA/DCGM,
dcgmlib/src/DcgmHostEngineHandler.cpp) and in the reference of ``dcgmi stats``
(https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-stats.html).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from math import fsum
from pathlib import Path, PurePath

from jobkit.core.blocks import Block, Column
from jobkit.core.errors import JobkitError
from jobkit.core.figures import ACTIVATIONS, BATCH_MEAN, GPU_MEMORY, MODEL, RAM, SPEED, WORK
from jobkit.core.files import read_text
from jobkit.core.frozen import frozen, keyed
from jobkit.core.knobs import BATCH_SIZE, CPU, CUDA
from jobkit.core.measurements import largest
from jobkit.core.records import Outcome, Point, TextRef
from jobkit.core.units import GIB, format_count, format_energy, format_list, format_memory
from jobkit.report.rows import LOG_LIMIT_BYTES, FileFormat, Row, Sources
from jobkit.runs.status import PointResult
from jobkit.runs.tries import Try, worker_s

LOG = "tagger log"
"""The workload of a row that comes from a log."""
TAGGER_LOG = FileFormat(
    about="a log of a tagger before jobkit, which names neither its text nor its model",
    remark="old logs: batch s is total / number of batches, where the log itself counts a partial batch as "
    "whole; their GPU peak is the largest of samples at every 50th paragraph, so the true peak may be higher",
)

_NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d+)?(?:[eE][+-]?\d{1,2})?"
"""A number, perhaps with commas between thousands or an exponent."""
MEMORY_LINES = {
    "Total GPU memory: ": "gpu_capacity_bytes",
    "Amount of GPU memory used before running script: ": "gpu_before_bytes",
    "GPU memory used for loading model: ": "gpu_model_bytes",
    "Peak GPU memory used for processing batch ": "gpu_batch_peak_bytes",
    "Peak GPU memory used ": "gpu_peak_bytes",
    "RAM memory used for loading model: ": "ram_model_bytes",
    "Peak RAM memory used ": "ram_peak_bytes",
}
"""The words before the figure, colon or none as the logs have it, and the field it goes to."""

_LINES = [
    re.compile(rf"{line}\s*$")
    for line in (
        rf"Total time: (?P<total_s>{_NUMBER})s",
        rf"Mean batch time for batch size (?P<batch_size>{_NUMBER}): (?P<logged_batch_s>{_NUMBER})s",
        rf"Total number of samples: (?P<items>{_NUMBER})",
        *(rf"{re.escape(words)}(?P<{name}>{_NUMBER})GB" for words, name in MEMORY_LINES.items()),
    )
]
"""Each line that has figures; the groups have the names of the fields."""


@keyed
class LogRun:
    """One run as a log reports it; ``None`` for what the log does not have."""

    batch_size: int  # paragraphs per call
    items: int  # all paragraphs
    total_s: float  # time of the whole loop, writing included
    logged_batch_s: float  # the mean batch time by the log: ``total_s / items * batch_size``
    gpu_capacity_bytes: int | None = None
    gpu_before_bytes: int | None = None
    gpu_model_bytes: int | None = None  # CUDA context and weights together, above the memory in use before
    # above the model, and in all; sampled every 50 paragraphs
    gpu_batch_peak_bytes: int | None = None
    gpu_peak_bytes: int | None = None
    ram_model_bytes: int | None = None
    ram_peak_bytes: int | None = None

    @property
    def batch_mean_s(self) -> float:
        """Mean seconds of a call, partial calls counted."""
        return self.total_s / math.ceil(self.items / self.batch_size)


def parse_log(text: str) -> tuple[tuple[LogRun, ...], int]:
    """Return the runs of a log, and how many of its runs are cut short.

    Lines of any other form are passed over: a job's log holds whatever else was printed.
    """
    blocks: list[dict[str, float]] = []  # the figures of each run, from one ``Total time:`` to the next
    for line in text.splitlines():
        match = next((match for pattern in _LINES if (match := pattern.search(line))), None)
        figures = match.groupdict() if match else {}
        if "total_s" in figures:
            blocks.append({})
        for name, number in figures.items() if blocks else ():
            value = float(number.replace(",", ""))
            blocks[-1][name] = round(value * GIB) if name.endswith("_bytes") else value
    whole = tuple(run for run in map(_run, blocks) if run)
    return whole, len(blocks) - len(whole)


def _run(block: dict[str, float]) -> LogRun | None:
    """Return a run if its figures are complete: it must have its size and count, and end with its RAM."""
    if not {"batch_size", "items", "ram_peak_bytes"} <= block.keys():
        return None
    counts = block["batch_size"], block["items"]
    if block["total_s"] <= 0 or any(count < 1 or count % 1 for count in counts):
        return None
    whole = {f.name for f in fields(LogRun) if f.type != "float"}
    figures = {name: int(value) if name in whole else value for name, value in block.items()}
    return LogRun(**figures)  # type: ignore[arg-type]  # the fields named in `whole` are ints by now


def rows_of_log(file: str, runs: Iterable[LogRun]) -> list[Row]:
    """Return the rows of an old log; the file stands for text, model and versions, which it does not name."""
    rows: list[Row] = []
    repeats: dict[int, int] = {}
    for index, run in enumerate(runs, 1):
        repeats[run.batch_size] = repeats.get(run.batch_size, 0) + 1
        capacity = run.gpu_capacity_bytes
        point = Point(
            run_id=file,
            index=index,
            point_id=f"run {index}",
            workload=LOG,
            params={BATCH_SIZE: run.batch_size},
            repeat=repeats[run.batch_size],
            text=TextRef(path="", sha256="", size_bytes=0, name=""),
            model=None,
            device=CPU if capacity is None else CUDA,
            order="",
            allocator=None,
            threads=1,
        )
        given = dict.fromkeys(("text", "text_sha256", "order", "threads", "workers", "gpus"))
        columns = {"machine": file, "items": run.items, "items_total": run.items}
        if capacity is not None:
            columns["gpu"] = f"unknown GPU, {capacity / GIB:.1f} GiB"
            columns["gpu_capacity_bytes"] = capacity
            columns["gpu_instrument"] = "NVML device, sampled every 50 paragraphs"
        figures = {
            SPEED.name: run.items / run.total_s,
            WORK.name: run.total_s,
            BATCH_MEAN.name: run.batch_mean_s,
            MODEL.name: run.gpu_model_bytes,
            ACTIVATIONS.name: run.gpu_batch_peak_bytes,
            GPU_MEMORY.name: run.gpu_peak_bytes,
            RAM.name: run.ram_peak_bytes,
        }
        tried = Try(number=1, outcome=Outcome.OK, evidence="log of a run that ended")
        row = Row(
            folder=file,
            result=PointResult(point=point, all_tries=(tried,)),
            params=point.params,
            figures=figures,
            file_format=TAGGER_LOG,
            given=given | columns,
        )
        rows.append(row)
    return rows


SUFFIX = ".gpu-report"
"""How the names of such files end at the site whose reports jobkit knows."""
_GPU = re.compile(r"^\|\s*GPU ID:\s*(\d+)\s*\|\s*$", re.MULTILINE)
_ROW = re.compile(r"^\|\s*(?:-\s+)?(\S.*?)\s*\|\s*(\S.*?)\s*\|\s*$")
_DCGM_NUMBER = r"(-?\d{1,18}(?:\.\d{1,9})?)"
_SPREAD = re.compile(rf"Avg:\s*{_DCGM_NUMBER}\s*,\s*Max:\s*{_DCGM_NUMBER}\s*,\s*Min:\s*{_DCGM_NUMBER}")


@frozen
class Spread:
    mean: float
    most: float
    least: float


@keyed
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
        return self.power_w is not None and self.power_w.most == self.power_w.least


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
    dcgm = largest([report.memory_peak_bytes for report in reports])
    mine, seen = largest([row.value(GPU_MEMORY) for row in rows]), _sum([one.processes for one in reports])
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
    # Figures that differ by less are not called different
    differ = known and abs((dcgm or 0) - (own or 0)) > 0.05 * max(dcgm or 0, own or 0)
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
    times, processes = _times(reports, points, log=log), _processes(reports, points, log=log)
    figures = (*times, *_powers(reports, points), *processes)
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
