from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobkit.core.records import JobFacts, Point
from jobkit.worker.record import Task, TryState, WorkerState, record_of, shares
from tests.support.builders import GPU, point
from tests.worker.measure.test_tally import batch


def state(*workers: WorkerState, of: Point | None = None) -> TryState:
    """Return the state of a try with these workers."""
    job = JobFacts(scheduler="hand")
    task = Task(point=of or point(), try_number=1, inputs=Path(), out=Path(), job=job)
    return TryState(task, "", workers=list(workers))


def test_a_share_is_idle_from_its_last_batch_on() -> None:
    begun = state(WorkerState(), WorkerState(), WorkerState())
    for worker, end_s in ((0, 1.0), (1, 1.5), (0, 4.0)):
        begun.tally.add(replace(batch(1.0), worker=worker), end_s)
    found = [(share.batches, share.items, share.work_s, share.idle_s) for share in shares(begun)]
    assert found == [(2, 6, 2.0, 0.0), (1, 3, 1.0, 2.5), (0, 0, 0.0, 4.0)]


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
