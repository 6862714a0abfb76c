"""Figures that a program reports itself: what counts, what does not, and what hostile files cost."""

from __future__ import annotations

import json
import os
import re
import runpy
import tracemalloc
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jobkit
from jobkit.core.errors import JobkitError
from jobkit.core.measurements import Metric
from jobkit.core.records import Batch
from jobkit.worker.measure import emit, figures
from jobkit.worker.measure.figures import GrowingFile, OwnFigures, finish, parse

GOOD = '{"items": 32, "seconds": 0.41, "load": 30112}'
BAD = (
    b"garbage",
    b"\xff\xfe\x00",
    b"[1, 2]",
    b'{"items": 0, "seconds": 1}',
    b'{"items": 1.5, "seconds": 1}',
    b'{"items": true, "seconds": 1}',
    b'{"items": 1, "seconds": NaN}',
    b'{"items": 1, "seconds": -1}',
    b'{"items": 1, "seconds": 1, "load": -1}',
    b'{"items": 1, "seconds": 1, "worker": 10000}',
    b'{"items": 1, "items": 2, "seconds": 1}',
    b'{"items": 1, "seconds": 1, "metric": "f1", "value": 1}',
    b'{"metric": "f1", "value": Infinity}',
    b'{"metric": "", "value": 1}',
    b'{"metric": "a\\u001b[31m", "value": 1}',
    b'{"metric": "f1", "value": 1, "unit": "\\n"}',
    b'{"metric": "f1", "value": 1' + b"0" * 5000 + b"}",
    b"[" * 60_000,
    b'{"metric": "' + b"x" * 70_000 + b'", "value": 1}',
)


class Reading:
    """A file of figures, as a worker reads it."""

    def __init__(self, path: Path) -> None:
        self.batches: list[Batch] = []
        self.figures = OwnFigures(keep=self.batches.append)
        self.file = GrowingFile(path, self.figures.take_line)

    def finish(self, steps: int = 50) -> OwnFigures:
        finish(self.file, self.figures, [0.2] * steps)
        return self.figures


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_batches_and_metrics_are_kept_and_the_last_value_counts(path: Path) -> None:
    path.write_text(f'{GOOD}\n{{"metric": "f1", "value": 0.1}}\n\n{{"metric":"f1","value":0.91,"unit":"1"}}')
    read = Reading(path)
    assert read.finish().metrics == {"f1": Metric(value=0.91, unit="1")}
    assert [(one.items, one.seconds, one.load) for one in read.batches] == [(32, 0.41, 30112)]
    assert read.figures.bad_lines == 0


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_a_bad_line_is_counted_and_the_next_one_read(
    path: Path, line: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_bytes(line + b"\n" + GOOD.encode() + b"\n")
    read = Reading(path)
    assert read.finish().bad_lines == 1
    assert len(read.batches) == 1
    assert not read.figures.metrics
    said = capsys.readouterr().err
    assert "is no figure" in said
    assert said.isascii()
    assert len(said) < 1000


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        parse(data)
    except JobkitError:
        return
    assert isinstance(json.loads(data), dict)


def test_lines_are_read_as_they_come_and_not_after_the_end(path: Path) -> None:
    read = Reading(path)
    assert not read.file.read(1)
    with path.open("w") as stream:
        for part in (GOOD + "\n" + GOOD[:10], GOOD[10:], "\n"):
            stream.write(part)
            stream.flush()
            read.file.read(1)
        assert len(read.batches) == 2
        read.file.read_rest([])
        stream.write(GOOD + "\n")
    read.finish()
    assert len(read.batches) == 2
    assert read.figures.bad_lines == 0


def test_a_file_that_is_written_again_is_read_from_its_beginning(path: Path) -> None:
    read = Reading(path)
    path.write_text(f"{GOOD}\n{GOOD}\n")
    read.file.read(1)
    path.write_text(f"{GOOD}\n")
    read.finish()
    assert len(read.batches) == 3


@pytest.mark.parametrize("kind", ["fifo", "folder", "gone"])
def test_what_is_no_file_is_an_error_and_blocks_nothing(path: Path, kind: str) -> None:
    {"fifo": os.mkfifo, "folder": os.mkdir, "gone": lambda _: None}[kind](path)
    read = Reading(path)
    assert read.finish().bad_lines == 0
    assert bool(read.file.error) == (kind != "gone")


def test_a_line_without_end_costs_bounded_memory(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(64 * 2**20)
    read = Reading(path)
    tracemalloc.start()
    read.finish(steps=300)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20
    assert read.figures.bad_lines == 1


@pytest.mark.rare
def test_many_lines_cost_bounded_time_and_little_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "time", SimpleNamespace(monotonic=count().__next__))  # a piece takes 1 s
    path.write_text(f"{GOOD}\n" * 40_000)
    seen = OwnFigures(keep=lambda _: None)
    file = GrowingFile(path, seen.take_line)
    tracemalloc.start()
    finish(file, seen, [1.5] * 4)  # a piece of 256 KiB in each step
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * 2**20 < path.stat().st_size
    assert seen.bad_lines > 5_000  # what there was no time for is counted


def test_a_record_has_room_for_the_metrics(path: Path) -> None:
    path.write_text("".join(f'{{"metric": "m{n}", "value": {n}}}\n' for n in range(1000)))
    read = Reading(path).finish()
    assert len(read.metrics) == figures.MOST_METRICS
    assert read.bad_lines == 1000 - figures.MOST_METRICS


def test_a_workload_whose_batches_jobkit_times_reports_metrics_alone(path: Path) -> None:
    path.write_text(f'{GOOD}\n{{"metric": "f1", "value": 1}}\n')
    read = Reading(path)
    read.figures.keep = None
    assert read.finish().bad_lines == 1
    assert read.figures.metrics == {"f1": Metric(value=1.0)}


def test_a_pattern_finds_the_last_value_in_the_output() -> None:
    seen = OwnFigures(patterns={"f1": re.compile(r"f1=(\S*)")})
    for line in (b"f1=0.5", b"x f1=0.75 \xff", b"f1=nan", b"f1=", b"else"):
        seen.take_output(line, figures.LinePart.WHOLE)
    assert seen.metrics == {"f1": Metric(value=0.75)}
    assert seen.bad_lines == 2


def test_emit_appends_what_jobkit_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBKIT_METRICS", raising=False)
    jobkit.emit(items=1, seconds=1.0)
    assert not path.exists()
    monkeypatch.setenv("JOBKIT_METRICS", str(path))
    copied = runpy.run_path(emit.__file__)["emit"]  # a file of its own needs nothing of jobkit
    jobkit.emit(items=32, seconds=0.41)
    copied(metric="f1", value=0.91, unit="1")
    read = Reading(path)
    assert read.finish().metrics == {"f1": Metric(value=0.91, unit="1")}
    assert [(one.items, one.seconds, one.load) for one in read.batches] == [(32, 0.41, 32)]
    jobkit.emit(metric="bad", value=float("nan"))
    read = Reading(path)
    assert read.finish().bad_lines == 1
