from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.worker.failure import Stopped
from jobkit.worker.measure.memory import (
    FINEST_SHARE,
    GRAIN_SHOWS_BYTES,
    SEARCHED,
    STEP_BYTES,
    Device,
    bracket,
    heaviest,
    measure_needs,
)
from jobkit.worker.paragraphs import Call
from jobkit.worker.workloads.base import Heavy, Workload
from tests.support.builders import batch, point
from tests.support.fake_torch import FakeTorch, OutOfMemoryError

MIB = 2**20
GIB = 2**30


@pytest.fixture
def torch() -> FakeTorch:
    return FakeTorch(100 * GIB)


def heavy(torch: FakeTorch, load: int) -> Heavy:
    """Return a batch that allocates its load in MiB."""
    return Heavy(load, lambda: torch.hold(load * MIB))


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

    passed_bytes, failed_bytes, tries = bracket(passes, low, high)
    finest = max(STEP_BYTES, int(FINEST_SHARE * high))
    assert passed_bytes - failed_bytes <= max(finest, 0)
    assert failed_bytes < edge <= passed_bytes or width == 0
    assert tries == len(tried) <= 2 + max(0.0, math.log2(max(width, 1) / finest))
    assert all(low < cap < high for cap in tried)
    assert tried[:1] == ([high - finest] if width > finest else [])


# -- measuring


def test_parts_are_measured_only_below_the_allocators_grain(torch: FakeTorch) -> None:
    for loads, measured in ((1_000, 850, 700), 3), ((2_000, 1_700, 1_400), 1):
        needs = measure_needs(Device("cuda", torch), [heavy(torch, load) for load in loads], SEARCHING)
        assert [need.load for need in needs] == list(loads[:measured])
    assert 1_000 * MIB < GRAIN_SHOWS_BYTES < 2_000 * MIB
    assert torch.cap_bytes == torch.total_bytes


def test_without_expandable_segments_nothing_is_searched(torch: FakeTorch) -> None:
    of = replace(point(), allocator="expandable_segments:False")
    [need] = measure_needs(Device("cuda", torch), [heavy(torch, 2048)], of)
    assert (need.passed_bytes, need.failed_bytes) == (need.reserved_bytes, need.allocated_bytes - 1)
    assert need.tries == 1


def test_nothing_is_measured_in_text_order_or_on_a_cpu(torch: FakeTorch) -> None:
    def never() -> None:
        raise AssertionError

    assert measure_needs(Device("cuda", torch), [Heavy(9, never)], replace(SEARCHING, order="text")) == ()
    for phase in ("search", "final"):
        assert measure_needs(Device("cuda", torch), [Heavy(9, never)], replace(SEARCHING, phase=phase)) == ()
    assert measure_needs(Device("cpu"), [Heavy(9, never)], SEARCHING) == ()


@pytest.mark.parametrize(
    "error", [Stopped("USR1"), ValueError("odd"), OutOfMemoryError("CUDA out of memory")]
)
def test_a_signal_or_a_failure_ends_the_measuring_and_keeps_the_needs(
    torch: FakeTorch, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    batches = [heavy(torch, 900), Heavy(800, fails), heavy(torch, 700)]
    needs = measure_needs(Device("cuda", torch), batches, replace(SEARCHING, cap_bytes=5 * GIB))
    assert [need.load for need in needs] == [900]
    assert 5 * GIB <= torch.cap_bytes <= 5 * GIB + 1024
    assert isinstance(error, Stopped) or str(error) in capsys.readouterr().err


def test_an_error_that_is_no_lack_of_memory_does_not_pass_for_one_and_loses_nothing(
    torch: FakeTorch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = iter([900 * MIB])

    class Broken:
        def heaviest(self) -> Sequence[Heavy]:
            raise ValueError("broken")

    def once() -> None:
        if (size := next(runs, None)) is None:
            raise ValueError("no longer")
        torch.hold(size)

    unknown = heaviest(cast("Workload", Broken()), batch(0), Call((3,), ("d",)))
    for batches, why in (([Heavy(900, once)], "no longer"), (unknown, "broken")):
        assert measure_needs(Device("cuda", torch), batches, SEARCHING) == ()
        assert why in capsys.readouterr().err
