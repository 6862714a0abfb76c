from __future__ import annotations

import sys

from hypothesis import given

from jobkit.corpus.reading import split_paragraphs
from jobkit.corpus.scan_text import WHITE_ASCII, WHITE_WIDE
from tests.support.corpora import HARD, reference


@given(HARD)
def test_paragraphs_are_those_of_a_loop_over_the_lines(text: str) -> None:
    assert split_paragraphs(text) == reference(text)


def test_white_space_is_what_strip_strips() -> None:
    known = {chr(code) for code in WHITE_ASCII} | {char.decode() for char in WHITE_WIDE}
    assert known == {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}


def test_many_blank_lines_and_a_long_paragraph() -> None:
    text = "a\n" * 100_000 + " \n" * 100_000 + "b" + "\n" * 100_000 + "\t"
    assert split_paragraphs(text) == ["a\n" * 100_000, "b\n"]
