from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.measurements import Memory
from jobkit.core.units import GIB
from jobkit.report.rows import Row
from jobkit.report.sources import read_sources
from tests.support.builders import GPU, point, record, write_points, write_record


def row_of(run: Path, memory: Memory, foreign: int | None) -> Row:
    write_points(run, [point()])
    write_record(run, replace(record(point()), memory=memory, gpu=replace(GPU, foreign_processes=foreign)))
    (row,) = read_sources([run]).rows
    return row


def test_a_card_of_ones_own_tells_the_peak_by_its_rise(tmp_path: Path) -> None:
    memory = Memory(device_peak_bytes=5 * GIB, device_idle_bytes=GIB)
    found = row_of(tmp_path / "run", memory, 0)
    assert (found.gpu_peak_bytes, found.gpu_instrument) == (4 * GIB, "NVML device above idle")


@pytest.mark.parametrize(
    ("foreign", "idle"), [(1, GIB), (None, GIB), (0, None)], ids=["shared", "perhaps shared", "never idle"]
)
def test_else_the_card_tells_nothing_of_this_process(
    tmp_path: Path, foreign: int | None, idle: int | None
) -> None:
    memory = Memory(device_peak_bytes=5 * GIB, device_idle_bytes=idle)
    found = row_of(tmp_path / "run", memory, foreign)
    assert (found.gpu_peak_bytes, found.gpu_instrument) == (None, None)
