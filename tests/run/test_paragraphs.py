from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.run.paragraphs import calls, estimated_load, read_paragraphs, split_paragraphs, split_sentences

LINE = st.text(st.sampled_from("ab. \t\u00a0\u0085\u2028é“\x0b\x1c"), max_size=6)
TEXT = st.lists(st.tuples(LINE, st.sampled_from(["\n", "\r\n", "\r"])), max_size=20)


def by_lines_of_a_file(path: Path) -> list[str]:
    """Split as the predecessor did: over the lines of a file opened as text."""
    found: list[str] = []
    current = ""
    with path.open(encoding="utf-8-sig") as stream:
        for line in stream:
            if line.strip():
                current += line
            else:
                found.append(current)
                current = ""
    return [paragraph for paragraph in [*found, current] if paragraph]


@given(TEXT, st.sampled_from([b"", b"\xef\xbb\xbf"]))
def test_splits_as_a_file_read_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str]], mark: bytes
) -> None:
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    text = "".join(line + end for line, end in lines)
    path.write_bytes(mark + text.encode())
    expected = by_lines_of_a_file(path)
    if expected:
        assert read_paragraphs(path) == expected
    else:
        with pytest.raises(JobkitError, match="holds no paragraph"):
            read_paragraphs(path)


@given(TEXT)
def test_nothing_but_white_space_is_lost(lines: list[tuple[str, str]]) -> None:
    text = "".join(line + "\n" for line, _ in lines)
    paragraphs = split_paragraphs(text)
    assert "".join("".join(paragraphs).split()) == "".join(text.split())
    assert all(line.strip() for paragraph in paragraphs for line in paragraph.split("\n")[:-1])


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfA title\r\n\r\n   \t\r\n  indented,\r\n  twice\r\n\r\n\r\nlast")
    assert read_paragraphs(path) == ["A title\n", "  indented,\n  twice\n", "last"]


def test_not_utf8_says_where_and_how_to_mend(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    with pytest.raises(JobkitError, match="No such file"):
        read_paragraphs(path)
    path.write_bytes(b"caf\xe9")
    with pytest.raises(JobkitError, match="not UTF-8 at byte 3") as caught:
        read_paragraphs(path)
    assert "iconv" in caught.value.hint


texts = st.lists(st.text(min_size=1), max_size=40)


@given(texts, st.integers(1, 50), st.sampled_from(["load", "text"]), st.none() | st.integers(1, 9))
def test_every_paragraph_is_called_once(
    paragraphs: list[str], size: int, order: str, cap: int | None
) -> None:
    made = calls(paragraphs, size, order=order, cap=cap)
    back = [text for call in sorted(made, key=lambda call: call.first) for text in call.paragraphs]
    assert back == paragraphs
    assert all(len(call.paragraphs) <= size for call in made)


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
