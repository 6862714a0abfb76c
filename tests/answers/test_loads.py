from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.answers.loads import (
    NONE,
    PUNCTUATION,
    Budgets,
    Cut,
    Lengths,
    Loads,
    agreeing,
    loads_of,
    read_lengths,
)
from jobkit.core.errors import JobkitError
from jobkit.core.layout import LENGTHS_FILE
from tests.support.builders import point
from tests.support.growth import growth

PARAGRAPHS = st.lists(st.lists(st.integers(1, 60), max_size=5), min_size=1, max_size=14)
FIXED = st.none() | st.integers(1, 9)
CUTS = st.builds(lambda p, s: Cut(paragraphs_per_call=p, sentences_per_ner_batch=s), FIXED, FIXED)


def lengths(paragraphs: list[list[int]]) -> Lengths:
    return Lengths(paragraphs=tuple(map(tuple, paragraphs)))


def novel(paragraphs: int, seed: int = 1) -> Loads:
    """Return the loads of something like a novel: log-normal sentences, none to five a paragraph."""
    dice = random.Random(seed)  # noqa: S311 - not cryptography
    rows = [
        [min(int(dice.lognormvariate(4.3, 0.7)) + 2, 1500) for _ in range(dice.randint(0, 5))]
        for _ in range(paragraphs)
    ]
    return Loads(lengths(rows))


def chunks(paragraphs: list[list[int]], cut: Cut, batch_size: int) -> Iterator[tuple[int, list[int]]]:
    """Yield first paragraph of the call and chunk, in the plainest way."""
    per_call = cut.paragraphs_per_call or batch_size
    per_chunk = cut.sentences_per_ner_batch or batch_size
    for first in range(0, len(paragraphs), per_call):
        items = [item for row in paragraphs[first : first + per_call] for item in row]
        for start in range(0, len(items), per_chunk):
            yield first, items[start : start + per_chunk]


def plain_load(paragraphs: list[list[int]], cut: Cut, batch_size: int) -> int:
    return max((len(chunk) * max(chunk) for _, chunk in chunks(paragraphs, cut, batch_size)), default=0)


@given(PARAGRAPHS, CUTS, st.integers(1, 80))
def test_loads_are_those_of_plain_counting(rows: list[list[int]], cut: Cut, size: int) -> None:
    loads = Loads(lengths(rows), cut)
    assert loads.own(size) == plain_load(rows, cut, size)
    assert loads.load(size) == max(plain_load(rows, cut, smaller) for smaller in range(1, size + 1))
    first, source = loads.worst(size)
    assert 1 <= source <= size
    made = [len(chunk) * max(chunk) for at, chunk in chunks(rows, cut, source) if at == first]
    assert max(made, default=0) == loads.load(size)


@given(PARAGRAPHS, CUTS)
def test_saturation_is_where_it_stops_to_grow(rows: list[list[int]], cut: Cut) -> None:
    loads = Loads(lengths(rows), cut)
    final = loads.load(10_000)
    assert loads.load(loads.saturation) == final
    assert loads.saturation == 1 or loads.load(loads.saturation - 1) < final


@given(PARAGRAPHS, CUTS, st.integers(0, 3_000))
def test_the_largest_batch_is_the_last_that_fits(rows: list[list[int]], cut: Cut, limit: int) -> None:
    loads = Loads(lengths(rows), cut)
    fitting = [size for size in range(1, loads.limit + 1) if loads.load(size) <= limit]
    assert loads.largest_batch(limit) == max(fitting, default=0)


@given(PARAGRAPHS, CUTS, st.integers(1, 40))
def test_efficiency_is_that_of_plain_counting(rows: list[list[int]], cut: Cut, size: int) -> None:
    loads = Loads(lengths(rows), cut)
    padded = sum(len(chunk) * max(chunk) for _, chunk in chunks(rows, cut, size))
    characters = sum(map(sum, rows))
    assert loads.chunks(size).efficiency == (characters / padded if padded else 1)
    assert 0 < loads.efficiency_sorted(size) <= 1


def test_the_limit_is_what_a_call_can_hold() -> None:
    rows = lengths([[1, 1], [1], [1, 1, 1]])
    assert Loads(rows).limit == 3
    assert Loads(rows, Cut(paragraphs_per_call=2)).limit == 3
    assert Loads(rows, Cut(paragraphs_per_call=1)).limit == 3
    assert Loads(rows, Cut(sentences_per_ner_batch=2)).limit == 3
    alone = Loads(lengths([[1], [1], [9]]), Cut(sentences_per_ner_batch=2))
    assert (alone.load(9), alone.saturation) == (9, 1), "the last sentence never fills its chunk"
    short = lengths([[3], [5], [1]])
    fixed, unpadded = Loads(short, Cut(paragraphs_per_call=2)), Loads(replace(short, pads=False))
    assert [fixed.load(size) for size in (1, 2, 3)] == [5, 10, 10]
    assert [unpadded.load(size) for size in (1, 2, 3)] == [5, 8, 9]
    assert (unpadded.own(2), unpadded.chunks(2).efficiency) == (8, 1)


def arranged(rows: list[list[int]], window: int | None) -> list[list[int]]:
    size = window or len(rows)
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [row for part in parts for row in sorted(part, key=lambda row: -max(row, default=0))]


@given(PARAGRAPHS, CUTS, st.integers(1, 40), FIXED)
def test_sorted_loads_are_those_of_plain_counting(
    rows: list[list[int]], cut: Cut, size: int, window: int | None
) -> None:
    loads = Loads(lengths(rows), cut, by_length=True, window=window)
    per_call, per_chunk = cut.paragraphs_per_call or size, cut.sentences_per_ner_batch or size
    ordered, made = arranged(rows, window), []
    for first in range(0, len(ordered), per_call):
        items = sorted((item for row in ordered[first : first + per_call] for item in row), reverse=True)
        made += [items[start : start + per_chunk] for start in range(0, len(items), per_chunk)]
    assert loads.own(size) == max((len(chunk) * max(chunk) for chunk in made), default=0)
    padded = sum(len(chunk) * max(chunk) for chunk in made)
    assert loads.chunks(size) == (len(made), loads.own(size), sum(map(sum, rows)) / padded if padded else 1)


@given(rows=PARAGRAPHS, work_unit=st.integers(1, 9), budget=st.integers(1, 200), by_length=st.booleans())
def test_a_budget_caps_every_load_but_of_an_item_alone(
    rows: list[list[int]], work_unit: int, budget: int, *, by_length: bool
) -> None:
    loads = Loads(lengths(rows), by_length=by_length)
    made = loads.under_budget(budget, work_unit)
    assert made.load <= max(budget, *(item for row in rows for item in row), 0)
    assert (made.batches == 0) == (not any(rows))
    assert made.load <= budget or any(item == made.load for row in rows for item in row)
    assert 0 < made.efficiency <= 1


def test_without_lengths_the_load_is_the_batch_size_and_without_text_there_is_none() -> None:
    loads = Loads(Lengths.unknown(40))
    assert [loads.load(size) for size in (1, 7, 40, 50)] == [1, 7, 40, 40]
    assert loads.lengths.source == NONE
    loads = Loads(lengths([]))
    assert (loads.load(3), loads.saturation, loads.limit, loads.worst(3)) == (0, 1, 1, (0, 1))
    assert (loads.chunks(3).efficiency, loads.efficiency_sorted(3)) == (1, 1)


def test_all_batch_sizes_of_a_longer_text_take_a_little_longer() -> None:
    texts = {number: novel(number).lengths for number in (500, 4_000)}
    cut = Cut(sentences_per_ner_batch=32)
    assert growth(lambda number: Loads(texts[number], cut).load(number), 500, 4_000) < 24  # 64 if squared


def test_lengths_are_read_back_as_they_were_written() -> None:
    found = Lengths(paragraphs=((1, 2), (), (3,)), source=PUNCTUATION)
    assert found.to_json() == '{"schema":1,"source":"punctuation","paragraphs":[[1,2],[],[3]]}'
    assert Lengths.from_json(found.to_json()) == found
    tokens = Lengths(paragraphs=((3,), (4,)), unit="tokens", pads=False)
    assert Lengths.from_json(tokens.to_json()) == tokens


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema":2,"source":"tokenizer","paragraphs":[]}',
        '{"schema":1,"source":"tokenizer","paragraphs":[[-1]]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_lengths_is_refused(text: str) -> None:
    with pytest.raises(JobkitError, match=r"^/run/lengths\.json: no lengths of a text"):
        Lengths.from_json(text, where="/run/lengths.json")


LENGTHS = Lengths(paragraphs=((5,), (7, 2), (3,)))


def test_lengths_are_read_where_they_lie(tmp_path: Path) -> None:
    assert read_lengths(tmp_path) is None
    (tmp_path / LENGTHS_FILE).write_text(LENGTHS.to_json())
    assert read_lengths(tmp_path) == LENGTHS
    (tmp_path / LENGTHS_FILE).write_text("{}")
    assert read_lengths(tmp_path) is None


def test_loads_are_those_of_the_knobs_and_of_the_part_of_the_text_that_the_points_have() -> None:
    plain, cut = point(params={"batch_size": 2}), {"paragraphs_per_call": 3, "sentences_per_ner_batch": 4}
    found = loads_of(LENGTHS, [plain])
    assert isinstance(found, Loads)
    assert found.cut == Cut()
    found = loads_of(LENGTHS, [plain, point(params={"batch_size": 2, **cut})])
    assert isinstance(found, Loads)
    assert found.cut == Cut(**cut)
    budgets = [replace(point(params={"padded_chars": size}), work_unit=2, order="sorted") for size in (9, 14)]
    assert loads_of(LENGTHS, budgets) == Budgets(Loads(LENGTHS, by_length=True), 2)
    for nothing in ([*budgets, point()], [point(params={"tokenizer_batch": 2})], []):
        assert loads_of(LENGTHS, nothing) is None
    assert loads_of(None, [plain]) is None
    parts = [replace(point(params={"batch_size": 1}), every=every) for every in (4, 2)]
    found = loads_of(lengths([[3], [100], [5], [90]]), parts)
    assert found is not None
    assert found.load(1) == 5, "of every second paragraph"


BUDGETS = st.builds(
    lambda rows, unit, by_length: Budgets(Loads(lengths(rows), by_length=by_length), unit),
    PARAGRAPHS,
    st.integers(1, 6),
    st.booleans(),
)


@given(BUDGETS, st.integers(1, 400))
def test_no_budget_up_to_the_largest_makes_a_larger_load(loads: Budgets, limit: int) -> None:
    largest = loads.largest_batch(limit)
    assert largest <= loads.limit
    assert all(loads.own(budget) <= loads.load(budget) <= limit for budget in range(1, largest + 1))
    assert largest in {0, limit, loads.limit}
    if largest == 0:
        assert loads.own(1) > limit, "the longest item alone does not fit"


@given(BUDGETS)
def test_beyond_its_limit_a_budget_changes_nothing(loads: Budgets) -> None:
    assert loads.own(loads.limit) == loads.own(10 * loads.limit)
    assert loads.limit == 1 or loads.own(loads.limit) == loads.limit


def test_lengths_of_something_else_are_not_taken() -> None:
    loads = loads_of(LENGTHS, [point(params={"batch_size": 2})])
    assert agreeing(loads, {1: 7, 2: 14}) is loads
    assert agreeing(loads, {}) is loads
    assert agreeing(loads, {2: 40}) is None
    assert agreeing(None, {2: 40}) is None
