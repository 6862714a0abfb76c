from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobkit.core.measurements import Energy, Gpu
from jobkit.core.records import JobFacts
from jobkit.worker.measure.energy import EnergyReading
from jobkit.worker.measure.sampler import Peaks
from jobkit.worker.record import Task, TryState, WorkerState, record_of, shares
from tests.support.builders import GPU, point
from tests.worker.measure.test_tally import batch


def test_a_share_is_idle_from_its_last_batch_on() -> None:
    task = Task(point=point(), try_number=1, inputs=Path(), out=Path(), job=JobFacts(scheduler="hand"))
    state = TryState(task, "", workers=[WorkerState() for _ in range(3)])
    for worker, end_s in ((0, 1.0), (1, 1.5), (0, 4.0)):
        state.tally.add(replace(batch(1.0), worker=worker), end_s)
    found = [(share.batches, share.items, share.work_s, share.idle_s) for share in shares(state)]
    assert found == [(2, 6, 2.0, 0.0), (1, 3, 1.0, 2.5), (0, 0, 0.0, 4.0)]


def test_of_several_gpus_the_record_names_the_first_with_the_least_memory() -> None:
    sizes = (32, None, 16, 16)
    gpus = [Gpu(name="T4", uuid=f"GPU-{n}", total_bytes=size) for n, size in enumerate(sizes)]
    task = Task(point=point(), try_number=1, inputs=Path(), out=Path(), job=JobFacts(scheduler="hand"))
    found = record_of(TryState(task, "", workers=[WorkerState(gpu=gpu) for gpu in gpus]), None)
    assert found.gpu == gpus[2]


def test_of_several_gpus_the_record_has_the_most_foreign_processes() -> None:
    """A batch that found no room on a GPU that others use does not show that the GPU is too small."""
    gpus = [
        replace(GPU, uuid=f"GPU-{n}", foreign_processes=foreign) for n, foreign in enumerate((0, 2, None))
    ]
    task = Task(point=point(), try_number=1, inputs=Path(), out=Path(), job=JobFacts(scheduler="hand"))
    found = record_of(TryState(task, "", workers=[WorkerState(gpu=gpu) for gpu in gpus]), None)
    assert found.gpu == replace(gpus[0], foreign_processes=2)


def test_workers_report_the_largest_number_and_each_word_once() -> None:
    effective: list[dict[str, int | str | None]] = [
        {"batch_size": 5, "precision": "tf32", "pinned": None},
        {"batch_size": 7, "precision": "fp32"},
        {},
    ]
    planned = point(params={"batch_size": 7, "precision": "tf32"})
    task = Task(point=planned, try_number=1, inputs=Path(), out=Path(), job=JobFacts(scheduler="hand"))
    state = TryState(task, "", workers=[WorkerState(effective=one) for one in effective])
    found = record_of(state, None)
    assert found.effective == {"batch_size": 7, "precision": "tf32, fp32", "pinned": None}
    assert (found.inert, found.precision) == (("precision",), "tf32, fp32")


def test_the_idle_power_is_that_of_the_gpus_of_all_workers() -> None:
    task = Task(point=point(), try_number=1, inputs=Path(), out=Path(), job=JobFacts(scheduler="hand"))
    one, two = (replace(GPU, uuid=uuid) for uuid in ("GPU-1", "GPU-2"))
    workers = [
        WorkerState(gpu=one, opening={"GPU-1": EnergyReading(12, 500), "GPU-2": EnergyReading(12, 700)}),
        WorkerState(gpu=one, opening={}),
        WorkerState(gpu=two, opening={"GPU-2": EnergyReading(14, 900)}),
    ]
    peaks = Peaks(energy=Energy(span_s=10, counter_j=5_000))
    first = {uuid: EnergyReading(10, 300) for uuid in ("GPU-1", "GPU-2", "GPU-3")}
    state = TryState(task, "", workers=workers, peaks=peaks, idle=first)
    energy = record_of(state, None).energy
    assert energy
    assert (energy.idle_w, energy.idle_s, energy.net_joules) == (300, 2, 2_000)
    inherited = {uuid: EnergyReading(11, 400) for uuid in ("GPU-1", "GPU-2")}  # of the parent of a forked try
    forked = record_of(replace(state, task=replace(task, opening=inherited)), None).energy
    assert forked
    assert (forked.idle_w, forked.idle_s) == (200, 1)
    state.idle = {}
    assert record_of(state, None).energy is peaks.energy
    assert record_of(replace(state, peaks=None), None).energy is None
