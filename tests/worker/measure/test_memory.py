from __future__ import annotations

import re
from dataclasses import replace

from jobkit.worker.measure.memory import Readings, split_memory
from jobkit.worker.measure.sampler import Peaks

MIB = 2**20


def test_unknown_stays_unknown_and_the_rise_of_the_device_stands_in_for_the_process() -> None:
    memory = split_memory([Readings()], None)
    assert (memory.context_bytes, memory.activations_bytes, memory.other_bytes) == (None, None, None)
    assert (memory.process_peak_bytes, memory.disagreement) == (None, "")
    memory = split_memory([Readings()], Peaks(device_bytes=1000), device_idle_bytes=600)
    assert memory.process_peak_bytes == 400
    one = Readings(context_bytes=5, allocated_peak_bytes=5)
    memory = split_memory([one, Readings()], Peaks(process_bytes=20))
    assert (memory.context_bytes, memory.other_bytes) == (5, None), "where one is unknown so is the sum"


def test_instruments_that_disagree_are_named() -> None:
    readings = [Readings(context_bytes=600 * MIB, reserved_peak_bytes=400 * MIB)]
    assert split_memory(readings, Peaks(process_bytes=1010 * MIB)).disagreement == ""
    differ = split_memory(readings, Peaks(process_bytes=2000 * MIB))
    assert re.findall(r"[\d,]+ MiB", differ.disagreement) == ["2,000 MiB", "1,000 MiB"]


def test_of_several_processes_the_largest_is_shown_and_the_sums_are_compared() -> None:
    one = Readings(
        context_bytes=600 * MIB,
        weights_bytes=100 * MIB,
        allocated_peak_bytes=300 * MIB,
        reserved_peak_bytes=400 * MIB,
    )
    two = replace(one, allocated_peak_bytes=350 * MIB, reserved_peak_bytes=500 * MIB)
    peaks = Peaks(device_bytes=3120 * MIB, rss_bytes=7)
    memory = split_memory([one, two], peaks, device_idle_bytes=1000 * MIB, cgroup_peak_bytes=9)
    assert (memory.context_bytes, memory.activations_bytes) == (600 * MIB, 250 * MIB)
    assert (memory.allocated_peak_bytes, memory.reserved_peak_bytes) == (350 * MIB, 500 * MIB)
    assert memory.process_peak_bytes == 2120 * MIB
    assert memory.other_bytes == (2120 - 1200 - 650) * MIB
    assert memory.disagreement == "", "2 x 600, 400 and 500 MiB are accounted for"
    assert (memory.rss_peak_bytes, memory.cgroup_peak_bytes) == (7, 9)
    assert split_memory([one], Peaks(process_bytes=1000 * MIB)).other_bytes == 100 * MIB
