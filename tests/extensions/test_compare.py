from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.records import Outcome
from tests.support.builders import grid, record, write_records
from tests.support.commands import jobkit, ran

SPEEDS = (8.0, 8.1, 7.9)


def side(folder: Path, seconds: Sequence[float], outcome: Outcome = Outcome.OK) -> Path:
    """Write a run whose repeats take so many seconds at both sizes."""
    points = grid((10, 20), len(seconds))
    records = (record(point, work_s=seconds[point.repeat - 1]) for point in points)
    return write_records(folder, [replace(made, outcome=outcome) for made in records])


def data_of(*runs: Path) -> dict[str, Any]:
    done = ran("compare", *runs, "--json")
    data: dict[str, Any] = json.loads(done.stdout)
    return data


@pytest.mark.parametrize(
    ("first", "other", "differs", "verdict"),
    [
        (SPEEDS, [s / 2 for s in SPEEDS], True, "faster"),
        (SPEEDS, [s * 2 for s in SPEEDS], True, "slower"),
        ((8.0, 10.0, 6.0), (7.5, 9.5, 5.9), False, "no difference is shown"),
        ([8.0], [2.0], None, "one repeat: cannot show a difference"),
    ],
)
def test_a_difference_is_called_one_beyond_the_scatter_alone(
    tmp_path: Path, first: Sequence[float], other: Sequence[float], differs: object, verdict: str
) -> None:
    runs = side(tmp_path / "a", first), side(tmp_path / "b", other)
    data = data_of(*runs)
    assert [run["side"] for run in data["runs"]] == ["A", "B"]
    (pair,) = data["comparisons"]
    assert pair["differ"] == {}
    lines = {line["setting"]: line for line in pair["measures"]["items_per_s"]}
    assert lines.keys() == {"batch_size 10", "batch_size 20"}
    line = lines["batch_size 10"]
    assert line["ratio"] == pytest.approx(line["other"] / line["first"])
    assert line["ratio"] == pytest.approx(sum(first) / sum(other), rel=0.03)
    assert line["ratio_low"] is None or line["ratio_low"] < line["ratio"] < line["ratio_high"]
    assert (line["differs"], line["verdict"]) == (differs, verdict)
    memory = {one["verdict"] for name, of in pair["measures"].items() if "bytes" in name for one in of}
    assert memory == {"no difference is shown" if len(first) > 1 else verdict}, "it is equal"


def test_a_run_of_which_nothing_succeeded_has_no_fastest_and_one_run_is_refused(tmp_path: Path) -> None:
    first = side(tmp_path / "a", SPEEDS)
    failed = side(tmp_path / "b", SPEEDS, outcome=Outcome.GPU_OOM)
    assert data_of(first, failed)["runs"][1]["fastest"] is None
    assert "The fastest of" not in jobkit("compare", first, failed).stdout
    alone = jobkit("compare", first)
    assert (alone.returncode, "name two runs" in alone.stderr) == (2, True)
