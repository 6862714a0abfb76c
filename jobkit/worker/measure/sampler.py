"""Sample memory and energy of GPUs and the memory of a process tree, in a separate process.

A thread would starve next to Python code (one sample in 0.4 s was seen). Standard input is a socket whose
other end the parent holds. The sampler answers each line with one line of JSON. At a line ``mark`` the work
begins, of which it has averages and the energy; at a line ``stop`` the work ends. It exits at end of file, so
also when the parent dies.

Energy is by NVML's counter, in mJ since the driver was loaded (``nvmlDeviceGetTotalEnergyConsumption``); it
moves about every 100 ms (docs/what-is-measured.md has the sources).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jobkit.core import json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.measurements import NOT_ATTRIBUTABLE, Energy, Sampler, largest, total
from jobkit.worker.process import (
    PAGE_BYTES,
    ChildProcess,
    close_files,
    fork,
    process_tree,
    pss_bytes,
    rss_bytes,
    stack_start,
)

if TYPE_CHECKING:
    from jobkit.worker.measure.nvml import GpuHandle

LEAST_SAMPLES, EARLY_SAMPLES = 3, 10
"""Samples of a command's memory: fewer say nothing about its peak; the first ones come faster."""

# -- energy


class Meter:
    """Measures the energy of GPUs from its construction on, and whether others use them too.

    Its times are those of a monotonic clock.
    """

    def __init__(self, gpus: Sequence[GpuHandle], now_s: float) -> None:
        self._gpus = gpus
        self._began_s = now_s
        self._began_j = [gpu.energy_j() for gpu in gpus]
        self._own = [False] * len(gpus)
        self._foreign = [False] * len(gpus)

    def note(self, listed: Sequence[Collection[int]], own: set[int], look: Callable[[], None]) -> None:
        """Note whether each GPU has processes of the job, ``own``, and others.

        ``look`` adds to ``own`` the processes that have begun since: a process that was listed before, is
        none of them and is still there does not belong to the job.
        """
        for number, (gpu, pids) in enumerate(zip(self._gpus, listed, strict=True)):
            self._own[number] |= not own.isdisjoint(pids)
            if not self._foreign[number] and not own.issuperset(pids):
                look()
                self._foreign[number] = bool(set(pids) & set(gpu.processes() or ()) - own)

    def energy(self, now_s: float) -> Energy:
        """Return the energy until now; if NVML lists no process of the job, as in a container, of all."""
        counters = [gpu.energy_j() for gpu in self._gpus]
        spent = [
            None if first is None or last is None or last < first else last - first
            for first, last in zip(self._began_j, counters, strict=True)
        ]
        shared = [own and foreign for own, foreign in zip(self._own, self._foreign, strict=True)]
        alone = not any(shared) and not any(gpu.has_mig() for gpu in self._gpus)
        return Energy(
            span_s=now_s - self._began_s,
            counter_j=total(spent),
            attribution="" if alone else NOT_ATTRIBUTABLE,
        )


# -- idle power


class EnergyReading(NamedTuple):
    """The counter of a GPU at a moment, in seconds of the host's monotonic clock."""

    at_s: float
    joules: float


def idle_readings() -> dict[str, EnergyReading]:
    """Return by UUID the counter of each GPU that has one and on which NVML lists no process."""
    from jobkit.worker.measure.nvml import list_handles, nvml

    readings = {}
    with nvml() as available:
        for gpu in [gpu for gpu in list_handles() if not gpu.processes()] if available else ():
            at_s = time.monotonic()
            if (joules := gpu.energy_j()) is not None:
                readings[gpu.uuid] = EnergyReading(at_s, joules)
    return readings


def idle_power(
    uuids: Collection[str], first: Mapping[str, EnergyReading], last: Iterable[Mapping[str, EnergyReading]]
) -> tuple[float, float] | None:
    """Return the idle power of GPUs in watts, and the seconds over which it was measured.

    ``uuids``: all of these GPUs must have readings.
    ``first``: before any process of the job was about to open a GPU.
    ``last``: of each process just before it opened its GPU; the earliest reading of a GPU counts.
    """
    opened: dict[str, EnergyReading] = {}
    for readings in last:
        for uuid, reading in readings.items():
            opened[uuid] = min(reading, opened.get(uuid, reading))
    if not uuids or not set(uuids) <= first.keys() & opened.keys():
        return None
    pairs = [(first[uuid], opened[uuid]) for uuid in uuids]
    spans = [end.at_s - begin.at_s for begin, end in pairs]
    if min(spans) < 1:  # ten steps of the counter: over less time it would be a guess
        return None
    watts = [(end.joules - begin.joules) / span for (begin, end), span in zip(pairs, spans, strict=True)]
    return sum(watts), min(spans)


# -- the process


@dataclass(slots=True)
class Peaks:
    """The peaks and the averages of the work so far; ``None`` for a value that could not be read."""

    # the largest sample by NVML of all devices, by NVML of the processes of the tree, and of their resident
    # memory, in which shared pages count once
    device_bytes: int | None = None
    process_bytes: int | None = None
    rss_bytes: int | None = None
    sampler: Sampler | None = None  # ``None`` until `Follower.read`, as the energy
    energy: Energy | None = None  # energy of all devices; ``None`` without devices, and before the work


class Follower:
    """Samples one process tree and the given GPUs.

    ``others``: further processes whose resident memory counts: they share pages with the tree.
    ``below``: whether the tree has only the descendants of the process.
    """

    def __init__(
        self,
        pid: int,
        gpus: Sequence[GpuHandle],
        *,
        others: Sequence[int] = (),
        below: bool = False,
    ) -> None:
        self._pid, self._below, self._gpus, self._others = pid, below, gpus, others
        self._list_s = 0.0
        self._rss_peak: int | None = None
        self._rss_samples = 0
        self._stack = stack_start(pid) if below else None
        self._tree = [] if below else [pid]
        self._own = {pid}  # all that have been in the tree
        self._shared_bytes = 0
        self._shared_due_s = 0.0
        self._shared_tree: list[int] = []  # for which it was read
        self.peaks = Peaks()
        self._samples = 0
        self._period_s: float | None = None
        self._query: str | None = None
        self._busy_percent: list[float] = []
        self._began_s: float | None = None  # during the work
        self._meter = Meter(gpus, time.monotonic())

    @property
    def early(self) -> bool:
        """Whether a command has just begun: it may end before many samples are taken."""
        return self._below and self._rss_samples < EARLY_SAMPLES

    def mark(self) -> None:
        """Begin the averages and the energy of the work; keep the peaks."""
        self._samples, self._busy_percent = 0, []
        self._began_s = time.monotonic()
        self._meter = Meter(self._gpus, self._began_s)

    def stop(self) -> None:
        """End the averages and the energy of the work; go on with the peaks."""
        self.read()
        self._began_s = None

    def read(self) -> Peaks:
        """Return the peaks, with the averages and the energy of the work until now or until its end."""
        peaks, busy = self.peaks, self._busy_percent
        if self._gpus and self._began_s is not None:
            peaks.energy = self._meter.energy(time.monotonic())
        peaks.sampler = Sampler(
            period_s=self._period_s,
            samples=self._samples,
            memory_query=self._query,
            utilisation_mean_percent=sum(busy) / len(busy) if busy else None,
        )
        return peaks

    def answer(self, word: str) -> Peaks:
        if word == "stop":
            self.stop()
        if word == "mark":
            self.sample_shared()
        self.sample_memory()
        peaks = self.read()
        if word == "mark":
            self.mark()
        return peaks

    def sample_memory(self) -> None:
        peaks = self.peaks
        if self._began_s is not None:
            self._samples += 1
            self._period_s = (time.monotonic() - self._began_s) / self._samples
        rss = self._rss_bytes()
        self._rss_peak = largest((self._rss_peak, rss - self._shared_bytes if rss else None))
        self._rss_samples += rss > PAGE_BYTES * len(self._tree)  # exec(2) begins with a page
        if not self._below or self._rss_samples >= LEAST_SAMPLES:
            peaks.rss_bytes = largest((peaks.rss_bytes, self._rss_peak))
        if self._gpus:
            used, queries = zip(*(gpu.used_bytes() for gpu in self._gpus), strict=True)
            self._query = queries[0]
            peaks.device_bytes = largest((peaks.device_bytes, total(used)))
            running = [gpu.processes() or {} for gpu in self._gpus]
            self._meter.note(running, self._own, self._list_tree)
            held = sum(processes.get(pid) or 0 for processes in running for pid in self._tree)
            peaks.process_bytes = largest((peaks.process_bytes, held or None))  # NVML may report none of them

    def _rss_bytes(self) -> int:
        return sum(rss_bytes(pid) or 0 for pid in (*self._tree, *self._others))

    def sample_shared(self) -> None:
        """Read how much of the resident memory is counted several times, because processes share it.

        The kernel walks all pages for this (11 ms for 0.4 GB). So jobkit spends at most 1 % of the
        time on it, and uses the figure for the samples until the next reading.
        """
        began_s = time.monotonic()
        known = [pss_bytes(pid) for pid in (*self._tree, *self._others)]
        pss = sum(size for size in known if size)
        self._shared_bytes = 0 if None in known or not pss else max(0, self._rss_bytes() - pss)
        self._shared_tree = self._tree
        self._shared_due_s = time.monotonic() + (time.monotonic() - began_s) / 0.01

    def sample_utilisation(self) -> None:
        self._list_tree()
        if self._tree != self._shared_tree or time.monotonic() >= self._shared_due_s:
            self.sample_shared()
        busy = [gpu.utilisation_percent() for gpu in self._gpus] if self._began_s is not None else []
        known = [percent for percent in busy if percent is not None]
        if known and len(known) == len(busy):
            self._busy_percent.append(sum(known) / len(known))

    def list_children(self) -> None:
        """List a tree of short-lived processes again, in at most 5 % of the time."""
        began_s = time.monotonic()
        if self._below and began_s >= self._list_s:
            self._list_tree()
            self._list_s = began_s + (time.monotonic() - began_s) / 0.05

    def _list_tree(self) -> None:
        left_out = {os.getpid(), self._pid} if self._below else {os.getpid()}
        tree = [pid for pid in process_tree(self._pid) if pid not in left_out]
        # A child that has not started its program yet is a copy of its parent, and does not count.
        self._tree = [pid for pid in tree if not self._stack or stack_start(pid) != self._stack]
        self._own.update(self._tree)


def sample_until_closed(
    connection: socket.socket, pid: int, uuids: Sequence[str], others: Sequence[int], *, below: bool = False
) -> None:
    """Sample until the connection ends; answer each line on it."""
    with connection, connection.makefile(encoding="utf-8") as requests, contextlib.ExitStack() as stack:
        # A parent that was stopped, or has died, before it read an answer resets the connection.
        stack.enter_context(contextlib.suppress(ConnectionError))
        gpus: list[GpuHandle] = []
        if uuids:
            from jobkit.worker.measure.nvml import nvml, open_gpu  # a third of the start of this process

            available = stack.enter_context(nvml())
            opened = [gpu for uuid in uuids if available and (gpu := open_gpu(uuid))]
            gpus = opened if len(opened) == len(uuids) else []  # a sum over some of them would be wrong
        follower = Follower(pid, gpus, others=others, below=below)
        due = slow_due = time.monotonic()
        while True:
            if (now := time.monotonic()) >= slow_due:
                follower.sample_utilisation()
                slow_due = now + 1
            follower.list_children()
            follower.sample_memory()
            due = max(due + (0.002 if follower.early else 0.01), time.monotonic())
            while select.select([connection], [], [], max(0.0, due - time.monotonic()))[0]:
                word = requests.readline().strip()
                if not word:
                    return
                connection.sendall(f"{json_codec.to_json(follower.answer(word))}\n".encode())


class Sampling:
    def __init__(self, process: ChildProcess, connection: socket.socket) -> None:
        self._process, self._connection = process, connection
        self._answers = connection.makefile(encoding="utf-8")

    def ask(self, word: str) -> Peaks:
        """Send ``peaks``, ``mark`` or ``stop``; return the peaks, which are empty if the sampler has died."""
        with contextlib.suppress(OSError, ValueError, JobkitError):
            self._connection.sendall(f"{word}\n".encode())
            return json_codec.from_json(Peaks, self._answers.readline(), where="the sampler")
        return Peaks()

    def close(self) -> None:
        self._answers.close()
        self._connection.close()
        self._process.wait()


@contextlib.contextmanager
def sampling(
    uuids: Iterable[str], others: Iterable[int] = (), *, parent: int | None = None
) -> Iterator[Sampling]:
    """Sample this process tree and GPUs, or the children of ``parent``, from a child process.

    The children of ``parent`` without GPUs are sampled from a fork of this process, which has nothing to
    import: this process may then have no threads and no GPU open, for neither survives a fork.
    ``others``: processes outside this tree whose memory counts too: the one that this process was forked
    from.
    """
    gpus, more = [*uuids], [*others]
    ours, theirs = socket.socketpair()
    with theirs:
        if parent and not (gpus or more):
            process: ChildProcess = fork(partial(_sample_forked, theirs, parent))
        else:
            given = json.dumps([parent or os.getpid(), gpus, more, bool(parent)])
            argv = [sys.executable, "-m", "jobkit.worker.measure.sampler", given]
            process = subprocess.Popen(argv, stdin=theirs.fileno())  # noqa: S603 - our own module, an argv list
    with contextlib.closing(Sampling(process, ours)) as sampler:
        yield sampler


def _sample_forked(connection: socket.socket, parent: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    close_files(connection.fileno())
    sample_until_closed(connection, parent, (), (), below=True)


def main() -> None:
    pid, uuids, others, below = json.loads(sys.argv[1])
    with contextlib.suppress(KeyboardInterrupt):
        connection = socket.socket(fileno=sys.stdin.fileno())
        sample_until_closed(connection, pid, uuids, others, below=below)


if __name__ == "__main__":
    main()
