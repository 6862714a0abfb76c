"""Processes that work on tasks, and end when the process that started them does. Standard library only."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from jobkit.core.errors import JobkitError

MOST = 16
"""More processes would need more than 1 GiB of memory together, and few disks are faster."""
Task = TypeVar("Task")
Answer = TypeVar("Answer")


def cores() -> int:
    """Return how many processes may compute at the same time."""
    return min(MOST, len(os.sched_getaffinity(0)))


def in_order(work: Callable[[Task], Answer], tasks: Iterable[Task], processes: int) -> Iterator[Answer]:
    """Yield the answer to each task, in the order of the tasks, computed by several processes.

    Parameters
    ----------
    work
        A function of a module; it is imported in each process.
    tasks
        Taken as processes become free, so that there may be many.
    processes
        How many; with one the work is done in this process.

    Raises
    ------
    JobkitError
        That of the work, or if a process was killed.
    """
    if processes < 2:  # noqa: PLR2004 - this process alone
        yield from map(work, tasks)
        return
    with _Pool(work, processes) as pool:
        yield from pool.answers(iter(tasks))


class _Pool(Generic[Task, Answer]):
    """Processes with a pipe each: at the end of this process, the pipe's end ends them."""

    def __init__(self, work: Callable[[Task], Answer], number: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads of others
        self._free: list[Connection] = []
        self._processes: dict[Connection, BaseProcess] = {}
        self._tasks: dict[Connection, int] = {}
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(work, theirs), daemon=True)
            process.start()
            theirs.close()
            self._free.append(ours)
            self._processes[ours] = process

    def __enter__(self) -> _Pool[Task, Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._processes.items():
            connection.close()
            process.terminate()
            process.join()

    def answers(self, tasks: Iterator[Task]) -> Iterator[Answer]:
        """Yield the answers in order; few tasks are ahead of the one that is waited for."""
        ready: dict[int, Answer] = {}
        next_task = next_answer = 0
        more = True
        while more or self._tasks or ready:
            while more and self._free and next_task - next_answer < 4 * len(self._processes):
                try:
                    task = next(tasks)
                except StopIteration:
                    more = False
                    break
                self._send(task, next_task)
                next_task += 1
            if next_answer in ready:
                yield ready.pop(next_answer)
                next_answer += 1
            elif self._tasks:
                self._collect(ready)

    def _send(self, task: Task, number: int) -> None:
        connection = self._free.pop()
        with suppress(OSError):  # a killed process is noticed when its answer is read
            connection.send(task)
        self._tasks[connection] = number

    def _collect(self, ready: dict[int, Answer]) -> None:
        """Wait for an answer."""
        for connection in wait(list(self._tasks)):
            assert isinstance(connection, Connection)  # noqa: S101 - for the type checker
            try:
                answer: Any = connection.recv()
            except (EOFError, OSError) as error:
                hint = (
                    "is there enough memory? dmesg shows what the kernel killed; then run the command again"
                )
                raise JobkitError("a process that read the corpus was killed", hint=hint) from error
            if isinstance(answer, BaseException):
                raise answer
            ready[self._tasks.pop(connection)] = answer
            self._free.append(connection)


def _serve(work: Callable[[Any], Any], connection: Connection) -> None:
    """Answer tasks until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles it
    with suppress(EOFError, OSError):
        while True:
            task = connection.recv()
            try:
                answer = work(task)
            except Exception as error:  # noqa: BLE001 - raised again where the answer is read
                answer = error
            connection.send(answer)
