"""The worker processes of a point: start them, ask them for a step, hear their reports, end them.

A worker has a connection of its own, on which it gets steps and sends a `Report` after each. It ends when
the connection closes, or when this process ends, however that happens (see `jobkit.run.worker`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from jobkit.core.knobs import OFF
from jobkit.core.records import Outcome, Point
from jobkit.run import process
from jobkit.run.failure import TryFailed
from jobkit.run.measure import profile
from jobkit.run.measure.nvml import VISIBLE_VARIABLE
from jobkit.run.measure.sampler import process_tree
from jobkit.run.mps import Daemon
from jobkit.run.record import Done, Report, Task, Try

TICK_S = 1.0
"""The longest time without a look at processes and calls."""
END_S = 10.0
"""The time that a worker has to end, by itself or when it is killed."""

PROFILED = 0
"""The number of the worker that is profiled, if the point is."""
LATE_S = 0.5
"""The time by which the end of a daemon may be seen later than what it leads to."""

Order = tuple[Any, ...]
"""The name of a step of `jobkit.run.worker.Worker`, and its arguments."""


class Pool:
    """The workers of a try, by number; its list of workers has what each reported last."""

    def __init__(self, state: Try, daemon: Daemon | None = None) -> None:
        self._reported = state.workers
        self._daemon = daemon
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._connections: dict[int, Connection[Order | Task, Report]] = {}
        self._oom_kills = process.oom_kills()

    def __iter__(self) -> Iterator[int]:
        """Return the numbers of the workers that have not ended."""
        return iter(list(self._connections))

    def start(self, number: int, task: Task) -> None:
        """Start a worker."""
        if number != PROFILED:
            task = replace(task, point=replace(task.point, profile=OFF))
        before, more = profile.launcher(task.point, task.out)
        ours, theirs = Pipe()
        module = ["-m", "jobkit.run.worker", str(theirs.fileno()), str(os.getpid())]
        with theirs, process.signals_blocked():  # so no process is lost by a signal
            self._connections[number] = ours
            self._processes[number] = subprocess.Popen(  # noqa: S603 - our own module, an argv list
                [sys.executable, *before, *module],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self._environment(number, task.point) | more,
            )
        self._send(number, task)

    def _environment(self, number: int, point: Point) -> dict[str, str]:
        """Return the environment of a worker: it sees one GPU, and a daemon of MPS if there is one."""
        if self._daemon is None:
            return {**os.environ, **_one_gpu(number, point)}
        return {**os.environ, **_one_gpu(number, point, renumbered=True), **self._daemon.variables}

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each worker that has not ended, by its number."""
        return {number: self._processes[number].pid for number in self}

    def order(self, number: int, *order: object) -> None:
        """Have a worker do a step; its report comes with `reports`."""
        self._send(number, order)

    def ask(self, orders: Mapping[int, Order]) -> None:
        """Have workers do a step, and wait until all of them have."""
        for number, order in orders.items():
            self._send(number, order)
        waiting = set(orders)
        while waiting:
            waiting -= {number for number, _ in self.reports()}

    def reports(self) -> Iterator[tuple[int, Done | None]]:
        """Wait for reports, at most `TICK_S`; yield the worker of each, and what it has done.

        Raises
        ------
        TryFailed
            If a worker failed or died, or the daemon of MPS; the reports of the others come first.
        """
        ready = wait(self._connections.values(), TICK_S)
        heard = {number: self._receive(number) for number in self if self._connections[number] in ready}
        # A child of a dead worker may keep its connection open.
        dead = [] if ready else [number for number in self if self._processes[number].poll() is not None]
        yield from ((number, done) for number, done in heard.items() if not isinstance(done, TryFailed))
        reports = (*heard.values(), *map(self._death, dead))
        failures = [report for report in reports if isinstance(report, TryFailed)]
        if self._daemon:  # its end makes workers fail, perhaps before it is seen
            self._daemon.refuse_end(LATE_S if failures else 0.0)
        if failures:
            raise failures[0]

    def end(self, numbers: Iterable[int]) -> None:
        """End workers that have nothing to do, and wait until their memory is free."""
        ending = list(numbers)
        for number in ending:
            self._connections.pop(number).close()
        for number in ending:
            try:
                self._processes[number].wait(END_S)
            except subprocess.TimeoutExpired:
                self._kill([self._processes[number]])

    def close(self) -> None:
        """Kill all workers that have not ended."""
        self._kill(list(self._processes.values()))
        for connection in self._connections.values():
            connection.close()

    @staticmethod
    def _kill(workers: Sequence[subprocess.Popen[bytes]]) -> None:
        """Kill workers and their children; wait for them, but not for ever: a GPU's driver may hold one."""
        for worker in workers:
            for pid in process_tree(worker.pid) if worker.poll() is None else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        deadline_s = time.monotonic() + END_S
        for worker in workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.0, deadline_s - time.monotonic()))

    def _send(self, number: int, message: Order | Task) -> None:
        with contextlib.suppress(OSError):  # it has died: the next look at its connection shows it
            self._connections[number].send(message)

    def _receive(self, number: int) -> Done | TryFailed | None:
        """Return what a worker has done, or why it failed."""
        try:
            report = self._connections[number].recv()
        except (EOFError, OSError):
            return self._death(number)
        self._reported[number] = report.measured
        if report.failure:
            outcome, message = report.failure
            return TryFailed(outcome, f"worker {number}: {message}")
        return report.done

    def _death(self, number: int) -> TryFailed:
        """Return what the end of a worker without a word means."""
        status = self._processes[number].wait()
        if status >= 0:
            return TryFailed(Outcome.BUG, f"worker {number} ended with status {status}")
        message = f"worker {number} was killed by {signal.Signals(-status).name}"
        if status != -signal.SIGKILL:
            return TryFailed(Outcome.BUG, message)
        if (process.oom_kills() or 0) > (self._oom_kills or 0):
            return TryFailed(Outcome.RAM_OOM, f"{message}: the job's memory limit was reached")
        return TryFailed(Outcome.LOST, message)


@contextlib.contextmanager
def started(state: Try, daemon: Daemon | None = None) -> Iterator[Pool]:
    """Start the workers of a try; none is left at the end of the block."""
    pool = Pool(state, daemon)
    try:
        for number in range(len(state.workers)):
            pool.start(number, state.task)
        yield pool
    finally:
        pool.close()


def _one_gpu(number: int, point: Point, *, renumbered: bool = False) -> dict[str, str]:
    """Return the variable by which a worker sees one GPU of the job; neighbours get different ones.

    Parameters
    ----------
    renumbered
        Whether a daemon of MPS sees the same GPUs as the job: then a number counts among these, and only a
        UUID stays (https://docs.nvidia.com/deploy/mps/, CUDA_VISIBLE_DEVICES).
    """
    if point.device != "cuda":
        return {}
    place, visible = number % point.gpus, os.environ.get(VISIBLE_VARIABLE)
    given = str(place) if visible is None else "".join(visible.split(",")[place : place + 1]).strip()
    return {VISIBLE_VARIABLE: str(place) if renumbered and given.isdigit() else given}
