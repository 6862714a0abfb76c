"""Logs of the taggers before jobkit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.units import GIB
from jobkit.extensions.other_logs.tagger_log import LogRun, parse_log

DATA = Path(__file__).parents[2] / "data" / "predecessors"
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


def test_a_job_log_holds_other_lines_too() -> None:
    noisy = "module: loaded\n" + GPU_LOG.replace("\n", "\r\nWARNING something else 3GB\r\n")
    assert parse_log(noisy) == parse_log(GPU_LOG)


def test_a_run_cut_short_is_counted_and_left_out() -> None:
    lines = GPU_LOG.splitlines()
    runs, cut = parse_log("\n".join(lines[:-1]))
    assert ([r.batch_size for r in runs], cut) == ([50], 1)


@given(st.integers(0, len(GPU_LOG)))
def test_every_truncation_yields_only_whole_runs(length: int) -> None:
    whole, _ = parse_log(GPU_LOG)
    runs, _ = parse_log(GPU_LOG[:length])
    assert runs == whole[: len(runs)]


@given(st.text())
def test_any_text_is_read_without_a_fault(text: str) -> None:
    assert parse_log(text)[0] == ()


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("batch size 50: 0.4906s", "batch size 0: 0.4906s"),
        ("Total time: 8.6445s", "Total time: 0.0000s"),
        ("1.9911GB", "1.9911GB\n0 - __main__ - INFO - Total number of samples: 0"),
    ],
)
def test_a_run_of_nothing_counts_as_cut_short(said: str, instead: str) -> None:
    assert GPU_LOG.count(said) == 1
    runs, cut = parse_log(GPU_LOG.replace(said, instead))
    assert ([r.batch_size for r in runs], cut) == ([300], 1)


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


@pytest.mark.parametrize("size", ["10,24", "1.5", "1e-1", "9" * 5_000])
def test_what_is_no_whole_number_is_no_batch_size(size: str) -> None:
    assert parse_log(LINES.format(time="3", items="9", size=size, batch="1", gpu="1")) == ((), 1)


def test_an_absurd_number_is_no_figure() -> None:
    runs, _ = parse_log(LINES.format(time="3", items="9", size="3", batch="1", gpu="1e999"))
    assert [run.gpu_peak_bytes for run in runs] == [None]
