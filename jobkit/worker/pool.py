"""The worker processes of a point: start them, ask them for a step, read their reports, end them.

A worker has a connection of its own, on which it gets steps and sends a `Report` after each. It ends when
the connection closes, or when the supervisor ends, however that happens. It is forked from a supervisor that
has imported the framework (`work_forked`). Else it is a fresh process, ``python -m jobkit.worker.pool FD
PARENT``: FD is its end of the connection, PARENT the supervisor's process id. The signals of a scheduler are
blocked for it, so only the supervisor ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from jobkit.core.records import Batch, Outcome, Point
from jobkit.worker import process, steps
from jobkit.worker.failure import SpareMemory, TryFailed, outcome_of, print_error
from jobkit.worker.kinds import Recording, work_of
from jobkit.worker.measure import min_memory_probe
from jobkit.worker.measure.device import Device
from jobkit.worker.measure.nvml import VISIBLE_VARIABLE
from jobkit.worker.measure.sampler import process_tree
from jobkit.worker.mps import MpsDaemon
from jobkit.worker.paragraphs import Call
from jobkit.worker.record import Done, Report, Task, TryState, WorkerState
from jobkit.worker.workloads.base import Workload


def main() -> None:
    descriptor, parent = map(int, sys.argv[1:])
    if process.end_with(parent):
        _serve(Connection(descriptor))


def work_forked(supervisor: Connection[Any, Any], parent: int, environment: Mapping[str, str]) -> NoReturn:
    """Work in a new child of the supervisor, of whose files it keeps only its end of the connection."""
    status = 1
    try:
        if process.end_with(parent):
            process.close_files(supervisor.fileno())
            process.replace_environment(environment)
            _serve(supervisor)
            status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)  # nothing of the supervisor may go on here


def _serve(connection: Connection[Any, Any]) -> None:
    with connection as supervisor, contextlib.suppress(EOFError, OSError):
        worker = Worker(supervisor.recv())
        while True:
            step, *arguments = supervisor.recv()
            supervisor.send(worker.report(step, arguments))


class Worker:
    """Does the steps of a try; each method but `report` is a step."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._measured = WorkerState()
        self._device: Device
        self._workload: Workload
        self._loaded = self._worked = False
        self._work = work_of(task.point)
        self._recording: Recording
        self._spare = SpareMemory()

    def report(self, step: str, arguments: Sequence[object]) -> Report:
        """Do a step; return its result, all that is measured so far, and the failure if it failed."""
        done: Done | None = None
        error: BaseException | None = None
        try:
            done = getattr(self, step)(*arguments)
        except Exception as caught:  # noqa: BLE001 - the record reports what it was
            error = caught
            self._spare.free_after(error)
        if self._loaded:
            error = steps.ask_workload(self._measured, self._workload, worked=self._worked, error=error)
        steps.read_maxrss(self._measured)
        if error and not isinstance(error, TryFailed):
            with contextlib.suppress(OSError):  # the log may be on a full disk
                print_error(error, self._measured.code)
        return Report(self._measured, done, outcome_of(error, self._measured.code) if error else None)

    def open(self, foreign_processes: Mapping[str, int | None]) -> None:
        """Import the framework and open the device; ``foreign_processes`` were on the GPUs before."""
        measured = self._measured
        self._workload = steps.open_workload(self._task, measured)
        self._device = steps.device_of(self._task.point, measured, self._workload)
        if measured.gpu:
            foreign = foreign_processes.get(measured.gpu.uuid)
            measured.gpu = replace(measured.gpu, foreign_processes=foreign)

    def load(self) -> None:
        steps.load(self._task, self._measured, self._workload, self._device)
        self._loaded = True
        self._recording = self._work.recording(self._task)

    def check(self, paragraphs: Sequence[str]) -> None:
        if compare := getattr(self._workload, "check_shortcuts", None):
            self._measured.refused = compare(paragraphs)
            self._measured.checked = getattr(self._workload, "checked", "")
        self._measured.readings.reserved_peak_bytes = self._device.peaks()[1]

    def warm_up(self, paragraphs: Sequence[str], call: Call | None) -> None:
        steps.warm_up(self._measured, self._workload, self._device, paragraphs)
        if call:
            steps.warm_up_call(self._task.point, self._measured, self._workload, self._device, call)
        self._measured.reserved_bytes = self._device.reserved_bytes()

    def keep_context(self, size_bytes: int | None) -> None:
        """Keep the size of the CUDA context, which only the supervisor can tell."""
        self._measured.readings.context_bytes = size_bytes

    def work(self, call: Call, following: Call | None = None) -> Done:
        steps.tokenize_ahead(self._workload, call, following)
        done = steps.do_call(call, self._measured, self._workload, self._device, self._work, self._recording)
        self._worked = True
        return done

    def measure(self, batch: Batch, call: Call) -> None:
        heavy = min_memory_probe.heaviest(self._workload, batch, call)
        self._measured.needs = min_memory_probe.measure_needs(self._device, heavy, self._task.point)

    def write_recording(self) -> None:
        self._recording.write(self._task.out, self._task.try_number)


if __name__ == "__main__":
    main()

TICK_S = 1.0
"""The longest time without a look at processes and calls."""
END_S = 10.0
"""The time that a worker has to end, by itself or when it is killed."""

OBSERVED = 0
"""The number of the worker whose calls may be recorded."""
LATE_S = 0.5
"""How much later than its consequences the end of a daemon may be seen."""

Process = subprocess.Popen[bytes] | process.Forked
Order = tuple[Any, ...]
"""The name of a step of `jobkit.worker.pool.Worker`, and its arguments."""


class Pool:
    """The workers of a try, by number; its list of workers has what each reported last."""

    def __init__(self, state: TryState, daemon: MpsDaemon | None = None) -> None:
        self._reported = state.workers
        self._daemon = daemon
        self._forked = state.forked
        self._processes: dict[int, Process] = {}
        self._connections: dict[int, Connection[Order | Task, Report]] = {}
        self._oom_kills = process.oom_kills()

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._connections))

    def start(self, number: int, task: Task) -> None:
        task = replace(task, observed=task.observed and number == OBSERVED)
        launcher = work_of(task.point).launcher(task)
        ours, theirs = Pipe()
        environment = {**self._environment(number, task.point), **launcher.variables}
        with theirs, process.signals_blocked():  # so no process is lost by a signal
            self._connections[number] = ours
            if self._forked:
                self._processes[number] = _fork(theirs, environment)
            else:
                self._processes[number] = _start_fresh(theirs, environment, launcher.arguments)
        self._send(number, task)

    def _environment(self, number: int, point: Point) -> dict[str, str]:
        if self._daemon is None:
            return {**os.environ, **_one_gpu(number, point)}
        return {**os.environ, **_one_gpu(number, point, renumbered=True), **self._daemon.variables}

    @property
    def pids(self) -> dict[int, int]:
        return {number: self._processes[number].pid for number in self}

    def order(self, number: int, *order: object) -> None:
        self._send(number, order)

    def ask(self, orders: Mapping[int, Order]) -> None:
        for number, order in orders.items():
            self._send(number, order)
        waiting = set(orders)
        while waiting:
            waiting -= {number for number, _ in self.reports()}

    def reports(self) -> Iterator[tuple[int, Done | None]]:
        """Wait for reports, at most `TICK_S`; yield the worker of each, and its result."""
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
        self._kill(list(self._processes.values()))
        for connection in self._connections.values():
            connection.close()

    @staticmethod
    def _kill(workers: Sequence[Process]) -> None:
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
        """Return the reason why a worker ended without a report."""
        status = self._processes[number].wait()
        if status >= 0:
            return TryFailed(Outcome.BUG, f"worker {number} ended with status {status}")
        message = f"worker {number} was killed by {signal.Signals(-status).name}"
        if status != -signal.SIGKILL:
            return TryFailed(Outcome.BUG, message)
        if (process.oom_kills() or 0) > (self._oom_kills or 0):
            return TryFailed(Outcome.RAM_OOM, f"{message}: the job's memory limit was reached")
        return TryFailed(Outcome.LOST, message)


def _fork(theirs: Connection[Any, Any], environment: Mapping[str, str]) -> Process:
    here = os.getpid()
    sys.stdout.flush()  # else the worker would write it too
    if (pid := os.fork()) == 0:
        work_forked(theirs, here, environment)
    return process.Forked(pid)


def _start_fresh(
    theirs: Connection[Any, Any], environment: Mapping[str, str], before: Sequence[str]
) -> Process:
    argv = [sys.executable, *before, "-m", "jobkit.worker.pool", str(theirs.fileno()), str(os.getpid())]
    return subprocess.Popen(  # noqa: S603 - our own module, an argv list
        argv, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment
    )


@contextlib.contextmanager
def started(state: TryState, daemon: MpsDaemon | None = None) -> Iterator[Pool]:
    """Start the workers of a try; none is left at the end of the block."""
    pool = Pool(state, daemon)
    try:
        for number in range(len(state.workers)):
            pool.start(number, state.task)
        yield pool
    finally:
        pool.close()


def _one_gpu(number: int, point: Point, *, renumbered: bool = False) -> dict[str, str]:
    """Return the variable by which a worker sees one GPU of the job; neighbours get different GPUs.

    ``renumbered``: whether a daemon of MPS sees the GPUs of the job: then a number counts among these, and
    only a UUID stays (https://docs.nvidia.com/deploy/mps/, CUDA_VISIBLE_DEVICES).
    """
    if point.device != "cuda":
        return {}
    place, visible = number % point.gpus, os.environ.get(VISIBLE_VARIABLE)
    given = str(place) if visible is None else "".join(visible.split(",")[place : place + 1]).strip()
    return {VISIBLE_VARIABLE: str(place) if renumbered and given.isdigit() else given}
