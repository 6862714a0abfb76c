from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobkit.schedulers.parsed_script import options_of, read_script
from tests.support.growth import growth

HERE = """\
#!/bin/bash
# a <<NOT
cat <<-'ONE' >a; cat <<"TWO words" >b
in one
ONE
in two
TWO words
echo $((1 << shift)) <<<word
cat <<\\THREE
trap 'no' HUP
THREE
"""


def test_here_documents_are_distinguished_from_shifts_and_here_strings() -> None:
    here = [line.number for line in read_script(HERE).lines if line.here]
    assert here == [4, 5, 6, 7, 10, 11]


def test_a_long_script_is_read_at_once() -> None:
    assert len(read_script("echo\n" * 2_000).lines) == 2_001
    assert (
        growth(lambda lines: read_script("echo\n" * lines), 2_000, 16_000) < 24
    )  # 64 if lines read all others


def test_a_directive_has_options_and_a_number_is_none() -> None:
    (line,) = read_script("#T -l 'a=!(b|c)' -p -100 --mail=END --to a@b # why").lines
    options = [("-l", "a=!(b|c)"), ("-p", "-100"), ("--mail=END",), ("--to", "a@b")]
    assert list(options_of(line, "#T")) == options


@given(st.text())
def test_every_line_is_kept(text: str) -> None:
    script = read_script(text)
    assert [line.text for line in script.lines] == [row.removesuffix("\r") for row in text.split("\n")]
    assert [line.number for line in script.lines] == list(range(1, len(script.lines) + 1))
