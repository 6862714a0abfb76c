from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import Point
from jobkit.worker import process
from jobkit.worker.measure.sampler import Peaks
from jobkit.worker.record import TryState, WorkerState, record_of, shares
from tests.support.builders import GPU, by_hand, point
from tests.worker.measure.test_tally import batch


def state(*workers: WorkerState, of: Point | None = None) -> TryState:
    """Return the state of a try with these workers."""
    return TryState(by_hand(of or point(), Path()), "", workers=list(workers))


def test_a_share_is_idle_from_its_last_batch_on() -> None:
    begun = state(WorkerState(), WorkerState(), WorkerState())
    for worker, end_s in ((0, 1.0), (1, 1.5), (0, 4.0)):
        begun.tally.add(replace(batch(1.0), worker=worker), end_s)
    found = [(share.batches, share.items, share.work_s, share.idle_s) for share in shares(begun)]
    assert found == [(2, 6, 2.0, 0.0), (1, 3, 1.0, 2.5), (0, 0, 0.0, 4.0)]


MIB = 2**20


def memory(*workers: WorkerState, idle_bytes: int | None = None, **peaks: Any) -> MemoryReadings:
    begun = state(*workers)
    begun.device_idle_bytes, begun.peaks = idle_bytes, Peaks(**peaks)
    return record_of(begun, None).memory


def test_unknown_memory_stays_unknown_and_the_rise_of_the_device_stands_in_for_the_process() -> None:
    found = memory(WorkerState())
    assert (found.context_bytes, found.activations_bytes, found.other_bytes) == (None, None, None)
    assert (found.process_peak_bytes, found.disagreement) == (None, "")
    assert memory(WorkerState(), idle_bytes=600, device_bytes=1000).process_peak_bytes == 400
    found = memory(WorkerState(context_bytes=5, allocated_peak_bytes=5), WorkerState(), process_bytes=20)
    assert (found.context_bytes, found.other_bytes) == (5, None), "where one is unknown so is the sum"


def test_of_several_processes_the_largest_is_shown_and_the_sums_must_agree_with_the_sampler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "cgroup_peak", lambda: 9)
    one = WorkerState(
        context_bytes=600 * MIB,
        weights_bytes=100 * MIB,
        allocated_peak_bytes=300 * MIB,
        reserved_peak_bytes=400 * MIB,
    )
    two = replace(one, allocated_peak_bytes=350 * MIB, reserved_peak_bytes=500 * MIB)
    found = memory(one, two, idle_bytes=1000 * MIB, device_bytes=3120 * MIB, rss_bytes=7)
    assert (found.context_bytes, found.activations_bytes) == (600 * MIB, 250 * MIB)
    assert (found.allocated_peak_bytes, found.reserved_peak_bytes) == (350 * MIB, 500 * MIB)
    assert found.process_peak_bytes == 2120 * MIB
    assert found.other_bytes == (2120 - 1200 - 650) * MIB
    assert found.disagreement == "", "2 x 600, 400 and 500 MiB are accounted for"
    assert (found.rss_peak_bytes, found.cgroup_peak_bytes) == (7, 9)
    assert memory(one, process_bytes=1010 * MIB).disagreement == ""
    found = memory(one, process_bytes=2000 * MIB)
    assert re.findall(r"[\d,]+ MiB", found.disagreement) == ["2,000 MiB", "1,000 MiB"]
    assert found.other_bytes == 1100 * MIB


def test_of_several_gpus_the_record_has_the_smallest_and_the_most_foreign_processes() -> None:
    """A batch that found no room on a GPU that others use does not show that the GPU is too small."""
    gpus = [replace(GPU, uuid=f"GPU-{n}", total_bytes=size) for n, size in enumerate((32, None, 16, 16))]
    assert record_of(state(*(WorkerState(gpu=gpu) for gpu in gpus)), None).gpu == gpus[2]
    gpus = [replace(gpus[2], foreign_processes=number) for number in (0, 2, None)]
    found = record_of(state(*(WorkerState(gpu=gpu) for gpu in gpus)), None)
    assert found.gpu == gpus[1]


def test_workers_report_the_largest_number_and_each_word_once() -> None:
    effective: list[dict[str, int | str | None]] = [
        {"batch_size": 5, "precision": "tf32", "pinned": None},
        {"batch_size": 7, "precision": "fp32"},
        {},
    ]
    planned = point(params={"batch_size": 7, "precision": "tf32"})
    found = record_of(state(*(WorkerState(effective=one) for one in effective), of=planned), None)
    assert found.effective == {"batch_size": 7, "precision": "tf32, fp32", "pinned": None}
    assert (found.inert, found.ran("precision")) == (("precision",), "tf32, fp32")
