"""What docs/benchmarks-workers.md reports is what its records hold."""

from __future__ import annotations

from benchmarks import workers_page
from jobkit.report.tables import collect


def test_the_page_is_made_from_the_records() -> None:
    page = workers_page.ROOT / "docs" / "benchmarks-workers.md"
    assert page.read_text(encoding="utf-8") == workers_page.page()


def test_sixteen_workers_with_mps_do_more_than_ten_times_the_work_of_one() -> None:
    rows = {row.point: row for row in collect([workers_page.RUNS / workers_page.WHOLE]).rows}
    one = rows["workers-1-batch_size-300-order-text-mps-off-r1"]
    best = rows["workers-16-padded_chars-40000-mps-on-order-sorted-r1"]
    assert one.items_per_s
    assert best.items_per_s
    assert best.items_per_s > 10 * one.items_per_s
