"""A figure is one entry: added to the registry, it is in every output."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobkit.answers.objective import Bound, Objective
from jobkit.answers.speed import speeds_of
from jobkit.core.blocks import as_text
from jobkit.core.figures import FIGURES, MIN, Figure
from jobkit.extensions.compare import as_data, blocks, sides
from jobkit.report.output import render
from jobkit.report.page import fragment
from jobkit.report.recommend.advice import judge
from jobkit.report.recommend.output import left_out_lines
from jobkit.report.tables import Collected, collect
from tests.support.builders import grid, record, write_records

EMPTIED = Figure(
    name="emptied",
    label="Emptied caches",
    unit="times",
    read=lambda record: record.retries,
    direction=MIN,
    key="emptied_caches",
    compared=True,
    interval=True,
    head="emptied\ntimes",
    rank=0,
)


@pytest.fixture(autouse=True)
def _one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, EMPTIED.name, EMPTIED)


def run(folder: Path, times: int = 1) -> Path:
    """Write a run whose points emptied the cache twice or four times, by batch size; one does not know."""
    points = grid([50, 100], repeats=3)
    first, *known = (replace(record(one), retries=one.numbers["batch_size"] // 25 * times) for one in points)
    return write_records(folder, [replace(first, retries=None), *known])


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    return collect([run(tmp_path / "run")])


@pytest.mark.slow
def test_tables_csv_and_json_have_it_and_do_not_take_unknown_for_0(
    tmp_path: Path, collected: Collected
) -> None:
    for report in (render(collected, "table", width=200), render(collected, "md")):
        assert "emptied" in report
        assert "2.00 ± 0.00 (n=2)" in report
    head, first, *_ = csv.reader(io.StringIO(render(collected, "csv")))
    assert (first[head.index("emptied")], collected.rows[1].value(EMPTIED)) == ("", 4)
    data = json.loads(render(collected, "json"))
    assert [point["emptied"] for point in data["points"]] == [None, 4, 2, 4, 2, 4]
    small, large = data["sizes"]
    assert (small["emptied"], small["emptied_n"], large["emptied"], large["emptied_n"]) == (2, 2, 4, 3)
    assert (large["emptied_sd"], large["emptied_low"], large["emptied_high"]) == (0, 4, 4)
    assert "emptied times" in fragment(tmp_path / "run", collected)


def test_runs_are_compared_by_it(tmp_path: Path) -> None:
    found = sides([collect([run(tmp_path / name, times)]) for name, times in (("a", 1), ("b", 2))])
    (pair,) = as_data(found)["comparisons"]
    lines = pair["measures"]["emptied"]
    assert [(line["ratio"], line["verdict"]) for line in lines] == [(2, "more"), (2, "more")]
    assert "Emptied caches, times: B next to A" in as_text(blocks(found))


def test_settings_are_chosen_and_refused_by_it(collected: Collected) -> None:
    records = [row.record for row in collected.rows if row.record]
    objective = Objective(metric=EMPTIED.key, direction=MIN, bounds={EMPTIED.key: Bound(max=3)})
    settings = speeds_of(records)
    judged = judge("run", settings, records, objective)
    assert judged.best(judged.allowed(settings)).params == {"batch_size": 50}
    left_out = [*left_out_lines(judged)]
    assert left_out[0] == "Not taken: batch_size 100, because emptied_caches 4 times is over 3 times"
    assert left_out[1] == "emptied_caches has no value in 1 of 6 points: left out of its means"
