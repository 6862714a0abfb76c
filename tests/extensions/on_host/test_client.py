"""The side on the laptop, without ssh: what it makes of what comes back."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.extensions.on_host import client
from jobkit.extensions.on_host.client import Cluster, Suggesting, suggest_here
from jobkit.extensions.on_host.connection import Connection
from jobkit.extensions.on_host.protocol import ABSENT, MARK


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("next: jobkit status RUN --watch", "next: jobkit --on hec status RUN --watch"),
        ("jobkit apply RUN; jobkit merge tagged", "jobkit --on hec apply RUN; jobkit --on hec merge tagged"),
        ("python -m jobkit.worker; /venv/bin/jobkit status; .jobkit status", ""),
        ("jobkit help plots, or jobkit statuses", ""),
        ("next: jobkit merge tagged   # joins", "next: jobkit --on hec merge tagged --fetch   # joins"),
    ],
)
def test_a_command_that_is_suggested_is_the_one_to_type_here(text: str, shown: str) -> None:
    assert suggest_here(text, "--on hec") == (shown or text)
    assert suggest_here(text, "") == (
        text if "merge tagged   " not in text else shown.replace("--on hec ", "")
    )


def test_a_stream_changes_what_passes_and_is_the_terminal_that_it_was() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    to = Terminal()
    stream = Suggesting(to, "--on hec")
    stream.write("next: jobkit collect\n")
    stream.flush()
    assert to.getvalue() == "next: jobkit --on hec collect\n"
    assert stream.isatty()


class Shell(Connection):
    """A connection whose other side is a script of the shell on this machine."""

    def serve_argv(self) -> list[str]:
        return ["sh", "-c", f"read request; {self.host}"]


def cluster(script: str) -> Cluster:
    return Cluster(Shell(script, ()), "jobkit", "letters", "hec")


def answers(*lines: str) -> str:
    return "; ".join(f"echo '{MARK}{line}'" for line in lines)


HELLO = '{"protocol": 1, "version": "0.1.0"}'


def test_lines_of_a_login_shell_are_no_answers(capsys: pytest.CaptureFixture[str]) -> None:
    script = "echo Welcome; echo jobkit-on; " + answers(
        HELLO, '{"out": "hi"}', '{"err": "oh"}', '{"exit": 4}'
    )
    assert cluster(script).run(["status"], kept="") == 4
    assert capsys.readouterr() == ("hi", "oh")


def test_the_answer_is_acknowledged(tmp_path: Path) -> None:
    note = tmp_path / "note"
    script = answers(HELLO, '{"exit": 0}') + f"; read said; echo $said >{note}"
    assert cluster(script).run(["sweep"], kept="a") == 0
    assert note.read_text() == "accepted\n"


@pytest.mark.parametrize("code", [("-9", 137), ("-2", 130), ("130", 130)])
def test_a_command_that_a_signal_ended_has_the_code_of_a_shell(code: tuple[str, int]) -> None:
    assert cluster(answers(HELLO, f'{{"exit": {code[0]}}}')).run(["status"], kept="") == code[1]


@pytest.mark.parametrize(
    ("script", "message", "hint", "code"),
    [
        (f"echo {ABSENT}", "has no jobkit", "--on hec init", 2),
        (answers('{"protocol": 2, "version": "9"}'), "jobkit 9 with protocol 2", "update jobkit on this", 2),
        (answers('{"protocol": 0, "version": "0"}'), "jobkit 0 with protocol 0", "--on hec init installs", 2),
        (answers(HELLO), "the connection broke before the answer came", "type the same command again", 3),
        ("echo 'no space' >&2; exit 1", "no answer: no space", "--on hec init checks", 3),
        ("exit 255", "the connection broke", "type the same command again", 3),
        ("echo refused >&2; exit 255", "no answer: refused", "must work", 3),
        (
            answers(HELLO, '{"error": "wrong", "hint": "jobkit status", "code": 5}'),
            "wrong",
            "jobkit --on hec status",
            5,
        ),
    ],
)
def test_what_is_no_answer_is_an_error_that_helps(script: str, message: str, hint: str, code: int) -> None:
    with pytest.raises(JobkitError) as caught:
        cluster(script).run(["status"], kept="")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_code == code


@pytest.mark.parametrize("path", ["../../.ssh/config", "/etc/passwd", "runs/../../x"])
def test_a_path_above_the_project_is_refused(path: str) -> None:
    answer = f'{{"answer": [["/home", "{path}", true]]}}'
    with pytest.raises(JobkitError, match="not below this folder"):
        cluster(answers(HELLO, answer)).find("runs")


def test_a_terminal_is_not_given_what_it_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    lines = ('{"out": "\\u001b]0;title\\u0007 \\u001b[31mred\\u001b[0m \\u001b[3F\\u001b[J"}', '{"exit": 0}')
    assert cluster(answers(HELLO, *lines).replace("\\", "\\\\")).run(["status"], kept="") == 0
    assert shown.getvalue() == "\\x1b]0;title\\x07 \x1b[31mred\x1b[0m \x1b[3F\x1b[J"
    assert client.COMMANDS
