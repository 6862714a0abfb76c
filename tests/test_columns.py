from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jobkit.collect import collect
from jobkit.columns import COLUMNS, LEGENDS, Strip, narrowed, strips, without_repetition
from tests.builders import grid, record, write_points, write_record

Rows = list[Mapping[str, object]]


def sizes(run: Path, inert: tuple[str, ...] = ()) -> Rows:
    """Return the rows of the sizes of a run whose knobs perhaps did not take effect."""
    write_points(run, points := grid([50, 100]))
    for p in points:
        write_record(run, replace(record(p), inert=inert if p.index == 1 else ()))
    rows = collect([run]).sizes.to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def cells(found: list[Strip]) -> dict[str, tuple[str, ...]]:
    return {strip.name: strip.cells for strip in found}


def test_a_knob_without_effect_is_named_beside_its_size(tmp_path: Path) -> None:
    shown = cells(strips(sizes(tmp_path / "some", ("batch_size",)), ["batch_size"]))
    assert shown["inert"] == ("batch_size", "")
    assert "inert" not in cells(strips(sizes(tmp_path / "none"), ["batch_size"]))


def test_every_column_has_a_legend() -> None:
    assert {column.family for column in COLUMNS} <= LEGENDS.keys()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_narrowing_takes_the_most_dispensable_first_and_never_those_that_stay(ranks: list[int]) -> None:
    found = [Strip(str(at), "", "size", rank, ("1",)) for at, rank in enumerate([0, *ranks])]
    for highest in sorted({*ranks} - {0}, reverse=True):
        left = narrowed(found)
        assert left == [strip for strip in found if strip.rank < highest]
        found = left
    assert narrowed(found) is None


def test_the_sum_goes_where_its_parts_are_shown(tmp_path: Path) -> None:
    found = strips(sizes(tmp_path / "run"), ["batch_size"])
    assert "model_bytes" not in cells(without_repetition(found))
    parts = [strip for strip in found if strip.name != "weights_bytes"]
    assert "model_bytes" in cells(without_repetition(parts))
