"""The only place on the login side that starts a process."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit.errors import JobkitError

DEFAULT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command answered.

    Attributes
    ----------
    argv
        The command as it was run, never through a shell.
    status
        Its exit status; negative for a signal; 127 where the command does not exist;
        124 where it did not answer in time.
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
        done = subprocess.run(  # noqa: S603 - an argv list, no shell
            argv,
            env=None if env is None else dict(env),
            capture_output=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return Completed(argv, 127, "", f"{argv[0]}: command not found")
    except subprocess.TimeoutExpired:
        return Completed(argv, 124, "", f"{argv[0]}: no answer within {timeout_s:g} s")
    out, err = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return Completed(argv, done.returncode, out, err)


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
