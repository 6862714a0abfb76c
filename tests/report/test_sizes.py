"""The means of the repeats and their intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.setting import Ratio
from jobkit.core.records import Outcome
from jobkit.report.tables import Collected, collect
from tests.support.builders import grid, record, write_records


def collected(folder: Path, seconds: dict[int, tuple[float, ...]]) -> Collected:
    """Return a run whose repeats of each batch size took so long."""
    points = grid(seconds, repeats=len(next(iter(seconds.values()))))
    records = [record(p, work_s=seconds[p.numbers["batch_size"]][p.repeat - 1]) for p in points]
    return collect([write_records(folder, records)])


def test_a_mean_and_a_speed_up_have_the_ends_of_their_intervals(tmp_path: Path) -> None:
    first, other = collected(tmp_path, {50: (9, 10, 11), 100: (4.9, 5, 5.1)}).size_records()
    half = 4.302653 / 3**0.5
    assert (first["work_s_low"], first["work_s_high"]) == pytest.approx((10 - half, 10 + half))
    assert (first["speedup"], first["speedup_low"]) == (1, None), "it is compared with itself"
    assert other["items_per_s_low"] < other["items_per_s"] < other["items_per_s_high"]  # type: ignore[operator]
    assert 1 < other["speedup_low"] < other["speedup"] < other["speedup_high"]  # type: ignore[operator]
    assert first["work_s_sd"] == pytest.approx(1), "deviations stay"


def test_one_repeat_has_no_interval(tmp_path: Path) -> None:
    found = collected(tmp_path, {50: (10,), 100: (5,)})
    for size in found.size_records():
        assert [size[f"{name}_low"] for name in ("items_per_s", "work_s", "speedup")] == [None] * 3
    assert list(found.sizes["speedup"]) == [1, 2]
    assert found.sizes["speedup_high"].isna().all()


def test_a_size_without_a_success_is_no_base(tmp_path: Path) -> None:
    failed, well = map(record, grid([50, 100]))
    run = write_records(tmp_path, [replace(failed, outcome=Outcome.GPU_OOM, summary=None), well])
    first, second = collect([run]).by_size
    assert (first.times, second.times) == (None, Ratio(1.0, None, None))
