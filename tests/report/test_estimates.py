"""The largest batch in the tables: that of `jobkit recommend`, or the same reason why it is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.archives import group
from jobkit.core.records import Record
from jobkit.core.units import GIB
from jobkit.report.output import render
from jobkit.report.predictions import estimates
from jobkit.report.recommend.advice import recommend
from jobkit.report.recommend.material import read_material
from jobkit.report.tables import collect
from tests.support.builders import GPU
from tests.support.recommendations import records, write_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(Path("runs/demo"), records())


def test_another_memory_has_another_largest_batch(run: Path) -> None:
    report = render(collect([run]), width=200, limit_bytes=4 * GIB)
    assert "3.33 GiB for the allocator" in report
    report = render(collect([run]), width=200, limit_bytes=2**20)
    assert "Largest safe batch_size: 0; " in report
    assert "Not even a batch of 1 fits: with no batch at all the line has " in report


FLAT = [replace(one, needs=tuple(replace(need, passed_bytes=GIB) for need in one.needs)) for one in records()]
NAMELESS = [replace(one, gpu=replace(GPU, total_bytes=None)) for one in records()]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (FLAT, "memory does not grow with the load"),
        (NAMELESS, "how much memory there is was not recorded: name it with --gpu-memory"),
    ],
    ids=["flat", "nameless"],
)
def test_what_is_not_known_has_the_reason_that_recommend_has(
    tmp_path: Path, told: Sequence[Record], reason: str
) -> None:
    run = write_run(tmp_path / "run", told)
    (found,) = estimates(collect([run]))
    assert found.by_knob.reason.startswith(reason)
    assert found.prediction == recommend(read_material(run)).memory.largest
    report = render(collect([run]), width=200)
    assert f"No estimate of the largest batch_size: {reason}" in report
    assert "straight line" not in report


@pytest.mark.parametrize("name", ["gpus", "precision"])
def test_a_knob_with_which_the_load_does_not_grow_has_no_largest_value(name: str) -> None:
    collected = collect([*group(name).glob(f"{name}-2*")])
    assert {"batch_size", "padded"} >= {one.knob for one in estimates(collected)}
    assert f"largest {name}" not in render(collected).lower()
