"""What is requested: equal memory for an equal setting, equal walltime for an equal amount of work."""

from __future__ import annotations

from dataclasses import replace

from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import JobFacts, Outcome
from jobkit.core.units import GIB, MIB
from jobkit.runs.request import enough, held_by, memory_request, used_ram, walltime_request
from jobkit.spec.sweep_spec import Resources
from tests.support.builders import grid, point, record


def test_a_request_leaves_room() -> None:
    sizes = {37 * MIB: 300 * MIB, 644 * MIB: 900 * MIB, 645 * MIB: GIB, 2 * GIB: 3 * GIB}
    assert {held: memory_request(held, 128 * MIB) for held in sizes} == sizes
    assert memory_request(37 * MIB, 228 * MIB) == 400 * MIB
    assert [walltime_request(seconds) for seconds in (0, 120, 121, 3600)] == [300, 300, 600, 4800]
    assert walltime_request(120, warning_s=300) == 600
    assert enough(Resources(cpus=3)) == Resources(cpus=3)


def test_on_slurm_the_page_cache_counts_and_what_it_accounted_everywhere() -> None:
    told = replace(record(point()), memory=MemoryReadings(maxrss_bytes=GIB, cgroup_peak_bytes=3 * GIB))
    assert used_ram(told) == 3 * GIB
    elsewhere = replace(told, job=JobFacts(scheduler="sge"))
    assert used_ram(elsewhere) == GIB
    assert used_ram(replace(elsewhere, accounted_rss_bytes=2 * GIB)) == 2 * GIB
    assert used_ram(replace(told, memory=MemoryReadings())) is None


def test_a_setting_is_charged_with_what_tries_of_no_larger_load_held() -> None:
    small, like, large = (
        replace(record(one), memory=MemoryReadings(maxrss_bytes=size))
        for one, size in zip(grid([5, 10, 11], device="cpu"), (7, 4, 64), strict=True)
    )
    two = replace(large, point=replace(like.point, workers=2))
    failed = replace(like, memory=large.memory, outcome=Outcome.BUG)
    assert held_by([small, like, large, two, failed])(like) == 7
    assert held_by([small, large])(replace(like, summary=None)) == 64, "its load is not known"
    assert held_by([two])(like) is None
