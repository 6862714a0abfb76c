from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.measurements import Memory
from jobkit.core.units import GIB
from jobkit.report.rows import Row
from jobkit.report.sources import read_sources
from tests.support.builders import GPU, point, record, write_records


def row_of(run: Path, memory: Memory, foreign: int | None) -> Row:
    told = replace(record(point()), memory=memory, gpu=replace(GPU, foreign_processes=foreign))
    (row,) = read_sources([write_records(run, [told])]).rows
    return row


@pytest.mark.parametrize(
    ("memory", "instrument"),
    [
        (Memory(device_peak_bytes=5 * GIB, device_idle_bytes=GIB), "NVML device above idle"),
        (Memory(context_bytes=GIB, reserved_peak_bytes=3 * GIB), "context + torch reserved"),
    ],
)
def test_without_the_peak_of_the_process_another_instrument_stands_in(
    tmp_path: Path, memory: Memory, instrument: str
) -> None:
    found = row_of(tmp_path / "run", memory, 0)
    assert (found.gpu_peak_bytes, found.gpu_instrument) == (4 * GIB, instrument)


@pytest.mark.parametrize(
    ("foreign", "idle"), [(1, GIB), (None, GIB), (0, None)], ids=["shared", "perhaps shared", "never idle"]
)
def test_else_the_card_tells_nothing_of_this_process(
    tmp_path: Path, foreign: int | None, idle: int | None
) -> None:
    memory = Memory(device_peak_bytes=5 * GIB, device_idle_bytes=idle)
    found = row_of(tmp_path / "run", memory, foreign)
    assert (found.gpu_peak_bytes, found.gpu_instrument) == (None, None)
