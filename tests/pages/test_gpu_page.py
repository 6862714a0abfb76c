"""The parts of the memory of a GPU add up in the records of docs/measurements.md."""

from __future__ import annotations

import pytest

from benchmarks import gpu_page
from jobkit.core.records import Record

RECORDS = [record for run in sorted(gpu_page.RUNS.iterdir()) for record in gpu_page.records(run)]


@pytest.mark.parametrize(
    "record", RECORDS, ids=lambda record: f"{record.point.allocator}-{record.point.point_id}"
)
def test_the_split_adds_up_to_nvmls_figure_within_2_percent_and_instruments_differ(record: Record) -> None:
    assert gpu_page.share(record.memory, 4) == pytest.approx(1, abs=0.02)
    assert record.memory.disagreement == ""
    assert record.memory.other_bytes == pytest.approx(gpu_page.slack_bytes(record.memory), abs=16 * 2**20)
    peaks = ("allocated", "reserved", "process", "device")
    figures = [getattr(record.memory, f"{name}_peak_bytes") for name in peaks]
    assert figures == sorted(set(figures)), "the four instruments differ"
    assert record.sampler is not None
    assert record.sampler.memory_query == "v2"
