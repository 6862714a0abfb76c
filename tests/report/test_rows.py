from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.objective import Bound, Objective
from jobkit.answers.setting import Setting
from jobkit.core.figures import GPU_MEMORY
from jobkit.core.measurements import MemoryReadings
from jobkit.core.units import GIB
from jobkit.report.rows import Row, read_sources
from tests.support.builders import GPU, point, record, write_records


def row_of(run: Path, memory: MemoryReadings, foreign: int | None, workers: int = 1) -> Row:
    gpu = replace(GPU, foreign_processes=foreign)
    told = replace(record(replace(point(), workers=workers)), memory=memory, gpu=gpu)
    (row,) = read_sources([write_records(run, [told])]).rows
    return row


@pytest.mark.parametrize(
    ("memory", "instrument"),
    [
        (MemoryReadings(device_peak_bytes=5 * GIB, device_idle_bytes=GIB), "NVML device above idle"),
        (MemoryReadings(context_bytes=GIB, reserved_peak_bytes=3 * GIB), "context + torch reserved"),
    ],
)
def test_without_the_peak_of_the_process_another_instrument_stands_in(
    tmp_path: Path, memory: MemoryReadings, instrument: str
) -> None:
    found = row_of(tmp_path / "run", memory, 0)
    assert (found.value(GPU_MEMORY), found.value("gpu_instrument")) == (4 * GIB, instrument)


def test_the_context_of_one_process_is_not_the_memory_of_several_workers(tmp_path: Path) -> None:
    one_process = MemoryReadings(context_bytes=GIB, reserved_peak_bytes=3 * GIB)
    assert row_of(tmp_path / "run", one_process, 0, workers=2).value(GPU_MEMORY) is None
    device = replace(one_process, device_peak_bytes=9 * GIB, device_idle_bytes=GIB)
    assert row_of(tmp_path / "second", device, 0, workers=2).value(GPU_MEMORY) == 8 * GIB


def test_a_constraint_is_judged_by_the_memory_that_the_table_shows(tmp_path: Path) -> None:
    memory = MemoryReadings(device_peak_bytes=9 * GIB, device_idle_bytes=7 * GIB)
    row = row_of(tmp_path / "run", memory, 0)
    assert row.record
    assert row.value(GPU_MEMORY) == 2 * GIB
    at_most = Objective(bounds={GPU_MEMORY.key: Bound(max=3 * GIB)})
    assert at_most.broken(Setting(points=(row.record,))) == ""


@pytest.mark.parametrize(
    ("foreign", "idle"), [(1, GIB), (None, GIB), (0, None)], ids=["shared", "perhaps shared", "never idle"]
)
def test_else_the_card_tells_nothing_of_this_process(
    tmp_path: Path, foreign: int | None, idle: int | None
) -> None:
    memory = MemoryReadings(device_peak_bytes=5 * GIB, device_idle_bytes=idle)
    found = row_of(tmp_path / "run", memory, foreign)
    assert (found.value(GPU_MEMORY), found.value("gpu_instrument")) == (None, None)
