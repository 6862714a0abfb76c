from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobkit.answers.loads import Lengths
from jobkit.core.blocks import Column, fit_columns
from jobkit.core.layout import LENGTHS_FILE
from jobkit.core.records import Command
from jobkit.report.output import render, size_columns
from jobkit.report.tables import Size, collect
from tests.support.builders import grid, record, write_records


def sizes(run: Path, inert: tuple[str, ...] = ()) -> Sequence[Size]:
    """Return the sizes of a run whose knobs perhaps did not take effect."""
    records = [replace(record(p), inert=inert if p.index == 1 else ()) for p in grid([50, 100])]
    return collect([write_records(run, records)]).by_size


def cells(columns: Sequence[Column]) -> dict[str, Sequence[str]]:
    return {column.name: column.cells for column in columns}


def test_a_knob_without_effect_is_named_and_the_sum_goes_if_its_parts_are_shown(tmp_path: Path) -> None:
    columns = size_columns(sizes(tmp_path / "run"), ["batch_size"])
    assert "model GiB" not in cells(fit_columns(columns))
    parts = [column for column in columns if column.name != "weights GiB"]
    assert "model GiB" in cells(fit_columns(parts))
    assert "no effect of" not in cells(columns)
    shown = cells(size_columns(sizes(tmp_path / "some", ("batch_size",)), ["batch_size"]))
    assert shown["no effect of"] == ["batch_size", ""]


@pytest.mark.parametrize(
    ("of", "head", "legend"),
    [
        ({"workload": "stanza-ner"}, "load chars", "characters of the largest batch once padded"),
        ({"workload": "sentence-embedding"}, "load tokens", "tokens of the largest batch once padded"),
        ({"workload": "spacy-ner"}, "load tokens", "tokens of the largest batch, which is not padded"),
        ({"workload": "mine:Own"}, "load words", "words of the largest batch, which is not padded"),
        ({"command": Command(template="tag {batch_size} {text}")}, "load", "as the program reports it"),
    ],
)
def test_a_load_has_the_unit_of_its_workload(
    tmp_path: Path, of: dict[str, Any], head: str, legend: str
) -> None:
    run = write_records(tmp_path, [record(replace(p, **of)) for p in grid([50, 100])])
    (run / LENGTHS_FILE).write_text(Lengths(paragraphs=((3,),), unit="words", pads=False).to_json())
    found = collect([run])
    (column,) = (c for c in size_columns(found.by_size, ["batch_size"]) if c.name == head)
    (note,) = column.notes
    assert legend in note


def test_a_spread_larger_than_the_mean_is_unknown(tmp_path: Path) -> None:
    """CSV and JSON keep the figures."""
    points = grid([50], repeats=2)
    run = write_records(
        tmp_path / "run", [record(p, work_s=s) for p, s in zip(points, (1.0, 30.0), strict=True)]
    )
    found = collect([run])
    assert cells(size_columns(found.by_size, found.knobs))["speed paragr./s"] == ["455 ± ?"]
    assert "spread unknown" in render(found, "md")
    (size,) = json.loads(render(found, "json"))["sizes"]
    assert size["items_per_s_low"] < 0
