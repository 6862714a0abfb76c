"""Several processes of a try: the workers of a point, or one that checks shortcuts before they start.

A worker has a connection of its own, on which it gets steps and sends a `Report` after each. It ends when
the connection closes, or when the supervisor ends, however that happens. It is forked from a supervisor that
has imported the framework and opens no device. Else it is a fresh process, ``python -m
jobkit.worker.pool FD PARENT``: FD is its end of the connection, PARENT the supervisor's process id. The
signals of a scheduler are blocked for it, so only the supervisor ends it.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import math
import os
import platform
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from jobkit.core import files
from jobkit.core.errors import JobkitError
from jobkit.core.json_codec import from_json, to_json
from jobkit.core.knobs import OFFERED, RUN_KNOBS
from jobkit.core.layout import CHECKS_FOLDER
from jobkit.core.measurements import ShortcutCheck, total
from jobkit.core.records import Outcome, Point
from jobkit.worker import process, steps
from jobkit.worker.failure import (
    OUT_OF_MEMORY,
    BatchHung,
    CallFailed,
    Cause,
    SpareMemory,
    Stopped,
    TryFailed,
    is_of_text,
    outcome_of,
    print_error,
)
from jobkit.worker.measure import memory, nvml
from jobkit.worker.measure.sampler import EnergyReading, sampling
from jobkit.worker.mps import MpsDaemon, start_if_wanted
from jobkit.worker.paragraphs import Call, Todo, split_sentences
from jobkit.worker.record import Done, Report, Task, TryState, WorkerState
from jobkit.worker.steps import Kept, Worker
from jobkit.worker.workloads.base import CHARACTERS, SHIPPED, load_unit

END_S = 10.0
"""The time that a worker has to end, by itself or when it is killed."""

MOST_MEMORY, LOOK_S = 0.9, 0.05
"""The share of its memory that a worker of a job on Slurm may hold, and how often jobkit looks.

Slurm kills the whole job if it is told to (``OverMemoryKill``), and then no call could be narrowed.
"""

KEPT = "kept"
"""A word of a worker of the user's code: a process above it kills what it leaves behind."""

ITEMS = 200
"""Of the text, on which both ways are compared: sentences by punctuation, or paragraphs."""

Order = tuple[Any, ...]
"""The name of a step of `jobkit.worker.steps.Worker`, and its arguments."""


# -- a worker


def _serve(connection: Connection[Any, Any]) -> None:
    with connection as supervisor, contextlib.suppress(EOFError, OSError):
        worker, spare = Worker(supervisor.recv()), SpareMemory()
        while True:
            step, *arguments = supervisor.recv()
            if step == "go_on":
                process.take_output(os.getppid())
            supervisor.send(_report(worker, spare, step, arguments))


def _report(worker: Worker, spare: SpareMemory, step: str, arguments: Sequence[object]) -> Report:
    done: Done | None = None
    error: BaseException | None = None
    try:
        done = getattr(worker, step)(*arguments)
    except Exception as caught:  # noqa: BLE001 - the record reports what it was
        error = caught
        spare.free_after(error)
    error, code = worker.ask_workload(error), worker.measured.code
    worker.read_maxrss()
    if error and not isinstance(error, TryFailed):
        print_error(error, code)
    if error is None:
        return worker.measured, done, None
    outcome, message = outcome_of(error, code)
    of_text = step in {"work", "warm_up"} and is_of_text(error, outcome, message)
    return worker.measured, done, (outcome, message, of_text)


# -- all workers


class Pool:
    """The workers of a try, by number; its list of workers has what each reported last."""

    def __init__(self, state: TryState, daemon: MpsDaemon | None = None) -> None:
        self._reported = state.workers
        self.daemon = daemon
        self._forked = state.forked
        self._processes: dict[int, process.ChildProcess] = {}
        self._connections: dict[int, Connection[Order | Task, Report]] = {}
        self._oom_kills = process.oom_kills()
        self.replaced = 0  # how many workers were started again
        self._quarantines = state.task.point.kind.quarantines
        watched = self._quarantines and "SLURM_JOB_ID" in os.environ
        requested = int(os.environ.get(process.MEMORY_VARIABLE) or 0) if watched else 0
        self._most_bytes = MOST_MEMORY * requested or math.inf
        self._too_large: set[int] = set()
        self._kept = state.task.point.workload not in SHIPPED and not state.forked
        self.starting: set[int] = set()  # those of them that have not loaded
        # the memory in use before they opened their GPUs, by UUID
        self.idle_bytes: Mapping[str, int | None] = {}
        self.foreign_processes: Mapping[str, int | None] = {}  # on the GPUs before, by UUID

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._connections))

    @property
    def is_whole(self) -> bool:
        return all(process.poll() is None for process in self._processes.values())

    def start(self, number: int, task: Task) -> None:
        task = replace(task, observed=task.observed and number == 0)
        mps_variables = self.daemon and self.daemon.variables
        environment = {**os.environ, **_one_gpu(number, task.point, renumbered=mps_variables is not None)}
        environment |= mps_variables or {}
        here, (ours, theirs) = os.getpid(), Pipe()

        def work() -> None:  # of the files of the supervisor it keeps only its end of the connection
            if process.end_with(here):
                process.close_files(theirs.fileno())
                process.replace_environment(environment)
                _serve(theirs)

        with theirs, process.signals_blocked():  # so no process is lost by a signal
            self._connections[number] = ours
            if not self._forked:
                words = ["jobkit.worker.pool", str(theirs.fileno()), str(here)]
                words += [KEPT] * self._kept
                self._processes[number] = subprocess.Popen(  # noqa: S603 - our own module, an argv list
                    [sys.executable, "-m", *words],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=environment,
                )
            else:
                self._processes[number] = process.fork(work)
        self.send(number, task)

    def go_on(self, state: TryState) -> None:
        """Have all workers begin another try with what they have loaded."""
        self._reported = state.workers
        variables = {name: value for name, value in os.environ.items() if name.startswith("JOBKIT_")}
        self.ask(dict.fromkeys(self, ("go_on", state.task, variables)))

    def replace(self, number: int, task: Task) -> None:
        """Start another process in place of a worker, which loads while the others work."""
        self._connections.pop(number).close()
        self._kill([self._processes[number]])
        self._oom_kills, self.replaced = process.oom_kills(), self.replaced + 1
        self.start(number, task)
        self.send(number, ("begin", self.foreign_processes))
        self.starting.add(number)

    @property
    def pids(self) -> dict[int, int]:
        """The processes that work: of the user's code each the first child of what keeps it."""
        pids = {number: self._processes[number].pid for number in self}
        if not self._kept:
            return pids
        return {number: process.process_tree(pid)[:2][-1] for number, pid in pids.items()}

    def ask(self, orders: Mapping[int, Order], within_s: float = math.inf) -> None:
        """Order a step of each worker; wait until all have ended, and until replaced workers have loaded."""
        for number, order in orders.items():
            self.send(number, order)
        waiting, deadline_s = set(orders), time.monotonic() + within_s
        while waiting or self.starting:
            if time.monotonic() > deadline_s:
                raise BatchHung(
                    Outcome.TIMEOUT, f"worker {min(waiting)} has not warmed up in {within_s:.0f} s"
                )
            for number, done in self.reports():
                if isinstance(done, TryFailed):
                    raise done
                waiting -= {number}

    def reports(self) -> Iterator[tuple[int, Done | TryFailed | None]]:
        """Wait for reports, at most a second; yield the worker of each, and its result or why it failed."""
        deadline_s = time.monotonic() + 1.0
        while not (
            ready := wait(self._connections.values(), 1.0 if self._most_bytes == math.inf else LOOK_S)
        ):
            for number, pid in self.pids.items():
                if process.anonymous_bytes(pid) > self._most_bytes:
                    self._too_large.add(number)
                    process.kill([pid])
            if time.monotonic() > deadline_s:
                break
        heard = {number: self._receive(number) for number in self if self._connections[number] in ready}
        # A child of a dead worker may keep its connection open.
        dead = [] if ready else [number for number in self if self._processes[number].poll() is not None]
        failed = {number: done for number, done in heard.items() if isinstance(done, TryFailed)}
        failed |= {number: self._death(number) for number in dead}
        self.starting -= heard.keys()
        yield from ((number, done) for number, done in heard.items() if number not in failed)
        if self.daemon:  # its end makes workers fail, perhaps before it is seen
            self.daemon.refuse_end(0.5 if failed else 0.0)
        yield from failed.items()

    def end(self, numbers: Iterable[int]) -> None:
        """End workers that have nothing to do, and wait until their memory is free."""
        ending = list(numbers)
        for number in ending:
            self._connections.pop(number).close()
        for number in ending:
            if not process.ends(self._processes[number], END_S):
                self._kill([self._processes[number]])

    def close(self) -> None:
        self._kill(list(self._processes.values()))
        for connection in self._connections.values():
            connection.close()

    @staticmethod
    def _kill(workers: Sequence[process.ChildProcess]) -> None:
        """Kill workers and their children; wait for them, but not for ever: a GPU's driver may hold one."""
        for worker in workers:
            process.kill(process.process_tree(worker.pid) if worker.poll() is None else ())
        deadline_s = time.monotonic() + END_S
        for worker in workers:
            process.ends(worker, max(0.0, deadline_s - time.monotonic()))

    def send(self, number: int, message: Order | Task) -> None:
        with contextlib.suppress(OSError):  # it has died: the next look at its connection shows it
            self._connections[number].send(message)

    def _receive(self, number: int) -> Done | TryFailed | None:
        try:
            self._reported[number], done, failure = self._connections[number].recv()
        except (EOFError, OSError):
            return self._death(number)
        if not failure:
            return done
        outcome, message, of_text = failure
        who = "" if self._quarantines and len(self._processes) == 1 else f"worker {number}: "
        if not of_text:
            return TryFailed(outcome, f"{who}{message}")
        failed = CallFailed(outcome, f"{who}{message}")
        failed.sound = outcome not in OUT_OF_MEMORY
        return failed

    def _death(self, number: int) -> TryFailed:
        """Return the reason why a worker ended without a report."""
        status = self._processes[number].wait()
        if status >= 0:
            return CallFailed(Outcome.BUG, f"worker {number} ended with status {status}")
        if number in self._too_large:
            self._too_large.remove(number)
            what = f"more than {MOST_MEMORY:.0%} of the memory that the job requests"
            return CallFailed(Outcome.RAM_OOM, f"worker {number} took {what}")
        killed = steps.killed(f"worker {number}", -status, self._oom_kills)
        of_text = -status in {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL}
        return CallFailed(killed.outcome, killed.message) if of_text else killed


@contextlib.contextmanager
def started(state: TryState, daemon: MpsDaemon | None = None) -> Iterator[Pool]:
    """Start the workers of a try; none is left at the end of the block."""
    with contextlib.closing(Pool(state, daemon)) as pool:
        for number in range(len(state.workers)):
            pool.start(number, state.task)
        yield pool


def _one_gpu(number: int, point: Point, *, renumbered: bool = False) -> dict[str, str]:
    """Return the variable by which a worker sees one GPU of the job; neighbours get different GPUs.

    ``renumbered``: whether a daemon of MPS sees the GPUs of the job: then a number counts among these, and
    only a UUID stays (https://docs.nvidia.com/deploy/mps/, CUDA_VISIBLE_DEVICES).
    """
    if point.device != "cuda":
        return {}
    place, visible = number % point.gpus, os.environ.get(nvml.VISIBLE_VARIABLE)
    given = str(place) if visible is None else "".join(visible.split(",")[place : place + 1]).strip()
    return {nvml.VISIBLE_VARIABLE: str(place) if renumbered and given.isdigit() else given}


# -- the supervisor


@dataclass(slots=True)
class CallQueue:
    take: Callable[[], Call | None]  # returns the next call; ``None`` if there is none now
    hang_s: float
    ahead: bool = False  # whether a worker gets the call after its next one too, to tokenize it
    # by worker: its call, and when that began
    running: dict[int, tuple[Call, float]] = field(default_factory=dict)
    following: dict[int, Call] = field(default_factory=dict)  # by worker: the call after that
    longest_s: float = 0.0  # of all batches so far
    rate_s: float = 0.0  # for a paragraph: the mean of all batches so far, or of the warm-up
    items: int = 0
    # what is known of calls that have failed, see `narrow`
    suspects: list[Call] = field(default_factory=list)
    limits_s: dict[tuple[int, ...], float] = field(default_factory=dict)  # by the items of a suspect
    killed: set[int] = field(default_factory=set)  # paragraphs with which alone a worker was killed
    alone: dict[int, list[tuple[Call, TryFailed]]] = field(default_factory=dict)  # by worker
    good: Call | None = None  # of a paragraph that has passed

    def next_calls(self, worker: int, now_s: float) -> list[Call]:
        """Return the next call for a free worker, and the call after it; neither if no call waits.

        If no call waits, the worker gets one that another worker has only tokenized.
        """
        suspect = self.good if worker in self.alone else None
        if suspect := suspect or (self.suspects.pop() if self.suspects else None):
            self.running[worker] = suspect, now_s
            return [suspect]
        call = self.following.pop(worker, None) or self.take()
        if not call and self.following:
            _, call = self.following.popitem()
        if not call:
            return []
        self.running[worker] = call, now_s
        if not self.ahead or not (following := self.take()):
            return [call]
        self.following[worker] = following
        return [call, following]

    def end_call(self, worker: int, seconds: float) -> Call:
        call, _ = self.running.pop(worker)
        self.longest_s, items = max(self.longest_s, seconds), self.items + len(call.paragraphs)
        self.rate_s, self.items = (self.rate_s * self.items + seconds) / items, items
        self.good = self.good or replace(
            call, items=call.items[:1], paragraphs=(min(call.paragraphs, key=len),)
        )
        return call

    def hung(self, now_s: float) -> Iterator[tuple[int, BatchHung]]:
        """Yield the workers whose call hangs."""
        for worker, (call, began_s) in list(self.running.items()):
            if now_s - began_s > self._limit_s(call):
                what = f"{Cause.HANG} of {len(call.paragraphs)} paragraphs for {now_s - began_s:.0f} s"
                message = f"worker {worker} {what} (hang_s: {self.hang_s:g})"
                yield worker, BatchHung(Outcome.TIMEOUT, message)

    def _limit_s(self, call: Call) -> float:
        usual_s = max(self.longest_s, self.rate_s * len(call.paragraphs))
        return self.limits_s.get(call.items) or max(self.hang_s, 20 * usual_s)

    def narrow(self, worker: int, failure: CallFailed, halve: Callable[[Call], list[Call]]) -> None:
        """Let the halves of a call that failed run next, down to the paragraph that fails alone.

        Of a call that hung all halves together may take as long as that again. A paragraph is at fault once
        another one, which has passed before, passes in the same worker; else ``failure`` is raised.
        """
        call, _ = self.running.pop(worker)
        if call is self.good:
            raise self.alone[worker][0][1]
        if len(call.items) > 1:
            halves = halve(call)
            self.suspects += reversed(halves)
            if isinstance(failure, BatchHung):
                limit_s = self.limits_s.get(call.items) or self._limit_s(call) / math.log2(len(call.items))
                self.limits_s |= {half.items: limit_s for half in halves if len(half.items) > 1}
        elif failure.outcome is Outcome.LOST and call.first not in self.killed:
            self.killed.add(call.first)
            self.suspects.append(call)
        else:
            self.alone.setdefault(worker, []).append((call, failure))
            if not self.good and sum(map(len, self.alone.values())) >= 3:
                raise failure  # the workload is at fault, not the paragraphs


def supervise(state: TryState, stack: ExitStack, kept: Kept) -> None:
    point = state.task.point
    todo = steps.read_inputs(state) if state.standing else _open(state, kept)
    workers: Pool = kept.pool
    state.sampler = stack.enter_context(sampling(workers.idle_bytes, steps.forked_from(state)))
    if state.standing:
        workers.go_on(state)
    else:
        workers.ask(dict.fromkeys(workers, ("load",)))
    steps.cut_calls(state, todo)
    likely = [*islice(todo.calls, len(state.workers)), *[None] * len(state.workers)]
    try:
        within_s = 10 * point.hang_s if point.kind.quarantines else math.inf
        warm_up = {number: ("warm_up", todo.warm_up_texts, likely[number]) for number in workers}
        workers.ask(warm_up, within_s)
    except CallFailed as failed:
        if not point.kind.quarantines:
            raise
        process.report(f"there is no warm-up: {failed.message}")
        for number in workers:
            workers.replace(number, state.task)
        workers.ask({})
    if workers.daemon:
        state.mps = workers.daemon.check_clients(workers.pids)
    workers.ask(dict(_contexts(workers, state.workers)))
    state.ask_sampler("mark")
    _work(state, workers, todo)
    state.ask_sampler("stop")
    with contextlib.suppress(Stopped):  # it ends the measurement and not the try, whose batches are done
        workers.ask({0: ("write_recording",)})  # the calls of no other are recorded
        if point.device == "cuda" and state.heaviest and point.kind.measures_need:
            batch, call = state.heaviest  # their worker is to be the only one left
            workers.end(number for number in workers if number != batch.worker)
            workers.ask({batch.worker: ("measure", batch, call)})
        if state.stands:
            workers.ask(dict.fromkeys(workers, ("rest",)))
        else:
            workers.end(workers)


def _open(state: TryState, kept: Kept) -> Todo:
    """Start the workers, after all that is to be read before; return the work."""
    point = state.task.point
    state.workers = [WorkerState() for _ in range(point.workers * point.gpus)]
    steps.read_idle(state)
    # One worker is a fresh process, unless all is imported already: its supervisor then holds little memory.
    alone = point.kind.quarantines and len(state.workers) == 1 and not state.task.forked
    reason = "" if alone else steps.preload(state.task)
    state.forked = not alone and not reason
    if state.forked:
        state.waited_s += process.age_s() or 0.0
    elif point.fork and reason:
        process.report(f"the workers of this try are fresh processes: {reason}")
    todo = steps.read_inputs(state)
    steps.wait_for_memory(state)
    gpus = {gpu.uuid: gpu for gpu in nvml.list_gpus()} if point.device == "cuda" else {}
    daemon = start_if_wanted(state, kept.stack, gpus.values())
    if state.task.takes_shortcuts:
        check_shortcuts(state, todo, daemon)
    kept.pool = workers = kept.stack.enter_context(started(state, daemon))
    workers.foreign_processes = {uuid: gpu.processes for uuid, gpu in gpus.items()}
    workers.ask(dict.fromkeys(workers, ("open", workers.foreign_processes)))
    uuids = dict.fromkeys(worker.gpu.uuid for worker in state.workers if worker.gpu)
    workers.idle_bytes = {uuid: gpus[uuid].used_bytes if uuid in gpus else None for uuid in uuids}
    state.device_idle_bytes = total(workers.idle_bytes.values()) if uuids else None
    return todo


def _contexts(pool: Pool, workers: Sequence[WorkerState]) -> Iterator[tuple[int, Order]]:
    """Yield each worker and its order to keep its part of what its GPU holds beyond torch's reserve."""
    used_bytes = nvml.used_bytes(pool.idle_bytes)
    for number, worker in enumerate(workers):
        uuid = worker.gpu.uuid if worker.gpu else ""
        reserved = [one.reserved_bytes for one in workers if one.gpu and one.gpu.uuid == uuid]
        size = memory.subtract(used_bytes.get(uuid), pool.idle_bytes.get(uuid), *reserved)
        yield number, ("keep_context", None if size is None else size // len(reserved))


def _work(state: TryState, workers: Pool, todo: Todo) -> None:
    ahead = any(worker.tokenizes_ahead for worker in state.workers)
    warm_up_s = max(worker.warm_up_s or 0.0 for worker in state.workers)
    rate_s = warm_up_s / max(1, len(todo.warm_up_texts))
    queue = CallQueue(todo.next_call, state.task.point.hang_s, ahead, rate_s=rate_s)
    began_s = time.monotonic()

    def hand_out() -> None:
        for worker in workers:
            busy = worker in queue.running or worker in workers.starting
            if not busy and (calls := queue.next_calls(worker, time.monotonic())):
                workers.send(worker, ("work", *calls))

    with steps.open_batches(state) as stream:
        todo.read_ahead()
        hand_out()
        while queue.running or workers.starting:
            for worker, done in workers.reports():
                end_s = time.monotonic() - began_s
                if isinstance(done, TryFailed):
                    _narrow(state, workers, queue, worker, done)
                elif done:
                    call = queue.end_call(worker, done[0].seconds)
                    for suspect, failure in queue.alone.pop(worker, ()):
                        steps.quarantine(state, suspect, failure)
                    hand_out()  # so that it works while its rows are written
                    if call is not queue.good:
                        steps.keep_batch(state, stream, call, done, worker=worker, end_s=end_s)
                hand_out()
            for worker, hung in queue.hung(time.monotonic()):
                _narrow(state, workers, queue, worker, hung)
        for [(_, failure), *_] in queue.alone.values():
            raise failure


def _narrow(state: TryState, workers: Pool, queue: CallQueue, worker: int, failure: TryFailed) -> None:
    """Go on after a call that may have failed by its text, perhaps with another process; else end the try."""
    todo, most = state.todo, 50 * (1 + state.quarantined)
    may = state.task.point.kind.quarantines and worker in queue.running and workers.replaced < most
    if not (may and todo and isinstance(failure, CallFailed)):
        raise failure
    if not failure.sound:  # else its error is in the log
        process.report(f"{queue.running[worker][0].place} or a paragraph after it: {failure.message}")
    queue.narrow(worker, failure, todo.halve)
    if not failure.sound:
        todo.pause()
        workers.replace(worker, state.task)


# -- shortcuts


def check_shortcuts(state: TryState, todo: Todo, daemon: MpsDaemon | None = None) -> None:
    """Switch off the shortcuts of a try if the ordinary way finds something else.

    The first try of a run on a node compares both ways for all tries there, in a process that ends before the
    workers start. A shard has a text of its own, and is compared by itself.
    """
    task, check = state.task, None
    place = _place_of_check(task) if task.run_dir and task.point.kind.from_text else None
    if place and place.is_file():
        with contextlib.suppress(JobkitError, OSError):
            found = from_json(ShortcutCheck, files.read_text(place), where=str(place))
            check = replace(found, reused=True)
    if check is None:
        check, opening = _compare(state, todo, daemon)
        state.task = replace(task, opening=task.opening or opening)  # before a GPU was in use
        if place:
            with contextlib.suppress(OSError):  # another try compares them again
                place.parent.mkdir(exist_ok=True)
                files.write_atomically(place, to_json(check) + "\n")
    if check.refused and task.point.kind.promised:
        raise TryFailed(Outcome.ENVIRONMENT, f"{Cause.NO_SHORTCUTS} {check.refused}")
    state.check = check
    state.task = replace(state.task, refused=check.refused)


def _place_of_check(task: Task) -> Path:
    """Return the file of a check in the run folder, named by the node and all that decides what is found.

    The folder of installed packages changes with each package that is installed or removed.
    """
    point = task.point
    free = {*point.load_knobs, *(knob.name for knob in RUN_KNOBS)}
    knobs = sorted((knob, value) for knob, value in point.params.items() if knob not in free)
    gpus = sorted({gpu.name for gpu in nvml.list_gpus()}) if point.device == "cuda" else []
    packages = Path(sysconfig.get_path("purelib")).stat().st_mtime_ns
    words = [getattr(point, key) for key in OFFERED]
    decides = (point.workload, point.model, point.files, words, knobs, gpus, sys.version, packages)
    name = hashlib.sha256(repr(decides).encode()).hexdigest()[:16]
    return (task.run_dir or Path()) / CHECKS_FOLDER / f"{platform.node()}-{name}.json"


def _compare(
    state: TryState, todo: Todo, daemon: MpsDaemon | None
) -> tuple[ShortcutCheck, Mapping[str, EnergyReading]]:
    """Return how both ways compare, and the energy counters just before a GPU was opened for that."""
    point, start = state.task.point, time.perf_counter()
    alone = TryState(replace(state.task, observed=False), state.started_at)
    alone.forked = state.forked or not steps.preload(state.task)
    try:
        with started(alone, daemon) as workers:
            workers.ask({0: ("open", {})})
            workers.ask({0: ("load",)})
            whole = load_unit(point.workload) != CHARACTERS
            long = heapq.nlargest(100, todo.texts, key=lambda text: len(text.encode(errors="replace")))
            workers.ask({0: ("check", part(todo.texts, whole=whole), *([long] if whole else []))})
    except TryFailed as failed:
        raise TryFailed(failed.outcome, f"the check of shortcuts: {failed.message}") from failed
    [measured] = alone.workers
    check = ShortcutCheck(
        seconds=time.perf_counter() - start,
        gpu_peak_bytes=measured.reserved_peak_bytes,
        rss_peak_bytes=measured.maxrss_bytes,
        found=measured.checked,
        refused=measured.refused,
    )
    return check, measured.opening


def part(paragraphs: Sequence[str], *, whole: bool = False) -> list[str]:
    """Return the longest paragraph, and others from all over the text, up to `ITEMS`.

    An item is a sentence; of a workload that takes paragraphs whole it is a paragraph.
    """

    def count(paragraph: str) -> int:
        return 1 if whole else len(split_sentences(paragraph))

    longest = max(range(len(paragraphs)), key=lambda place: len(paragraphs[place]))
    chosen, items = [paragraphs[longest]], count(paragraphs[longest])
    for place in _spread(len(paragraphs)):
        if place != longest:
            items += count(paragraphs[place])
            if items > ITEMS:
                break
            chosen.append(paragraphs[place])
    return chosen


def _spread(count: int) -> Iterator[int]:
    """Yield all places of ``count``, the first few from all over: each gap is halved in turn."""
    step = 2 ** (count - 1).bit_length()
    yield 0
    while step > 1:
        yield from range(step // 2, count, step)
        step //= 2


def main() -> None:
    descriptor, parent = map(int, sys.argv[1:3])
    if process.end_with(parent):
        serve = partial(_serve, Connection(descriptor))
        process.keep(serve, END_S) if KEPT in sys.argv else serve()


if __name__ == "__main__":
    main()
