"""The side on the laptop, without ssh: what it makes of answers, and what a login shell there runs."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jobkit.core.errors import JobkitError
from jobkit.extensions.on_host import client, commands, connection, transfer
from jobkit.extensions.on_host.client import Cluster, suggest_here
from jobkit.extensions.on_host.connection import Connection, connect
from jobkit.extensions.on_host.protocol import ABSENT, MARK, READY, Place, parse_answer


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


PROMPT = "printf 'Project? '; "
"""What a login shell prints without the end of a line."""


class Shell(Connection):
    """A connection whose other side is a script of the shell on this machine."""

    def argv(self, script: str, *_: str) -> list[str]:
        assert script == connection.RUN_JOBKIT
        return ["sh", "-c", f"{PROMPT}echo {READY}; read request; {self.host}"]


def cluster(script: str) -> Cluster:
    return Cluster(Shell(script, ()), "jobkit", "letters", "hec")


def answers(*lines: str) -> str:
    return "; ".join(f"echo '{MARK}{line}'" for line in lines)


HELLO = '{"protocol": 1, "version": "0.1.0"}'


@pytest.mark.slow
def test_lines_of_a_login_shell_are_no_answers_and_an_answer_is_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = answers(HELLO, '{"out": "hi"}', '{"err": "oh"}', '{"exit": 4}')
    script = (
        f"echo Welcome; echo jobkit-on; printf 'jobkit-on:{{'; {said}; read said; echo $said >{tmp_path}/note"
    )
    assert cluster(script).run(["sweep"], kept="a", sent={}) == 4
    assert capsys.readouterr() == ("hi", "oh")
    assert (tmp_path / "note").read_text() == "accepted\n"


@pytest.mark.slow
def test_a_login_shell_that_waits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 0.1)
    monkeypatch.setattr(sys.modules[__name__], "PROMPT", PROMPT + "read answer; ")
    with pytest.raises(JobkitError, match="its login shell prints 'Project\\? '"):
        cluster(answers(HELLO, '{"exit": 0}')).run(["status"], kept="", sent={})


@pytest.mark.slow
def test_a_command_that_a_signal_ended_has_the_code_of_a_shell() -> None:
    for status, code in ((-9, 137), (-2, 130), (130, 130)):
        assert cluster(answers(HELLO, f'{{"exit": {status}}}')).run(["status"], kept="", sent={}) == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "message", "hint", "code"),
    [
        (f"echo {ABSENT}", "has no jobkit", "--on hec init", 2),
        (answers('{"protocol": 2, "version": "9"}'), "jobkit 9 with protocol 2", "update jobkit on this", 2),
        (
            answers('{"protocol": 0, "version": "0"}'),
            "jobkit 0 with protocol 0",
            "--on hec init --install brings",
            2,
        ),
        (answers(HELLO), "the connection broke before the answer came", "type the same command again", 3),
        ("echo 'no space' >&2; exit 1", "no answer: no space", "--on hec init checks", 3),
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
        cluster(script).run(["status"], kept="", sent={})
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_code == code


@pytest.mark.slow
@pytest.mark.parametrize("path", ["../../.ssh/config", "/etc/passwd", "runs/../../x"])
def test_a_path_above_the_project_is_refused(path: str) -> None:
    answer = f'{{"answer": [["/home", "{path}", true]]}}'
    with pytest.raises(JobkitError, match="not below this folder"):
        cluster(answers(HELLO, answer)).find("runs")


@pytest.mark.slow
def test_a_terminal_is_not_given_what_it_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    lines = ('{"out": "\\u001b]0;title\\u0007 \\u001b[31mred\\u001b[0m \\u001b[3F\\u001b[J"}', '{"exit": 0}')
    assert cluster(answers(HELLO, *lines).replace("\\", "\\\\")).run(["status"], kept="", sent={}) == 0
    assert shown.getvalue() == "\\x1b]0;title\\x07 \x1b[31mred\x1b[0m \x1b[3F\x1b[J"


@pytest.mark.parametrize("answer", ["{garbage", '{"exit": "a"}', '{"out": [1]}', "{" * 100_000])
def test_a_line_that_is_malformed_is_no_answer(answer: str) -> None:
    assert parse_answer(f"{MARK}{answer}\n".encode()) is None


class Named(Cluster):
    """A cluster that names files, and sends none."""

    parts: ClassVar[tuple[tuple[str, bool], ...]] = ()
    kept: ClassVar[list[tuple[str, str]]] = []

    def find(self, *_: str, **__: object) -> list[Place]:
        return [Place("/home", Path(path), is_folder) for path, is_folder in self.parts]

    def run(self, words: list[str], *, kept: str, **_: object) -> int:
        self.kept.append((words[0], kept))
        return 0


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(commands, "connect", lambda host: Connection(host, ()))
    monkeypatch.setattr(transfer, "_has_rsync", lambda: True)
    monkeypatch.setattr(transfer, "_rsync", lambda *_, **__: None)

    def run_on(name: str, params: dict[str, Any], *parts: tuple[str, bool]) -> int:
        monkeypatch.setattr(Named, "parts", parts)
        monkeypatch.setattr(commands, "Cluster", Named)
        typed = commands.Typed(name, [], params, lambda _: 0)
        return commands.run_on("hec", typed, named=True)

    return run_on


@pytest.mark.parametrize(
    ("name", "params", "part"),
    [
        ("collect", {}, ("evil.py", False)),
        ("collect", {}, ("letters.txt", False)),
        ("report", {"runs": ("there/letters.txt",)}, ("letters.txt", False)),
        ("collect", {}, ("texts", True)),
        ("merge", {"run": "tagged", "fetch": True}, ("texts/merged.jsonl", False)),
        ("merge", {"run": "tagged", "fetch": True}, ("letters.txt", False)),
    ],
)
def test_no_file_here_is_written_over(named: Any, name: str, params: Any, part: tuple[str, bool]) -> None:
    Path("letters.txt").write_text("mine")
    Path("texts").mkdir()
    with pytest.raises(JobkitError, match=r"file of yours|is no copy of that on hec"):
        named(name, params, part)


def test_what_was_asked_for_comes(named: Any) -> None:
    assert named("merge", {"run": "tagged", "fetch": True}, ("tagged/merged.jsonl", False)) == 0
    assert named("merge", {"run": "tagged", "fetch": True}, ("tagged/merged.jsonl", False)) == 0
    output = {"run": "tagged", "fetch": True, "output": "all.jsonl"}
    assert named("merge", output, ("all.jsonl", False), ("all.documents.jsonl", False)) == 0
    output["fmt"] = ("csv", "parquet")
    assert named("merge", output, ("all.csv", False), ("all.parquet", False)) == 0
    assert named("report", {"runs": ("there/rows.csv",)}, ("rows.csv", False)) == 0


def test_an_answer_is_kept_where_a_second_run_would_begin_something_twice(named: Any) -> None:
    Named.kept.clear()
    for name in ("sweep", "verify", "cancel", "resume", "merge", "status"):
        named(name, {})
    again = ("cancel", "resume", "merge", "status")
    kept = [(name, bool(kept)) for name, kept in Named.kept]
    assert kept == [("sweep", True), ("verify", True), *((name, False) for name in again)]


@pytest.mark.parametrize("host", ["ssh://hec", "[::1]:jobs", "fe80::1"])
def test_an_address_with_colons_is_refused_with_the_way_to_name_it(host: str) -> None:
    with pytest.raises(JobkitError, match="neither HOST nor HOST:FOLDER") as caught:
        commands.run_on(host, commands.Typed("status", [], {}, lambda _: 0), named=True)
    assert "~/.ssh/config" in caught.value.hint


HOST = Connection("hec", ())
SHELLS = ["sh", "bash", *(pytest.param(name, marks=pytest.mark.program(name)) for name in ("tcsh", "fish"))]


def asked(shell: str, argv: list[str], home: Path, *, path: str, said: str = "") -> tuple[int, str]:
    """Run a command as sshd does, by the login shell; return its status and what it printed."""
    program = shutil.which(shell)
    assert program
    done = subprocess.run(
        (program, "-c", argv[-1]),
        input=said,
        env={"HOME": str(home), "SHELL": program, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a PATH without rsync and without jobkit."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "bash", "tcsh", "fish", "printf", "cat"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return str(folder)


def put(folder: Path, name: str, script: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_the_jobkit_of_init_comes_first_then_that_of_the_path(tmp_path: Path, path: str, shell: str) -> None:
    argv = HOST.argv(connection.RUN_JOBKIT)
    (tmp_path / ".profile").write_text(f"PATH={path}; export PATH\n")  # or that of the system's profile
    assert asked(shell, argv, tmp_path, path=path) == (0, f"{READY}\n{ABSENT}\n")
    put(Path(path), "jobkit", 'read a; echo "path $1 $a"')
    assert asked(shell, argv, tmp_path, path=path, said="it's!\n") == (0, f"{READY}\npath --serve it's!\n")
    put(tmp_path / ".local/share/jobkit/venv/bin", "jobkit", 'read a; echo "venv $1 $a"; exit 4')
    assert asked(shell, argv, tmp_path, path=path, said="it's!\n") == (4, f"{READY}\nvenv --serve it's!\n")


def test_no_agent_no_port_and_no_question_go_with_a_command() -> None:
    argv = Connection("hec", ("-S", "/run/s")).argv(connection.RUN_JOBKIT)
    assert argv[:3] == ["ssh", "-S", "/run/s"]
    assert {"-a", "-x", "-T", "-oClearAllForwardings=yes", "-oBatchMode=yes"} <= {*argv}
    assert argv[-3:-1] == ["--", "hec"]


@pytest.mark.parametrize("host", ["", "-oProxyCommand=true"])
def test_an_option_is_no_host(host: str) -> None:
    with pytest.raises(JobkitError, match="not the name of a host"):
        connect(host)


def test_without_ssh_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JobkitError, match="no ssh on this machine"):
        connect("hec")


def test_the_folder_of_the_sockets_is_private_and_its_path_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    short = Path(tempfile.mkdtemp(prefix="run-"))
    try:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
        folder = connection._socket_folder()
        assert folder.parent == short
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o755)
        with pytest.raises(JobkitError, match="others can read this folder"):
            connection._socket_folder()
    finally:
        shutil.rmtree(short)
    for name in (str(tmp_path / ("long" * 20)), str(tmp_path / "missing"), ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        assert len(str(connection._socket_folder())) <= connection.MOST_PATH
