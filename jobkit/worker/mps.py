"""A daemon of NVIDIA's MPS for one try: workers that share a GPU share a scheduler of its work, too.

``python -m jobkit.worker.mps FOLDER`` is its guard. It runs the daemon, and ends it when its standard input
ends, so also when the supervisor is killed. It is no fork of the supervisor: against a limit on address space
Grid Engine would count the framework once more. https://docs.nvidia.com/deploy/mps/ has the commands, the
variables and the modes of a GPU that forbid MPS.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from jobkit.core.knobs import AUTO, OFF, ON
from jobkit.core.records import Outcome, Point
from jobkit.worker import process
from jobkit.worker.failure import Cause, TryFailed
from jobkit.worker.measure.nvml import GpuState, visible_names
from jobkit.worker.record import ALONE, TryState

COMMAND = "nvidia-cuda-mps-control"
"""Without ``-d`` or ``-f`` it passes the commands on its standard input to the daemon."""
START_S, ANSWER_S, QUIT_S, KILL_S = 20.0, 5.0, 2.0, 5.0
"""The time in which the daemon must begin to answer, answer, end by itself, and end when it is killed."""


class ForbiddenError(Exception):
    """There is no daemon of MPS; the text says why."""


def start_if_wanted(state: TryState, stack: ExitStack, gpus: Iterable[GpuState]) -> MpsDaemon | None:
    point = state.task.point
    if point.mps == OFF:
        return None
    try:
        _refuse(point, gpus)
        work = state.task.out.absolute().parent  # which ends with the try
        with ExitStack() as starting:
            daemon = MpsDaemon(point, _make_folder((work, work.parent)[point.kind.stands :]))
            starting.callback(daemon.end)
            daemon.wait_until_it_answers()
            stack.push(starting.pop_all())
    except ForbiddenError as error:
        state.mps = f"{OFF}: {error}"
        if point.mps == ON:
            raise TryFailed(Outcome.ENVIRONMENT, f"{Cause.NO_MPS} {error}") from error
        return None
    state.mps = ON
    return daemon


def _refuse(point: Point, gpus: Iterable[GpuState]) -> None:
    if point.mps == AUTO and point.workers == 1:
        raise ForbiddenError(ALONE)
    visible = visible_names()
    if visible[0].startswith("MIG-"):
        raise ForbiddenError(f"{visible[0]} is a MIG instance")
    named = tuple(name for name in visible if name.startswith("GPU-"))
    # The variable may name a GPU by number, and it is not known which GPU of NVML's list that is: enough of
    # them must do.
    modes = [gpu.forbids_mps for gpu in gpus if not named or gpu.uuid.startswith(named)]
    if any(modes) and modes.count("") < point.gpus:
        raise ForbiddenError(next(filter(None, modes)))
    if not shutil.which(COMMAND):
        raise ForbiddenError(f"{COMMAND} is not on PATH")


class MpsDaemon:
    def __init__(self, point: Point, folder: Path) -> None:
        self._point, self._folder, self.variables = point, folder, _variables(folder)
        self._family = dict[int, int | None]()  # by id when each began: an id may be another's by the end
        with process.signals_blocked():
            self._guard = subprocess.Popen(  # noqa: S603 - our own module, an argv list
                [sys.executable, "-m", "jobkit.worker.mps", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Grid Engine kills the group of a job whose script has ended
            )
        self._pipes = [pipe for pipe in (self._guard.stdin, self._guard.stdout) if pipe]

    def wait_until_it_answers(self) -> None:
        deadline_s = time.monotonic() + START_S
        while _ask(self._folder, "get_server_list") is None:
            if self._has_ended() or time.monotonic() > deadline_s:
                raise ForbiddenError(f"{COMMAND} does not answer{_last_line(self._folder)}")
            time.sleep(0.1)

    def refuse_end(self, wait_s: float = 0.0) -> None:
        if self._has_ended(wait_s):
            raise TryFailed(Outcome.ENVIRONMENT, f"the MPS daemon has ended{_last_line(self._folder)}")

    def _has_ended(self, wait_s: float = 0.0) -> bool:
        """Return whether the guard has ended, or has closed its output because the daemon ended."""
        return bool(select.select(self._pipes[1:], [], [], wait_s)[0])

    def check_clients(self, pids: Mapping[int, int]) -> str:
        """Return ``on``, or ``off`` and the reason.

        ``pids``: by worker. Each must be a client of the daemon by now: a process that cannot connect works
        without MPS, and does not report this.
        """
        if not self._family:
            self._family = {pid: process.started_at(pid) for pid in process.process_tree(self._guard.pid)}
        servers = self._numbers("get_server_list")
        clients = {pid for server in servers for pid in self._numbers(f"get_client_list {server}")}
        missing = [number for number, pid in pids.items() if pid not in clients]
        if not missing:
            return ON
        if len(clients) == len(pids) == len(missing):
            process.report(f"MPS has {len(clients)} clients, with ids of another namespace")
            return ON
        if self._point.mps == AUTO and not clients:
            return f"{OFF}: no worker is a client of the daemon"
        raise TryFailed(Outcome.ENVIRONMENT, f"worker {missing[0]} is not a client of the MPS daemon")

    def _numbers(self, command: str) -> list[int]:
        answer = _ask(self._folder, command) or ""
        return [int(line) for line in answer.split("\n") if line.strip().isdigit()]

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        process.ends(self._guard, 2 * QUIT_S + KILL_S)
        if self._guard.returncode != 0:
            ours = [pid for pid, began in self._family.items() if process.started_at(pid) == began]
            process.kill(ours if self._guard.returncode else process.process_tree(self._guard.pid))
            self._guard.wait()
            shutil.rmtree(self._folder, ignore_errors=True)


def _make_folder(parents: Iterable[Path]) -> Path:
    for parent in parents:
        if len(os.fsencode(parent / "mps-12345678/pipe/control_privileged")) <= 107:  # unix(7)
            try:
                return Path(tempfile.mkdtemp(prefix="mps-", dir=parent))
            except OSError as error:
                raise ForbiddenError(f"there is no folder for its sockets: {error}") from error
    raise ForbiddenError(f"the path of a socket in {parent} is longer than 107 bytes")


def _variables(folder: Path) -> dict[str, str]:
    pipe, log = str(folder / "pipe"), str(folder / "log")
    return {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": log}


def _ask(folder: Path, command: str, timeout_s: float = ANSWER_S) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603 - an argv list
            [COMMAND],
            input=f"{command}\n",
            env={**os.environ, **_variables(folder)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        ).stdout
    return None


def _last_line(folder: Path) -> str:
    """Return the last line of the logs that is not about a command, after a colon; empty if there is none."""
    with contextlib.suppress(OSError):
        logs = sorted(folder.glob("log/*.log"), key=lambda path: path.stat().st_mtime)
        lines = [line.strip() for path in logs for line in path.read_text(errors="replace").splitlines()]
        answers = re.compile(r"\] (NEW UI|UI closed|Cmd:|\d+$)").search  # as driver 580 writes them
        return next((f": {line}" for line in reversed(lines) if line and not answers(line)), "")
    return ""


# -- the guard


def main() -> None:
    """Run the daemon until standard input ends; if the daemon ends before, close the output."""
    folder = Path(sys.argv[1])
    process.adopt_orphans()  # servers stay below this process
    try:
        # If the folder stays, its lock shows a later task of the node that it may be removed (``job.sh``).
        with (folder / "lock.part").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "lock.part").rename(folder / "lock")
            daemon = _start(folder)
            while daemon.poll() is None:
                if select.select([sys.stdin], [], [], 0.1)[0]:
                    _ask(folder, "quit", QUIT_S)
                    process.ends(daemon, QUIT_S)
                    return
            process.end_descendants(KILL_S)
            os.close(sys.stdout.fileno())
            sys.stdin.read()  # the supervisor reads the logs first
    finally:
        process.end_descendants(KILL_S)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    for name in ("pipe", "log"):
        (folder / name).mkdir()
    with (folder / "log" / "daemon.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - an argv list
            [COMMAND, "-f"],
            env={**os.environ, **_variables(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(process.end_with, os.getpid()),  # noqa: PLW1509 - this process has one thread
        )


if __name__ == "__main__":
    main()
