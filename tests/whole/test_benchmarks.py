"""docs/benchmarks.md says what the raw data next to it says, and the statistics are right."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks import coverage, page
from benchmarks.overhead import interval
from benchmarks.runs import read_points, write_run, write_spec
from jobkit.report.tables import collect
from jobkit.spec.sweep_spec import load_spec


def test_the_page_is_made_from_the_raw_data() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text()


def test_every_benchmark_has_raw_data() -> None:
    assert {path.stem for path in page.RAW.glob("*.json")} >= set(page.NAMES)


@pytest.mark.parametrize("n", [11, 100])
def test_the_interval_of_a_median_holds_it(n: int) -> None:
    low, high = interval(range(n))
    assert low < n / 2 < high
    assert high - low < n * 0.75


def test_a_run_folder_of_the_benchmark_is_one_that_collect_reads(tmp_path: Path) -> None:
    run = write_run(tmp_path, 20)
    assert len(read_points(run)) == 20
    collected = collect([run])
    assert (len(collected.points), len(collected.sizes), collected.exit_code) == (20, 2, 0)
    assert collected.notes == ()
    assert load_spec(write_spec(tmp_path, 100, 10)).repeats == 10


def test_the_coverage_of_the_bound_stands_on_the_page_and_is_what_is_claimed() -> None:
    raw = json.loads(coverage.RAW.read_text(encoding="utf-8"))
    measured = (page.PAGE.parent / "what-is-measured.md").read_text(encoding="utf-8")
    assert all(table in measured for table in coverage.tables(raw))
    chance = 2.5 * math.sqrt(0.95 * 0.05 / raw["cases"])
    claimed = [row for row in raw["straight"] if row["scatter"] != coverage.NEED_GROWING.name]
    assert len(claimed) == len(coverage.SCATTERS) * len(coverage.DESIGNS)
    assert min(share for row in claimed for share in row["held"]) >= 0.95 - chance
    assert max(row["seen"] for row in claimed) <= 0.035
