from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.answers.loads import Lengths
from jobkit.core.errors import JobkitError
from jobkit.worker.paragraphs import (
    calls,
    cut_by_budget,
    estimated_load,
    longest_sentences,
    read_paragraphs,
    sorted_places,
    split_sentences,
)


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


texts = st.lists(st.text(min_size=1), max_size=40)


@given(texts, st.integers(1, 50), st.sampled_from([True, False]), st.none() | st.integers(1, 9), st.randoms())
def test_every_paragraph_is_called_once(
    paragraphs: list[str],
    size: int,
    largest_first: bool,  # noqa: FBT001 - given by hypothesis
    cap: int | None,
    random: Random,
) -> None:
    places = random.sample(range(len(paragraphs)), len(paragraphs))
    made = calls(paragraphs, size, cap=cap, largest_first=largest_first, places=places)
    back = {place: text for call in made for place, text in zip(call.items, call.paragraphs, strict=True)}
    assert back == dict(enumerate(paragraphs))
    assert sum(len(call.paragraphs) for call in made) == len(paragraphs)
    assert all(len(call.paragraphs) <= size for call in made)


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


def test_a_sentence_cap_bounds_the_estimate() -> None:
    paragraph = "One two. " * 10 + "A much longer sentence than the others."
    assert estimated_load([paragraph], 1) == len("A much longer sentence than the others.")
    assert estimated_load([paragraph], None) == 11 * len("A much longer sentence than the others.")


def test_the_calls_go_by_load_or_as_the_text_stands() -> None:
    for largest_first, firsts in ((True, [1, 2, 0]), (False, [0, 1, 2])):
        made = calls(["one", "twelve", "seven"], 1, largest_first=largest_first, cap=None, places=range(3))
        assert [call.first for call in made] == firsts


def test_sentences_end_where_punctuation_says() -> None:
    for sentences in (
        ["It rained.", "It poured!"],
        ["“Who has it?” asked Mr. A. Bell.", "Dr. Ash did."],
        ["..."],
        [],
    ):
        assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("He said “No.” Then he left") == ["He said “No.", "Then he left"]
