from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import linear_regression

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.answers.loads import Cut, Lengths, Loads
from jobkit.core.errors import JobkitError
from jobkit.core.records import ModelRef
from jobkit.core.units import GIB
from jobkit.planning import batch_sizes
from jobkit.planning.batch_sizes import MIN_LOAD, Chosen, sizes
from jobkit.spec.sweep_spec import SweepSpec
from tests.answers.test_loads import CUTS, PARAGRAPHS, lengths, novel

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records" / "gpu"
FULL = ModelRef(path="/m", name="en", size="full", stand_in=True, fingerprint="f", size_bytes=1)
NOVEL = Loads(Lengths(paragraphs=((900, 50), *((60, 40, 20),) * 999)))


def spec(device: str = "cuda", /, **sweep: object) -> SweepSpec:
    return SweepSpec.model_validate({"name": "t", "device": device, "sweep": sweep})


def chosen(
    gpu_bytes: int | None = None, loads: Loads = NOVEL, model: ModelRef | None = FULL, **sweep: object
) -> Chosen:
    return batch_sizes.choose(spec(batch_size="auto", **sweep), model, loads, gpu_bytes)


def test_the_typical_line_is_that_of_the_committed_records() -> None:
    records = [json.loads(path.read_text()) for path in RECORDS.glob("*/results/*/*/record.json")]
    expandable = [one for one in records if one["point"]["allocator"] == "expandable_segments:True"]
    slope, fixed = linear_regression(
        [record["summary"]["load_max"] for record in expandable],
        [record["memory"]["process_peak_bytes"] for record in expandable],
    )
    line = batch_sizes.TYPICAL["stanza-ner", "en", "full"]
    assert line.slope_bytes == pytest.approx(slope, rel=0.01)
    assert line.intercept_bytes == pytest.approx(fixed, rel=0.01)
    assert line.at(line.largest(10 * GIB)) == pytest.approx(10 * GIB)
    assert line.largest(1) == 0


def test_the_sizes_take_up_to_a_quarter_of_the_card_or_of_the_text() -> None:
    alone = chosen(8 * GIB)
    assert alone.largest_load == batch_sizes.TYPICAL["stanza-ner", "en", "full"].largest(8 * GIB)
    assert 0.2 < NOVEL.load(alone.sizes.batch_sizes[-1]) / alone.largest_load <= 0.25
    for axes in ({"workers": [1, 4]}, {"include": [{"workers": 4}]}, {"zip": {"workers": [2, 4]}}):
        shared = chosen(32 * GIB, **axes)
        assert shared.largest_load == alone.largest_load
    for gpu_bytes, share in ((2 * GIB, 0.5), (6 * GIB, 1 / 3), (80 * GIB, 0.25)):
        found = chosen(gpu_bytes)
        most = min(found.largest_load or 0, NOVEL.load(NOVEL.limit))
        assert 0.8 * share < NOVEL.load(found.sizes.batch_sizes[-1]) / most <= share, "more of a small card"
        assert len(found.sizes.batch_sizes) == 5
    unknown = ("cpu", FULL, None), ("cuda", replace(FULL, size="tiny"), 8 * GIB), ("cuda", None, 8 * GIB)
    for device, model, gpu_bytes_ in unknown:
        of_text = batch_sizes.choose(spec(device, batch_size="auto"), model, NOVEL, gpu_bytes_)
        assert of_text.largest_load is None
        assert "up to a quarter of the 900,000 of the whole text in one call" in of_text.line


def test_a_short_text_goes_beyond_a_quarter_and_few_sizes_say_why() -> None:
    short = chosen(loads=Loads(Lengths.unknown(6)), model=None)
    assert short.sizes.batch_sizes == (1, 2, 4, 5, 6)
    few = chosen(loads=Loads(Lengths(paragraphs=((9,), (9,)))), model=None)
    assert few.line.endswith("the text makes too few distinct loads (2) for a line: a longer text has more")
    none = chosen(GIB // 2)
    assert none.line == "no batch size is worth measuring: the model alone takes more memory than there is"


def test_auto_is_replaced_and_the_other_knobs_stay() -> None:
    asked = spec(batch_size="auto", tokenizer_batch=[8, 16], include=[{"batch_size": 1}])
    found = batch_sizes.decided(asked, (10, 20))
    assert (batch_sizes.is_auto(asked), batch_sizes.is_auto(found)) == (True, False)
    assert found.sweep.product == {"batch_size": [10, 20], "tokenizer_batch": [8, 16]}
    assert len(batch_sizes.settings_of(found)) == 5
    with pytest.raises(JobkitError, match="no batch size is worth measuring"):
        batch_sizes.decided(asked, ())
    lengths = Lengths(paragraphs=((10, 10, 10),) * 9)
    cut = batch_sizes.loads_of(spec(batch_size="auto", sentences_per_ner_batch=[2, 4]), lengths)
    assert cut.load(9) == 4 * 10, "another knob that cuts the text counts with its largest value"
    for sweep in ({"batch_size": [3]}, {"sentences_per_ner_batch": [2]}):
        assert batch_sizes.loads_of(spec(**sweep), lengths).load(9) == 9 * 10


def test_the_sizes_are_spread_evenly_in_load_up_to_a_quarter() -> None:
    loads = novel(2_000)
    found = [loads.load(size) for size in sizes(loads).batch_sizes]
    top = loads.load(loads.limit) / 4
    assert [round(load / top, 1) for load in found] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert found == [loads.own(size) for size in sizes(loads).batch_sizes]
    small, chosen = novel(300), sizes(novel(300), 30_000).batch_sizes
    assert (small.load(chosen[0]) >= MIN_LOAD, len(chosen)) == (True, 5), "above the floor where it can"


@given(PARAGRAPHS, CUTS, st.none() | st.floats(1, 5_000), st.integers(1, 6))
def test_sizes_are_ascending_of_distinct_loads_and_fit(
    rows: list[list[int]], cut: Cut, largest_load: float | None, points: int
) -> None:
    loads = Loads(lengths(rows), cut)
    found, why = sizes(loads, largest_load, points)
    made = [loads.own(size) for size in found]
    assert len(found) <= points
    assert made == sorted(set(made))
    assert all(size <= loads.limit for size in found)
    assert largest_load is None or all(load <= largest_load for load in made)
    possible = [size for size in loads.steps if largest_load is None or loads.load(size) <= largest_load]
    assert len(found) == min(points, len(possible)) or len(found) >= 4
    assert bool(why) == (len(found) < min(points, 4))
