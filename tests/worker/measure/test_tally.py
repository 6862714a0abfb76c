from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from jobkit.core.measurements import Summary
from jobkit.core.records import Batch
from jobkit.worker.measure.figures import Tally


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


def of(batches: Iterable[Batch], *, ends_s: Iterable[float | None] = ()) -> Summary:
    tally, ends = Tally(), iter(ends_s)
    for one in batches:
        tally.add(one, next(ends, None))
    return tally.summary(items_total=10, batches_total=4)


def test_a_summary_of_two_batches_of_one_worker_and_of_two() -> None:
    summary = of([batch(1.0), batch(3.0, items=1)])
    assert (summary.items, summary.batches, summary.sentences) == (4, 2, 8)
    assert (summary.work_s, summary.items_per_s, summary.batch_mean_s) == (4.0, 1.0, 2.0)
    assert summary.padding_efficiency == 0.5
    assert summary.batch_p50_s == 2.0
    assert summary.batch_p95_s == pytest.approx(2.9)
    assert of(map(batch, range(5, 0, -1))).batch_p95_s == pytest.approx(4.8)
    summary = of([batch(1.0), batch(3.0)], ends_s=[1.5, 3.0])
    assert (summary.work_s, summary.items_per_s, summary.batch_mean_s) == (3.0, 2.0, 2.0)


def test_unknown_is_none_and_never_zero() -> None:
    summary = of([])
    assert summary.items == 0
    assert {summary.items_per_s, summary.batch_p95_s, summary.load_max, summary.sentences} == {None}
    assert of([batch(1.0), batch(1.0, padded=None)]).padding_efficiency is None
    assert of([replace(batch(1.0), load=0)]).load_max == 0


def test_it_counts_what_has_been_added_and_the_retries_of_the_batches_that_tell() -> None:
    counted = []
    tally = Tally()
    for retries in (None, 0, 2, None, 1):
        tally.add(replace(batch(1.0), alloc_retries=retries))
        counted.append((tally.batches, tally.total.retries))
    assert counted == [(1, None), (2, 0), (3, 2), (4, 2), (5, 3)]
    assert (tally.of(0).batches, tally.of(7).batches) == (5, 0)
