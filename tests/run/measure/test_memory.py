from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from jobkit.run.measure.memory import Readings, split_memory
from jobkit.run.measure.sampler import Peaks

MIB = 2**20
size = st.integers(0, 2**40)


@given(size, size, size, size)
def test_the_four_parts_add_up_to_the_process_peak(
    context: int, weights: int, activations: int, other: int
) -> None:
    total = context + weights + activations + other
    readings = Readings(
        context_bytes=context, weights_bytes=weights, allocated_peak_bytes=weights + activations
    )
    memory = split_memory(readings, Peaks(process_bytes=total or None, device_bytes=total))
    parts = (memory.context_bytes, memory.weights_bytes, memory.activations_bytes, memory.other_bytes)
    if total:
        assert sum(part for part in parts if part is not None) == memory.process_peak_bytes


def test_unknown_stays_unknown() -> None:
    memory = split_memory(Readings(), None)
    assert memory.context_bytes is None
    assert memory.activations_bytes is None
    assert memory.other_bytes is None
    assert memory.process_peak_bytes is None
    assert memory.disagreement == ""


def test_without_the_process_the_rise_of_the_device_stands_in() -> None:
    memory = split_memory(Readings(device_idle_bytes=600), Peaks(device_bytes=1000))
    assert memory.process_peak_bytes == 400


def test_instruments_that_disagree_are_named() -> None:
    agree = split_memory(
        Readings(context_bytes=600 * MIB, reserved_peak_bytes=400 * MIB), Peaks(process_bytes=1010 * MIB)
    )
    assert agree.disagreement == ""
    differ = split_memory(
        Readings(context_bytes=600 * MIB, reserved_peak_bytes=400 * MIB), Peaks(process_bytes=2000 * MIB)
    )
    assert re.findall(r"[\d,]+ MiB", differ.disagreement) == ["2,000 MiB", "1,000 MiB"]
