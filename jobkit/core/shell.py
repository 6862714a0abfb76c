"""The only place on the login side that starts a process."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobkit.core.errors import JobkitError

DEFAULT_TIMEOUT_S = 60.0
NOT_FOUND, NOT_RUN, NO_ANSWER = 127, 126, 124
"""What a shell and timeout(1) end with where a command is missing, cannot be run, does not answer."""
_LAST_WORDS_S = 2.0
"""How long a killed command may take to go: one that waits for a dead file server never does."""


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command answered.

    Attributes
    ----------
    argv
        The command as it was run, never through a shell.
    status
        Its exit status; negative for a signal; 127 where the command does not exist, 126 where
        it cannot be run; 124 where it did not answer in time.
    stdout, stderr
        Its two streams, decoded as UTF-8 with undecodable bytes replaced.
    """

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the command ended with status 0."""
        return self.status == 0

    @property
    def said(self) -> str:
        """Both streams in one text, stderr first: a refusal may stand on either."""
        return "\n".join(text.strip() for text in (self.stderr, self.stdout) if text.strip())


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Completed:
    """Run a command and return what it answered, whatever its status.

    Parameters
    ----------
    argv
        The command and its arguments.
    env
        The whole environment of the command; by default this process's own.
    timeout_s
        After so many seconds the command is killed and status 124 is returned.

    Returns
    -------
    Completed
        Never raises for a command that fails, is missing or hangs: callers judge.
    """
    argv = tuple(argv)
    try:
        process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
            argv,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return Completed(argv, NOT_FOUND, "", f"{argv[0]}: command not found")
    except OSError as error:
        return Completed(argv, NOT_RUN, "", f"{argv[0]}: {error.strerror}")
    try:
        streams = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Completed(argv, NO_ANSWER, "", f"{argv[0]}: no answer within {timeout_s:g} s")
    except BaseException:
        _kill(process)
        raise
    out, err = (stream.decode("utf-8", "replace") for stream in streams)
    return Completed(argv, process.returncode, out, err)


def run_streaming(
    argv: Sequence[str], hear: Callable[[str], None], *, text: str, env: Mapping[str, str]
) -> Completed:
    """Run a command for as long as it takes, and pass on each line of its standard output as it comes.

    Ctrl-C in a terminal reaches this process alone, which then kills the command.

    Parameters
    ----------
    argv
        The command and its arguments.
    hear
        Is called with each line.
    text
        What the command reads from its standard input.
    env
        The whole environment of the command.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
            tuple(argv),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
            text=True,
            encoding="utf-8",
        )
        try:
            with contextlib.closing(process.stdout or io.StringIO()) as lines:
                _hand_over(process, text)
                for line in lines:
                    hear(line)
            status = process.wait()
        except BaseException:
            _kill_group(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LAST_WORDS_S)
            raise
        said.seek(0)
        return Completed(tuple(argv), status, "", said.read().decode("utf-8", "replace"))


def _hand_over(process: subprocess.Popen[str], text: str) -> None:
    """Give a command its standard input; one that has died reads none of it, and its status tells."""
    with contextlib.suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.write(text)
            process.stdin.close()


def _kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a command with all that it started: a wrapper's child would hold the streams open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    _kill_group(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_LAST_WORDS_S)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.poll()


def check(done: Completed, what: str, *, hint: str = "", exit_code: int = 3) -> Completed:
    """Return ``done`` if it succeeded.

    Raises
    ------
    JobkitError
        With the command, its status and what it said.
    """
    if done.ok:
        return done
    message = f"{what}: {shlex.join(done.argv)}\n  ended with status {done.status}: {done.said}"
    raise JobkitError(message, hint=hint, exit_code=exit_code)


def detach(argv: Sequence[str], log: Path) -> int:
    """Start a command that outlives this process and its terminal; return its process id.

    Parameters
    ----------
    argv
        The command and its arguments.
    log
        Gets both streams, appended.
    """
    with log.open("ab") as stream:
        process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
            tuple(argv),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return process.pid
