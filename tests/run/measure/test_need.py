from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.records import Batch, Point
from jobkit.run.failure import Stopped
from jobkit.run.measure.device import Device
from jobkit.run.measure.need import (
    FINEST_SHARE,
    GRAIN_SHOWS_BYTES,
    SEARCHED,
    STEP_BYTES,
    bracket,
    heaviest,
    measure_needs,
    run_heaviest_first,
)
from jobkit.run.paragraphs import Call
from jobkit.run.workloads.base import Heavy, Result, Workload
from tests.support.builders import batch, point

MIB = 2**20


class OutOfMemoryError(RuntimeError):
    """What torch calls it."""


@dataclass
class Card:
    """A device whose allocator refuses what is above a cap.

    Attributes
    ----------
    caps
        All that were set; the last one holds.
    allocated_bytes
        By load; what is reserved is a tenth more, and what is needed 3 % less than that.
    """

    total_bytes: int = 100 * 2**30
    torch: object = True
    caps: list[int | None] = field(default_factory=list)
    emptied: int = 0
    peak_bytes: int = 0

    def cap(self, size_bytes: int | None) -> None:
        self.caps.append(size_bytes)

    def empty_cache(self) -> None:
        self.emptied += 1

    def reset_peaks(self) -> None:
        self.peak_bytes = 0

    def synchronise(self) -> None:
        pass

    def known_peaks(self) -> tuple[int, int]:
        return self.peak_bytes, self.peak_bytes * 11 // 10

    def run(self, size_bytes: int) -> Callable[[], None]:
        """Return a batch that holds so many bytes at its peak."""

        def again() -> None:
            if needed(size_bytes) > (self.caps[-1] or self.total_bytes):
                raise OutOfMemoryError("CUDA out of memory")
            self.peak_bytes = max(self.peak_bytes, size_bytes)

        return again

    @property
    def device(self) -> Device:
        return cast("Device", self)


def needed(size_bytes: int) -> int:
    return int(0.97 * 1.1 * size_bytes)


SEARCHING = replace(point(), allocator=SEARCHED)


# -- the search


@given(st.integers(1, 2**37), st.integers(0, 2**36), st.floats(0, 1))
def test_the_edge_is_found_within_a_step_and_in_few_tries(low: int, width: int, share: float) -> None:
    high = low + width
    edge = min(high, low + 1 + int(share * width))
    tried = []

    def passes(cap: int) -> bool:
        tried.append(cap)
        return cap >= edge

    found = bracket(passes, low, high)
    finest = max(STEP_BYTES, int(FINEST_SHARE * high))
    assert found.passed_bytes - found.failed_bytes <= max(finest, 0)
    assert found.failed_bytes < edge <= found.passed_bytes or width == 0
    assert found.tries == len(tried) <= 2 + max(0.0, math.log2(max(width, 1) / finest))
    assert all(low < cap < high for cap in tried)
    assert tried[:1] == ([high - finest] if width > finest else [])


def test_a_batch_that_needs_all_it_reserved_is_told_in_one_try() -> None:
    found = bracket(lambda _: False, 100 * MIB, 200 * MIB)
    assert (found.passed_bytes, found.failed_bytes, found.tries) == (200 * MIB, 192 * MIB, 1)


# -- measuring


def test_the_need_is_found_and_the_cap_put_back() -> None:
    card, size = Card(), 4 * 2**30
    [found] = measure_needs(
        card.device, [Heavy(7_000, card.run(size))], replace(SEARCHING, cap_bytes=80 * 2**30)
    )
    assert (found.load, found.allocated_bytes, found.reserved_bytes) == (7_000, size, size * 11 // 10)
    assert found.failed_bytes < needed(size) <= found.passed_bytes
    assert found.passed_bytes - found.failed_bytes <= max(STEP_BYTES, FINEST_SHARE * found.reserved_bytes)
    assert card.caps[0] == card.caps[-1] == 80 * 2**30
    assert card.emptied == found.tries == len(card.caps) - 1
    assert found.seconds >= 0


def test_parts_are_measured_where_the_grain_shows_and_else_not() -> None:
    card = Card()
    small = [Heavy(load, card.run(load * MIB)) for load in (1_000, 850, 700)]
    assert [one.load for one in measure_needs(card.device, small, SEARCHING)] == [1_000, 850, 700]
    large = [Heavy(load, card.run(load * MIB)) for load in (2_000, 1_700, 1_400)]
    assert [one.load for one in measure_needs(card.device, large, SEARCHING)] == [2_000]
    assert 1_000 * MIB < GRAIN_SHOWS_BYTES < 2_000 * MIB
    assert card.caps[-1] is None


@pytest.mark.parametrize("allocator", [None, "expandable_segments:False"])
def test_without_expandable_segments_nothing_is_searched(allocator: str | None) -> None:
    card = Card()
    [found] = measure_needs(
        card.device, [Heavy(9, card.run(2 * 2**30))], replace(point(), allocator=allocator)
    )
    assert (found.passed_bytes, found.failed_bytes) == (found.reserved_bytes, found.allocated_bytes - 1)
    assert found.tries == 1


def test_nothing_is_measured_in_text_order_or_on_a_cpu() -> None:
    def never() -> None:
        raise AssertionError

    heavy, card = [Heavy(9, never)], Card()
    assert measure_needs(card.device, heavy, replace(SEARCHING, order="text")) == ()
    assert measure_needs(Device("cpu"), heavy, SEARCHING) == ()
    assert card.caps == [None]


def test_a_signal_ends_the_measuring_and_keeps_what_was_found() -> None:
    card = Card()

    def stopped() -> None:
        raise Stopped("USR1")

    heavy = [Heavy(900, card.run(900 * MIB)), Heavy(800, stopped), Heavy(700, card.run(700 * MIB))]
    found = measure_needs(card.device, heavy, replace(SEARCHING, cap_bytes=5 * 2**30))
    assert [one.load for one in found] == [900]
    assert card.caps[-1] == 5 * 2**30


@pytest.mark.parametrize("error", [ValueError("odd"), OutOfMemoryError("CUDA out of memory")])
def test_a_failure_beside_the_work_loses_nothing(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    card = Card()

    def fails() -> None:
        raise error

    found = measure_needs(card.device, [Heavy(900, card.run(900 * MIB)), Heavy(800, fails)], SEARCHING)
    assert [one.load for one in found] == [900]
    assert card.caps[-1] is None
    assert str(error) in capsys.readouterr().err


def test_an_error_that_is_no_lack_of_memory_does_not_pass_for_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    card = Card()
    runs = iter([card.run(900 * MIB)])

    def once() -> None:
        again = next(runs, None)
        if again is None:
            raise ValueError("no longer")
        again()

    assert measure_needs(card.device, [Heavy(900, once)], SEARCHING) == ()
    assert "no longer" in capsys.readouterr().err


# -- what is measured


class Plain:
    """A workload that says nothing of its heaviest batch."""

    def __init__(self) -> None:
        self.done: list[Sequence[str]] = []

    def process(self, paragraphs: Sequence[str]) -> Result:
        self.done.append(paragraphs)
        return Result(entities=(), load=len(paragraphs))


class Told(Plain):
    """One that does."""

    def heaviest(self) -> Sequence[Heavy]:
        return [Heavy(5, lambda: None)]


class Broken(Plain):
    def heaviest(self) -> Sequence[Heavy]:
        raise ValueError("broken")


def batches(*loads: int) -> list[Batch]:
    return [replace(batch(index), load=load) for index, load in enumerate(loads)]


TODO = [Call(0, ("a",)), Call(1, ("b", "c")), Call(3, ("d",))]


def test_the_worst_call_is_done_again_where_the_workload_tells_nothing() -> None:
    workload = Plain()
    [found] = heaviest(cast("Workload", workload), batches(3, 9, 4), TODO)
    found.again()
    assert (found.load, workload.done) == (9, [("b", "c")])
    assert list(heaviest(cast("Workload", workload), [], [])) == []


def test_a_workload_that_tells_is_asked() -> None:
    assert [one.load for one in heaviest(cast("Workload", Told()), batches(3), TODO)] == [5]


def test_one_that_fails_to_tell_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = heaviest(cast("Workload", Broken()), batches(3), TODO)
    assert measure_needs(Card().device, found, SEARCHING) == ()
    assert "broken" in capsys.readouterr().err


def test_a_point_says_what_the_measuring_depends_on() -> None:
    names = ("order", "allocator", "cap_bytes")
    assert set(names) <= set(Point.__dataclass_fields__)


class Primed:
    """A workload that can do the heaviest batch of a call by itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def tag_heaviest(self, paragraphs: Sequence[str]) -> None:
        self.asked.append(tuple(paragraphs))


def test_the_heaviest_batch_comes_before_its_call_and_from_an_empty_cache() -> None:
    card, workload = Card(), Primed()
    seconds = run_heaviest_first(card.device, cast("Workload", workload), Call(0, ("a", "b")))
    assert workload.asked == [("a", "b")]
    assert card.emptied == 1
    assert seconds >= 0


def test_a_workload_that_cannot_do_one_batch_begins_with_the_call() -> None:
    card = Card()
    assert run_heaviest_first(card.device, cast("Workload", object()), Call(0, ("a",))) == 0
    assert card.emptied == 0
