from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.schedulers.parsed_script import (
    Effect,
    Rule,
    directives,
    missing_folder,
    read_script,
    signal_name,
    traps,
    words,
)

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


def test_the_header_ends_at_the_first_command() -> None:
    script = read_script("#!/bin/bash\n\n  # a comment\n#SBATCH -n 1\nX=1\n# late\n\n")
    assert [line.number for line in script.lines if line.header] == [1, 2, 3, 4]


def test_the_first_line_that_ends_as_on_windows() -> None:
    script = read_script("#!/bin/sh\ntrue\r\nfalse\r\n")
    assert (script.crlf, script.lines[1].text) == (2, "true")
    assert read_script("#!/bin/sh\n").crlf == 0


@pytest.mark.parametrize(
    ("folder", "hint"), [("there", ["there"]), ("my logs", ["'my logs'"]), ("here", []), ("", [])]
)
def test_a_folder_is_missing_only_where_it_was_looked_for(folder: str, hint: list[str]) -> None:
    rules = {"folder": Rule(Effect.LOST, "", "{quoted}")}
    script = read_script("", lambda path: path == "here")
    assert [one.hint for one in missing_folder(rules, script, script.lines[0], folder)] == hint
    assert not list(missing_folder(rules, read_script(""), script.lines[0], folder))


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("trap 'echo soon; exit' USR1 SIGTERM", ["USR1", "TERM"]),
        ('trap -- "$clean" 15 2 # both', ["TERM", "INT"]),
        ("  trap finish EXIT; trap 'on INT' INT", ["EXIT"]),
        ("trap '' HUP\ntrap \"\" INT\ntrap - TERM", []),
        ("# trap 'x' USR1", []),
        ("cat <<E\ntrap 'x' USR1\nE", []),
        ("echo trap 'x' USR1", []),
    ],
)
def test_signals_that_are_caught(text: str, caught: list[str]) -> None:
    assert list(traps(read_script(text))) == caught


def test_the_first_trap_of_a_signal_counts() -> None:
    found = traps(read_script("trap a USR1\ntrap b USR1"))
    assert {name: line.number for name, line in found.items()} == {"USR1": 1}


@pytest.mark.parametrize("word", ["USR1", "SIGUSR1", "usr1", "10", " 10 "])
def test_a_signal_by_any_name(word: str) -> None:
    assert signal_name(word) == "USR1"


def test_directives_are_the_options_of_the_header() -> None:
    text = (
        "#!/bin/bash\n#T -l 'a=!(b|c)' -j y -p -100\n# -x\n#T --mail=END --to a@b # why\n#T\nrun\n#T --late"
    )
    assert list(directives(read_script(text), "#T")) == [
        ("-l", "a=!(b|c)"),
        ("-j", "y"),
        ("-p", "-100"),
        ("--mail=END",),
        ("--to", "a@b"),
    ]


def test_words_of_a_directive() -> None:
    lines = read_script("#T --job-name='a b' # a comment\n#T --job-name='a b").lines
    assert [words(line, "#T") for line in lines] == [("--job-name=a b",), ()]


@given(st.text())
def test_every_line_is_kept(text: str) -> None:
    script = read_script(text)
    assert [line.text for line in script.lines] == [row.removesuffix("\r") for row in text.split("\n")]
    assert [line.number for line in script.lines] == list(range(1, len(script.lines) + 1))
