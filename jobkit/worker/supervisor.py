"""Several workers in one point, forked from this process, which imports the framework and opens no device."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice

from jobkit.core.measurements import total
from jobkit.worker import mps, pool, process, shortcuts, steps
from jobkit.worker.failure import HANG, BatchHung, Stopped
from jobkit.worker.kinds import work_of
from jobkit.worker.measure import memory, nvml
from jobkit.worker.measure.sampler import sampling
from jobkit.worker.paragraphs import Call
from jobkit.worker.pool import OBSERVED
from jobkit.worker.record import TryState, WorkerState
from jobkit.worker.windows import Todo

HANG_FACTOR = 20
"""A call hangs if it takes this many times the longest batch so far, and at least the point's ``hang_s``."""


@dataclass(slots=True)
class CallQueue:
    take: Callable[[], Call | None]  # returns the next call; ``None`` if there is none now
    hang_s: float
    ahead: bool = False  # whether a worker gets the call after its next one too, to tokenize it
    # by worker: its call, and when that began
    running: dict[int, tuple[Call, float]] = field(default_factory=dict)
    following: dict[int, Call] = field(default_factory=dict)  # by worker: the call after that
    longest_s: float = 0.0  # of all batches so far

    def next_calls(self, worker: int, now_s: float) -> list[Call]:
        """Return the next call for a free worker, and the call after it; neither if no call waits.

        If no call waits, the worker gets one that another worker has only tokenized.
        """
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
        self.longest_s = max(self.longest_s, seconds)
        return call

    def refuse_hang(self, now_s: float) -> None:
        limit_s = max(self.hang_s, HANG_FACTOR * self.longest_s)
        for worker, (call, began_s) in self.running.items():
            if now_s - began_s > limit_s:
                what = f"{HANG} of {len(call.paragraphs)} paragraphs for {now_s - began_s:.0f} s"
                raise BatchHung(f"worker {worker} {what} (hang_s: {self.hang_s:g})")


def supervise(state: TryState, stack: ExitStack) -> None:
    point = state.task.point
    state.workers = [WorkerState() for _ in range(point.workers * point.gpus)]
    steps.read_idle(state)
    _preload(state)
    todo = steps.read_inputs(state)
    steps.wait_for_memory(state)
    gpus = {gpu.uuid: gpu for gpu in nvml.list_gpus()} if point.device == "cuda" else {}
    daemon = mps.start_if_wanted(state, stack, gpus.values())
    shortcuts.check(state, todo, daemon)
    workers = stack.enter_context(pool.started(state, daemon))
    workers.ask(dict.fromkeys(workers, ("open", {uuid: gpu.processes for uuid, gpu in gpus.items()})))
    idle_bytes = {uuid: gpus[uuid].used_bytes if uuid in gpus else None for uuid in _uuids(state.workers)}
    state.sampler = stack.enter_context(sampling(idle_bytes, steps.forked_from(state)))
    state.device_idle_bytes = total(idle_bytes.values()) if idle_bytes else None
    workers.ask(dict.fromkeys(workers, ("load",)))
    steps.cut_calls(state, todo)
    _warm_up(state, workers, todo)
    if daemon:
        state.mps = daemon.check_clients(workers.pids)
    workers.ask({number: ("keep_context", size) for number, size in _contexts(state.workers, idle_bytes)})
    state.ask_sampler("mark")
    _work(state, workers, todo)
    state.ask_sampler("stop")
    with contextlib.suppress(
        Stopped
    ):  # a signal ends the measurement and not the try, whose batches are done
        _end(state, workers)


def _preload(state: TryState) -> None:
    point = state.task.point
    reason = work_of(point).launcher(state.task).why or steps.preload(point, state.task.inputs)
    state.forked = not reason
    if state.forked:
        state.waited_s += process.age_s() or 0.0
    elif point.fork:
        with contextlib.suppress(OSError):  # the log may be on a full disk
            sys.stderr.write(f"jobkit: the workers of this try are fresh processes: {reason}\n")


def _uuids(workers: Iterable[WorkerState]) -> list[str]:
    return list(dict.fromkeys(worker.gpu.uuid for worker in workers if worker.gpu))


def _warm_up(state: TryState, workers: pool.Pool, todo: Todo) -> None:
    likely = [*islice(todo.calls, len(state.workers)), *[None] * len(state.workers)]
    workers.ask({number: ("warm_up", todo.warm_up_texts, likely[number]) for number in workers})


def _contexts(
    workers: Sequence[WorkerState], idle_bytes: Mapping[str, int | None]
) -> Iterable[tuple[int, int | None]]:
    """Yield each worker's part of what the workers of its GPU hold beyond torch's reserve."""
    used_bytes = nvml.used_bytes(idle_bytes)
    for number, worker in enumerate(workers):
        uuid = worker.gpu.uuid if worker.gpu else ""
        reserved = [one.reserved_bytes for one in workers if one.gpu and one.gpu.uuid == uuid]
        size = memory.subtract(used_bytes.get(uuid), idle_bytes.get(uuid), *reserved)
        yield number, None if size is None else size // len(reserved)


def _work(state: TryState, workers: pool.Pool, todo: Todo) -> None:
    ahead = any(worker.tokenizes_ahead for worker in state.workers)
    queue = CallQueue(todo.next_call, state.task.point.hang_s, ahead)
    began_s = time.monotonic()

    def hand_out() -> None:
        for worker in workers:
            if worker not in queue.running and (calls := queue.next_calls(worker, time.monotonic())):
                workers.order(worker, "work", *calls)

    with steps.open_batches(state) as stream:
        todo.read_ahead()
        hand_out()
        while queue.running:
            for worker, done in workers.reports():
                end_s = time.monotonic() - began_s
                if done:
                    call = queue.end_call(worker, done[0].seconds)
                    steps.keep_batch(state, stream, call, done, worker=worker, end_s=end_s)
                hand_out()
            queue.refuse_hang(time.monotonic())


def _end(state: TryState, workers: pool.Pool) -> None:
    """Have the recording written; measure the heaviest batches when their worker is the only one left."""
    workers.ask({OBSERVED: ("write_recording",)})
    if state.task.point.device == "cuda" and state.heaviest and state.task.point.kind.measures_need:
        batch, call = state.heaviest
        workers.end(number for number in workers if number != batch.worker)
        workers.ask({batch.worker: ("measure", batch, call)})
    workers.end(workers)
