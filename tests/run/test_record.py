from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.measurements import Energy, Gpu
from jobkit.core.records import Batch, Job
from jobkit.run.measure.energy import Reading
from jobkit.run.measure.sampler import Peaks
from jobkit.run.record import Measured, Task, Try, percentile, record_of, shares, summarise
from tests.support.builders import GPU, point


def batch(seconds: float, *, items: int = 3, padded: int | None = 200) -> Batch:
    return Batch(
        index=0,
        first_item=0,
        items=items,
        sentences=4,
        characters=100,
        load=150,
        padded_chars=padded,
        seconds=seconds,
    )


@given(st.lists(st.floats(0, 1e6), min_size=2))
def test_quantiles_agree_with_the_standard_library(values: list[float]) -> None:
    ordered = sorted(values)
    expected = statistics.quantiles(ordered, n=20, method="inclusive")
    assert percentile(ordered, 0.5) == pytest.approx(statistics.median(ordered))
    assert percentile(ordered, 0.95) == pytest.approx(expected[-1])


def test_a_summary_of_two_batches() -> None:
    summary = summarise([batch(1.0), batch(3.0, items=1)], items_total=10, batches_total=4)
    assert (summary.items, summary.batches, summary.sentences) == (4, 2, 8)
    assert summary.work_s == pytest.approx(4.0)
    assert summary.items_per_s == pytest.approx(1.0)
    assert summary.batch_mean_s == pytest.approx(2.0)
    assert summary.padding_efficiency == pytest.approx(0.5)


def test_of_several_workers_the_speed_is_that_of_all_together() -> None:
    summary = summarise([batch(1.0), batch(3.0)], items_total=6, batches_total=2, work_s=3.0)
    assert (summary.work_s, summary.items_per_s, summary.batch_mean_s) == (3.0, 2.0, 2.0)


def test_a_share_is_idle_from_its_last_batch_on() -> None:
    batches = [replace(batch(1.0), worker=worker) for worker in (0, 1, 0)]
    task = Task(point=point(), try_number=1, inputs=Path(), out=Path(), job=Job(scheduler="hand"))
    state = Try(task, "", workers=[Measured() for _ in range(3)], batches=batches, ends_s=[1.0, 1.5, 4.0])
    found = [(share.batches, share.items, share.work_s, share.idle_s) for share in shares(state)]
    assert found == [(2, 6, 2.0, 0.0), (1, 3, 1.0, 2.5), (0, 0, 0.0, 4.0)]


def test_of_several_gpus_the_record_names_the_first_with_the_least_memory() -> None:
    sizes = (32, None, 16, 16)
    gpus = [Gpu(name="T4", uuid=f"GPU-{n}", total_bytes=size) for n, size in enumerate(sizes)]
    task = Task(point=point(), try_number=1, inputs=Path(), out=Path(), job=Job(scheduler="hand"))
    found = record_of(Try(task, "", workers=[Measured(gpu=gpu) for gpu in gpus]), None)
    assert found.gpu == gpus[2]


def test_workers_report_the_largest_number_and_each_word_once() -> None:
    effective: list[dict[str, int | str | None]] = [
        {"batch_size": 5, "precision": "tf32", "pinned": None},
        {"batch_size": 7, "precision": "fp32"},
        {},
    ]
    planned = point(params={"batch_size": 7, "precision": "tf32"})
    task = Task(point=planned, try_number=1, inputs=Path(), out=Path(), job=Job(scheduler="hand"))
    state = Try(task, "", workers=[Measured(effective=one) for one in effective])
    found = record_of(state, None)
    assert found.effective == {"batch_size": 7, "precision": "tf32, fp32", "pinned": None}
    assert (found.inert, found.precision) == (("precision",), "tf32, fp32")


def test_the_idle_power_is_that_of_the_gpus_of_all_workers() -> None:
    task = Task(point=point(), try_number=1, inputs=Path(), out=Path(), job=Job(scheduler="hand"))
    one, two = (replace(GPU, uuid=uuid) for uuid in ("GPU-1", "GPU-2"))
    workers = [
        Measured(gpu=one, opening={"GPU-1": Reading(12, 500), "GPU-2": Reading(12, 700)}),
        Measured(gpu=one, opening={}),
        Measured(gpu=two, opening={"GPU-2": Reading(14, 900)}),
    ]
    peaks = Peaks(energy=Energy(span_s=10, counter_j=5_000))
    first = {uuid: Reading(10, 300) for uuid in ("GPU-1", "GPU-2", "GPU-3")}
    state = Try(task, "", workers=workers, peaks=peaks, idle=first)
    energy = record_of(state, None).energy
    assert energy
    assert (energy.idle_w, energy.idle_s, energy.net_joules) == (300, 2, 2_000)
    state.idle = {}
    assert record_of(state, None).energy is peaks.energy
    assert record_of(replace(state, peaks=None), None).energy is None


def test_unknown_is_none_and_never_zero() -> None:
    summary = summarise([], items_total=10, batches_total=4)
    assert summary.items == 0
    assert summary.items_per_s is None
    assert summary.batch_p95_s is None
    assert summary.load_max is None
    assert summary.sentences is None
    assert (
        summarise([batch(1.0), batch(1.0, padded=None)], items_total=2, batches_total=2).padding_efficiency
        is None
    )
