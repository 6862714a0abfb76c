from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.errors import JobkitError
from jobkit.run.paragraphs import read_paragraphs, split_paragraphs

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
    path.write_bytes(b"caf\xe9")
    with pytest.raises(JobkitError, match="not UTF-8 at byte 3") as caught:
        read_paragraphs(path)
    assert "iconv" in caught.value.hint


def test_a_missing_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobkitError, match="No such file"):
        read_paragraphs(tmp_path / "text.txt")
