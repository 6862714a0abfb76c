"""Logs of other programs: of the taggers before jobkit, and DCGM's report of a job next to its points."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.core.measurements import Energy, Sampler
from jobkit.core.records import Record
from jobkit.core.units import GIB
from jobkit.extensions.other_logs import JobFigures, belongs, dcgm_reports, shown
from jobkit.extensions.other_logs.dcgm import GpuReport, Spread, is_gpu_report, parse_report
from jobkit.extensions.other_logs.tagger_log import LogRun, parse_log
from jobkit.report.output import render
from jobkit.report.page import page
from jobkit.report.tables import collect
from tests.support.builders import grid, record, write_records

DATA = Path(__file__).parents[1] / "data" / "predecessors"
GPU_LOG = (DATA / "gpu-stanza-tagging.o2650").read_text()
CPU_LOG = (DATA / "cpu-stanza-tagging.o6794329").read_text()


def gib(number: float) -> int:
    return round(number * GIB)


def test_the_gpu_log_holds_two_runs() -> None:
    (first, second), cut = parse_log(GPU_LOG)
    assert cut == 0
    assert first == LogRun(
        batch_size=50,
        items=881,
        total_s=8.6445,
        logged_batch_s=0.4906,
        gpu_capacity_bytes=gib(31.7485),
        gpu_before_bytes=gib(0.0001),
        gpu_model_bytes=gib(1.3270),
        gpu_batch_peak_bytes=gib(0.6641),
        gpu_peak_bytes=gib(1.9911),
        ram_peak_bytes=gib(2.4532),
    )
    assert (second.batch_size, second.total_s, second.gpu_peak_bytes) == (300, 5.9519, gib(7.0809))
    assert (first.batch_mean_s, second.batch_mean_s) == (8.6445 / 18, 5.9519 / 3)


def test_the_cpu_log_has_no_gpu_figures() -> None:
    runs, _ = parse_log(CPU_LOG)
    assert [(r.batch_size, r.total_s, r.ram_model_bytes, r.ram_peak_bytes) for r in runs] == [
        (50, 140.8209, gib(0.5035), gib(1.0178)),
        (300, 113.0176, gib(0.5057), gib(3.8383)),
    ]
    assert {r.gpu_capacity_bytes for r in runs} == {None}


def test_a_job_log_holds_other_lines_too_and_a_run_cut_short_is_counted() -> None:
    noisy = "module: loaded\n" + GPU_LOG.replace("\n", "\r\nWARNING something else 3GB\r\n")
    assert parse_log(noisy) == parse_log(GPU_LOG)
    runs, cut = parse_log("\n".join(GPU_LOG.splitlines()[:-1]))
    assert ([r.batch_size for r in runs], cut) == ([50], 1)


LINES = """\
t - l - INFO - Total time: {time}s
t - l - INFO - Total number of samples: {items}
t - l - INFO - Mean batch time for batch size {size}: {batch}s
t - l - INFO - Peak GPU memory used {gpu}GB
t - l - INFO - Peak RAM memory used 2.5GB
"""


@pytest.mark.fault
def test_thousands_commas_and_exponents_are_read() -> None:
    """FAULT: an old log writes `1,024` or `1.5e+03`.

    HOW: a log with thousands separators, and another with exponents.
    REPORTED: the run, with these figures.
    LOST: nothing.
    """
    runs, cut = parse_log(
        LINES.format(time="1,024.5", items="12,000", size="1,024", batch="1.5e+03", gpu="1e-01")
    )
    assert cut == 0
    assert [
        (run.total_s, run.items, run.batch_size, run.logged_batch_s, run.gpu_peak_bytes) for run in runs
    ] == [(1024.5, 12_000, 1_024, 1_500, gib(0.1))]
    runs, _ = parse_log(LINES.format(time="3", items="1e3", size="2E+1", batch="1", gpu="1"))
    assert [(run.items, run.batch_size) for run in runs] == [(1_000, 20)]


REPORT = (DATA / "gpu-stanza-tagging.gpu-report").read_text()
LOG = DATA / "gpu-stanza-tagging.o2650"
SHAPE = {"energy": r"(Energy Consumed \(Joules\)\s*\| )\S+", "memory": r"(Memory Used \(bytes\)\s*\| )\d+"}


def test_the_report_of_the_predecessors_has_a_part_for_each_gpu() -> None:
    assert is_gpu_report(REPORT)
    assert not is_gpu_report(LOG.read_text())
    [found] = parse_report(REPORT)
    assert found == GpuReport(
        gpu=1,
        seconds=31.56,
        processes=1,
        energy_j=0,
        power_w=Spread(56.378, 56.378, 56.378),
        memory_peak_bytes=2_205_155_328,
        sm_percent=Spread(39, 39, 39),
    )
    assert found.one_sample
    second = REPORT.replace("GPU ID: 1", "GPU ID: 3").replace("31.56", "N/A")
    first, other = parse_report(f"Successfully retrieved statistics for job: 7.\n{REPORT}{second}")
    assert (first.gpu, other.gpu, other.seconds) == (1, 3, None)


def test_a_report_belongs_to_the_log_of_its_job() -> None:
    reports = ("tag", "tag.2650", "tag.2651", "other")
    assert [belongs(f"{name}.gpu-report", "tag.o2650") for name in reports] == [True, True, False, False]


def test_the_predecessors_report_stands_next_to_their_log() -> None:
    [job] = collect([LOG]).sources.jobs
    assert isinstance(job, JobFigures)
    assert (job.whose, job.points) == ("log", 2)
    figures = {figure.name: figure for figure in job.figures}
    assert figures["time"].dcgm == 31.56
    assert figures["time"].own == pytest.approx(8.6445 + 5.9519)
    assert "no measurement" in figures["energy"].why
    assert any("one sample" in line for line in job.lines())
    assert {"GPU busy", "mean power", "processes"} <= figures.keys()


def measured(number: int = 2, *, workers: int = 1) -> list[Record]:
    """Return records of GPUs that were busy 80 % of 8 s, with 200 W."""
    plain = [record(point) for point in grid(range(10, 10 * number + 1, 10))]
    return [
        replace(
            one,
            point=replace(one.point, workers=workers),
            sampler=Sampler(utilisation_mean_percent=80),
            energy=Energy(span_s=8, counter_j=1600),
        )
        for one in plain
    ]


def report(*, energy: float = 3200, memory: int = 2 * GIB) -> str:
    """Return a report of a job of 150 s."""
    text = re.sub(SHAPE["energy"], rf"\g<1>{energy}", REPORT)
    text = re.sub(SHAPE["memory"], rf"\g<1>{memory}", text)
    return text.replace("Max: 56.378", "Max: 210.1")


def job_of(tmp_path: Path, records: list[Record], text: str, name: str = "job-77.gpu-report") -> JobFigures:
    """Return the figures of a run with a report in its logs."""
    run = write_records(tmp_path / "run", records)
    (run / "logs").mkdir()
    (run / "logs" / name).write_text(text)
    [job] = collect([run]).sources.jobs
    assert isinstance(job, JobFigures)
    return job


def test_of_a_run_each_difference_is_explained(tmp_path: Path) -> None:
    job = job_of(tmp_path, measured(), report(energy=5000, memory=3 * GIB))
    figures = {figure.name: figure for figure in job.figures}
    assert {name: figure.own for name, figure in figures.items()} == {
        "time": 120,
        "GPU busy": 80,
        "energy": 3200,
        "mean power": 200,
        "GPU memory, peak": pytest.approx(1.2 * GIB),
        "processes": 2,
    }
    assert all(figure.why for figure in figures.values())
    assert "DCGM has more" in figures["GPU memory, peak"].why
    assert job.remarks == ()
    assert shown(figures["energy"].dcgm, "J") == "5,000 J"


def test_the_numbers_in_its_name_say_of_which_points_it_is(tmp_path: Path) -> None:
    assert job_of(tmp_path / "task", measured(), report(), "x.77.2.gpu-report").points == 1
    assert job_of(tmp_path / "job", measured(), report(), "x.77.gpu-report").points == 2
    nameless = job_of(tmp_path / "none", measured(), report(), "x.gpu-report")
    assert nameless.points == 2
    assert "takes the report to be of all points" in "".join(nameless.lines())


def test_it_is_in_every_format(tmp_path: Path) -> None:
    run = write_records(tmp_path / "run", measured())
    (tmp_path / "elsewhere.gpu-report").write_text(report(energy=0))
    elsewhere = partial(dcgm_reports, [tmp_path / "elsewhere.gpu-report"])
    collected = collect([run], elsewhere)
    for text in (render(collected), render(collected, "md"), page([run], elsewhere).html):
        assert "GPU memory, peak" in text
        assert "no measurement" in text
    [job] = json.loads(render(collected, "json"))["dcgm"]
    assert job["figures"][0]["name"] == "time"


def test_a_file_that_is_no_report_is_a_fault_or_a_note(tmp_path: Path) -> None:
    run = write_records(tmp_path / "run", measured())
    (run / "logs").mkdir()
    (run / "logs" / "a.gpu-report").write_text("nothing to see")
    (run / "logs" / "b.gpu-report").mkdir()
    found = collect([run])
    assert not found.sources.jobs
    assert sum("skipped" in note for note in found.notes) == 2
    with pytest.raises(JobkitError, match="not a DCGM report of a job"):
        dcgm_reports([run / "logs" / "a.gpu-report"], found.rows)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "tag.gpu-report").write_text(REPORT)
    [note] = collect([tmp_path / "alone"]).notes
    assert "no log of its name is next to it" in note, "it names no batch size"
