"""The keeper of a command: a process between the worker and the command that leaves no orphan.

It is a child subreaper (prctl(2)), so processes that the command leaves behind become its children. It kills
them when the command has ended, and kills the command too when the worker ends, however that happens.
It gets none of a scheduler's signals: the worker decides which of them the command gets.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from jobkit.run import process
from jobkit.run.measure.sampler import process_tree

PR_SET_CHILD_SUBREAPER = 36
"""Of ``<sys/prctl.h>``."""
REST_S = 1.0
"""The time that processes have to end which the command left behind."""
KILL_S = 10.0
"""The time that a killed process has to end: a GPU's driver may hold it."""
TICK_S = 0.05
STARTED = 0
"""Sent in place of a signal: start the command."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes
    ----------
    status
        Its exit status, negative for a signal; ``None`` if it could not be started.
    maxrss_bytes
        The largest high-water mark of one of its processes (getrusage(2)); ``None`` if it may be that of
        this process, which a child inherits until it runs its program.
    left
        How many processes it left behind, which were killed.
    error
        Why it could not be started.
    """

    status: int | None
    maxrss_bytes: int | None = None
    left: int = 0
    error: str = ""


class Keeper:
    """The worker's end of a keeper.

    Parameters
    ----------
    argv, folder, environment
        Of the command.
    output
        The file that gets its standard output and error.
    """

    def __init__(
        self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path
    ) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        with theirs, process.signals_blocked():
            here = os.getpid()
            if (pid := os.fork()) == 0:
                ours.close()
                _keep(theirs, here, argv, folder, environment, output)
            self._connection, self._process = ours, process.Forked(pid)

    @property
    def pid(self) -> int:
        """The process id of the keeper, whose children are the command's."""
        return self._process.pid

    def send(self, number: int) -> None:
        """Start the command (`STARTED`), or send a signal to all its processes."""
        with contextlib.suppress(OSError):  # it has ended
            self._connection.send(number)

    def ended(self, timeout_s: float) -> Ended | None:
        """Return how the command ended; ``None`` if it still runs after so many seconds."""
        if not self._connection.poll(timeout_s):
            return None
        try:
            ended: Ended = self._connection.recv()
        except (EOFError, OSError):  # only a kill -9 ends a keeper before its command
            ended = Ended(-signal.SIGKILL)
        return ended

    def close(self) -> None:
        """Kill what still runs, and wait for it."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_S + REST_S)


def _keep(
    worker: Connection[Ended, int],
    parent: int,
    argv: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: Path,
) -> None:
    """Be the keeper: start the command when the worker says so, and report its end."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
        with contextlib.suppress(EOFError, OSError), process.ends_of_children() as ended:
            worker.recv()
            if os.getppid() == parent:
                worker.send(_run(worker, ended.fileno(), argv, folder, environment, output))
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
    finally:
        kill_rest(0.0)
        os._exit(0)


def _run(
    worker: Connection[Ended, int],
    ended: int,
    argv: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: Path,
) -> Ended:
    """Run the command to its end, or kill it if the worker has ended."""
    try:
        with output.open("ab") as stream:
            child = subprocess.Popen(  # noqa: S603 - the user's command, an argv list
                argv,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                preexec_fn=_become_command,  # noqa: PLW1509 - this process has one thread
            )
    except (OSError, ValueError) as error:
        return Ended(None, error=getattr(error, "strerror", None) or str(error))
    status: int | None = None
    child.returncode = 0  # this process waits for it by itself
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    maxrss = 0
    while status is None:
        ready, _, _ = select.select([worker.fileno(), ended], [], [])
        if worker.fileno() in ready:
            _signal_all(worker.recv())
        if ended in ready:
            os.read(ended, 4096)
        for pid, code, size in _reap():
            maxrss = max(maxrss, size)
            status = code if pid == child.pid else status
    left = kill_rest(REST_S)
    return Ended(status, maxrss if maxrss > own else None, left)


def _become_command() -> None:
    """Make a new child a plain process that ends with the keeper."""
    process.end_with(os.getppid())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, process.BLOCKED)


def _signal_all(number: int) -> None:
    for pid in process_tree(os.getpid())[1:]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap() -> list[tuple[int, int, int]]:
    """Return the process id, the exit status and the memory of each child that has ended."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                break
            found.append((pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024))
    return found


def kill_rest(grace_s: float) -> int:
    """End all descendants of this process; return how many there were.

    Parameters
    ----------
    grace_s
        The time between the signals TERM and KILL.
    """
    _reap()
    left = len(process_tree(os.getpid())) - 1
    began_s = time.monotonic()
    sent = None
    while len(process_tree(os.getpid())) > 1 and (passed_s := time.monotonic() - began_s) < grace_s + KILL_S:
        number = signal.SIGTERM if passed_s < grace_s else signal.SIGKILL
        if number is signal.SIGKILL or number != sent:
            _signal_all(number)
            sent = number
        time.sleep(TICK_S)
        _reap()
    return left
