"""A command of jobkit, typed in this process: a process of its own would import everything again."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest

from jobkit.cli import _exit_code

JOBKIT = Path(sys.executable).with_name("jobkit")
"""The program itself, for a test that needs a process: to kill it, or to connect it to a pipe."""
DEADLINE_S = 240
EMPTY: Mapping[str, str] = {}
Answer = subprocess.CompletedProcess[str]


def jobkit(*words: str | Path, cwd: Path | None = None, env: Mapping[str, str] = EMPTY) -> Answer:
    """Run a command as the program does; return its exit code and what it printed.

    Parameters
    ----------
    words
        The command and its arguments.
    cwd
        The folder to run it in; this one if not given.
    env
        Environment variables that differ from those of this process.
    """
    arguments = [str(word) for word in words]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd or Path.cwd())
        for name, value in {"COLUMNS": "140", **env}.items():
            patch.setenv(name, value)
        with _python_path(os.environ.get("PYTHONPATH", ""), patch):
            code = _exit_code(arguments)
        said = []
        for stream in (out, err):
            stream.flush()
            said.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(arguments, code, *said)


def ended_well(done: Answer) -> Answer:
    """Return what a command said, which must have ended well."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def ran(*words: str | Path, cwd: Path | None = None, env: Mapping[str, str] = EMPTY) -> Answer:
    """Run a command in this process, which must end well."""
    return ended_well(jobkit(*words, cwd=cwd, env=env))


def called(command: click.Command, *words: str | Path) -> int:
    """Call one command's function: return its status, or raise its error."""
    status: int = command.main([str(word) for word in words], standalone_mode=False)
    return status


def jobkit_process(*words: str | Path, cwd: Path | None = None, env: Mapping[str, str] = EMPTY) -> Answer:
    """Run the program itself, as `jobkit` does: for what outlives it (``--detach``), or kills it."""
    around = {**os.environ, "COLUMNS": "140", **env}
    argv = [JOBKIT, *words]
    return subprocess.run(
        argv, cwd=cwd, env=around, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )


@contextmanager
def _python_path(text: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the folders of ``PYTHONPATH`` searched, as in a new process, and forget what came from there."""
    folders = [folder for folder in text.split(":") if folder]
    patch.setattr(sys, "path", [*folders, *sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(tuple(folders)):
            del sys.modules[name]
