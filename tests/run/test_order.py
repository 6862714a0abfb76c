from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.run.paragraphs import calls, estimated_load, split_sentences

texts = st.lists(st.text(min_size=1), max_size=40)


@given(texts, st.integers(1, 50), st.sampled_from(["load", "text"]), st.none() | st.integers(1, 9))
def test_every_paragraph_is_called_once(
    paragraphs: list[str], size: int, order: str, cap: int | None
) -> None:
    made = calls(paragraphs, size, order=order, cap=cap)
    back = [text for call in sorted(made, key=lambda call: call.first) for text in call.paragraphs]
    assert back == paragraphs
    assert all(len(call.paragraphs) <= size for call in made)


@given(texts, st.integers(1, 50))
def test_the_largest_load_comes_first(paragraphs: list[str], size: int) -> None:
    loads = [
        estimated_load(call.paragraphs, None) for call in calls(paragraphs, size, order="load", cap=None)
    ]
    assert loads == sorted(loads, reverse=True)


def test_a_sentence_cap_bounds_the_estimate() -> None:
    paragraph = "One two. " * 10 + "A much longer sentence than the others."
    assert estimated_load([paragraph], 1) == len("A much longer sentence than the others.")
    assert estimated_load([paragraph], None) == 11 * len("A much longer sentence than the others.")


def test_the_calls_go_by_load_or_as_the_text_stands() -> None:
    paragraphs = ["one", "twelve", "seven"]
    ordered = {
        order: [call.first for call in calls(paragraphs, 1, order=order, cap=None)]
        for order in ("load", "text")
    }
    assert ordered == {"load": [1, 2, 0], "text": [0, 1, 2]}


@pytest.mark.parametrize(
    ("paragraph", "found"),
    [
        ("It rained. It poured!\n", ["It rained.", "It poured!"]),
        (
            "“Who has it?” asked Mr. A. Bell. Dr. Ash did.",
            ["“Who has it?” asked Mr. A. Bell.", "Dr. Ash did."],
        ),
        ("He said “No.” Then he left", ["He said “No.", "Then he left"]),
        ("...", ["..."]),
        ("", []),
    ],
)
def test_sentences_end_where_punctuation_says(paragraph: str, found: list[str]) -> None:
    assert split_sentences(paragraph) == found
