"""What is requested: equal memory for an equal setting, equal walltime for an equal amount of work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobkit.core.measurements import MemoryReadings
from jobkit.core.records import JobFacts, Outcome, Point, Record
from jobkit.core.units import GIB, MIB
from jobkit.runs.request import enough, held_by, memory_request, used_ram, walltime_request
from jobkit.spec.sweep_spec import Resources
from tests.support.builders import point, record


def held(size: int, *, load: int | None = 10, of: Point | None = None) -> Record:
    """Return a record of a try with so much RAM and so large a load."""
    one = replace(record(of or point()), memory=MemoryReadings(maxrss_bytes=size))
    assert one.summary
    return replace(one, summary=replace(one.summary, load_max=load))


@pytest.mark.parametrize(
    ("held_bytes", "memory"),
    [
        (0, 300 * MIB),
        (37 * MIB, 300 * MIB),
        (644 * MIB, 900 * MIB),
        (645 * MIB, GIB),
        (2 * GIB, 3 * GIB),
    ],
)
def test_memory_has_a_fifth_and_at_least_256_mib_more(held_bytes: int, memory: int) -> None:
    assert memory_request(held_bytes) == memory_request(held_bytes, 128 * MIB) == memory


def test_walltime_has_a_minute_the_warning_and_a_quarter_more() -> None:
    assert [walltime_request(seconds) for seconds in (0, 120, 121, 3600)] == [300, 300, 600, 4800]
    assert walltime_request(120, warning_s=300) == 600
    asked = Resources(cpus=3)
    assert enough(asked) == asked
    found = enough(asked, held_bytes=GIB, longest_s=121)
    assert (found.memory, found.walltime, found.cpus) == (2 * GIB, 600, 3)


def test_on_slurm_the_page_cache_counts_and_what_it_accounted_everywhere() -> None:
    told = replace(record(point()), memory=MemoryReadings(maxrss_bytes=GIB, cgroup_peak_bytes=3 * GIB))
    assert used_ram(told) == 3 * GIB
    elsewhere = replace(told, job=JobFacts(scheduler="sge"))
    assert used_ram(elsewhere) == GIB
    assert used_ram(replace(elsewhere, accounted_rss_bytes=2 * GIB)) == 2 * GIB
    assert used_ram(replace(told, memory=MemoryReadings())) is None


def test_a_setting_is_charged_with_what_tries_of_no_larger_load_held() -> None:
    small, large = (point(size, params={"batch_size": size}) for size in (5, 11))
    like, first, larger = held(4), held(7, load=5, of=small), held(64, load=11, of=large)
    two = held(32, of=replace(point(), workers=2))
    failed = replace(held(99), outcome=Outcome.RAM_OOM)
    assert held_by([like, first, larger, two, failed], like) == 7
    assert held_by([first, larger], held(1, load=None)) == 64, "the load is not known"
    assert held_by([two], like) is None
