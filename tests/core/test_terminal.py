from __future__ import annotations

import io
import json
import os
import pty
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core import terminal
from tests.support.commands import JOBKIT


def test_the_closest_word_or_all_of_them() -> None:
    words = ["slurm", "sge"]
    assert terminal.did_you_mean("pbs", words) == ""
    assert terminal.suggest("slrum", words) == "; did you mean 'slurm'?"
    assert terminal.suggest("pbs", words) == terminal.suggest("", words) == "; one of: slurm, sge"


RUN = Path(__file__).parents[2] / "benchmarks/records/gpu/stanza-20261121-034558-42cc"


@pytest.mark.parametrize(
    ("show", "text", "shown"),
    [
        (terminal.printable, "a\x1b[31m\x07", "a\\x1b[31m\\x07"),
        (terminal.printable, "a\u202eb é\xa0x", "a\\u202eb é\xa0x"),
        (terminal.for_csv, "=1+1", "'=1+1"),
        (terminal.for_csv, "@x", "'@x"),
        (terminal.for_csv, "+cmd", "'+cmd"),
        (terminal.for_csv, "-2+3", "'-2+3"),
        (terminal.for_csv, "-2.5e3", "-2.5e3"),
        (terminal.for_csv, "\t=1", "\\t=1"),
        (terminal.for_csv, "＝1", "'＝1"),  # noqa: RUF001 - on purpose
        (terminal.for_markdown, "# head", "\\# head"),
        (terminal.for_markdown, "2. second", "2\\. second"),
        (terminal.for_markdown, "0.557", "0.557"),
        (terminal.for_markdown, "a|b *c* [d](e)", "a\\|b \\*c\\* \\[d\\](e)"),
        (terminal.for_markdown, "<b>&amp;", "&lt;b&gt;&amp;amp;"),
        (terminal.for_markdown, "see http://x.y/z, or a@b.com", "see `http://x.y/z,` or `a@b.com`"),
    ],
)
def test_control_characters_formulas_and_markup_are_spelt_out(
    show: Callable[[str], str], text: str, shown: str
) -> None:
    assert show(text) == shown


def shown(folder: Path, *words: str) -> str:
    """Return what a command prints on a terminal of 60 columns."""
    here, there = pty.openpty()
    env = {**os.environ, "COLUMNS": "60", "JOBKIT_CACHE": str(folder), "PAGER": "cat", "TERM": "xterm"}
    argv: list[str | Path] = [JOBKIT, *words]
    with subprocess.Popen(argv, stdin=there, stdout=there, stderr=subprocess.DEVNULL, env=env) as process:
        os.close(there)
        said = b""
        try:
            while some := os.read(here, 65536):
                said += some
        except OSError:  # how Linux tells the end of a pseudo-terminal
            os.close(here)
    assert process.returncode == 0
    return said.decode()


@pytest.mark.slow
def test_a_narrow_terminal_is_not_overrun(tmp_path: Path) -> None:
    said = shown(tmp_path, "recommend", str(RUN), "--corpus", "2e6", "--gpu", "t4").splitlines()
    assert any("Take batch_size" in line for line in said)
    assert [line for line in said if len(line) > 60 and "stanza-20261121" not in line] == []


@pytest.mark.slow
def test_a_page_of_help_is_set_for_a_terminal(tmp_path: Path) -> None:
    text = shown(tmp_path, "help", "walk-away")
    assert "\x1b[" in text
    assert "<!-- not run" not in text
    assert "](" not in text, "no link is left"
    assert "jobkit help spec" in text


@given(st.text())
def test_json_for_a_terminal_reads_as_the_same(text: str) -> None:
    said = terminal.as_json({"said": text}, indent=1)
    assert json.loads(said) == {"said": text}
    assert terminal.printable(said.replace("\n", "")) == said.replace("\n", "")


@given(st.text(alphabet="\x1b[3;1mé\r\nax\x9b\u202e"), st.integers(1, 9))
def test_a_log_in_pieces_reads_as_the_whole(text: str, size: int) -> None:
    data = text.encode()
    whole = terminal.LogSanitizer().through(data, last=True)
    pieces = [data[place : place + size] for place in range(0, len(data), size)]
    seen = terminal.LogSanitizer()
    assert b"".join([*(seen.through(piece) for piece in pieces), seen.through(b"", last=True)]) == whole


def test_a_log_keeps_colours_and_shows_what_else_it_holds() -> None:
    data = b"\x1b[1;32mok\x1b[0m 10%\r 20%\r\n\x1b[2J\xff\tend"
    shown = terminal.LogSanitizer().through(data, last=True)
    assert shown == b"\x1b[1;32mok\x1b[0m 10%\n 20%\n\\x1b[2J\\xff\tend"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", "R2 +- -e\\u4e2d\\ud800"), ("latin-1", "R\xb2 \xb1 -\xe9\\u4e2d\\ud800")],
)
def test_no_encoding_of_a_stream_breaks_what_is_printed(encoding: str, shown: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    terminal.accept_any_text(stream)
    stream.write("R\u00b2 \u00b1 \u2500\u00e9\u4e2d\ud800")
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == shown


def test_a_path_below_here_is_relative(here: Path) -> None:
    assert terminal.relative_path(here / "runs" / "demo") == "runs/demo"
    assert terminal.relative_path(here.parent) == str(here.parent)
    assert terminal.shell_path(here / "a b") == "'a b'"
    assert terminal.shell_path(here / "-a") == "./-a"


@pytest.mark.parametrize("path", ["-a b", "it's", "~x", "$HOME", "-"])
def test_a_word_is_one_word_and_no_option(path: str) -> None:
    (said,) = shlex.split(terminal.shell_quote(path))
    assert Path(said) == Path(path)
    assert not said.startswith("-")
