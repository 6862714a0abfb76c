from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.core.blocks import as_text
from jobkit.core.figures import GPU_MEMORY, RAM, SPEED
from jobkit.core.records import Outcome
from jobkit.extensions.compare import Side, blocks, compare, sides, verdict
from jobkit.report.tables import collect
from tests.support.builders import GPU as CARD
from tests.support.builders import grid, record, write_points, write_record
from tests.support.commands import jobkit

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


def read(*runs: Path) -> list[Side]:
    return sides([collect([run]) for run in runs])


def test_a_difference_beyond_the_scatter_is_called_one(tmp_path: Path) -> None:
    first, other = read(side(tmp_path / "a", SPEEDS), side(tmp_path / "b", [s / 2 for s in SPEEDS]))
    (line, _) = compare(first, other).lines[SPEED]
    assert line.ratio.mean == pytest.approx(2.0)
    assert verdict(line.ratio, SPEED) == "faster"
    (back, _) = compare(other, first).lines[SPEED]
    assert verdict(back.ratio, SPEED) == "slower"
    assert back.ratio.mean == pytest.approx(0.5)


def test_a_difference_within_the_scatter_is_not(tmp_path: Path) -> None:
    first, other = read(side(tmp_path / "a", (8.0, 10.0, 6.0)), side(tmp_path / "b", (7.5, 9.5, 5.9)))
    (line, _) = compare(first, other).lines[SPEED]
    assert line.ratio.mean > 1
    assert verdict(line.ratio, SPEED) == "no difference is shown"
    assert "no difference is shown" in as_text(blocks([first, other]))


def test_single_repeats_show_nothing(tmp_path: Path) -> None:
    first, other = read(side(tmp_path / "a", [8.0]), side(tmp_path / "b", [2.0]))
    (line, _) = compare(first, other).lines[SPEED]
    assert verdict(line.ratio, SPEED) == "one repeat: cannot show a difference"
    assert "single repeats cannot show" in as_text(blocks([first, other]))


def test_equal_memory_is_no_difference(tmp_path: Path) -> None:
    pair = compare(*read(side(tmp_path / "a", SPEEDS), side(tmp_path / "b", SPEEDS)))
    assert {verdict(line.ratio, figure) for figure in (GPU_MEMORY, RAM) for line in pair.lines[figure]} == {
        "no difference is shown"
    }
    assert pair.differ == []


def test_what_differs_and_what_only_one_has_is_named(tmp_path: Path) -> None:
    runs = side(tmp_path / "a", SPEEDS, (10, 20)), side(tmp_path / "b", SPEEDS, (20, 40), gpu="another")
    first, other = read(*runs)
    pair = compare(first, other)
    assert ("gpu", CARD.name, "another") in pair.differ
    assert [line.setting for line in pair.lines[SPEED]] == ["batch_size 20"]
    text = as_text(blocks([first, other]))
    assert "Only in A: batch_size 10" in text
    assert "Only in B: batch_size 40" in text
    assert "another" in text


def test_nothing_in_common_is_said(tmp_path: Path) -> None:
    runs = side(tmp_path / "a", SPEEDS, (10,)), side(tmp_path / "b", SPEEDS, (20,))
    assert "No setting succeeded in both" in as_text(blocks(read(*runs)))


def test_a_run_that_only_ran_out_of_memory_has_no_fastest(tmp_path: Path) -> None:
    runs = side(tmp_path / "a", SPEEDS), side(tmp_path / "b", SPEEDS, outcome=Outcome.GPU_OOM)
    first, other = read(*runs)
    assert other.fastest is None
    assert "The fastest of" not in as_text(blocks([first, other]))


def test_the_command_takes_two_runs(tmp_path: Path) -> None:
    one, two = side(tmp_path / "a", SPEEDS), side(tmp_path / "b", SPEEDS)
    assert "B over A" in jobkit("compare", one, two, cwd=tmp_path).stdout
    alone = jobkit("compare", one, cwd=tmp_path)
    assert alone.returncode == 2
    assert "name two runs" in alone.stderr


def test_a_program_gets_what_a_person_reads(tmp_path: Path) -> None:
    first, other = side(tmp_path / "a", SPEEDS), side(tmp_path / "b", [s / 2 for s in SPEEDS], gpu="another")
    done = jobkit("compare", first, other, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [run["side"] for run in found["runs"]] == ["A", "B"]
    (pair,) = found["comparisons"]
    assert {"A": CARD.name, "B": "another"} in pair["differ"].values()
    lines = {line["setting"]: line for line in pair["measures"]["items_per_s"]}
    assert lines.keys() == {"batch_size 10", "batch_size 20"}
    line = lines["batch_size 10"]
    assert line["ratio"] == pytest.approx(line["other"] / line["first"]) == pytest.approx(2)
    assert line["ratio_low"] < 2 < line["ratio_high"]
    assert (line["differs"], line["verdict"]) == (True, "faster")
    alone = side(tmp_path / "c", [8.0])
    (pair,) = json.loads(jobkit("compare", alone, first, "--json").stdout)["comparisons"]
    assert pair["measures"]["items_per_s"][0]["differs"] is None
