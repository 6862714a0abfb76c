from __future__ import annotations

from pathlib import Path

import pytest

from jobkit.core.layout import LENGTHS_FILE
from jobkit.fit.lengths import Lengths
from jobkit.fit.loads import Cut, agreeing, loads_of, read_lengths
from tests.support.builders import point

LENGTHS = Lengths(paragraphs=((5,), (7, 2), (3,)))


def test_lengths_are_read_where_they_lie(tmp_path: Path) -> None:
    assert read_lengths(tmp_path) is None
    (tmp_path / LENGTHS_FILE).write_text(LENGTHS.to_json())
    assert read_lengths(tmp_path) == LENGTHS
    (tmp_path / LENGTHS_FILE).write_text("{}")
    assert read_lengths(tmp_path) is None


def test_other_knobs_cut_the_text_as_the_points_have_them() -> None:
    plain, cut = (
        {"batch_size": 2},
        {"batch_size": 2, "paragraphs_per_call": 3, "sentences_per_ner_batch": 4},
    )
    found = loads_of(LENGTHS, [point(params=plain)])
    assert found is not None
    assert found.cut == Cut()
    found = loads_of(LENGTHS, [point(params=plain), point(params=cut)])
    assert found is not None
    assert found.cut == Cut(paragraphs_per_call=3, sentences_per_ner_batch=4)


@pytest.mark.parametrize("params", [{"tokenizer_batch": 2}, None])
def test_without_a_batch_size_or_lengths_there_are_none(params: dict[str, int] | None) -> None:
    points = [point(params=params)]
    assert loads_of(LENGTHS if params else None, points) is None
    assert loads_of(LENGTHS, []) is None


def test_lengths_of_something_else_are_not_taken() -> None:
    loads = loads_of(LENGTHS, [point(params={"batch_size": 2})])
    assert agreeing(loads, {1: 7, 2: 14}) is loads
    assert agreeing(loads, {}) is loads
    assert agreeing(loads, {2: 40}) is None
    assert agreeing(None, {2: 40}) is None
