from __future__ import annotations

from hypothesis import given

from jobkit.core.paragraphs import split_paragraphs
from tests.support.corpora import HARD, reference


@given(HARD)
def test_paragraphs_are_those_of_a_loop_over_the_lines(text: str) -> None:
    assert split_paragraphs(text) == reference(text)


def test_many_blank_lines_and_a_long_paragraph() -> None:
    text = "a\n" * 100_000 + " \n" * 100_000 + "b" + "\n" * 100_000 + "\t"
    assert split_paragraphs(text) == ["a\n" * 100_000, "b\n"]
