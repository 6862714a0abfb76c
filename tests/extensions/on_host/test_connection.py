"""The commands that ssh runs there, by each login shell, and the folder of the sockets."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from jobkit.core.errors import JobkitError
from jobkit.extensions.on_host import connection
from jobkit.extensions.on_host.connection import Connection, connect
from jobkit.extensions.on_host.protocol import ABSENT, NO_RSYNC, READY

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


@pytest.mark.parametrize("shell", SHELLS)
def test_the_jobkit_of_init_comes_first_then_that_of_the_path(tmp_path: Path, path: str, shell: str) -> None:
    argv = HOST.serve_argv()
    (tmp_path / ".profile").write_text(f"PATH={path}; export PATH\n")  # or that of the system's profile
    assert asked(shell, argv, tmp_path, path=path) == (0, f"{ABSENT}\n")
    put(Path(path), "jobkit", 'read a; echo "path $1 $a"')
    assert asked(shell, argv, tmp_path, path=path, said="it's!\n") == (0, "path --serve it's!\n")
    put(tmp_path / ".local/share/jobkit/venv/bin", "jobkit", 'read a; echo "venv $1 $a"; exit 4')
    assert asked(shell, argv, tmp_path, path=path, said="it's!\n") == (4, "venv --serve it's!\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_rsync_begins_after_a_line_that_the_relay_knows(tmp_path: Path, path: str, shell: str) -> None:
    argv = HOST.rsync_argv(("--server", "-e.LsfxC", "."))
    (tmp_path / ".profile").write_text(f"echo Welcome; PATH={path}; export PATH\n")
    status, said = asked(shell, argv, tmp_path, path=path)
    assert (status, said.splitlines()[-1]) == (127, NO_RSYNC)
    put(Path(path), "rsync", 'echo "$@"')
    status, said = asked(shell, argv, tmp_path, path=path)
    assert (status, said.splitlines()[-2:]) == (0, [READY, "--server -e.LsfxC ."])


def test_no_agent_no_port_and_no_question_go_with_a_command() -> None:
    argv = Connection("hec", ("-S", "/run/s")).serve_argv()
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


def test_the_folder_of_the_sockets_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_long_or_missing_runtime_folder_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (str(tmp_path / ("long" * 20)), str(tmp_path / "missing"), ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        assert len(str(connection._socket_folder())) <= connection.MOST_PATH
