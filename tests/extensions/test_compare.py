from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.core.records import Outcome
from tests.support.builders import GPU as CARD
from tests.support.builders import grid, record, write_points, write_record
from tests.support.commands import jobkit, ran

SPEEDS = (8.0, 8.1, 7.9)


def side(
    folder: Path,
    seconds: Sequence[float],
    sizes: Sequence[int] = (10, 20),
    *,
    gpu: str = CARD.name,
    outcome: Outcome = Outcome.OK,
) -> Path:
    """Write a run whose repeats take so many seconds at every size."""
    points = grid(sizes, len(seconds))
    write_points(folder, points)
    for point in points:
        made = record(point, work_s=seconds[point.repeat - 1])
        write_record(folder, replace(made, gpu=replace(CARD, name=gpu), outcome=outcome))
    return folder


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


def test_what_differs_and_what_only_one_has_is_named(tmp_path: Path) -> None:
    runs = side(tmp_path / "a", SPEEDS, (10, 20)), side(tmp_path / "b", SPEEDS, (20, 40), gpu="another")
    (pair,) = data_of(*runs)["comparisons"]
    assert {"A": CARD.name, "B": "another"} in pair["differ"].values()
    assert [line["setting"] for line in pair["measures"]["items_per_s"]] == ["batch_size 20"]
    text = jobkit("compare", *runs).stdout
    assert "Only in A: batch_size 10" in text
    assert "Only in B: batch_size 40" in text


def test_without_a_setting_in_both_there_is_no_table_and_no_fastest(tmp_path: Path) -> None:
    first, other = side(tmp_path / "a", SPEEDS, (10,)), side(tmp_path / "b", SPEEDS, (20,))
    assert "No setting succeeded in both" in jobkit("compare", first, other).stdout
    failed = side(tmp_path / "c", SPEEDS, (10,), outcome=Outcome.GPU_OOM)
    assert data_of(first, failed)["runs"][1]["fastest"] is None
    assert "The fastest of" not in jobkit("compare", first, failed).stdout
    alone = jobkit("compare", first)
    assert (alone.returncode, "name two runs" in alone.stderr) == (2, True)
