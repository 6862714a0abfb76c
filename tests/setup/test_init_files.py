from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobkit.schedulers.survey import Queue
from jobkit.setup.init_files import line, plain, scalar, word

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_a_scalar_is_read_back_as_the_text_that_it_was(text: str) -> None:
    assert yaml.safe_load(f"key: {scalar(text)}\n") == {"key": text}


def test_words_that_yaml_takes_for_something_else_are_quoted() -> None:
    assert [scalar(text) for text in ("gpu", "no", "12", "Null", "a b", "")] == [
        "gpu",
        '"no"',
        '"12"',
        '"Null"',
        '"a b"',
        '""',
    ]


@given(TEXT)
def test_a_comment_is_one(text: str) -> None:
    assert yaml.safe_load(line("key: 1", text)) == {"key": 1}
    assert "\n" not in plain(text)


def test_a_comment_that_is_too_wide_stands_above() -> None:
    assert line("  key: 1") == "  key: 1"
    assert line("  key: 1", "why").endswith("# why")
    assert line("  key: 1", "w" * 90) == f"  # {'w' * 90}\n  key: 1"


def test_a_queue_that_no_spec_could_name_is_null() -> None:
    assert [word(one) for one in (None, Queue(name="gpu"), Queue(name="a b"), Queue(name="null"))] == [
        "null",
        "gpu",
        "null",
        '"null"',
    ]
