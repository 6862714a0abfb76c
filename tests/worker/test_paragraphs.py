from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.answers.loads import Lengths
from jobkit.core.errors import JobkitError
from jobkit.worker.paragraphs import (
    Window,
    cut_by_budget,
    cut_window,
    longest_sentences,
    read_paragraphs,
    sorted_places,
    split_sentences,
)
from tests.support.builders import point


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfA title\r\n\r\n   \t\r\n  indented,\r\n  twice\r\n\r\n\r\nlast\r\rmore")
    assert read_paragraphs(path) == ["A title\n", "  indented,\n  twice\n", "last\n", "more"]
    path.write_bytes(b"\xef\xbb\xbf \r\n")
    with pytest.raises(JobkitError, match="holds no paragraph"):
        read_paragraphs(path)


def test_not_utf8_says_where(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    with pytest.raises(JobkitError, match="No such file"):
        read_paragraphs(path)
    path.write_bytes(b"caf\xe9")
    with pytest.raises(JobkitError, match="not UTF-8 at byte 3"):
        read_paragraphs(path)


@given(st.lists(st.integers(0, 50), max_size=40), st.none() | st.integers(1, 9))
def test_paragraphs_are_sorted_within_windows(longest: list[int], window: int | None) -> None:
    places = sorted_places(longest, window)
    assert sorted(places) == list(range(len(longest)))
    size = window or len(longest) or 1
    for start in range(0, len(longest), size):
        part = places[start : start + size]
        assert set(part) == set(range(start, min(start + size, len(longest))))
        assert [longest[place] for place in part] == sorted((longest[place] for place in part), reverse=True)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_a_budget_cuts_into_as_few_batches_as_the_order_allows(lengths: list[int], budget: int) -> None:
    sizes = cut_by_budget(lengths, budget)
    assert sum(sizes) == len(lengths)
    at = 0
    for size in sizes:
        batch, after = lengths[at : at + size], lengths[at : at + size + 1]
        assert size == 1 or size * max(batch) <= budget
        assert at + size == len(lengths) or len(after) * max(after) > budget
        at += size


def test_lengths_are_those_of_the_plan_if_they_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "lengths.json"
    paragraphs = ["One two. Three.", "Four."]
    by_punctuation = [len("One two."), len("Four.")]
    assert longest_sentences(paragraphs, None) == by_punctuation
    one, none = Lengths(paragraphs=((1,),)), Lengths.unknown(2)
    for text in ("", "[1]", one.to_json(), none.to_json()):
        path.write_text(text)
        assert longest_sentences(paragraphs, path) == by_punctuation
    path.write_text(Lengths(paragraphs=((7, 9), ())).to_json())
    assert longest_sentences(paragraphs, path) == [9, 0]


def test_the_calls_go_by_load_with_so_many_sentences_as_are_padded_or_as_the_text_stands() -> None:
    texts = ["One. " * 5, "Twelve or more.", "A much longer one."]
    for order, size, firsts in (("load", 1, [2, 1, 0]), ("load", 5, [0, 2, 1]), ("text", 1, [0, 1, 2])):
        window = Window(0, texts)
        cut_window(window, replace(point(params={"batch_size": size}), order=order), 1, None)
        assert [call.first for call in window.waiting] == firsts


def test_sentences_end_where_punctuation_says() -> None:
    for sentences in (
        ["It rained.", "It poured!"],
        ["“Who has it?” asked Mr. A. Bell.", "Dr. Ash did."],
        ["..."],
        [],
    ):
        assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("He said “No.” Then he left") == ["He said “No.", "Then he left"]
