"""Run commands; the only module on the login side that starts a process."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from jobkit.core.errors import JobkitError, RefusedError
from jobkit.core.frozen import frozen

NOT_FOUND, NOT_RUN, NO_ANSWER = 127, 126, 124
"""Exit statuses of a shell and of timeout(1): command missing, cannot be run, no answer."""


@frozen
class Completed:
    argv: tuple[str, ...]
    # negative for a signal; else see `NOT_FOUND` and its neighbours
    status: int
    stdout: str  # decoded as UTF-8; undecodable bytes are replaced
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0

    @property
    def said(self) -> str:
        """Both streams as one text, stderr first: a refusal may be on either."""
        return "\n".join(text.strip() for text in (self.stderr, self.stdout) if text.strip())


def usable_cpus() -> int:
    """Return how many CPUs this process and its children may use; macOS only knows how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    text: str = "",
    timeout_s: float = 60.0,
) -> Completed:
    """Run a command and return its answer, also if it fails, is missing or hangs: the caller decides.

    ``env``: the whole environment; by default that of this process. ``text`` is its standard input. After
    ``timeout_s`` the command is killed, and its status is 124.
    """
    argv = tuple(argv)
    try:
        process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
            argv,
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE if text else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return Completed(argv, NOT_FOUND, "", f"{argv[0]}: command not found")
    except OSError as error:
        return Completed(argv, NOT_RUN, "", f"{argv[0]}: {error.strerror}")
    try:
        streams = process.communicate(text.encode() or None, timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Completed(argv, NO_ANSWER, "", f"{argv[0]}: no answer within {timeout_s:g} s")
    except BaseException:
        _kill(process)
        raise
    out, err = (stream.decode("utf-8", "replace") for stream in streams)
    return Completed(argv, process.returncode, out, err)


def run_streaming(
    argv: Sequence[str], on_line: Callable[[str], object], *, text: str, env: Mapping[str, str]
) -> Completed:
    """Run a command without a time limit; pass each line of its standard output to ``on_line``.

    Ctrl-C in a terminal reaches only this process, which then kills the command. ``env`` is the whole
    environment.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
            tuple(argv),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            with contextlib.closing(process.stdout or io.StringIO()) as lines:
                with contextlib.suppress(BrokenPipeError):  # it has died: its status reports that
                    if process.stdin is not None:
                        process.stdin.write(text)
                        process.stdin.close()
                for line in lines:
                    on_line(line)
            status = process.wait()
        except BaseException:
            _kill_group(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2.0)
            raise
        errors.seek(0)
        return Completed(tuple(argv), status, "", errors.read().decode("utf-8", "replace"))


def _kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a command and its children: a wrapper's child would hold the streams open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    _kill_group(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=2.0)  # one that waits for a dead file server never exits
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.poll()


def open_pipes(
    argv: Sequence[str], errors: IO[bytes] | None = None, *, own_input: bool = False
) -> subprocess.Popen[bytes]:
    """Start a command whose standard output, and input, this process reads and writes as they come.

    Ctrl-C in a terminal reaches only this process. ``errors`` gets its standard error, ``None`` leaves it to
    this process's; ``own_input`` gives it the standard input of this process.
    """
    return subprocess.Popen(  # noqa: S603 - an argv list, no shell
        tuple(argv),
        stdin=None if own_input else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )


def attach(argv: Sequence[str], env: Mapping[str, str], *, output: IO[str] | None = None) -> int:
    """Run a command at this terminal, whose Ctrl-C reaches it; return its status, negative for a signal."""
    try:
        process = subprocess.Popen(tuple(argv), env=dict(env), stdout=output)  # noqa: S603 - an argv list, no shell
    except OSError as error:
        raise JobkitError(
            f"{argv[0]}: {error.strerror}", hint=f"is this a submit host? type -a {argv[0]}"
        ) from error
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            return process.wait()


def check(done: Completed, what: str, *, hint: str = "") -> Completed:
    if done.ok:
        return done
    message = f"{what}: {shlex.join(done.argv)}\n  ended with status {done.status}: {done.said}"
    raise RefusedError(message, hint=hint)


def detach(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command that outlives this process and its terminal."""
    with log.open("ab") as stream:
        return subprocess.Popen(  # noqa: S603 - an argv list, no shell
            tuple(argv),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
