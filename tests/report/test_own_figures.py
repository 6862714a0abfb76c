"""The figures that workloads report, as columns of every table."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from jobkit.core.blocks import fit_columns
from jobkit.core.figures import SPEED, WORK
from jobkit.core.measurements import Metric
from jobkit.core.records import Outcome, Record
from jobkit.handle import load
from jobkit.report.output import render, size_columns
from jobkit.report.plot.data import group_plots
from jobkit.report.tables import Collected, collect
from jobkit.runs.results import read_run
from tests.support.builders import grid, record, write_records


def reporting(of: Record, metrics: Mapping[str, float], unit: str = "1") -> Record:
    return replace(of, metrics={name: Metric(value=value, unit=unit) for name, value in metrics.items()})


def run(
    folder: Path, metrics: Mapping[str, float], unit: str = "1", sizes: tuple[int, ...] = (50, 100)
) -> Path:
    """Write a run of two repeats of each size, which report these figures, each times the size."""
    points = grid(sizes, repeats=2)
    scaled = [{name: v * p.numbers["batch_size"] for name, v in metrics.items()} for p in points]
    return write_records(
        folder, [reporting(record(p), found, unit) for p, found in zip(points, scaled, strict=True)]
    )


def cells(collected: Collected) -> dict[str, list[str]]:
    """Return the cells of the table by the head of their column."""
    columns = size_columns(collected.by_size, collected.knobs, collected.own)
    return {column.name: list(column.cells) for column in columns}


def test_a_figure_of_any_size_is_shown_with_four_digits(tmp_path: Path) -> None:
    for values, shown in {
        (0.91234, 0.8): ["0.9123 ± 0.0000", "0.8000 ± 0.0000"],
        (-12.25, 0.0): ["-12.25 ± 0.00", "0.00 ± 0.00"],
        (1e-9, 2.0): ["1.000e-09 ± 0.000e+00", "2.000e+00 ± 0.000e+00"],
        (0.0, 0.0): ["0 ± 0", "0 ± 0"],
    }.items():
        points = grid([50, 100], repeats=2)
        tries = [reporting(record(p), {"f1": values[p.numbers["batch_size"] == 100]}) for p in points]
        assert cells(collect([write_records(tmp_path / f"{values}", tries)]))["f1"] == shown


def test_no_width_drops_or_shortens_a_figure(tmp_path: Path) -> None:
    name = "validation_accuracy_of_the_largest_class"
    collected = collect([run(tmp_path, {name: 0.01, "f1": 0.02}, "percent")])
    columns = size_columns(collected.by_size, collected.knobs, collected.own)
    for width in (20, 80, 200):
        shown = fit_columns(columns, width)
        assert {f"{name}\npercent", "f1\npercent"} <= {column.head for column in shown}
        report = render(collected, width=width)
        assert any(name in line for line in report.splitlines())
        assert ("batch mean s" in report.partition("no room for:")[2]) == (width < 200)


def test_the_same_columns_are_in_csv_json_and_the_frame(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", {"latency": 0.5, "items_per_s": 1.0}, "ms")
    collected = collect([folder])
    names = ["items_per_s [ms]", "latency [ms]"]
    head, first, *_ = csv.reader(io.StringIO(render(collected, "csv")))
    assert [name for name in head if "[" in name] == names
    assert first[head.index("latency [ms]")] == "25"
    data = json.loads(render(collected, "json"))
    assert [one["column"] for one in data["metrics"]] == names
    assert data["points"][0]["latency [ms]"] == 25
    size = data["sizes"][1]
    assert (size["latency [ms]"], size["latency [ms]_n"], size["latency [ms]_sd"]) == (50, 2, 0)
    assert (size["latency [ms]_low"], size["latency [ms]_high"]) == (50, 50)
    assert list(load(folder).frame["latency [ms]"]) == [25, 50, 25, 50]
    assert list(collected.sizes["latency [ms]"]) == [25, 50]


def test_a_name_that_another_column_has_gets_a_prefix_and_changes_no_measure(tmp_path: Path) -> None:
    collected = collect([run(tmp_path, {"differ": 1.0, "f1": 0.01, "work_s": 2.0})])
    assert [one.name for one in collected.own] == ["differ", "f1", "metric_work_s"]
    mean = collected.by_size[0].mean(WORK)
    assert mean
    assert mean.value == 8
    report = render(collected)
    assert "entities differ" not in report
    assert "F1 with" not in report


def test_several_units_of_a_name_are_several_columns_and_what_could_not_be_read_is_counted(
    tmp_path: Path,
) -> None:
    one, other, bad = map(record, grid([50], repeats=3))
    nothing = {"f1": Metric(value=math.nan)}
    one = replace(reporting(one, {"t": 1.0}, "s"), metrics_bad_lines=3)
    other = replace(reporting(other, {"t": 900.0}, "ms"), metrics_bad_lines=4)
    collected = collect([write_records(tmp_path, [one, other, replace(bad, metrics=nothing)])])
    assert (cells(collected)["t s"], cells(collected)["t ms"]) == (["1 (n=1)"], ["900 (n=1)"])
    notes = "; ".join(collected.notes)
    assert "t has several units, each with a column of its own: ms, s" in notes
    assert re.search("7 lines .*2 points.*left out", notes)
    assert re.search(r"try-1/record\.json: not JSON: NaN is no number that was measured", notes)


def without_items(of: Record) -> Record:
    assert of.summary
    summary = replace(of.summary, items=0, items_total=0, items_per_s=0.0, characters=0, load_max=None)
    return replace(of, summary=summary)


def test_without_items_the_speed_is_blank_and_the_time_of_the_work_is_shown(tmp_path: Path) -> None:
    tries = [without_items(record(p, work_s=3.0)) for p in grid([50, 100], repeats=2)]
    collected = collect([write_records(tmp_path, tries)])
    shown = cells(collected)
    assert shown["total s"] == ["3.00 ± 0.00"] * 2
    assert not {"speed paragr./s", "speed-up x", "energy J/1,000"} & shown.keys()
    assert [row.value(SPEED) for row in collected.rows] == [None] * 4
    assert "Fastest" not in render(collected)
    assert [plot.speed.series for plot in group_plots(collected)] == [{}]
    assert all(point.outcome is Outcome.OK for point in read_run(tmp_path).points)
