"""Sample the memory and the power of GPUs and the memory of a process tree, in a separate process.

A thread would starve next to Python code (one sample in 0.4 s was seen). The parent holds this
process's standard input. The sampler answers each line with one line of JSON. At a line ``mark`` the work
begins, of which it has averages and the energy; at a line ``stop`` the work ends. It exits at end of file,
so also when the parent dies.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

from jobkit.core import json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.measurements import Energy, largest, total
from jobkit.worker.measure.energy import Meter, Owners, in_initial_namespace
from jobkit.worker.measure.nvml import GpuHandle, nvml, open_gpu
from jobkit.worker.process import Forked, close_files

PERIOD_S = 0.01
"""Target time between two memory samples."""
POWER_PERIOD_S = 0.1
"""Target time between two samples of the power: the sensor of an A100 or H100 has a new value as often (arXiv
2312.02741)."""
SLOW_PERIOD_S = 1.0
"""Target time between two samples of the utilisation, and of the list of processes."""
LIST_SHARE = 0.05
"""The largest share of the time that listing the processes of a command takes."""
SHARED_SHARE = 0.01
"""The largest share of the time that reading shared memory takes."""
LEAST_SAMPLES, EARLY_SAMPLES = 3, 10
"""Samples of a command's memory: fewer say nothing about its peak; the first ones come faster."""
EARLY_PERIOD_S = 0.002
STATM_BYTES = 256
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Peaks:
    """The peaks and the averages of the work so far; ``None`` for a value that could not be read."""

    # the largest sample by NVML of all devices, by NVML of the processes of the tree, and of their resident
    # memory, in which shared pages count once
    device_bytes: int | None = None
    process_bytes: int | None = None
    rss_bytes: int | None = None
    memory_query: str | None = None
    samples: int = 0  # samples of the work, and the mean time between two
    period_s: float | None = None
    utilisation_percent: list[float] = field(default_factory=list)
    power_max_w: float | None = None  # the largest sum over all devices
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
        sees_all: bool,
        others: Sequence[int] = (),
        below: bool = False,
    ) -> None:
        self._pid, self._below = pid, below
        self._list_s = 0.0
        self._rss_peak: int | None = None
        self._rss_samples = 0
        self._stack = stack_start(pid) if below else None
        self._gpus = gpus
        self._others = others
        self._tree = [] if below else [pid]
        self._own = {pid}  # all that have been in the tree
        self._sees_all = sees_all
        self._shared_bytes = 0
        self._shared_due_s = 0.0
        self._shared_tree: list[int] = []  # for which it was read
        self.peaks = Peaks()
        self._began_s: float | None = None  # during the work
        self._owners = Owners(gpus, sees_all=sees_all)
        self._meter: Meter | None = None

    @property
    def early(self) -> bool:
        """Whether a command has just begun: it may end before many samples are taken."""
        return self._below and self._rss_samples < EARLY_SAMPLES

    def mark(self) -> None:
        """Begin the averages and the energy of the work; keep the peaks."""
        self.peaks.samples = 0
        self.peaks.utilisation_percent.clear()
        self._owners = Owners(self._gpus, sees_all=self._sees_all)
        self._began_s = time.monotonic()
        self._meter = Meter(self._gpus, self._began_s) if self._gpus else None

    def stop(self) -> None:
        """End the averages and the energy of the work; go on with the peaks."""
        self.read_energy()
        self._began_s = None

    def read_energy(self) -> None:
        """Read the energy of the work until now; keep it if the work has ended."""
        if self._meter and self._began_s is not None:
            self.peaks.energy = self._meter.energy(time.monotonic(), *self._owners.attribution())
            self.peaks.power_max_w = self._meter.power_max_w

    def sample_memory(self) -> None:
        peaks = self.peaks
        if self._began_s is not None:
            peaks.samples += 1
            peaks.period_s = (time.monotonic() - self._began_s) / peaks.samples
        rss = self._rss_bytes()
        self._rss_peak = largest((self._rss_peak, rss - self._shared_bytes if rss else None))
        self._rss_samples += rss > PAGE_BYTES * len(self._tree)  # exec(2) begins with a page
        if not self._below or self._rss_samples >= LEAST_SAMPLES:
            peaks.rss_bytes = largest((peaks.rss_bytes, self._rss_peak))
        if self._gpus:
            used, queries = zip(*(gpu.used_bytes() for gpu in self._gpus), strict=True)
            peaks.memory_query = queries[0]
            peaks.device_bytes = largest((peaks.device_bytes, total(used)))
            peaks.process_bytes = largest((peaks.process_bytes, self._process_bytes()))

    def _rss_bytes(self) -> int:
        return sum(rss_bytes(pid) or 0 for pid in (*self._tree, *self._others))

    def sample_shared(self) -> None:
        """Read how much of the resident memory is counted several times, because processes share it.

        The kernel walks all pages for this (11 ms for 0.4 GB). So jobkit spends at most `SHARED_SHARE` of the
        time on it, and uses the figure for the samples until the next reading.
        """
        began_s = time.monotonic()
        known = [pss_bytes(pid) for pid in (*self._tree, *self._others)]
        pss = sum(size for size in known if size)
        self._shared_bytes = 0 if None in known or not pss else max(0, self._rss_bytes() - pss)
        self._shared_tree = self._tree
        self._shared_due_s = time.monotonic() + (time.monotonic() - began_s) / SHARED_SHARE

    def _process_bytes(self) -> int | None:
        """Return the GPU memory of the processes of the tree; ``None`` if NVML reports none of them."""
        running = [gpu.processes() or {} for gpu in self._gpus]
        if self._owners.strangers(running, self._own):
            self._list_tree()
            self._owners.confirm(running, self._own)
        return sum(processes.get(pid) or 0 for processes in running for pid in self._tree) or None

    def sample_power(self) -> None:
        if self._meter and self._began_s is not None:
            self._meter.sample_power(time.monotonic())

    def sample_utilisation(self) -> None:
        self._list_tree()
        if self._tree != self._shared_tree or time.monotonic() >= self._shared_due_s:
            self.sample_shared()
        busy = [gpu.utilisation_percent() for gpu in self._gpus] if self._began_s is not None else []
        known = [percent for percent in busy if percent is not None]
        if known and len(known) == len(busy):
            self.peaks.utilisation_percent.append(sum(known) / len(known))

    def list_children(self) -> None:
        """List a tree of short-lived processes again, in at most `LIST_SHARE` of the time."""
        began_s = time.monotonic()
        if self._below and began_s >= self._list_s:
            self._list_tree()
            self._list_s = began_s + (time.monotonic() - began_s) / LIST_SHARE

    def _list_tree(self) -> None:
        left_out = {os.getpid(), self._pid} if self._below else {os.getpid()}
        tree = [pid for pid in process_tree(self._pid) if pid not in left_out]
        # A child that has not started its program yet is a copy of its parent, and does not count.
        self._tree = [pid for pid in tree if not self._stack or stack_start(pid) != self._stack]
        self._own.update(self._tree)


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; ``None`` if it has exited (proc(5), statm)."""
    try:
        # Not through Path, and unbuffered: this runs a hundred times a second next to the work.
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as stream:  # noqa: PTH123 - see above
            return int(stream.read(STATM_BYTES).split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


def pss_bytes(pid: int) -> int | None:
    """Return the proportional resident memory of a process: of a page shared by n processes one n-th.

    ``None`` if it has exited, or if the kernel has no ``smaps_rollup`` (before Linux 4.14; proc(5)).
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)


def stack_start(pid: int) -> int | None:
    """Return where a process's stack is, which a fork shares and exec changes (proc(5)); ``None`` if gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return int(stat.rpartition(")")[2].split()[25]) or None
    except (OSError, IndexError, ValueError):
        return None


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants (proc(5), task/tid/children)."""
    tree = [pid]
    for process in tree:  # grows in the loop
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                tree += [int(child) for child in path.read_text(encoding="ascii").split()]
    return tree


def sample_until_closed(
    pid: int, uuids: Sequence[str], others: Sequence[int], *, below: bool = False
) -> None:
    """Sample until standard input ends; answer each line on it."""
    with nvml() as available:
        gpus = [gpu for uuid in uuids if available and (gpu := open_gpu(uuid))]
        # A sum over some of the GPUs would be wrong.
        gpus = gpus if len(gpus) == len(uuids) else []
        follower = Follower(pid, gpus, sees_all=in_initial_namespace(), others=others, below=below)
        due = power_due = slow_due = time.monotonic()
        while True:
            if (now := time.monotonic()) >= slow_due:
                follower.sample_utilisation()
                slow_due = now + SLOW_PERIOD_S
            if now >= power_due:
                follower.sample_power()
                power_due = now + POWER_PERIOD_S
            follower.list_children()
            follower.sample_memory()
            due = max(due + (EARLY_PERIOD_S if follower.early else PERIOD_S), time.monotonic())
            while select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                word = sys.stdin.readline().strip()
                if not word:
                    return
                _answer(word, follower)


def _answer(word: str, follower: Follower) -> None:
    if word == "stop":
        follower.stop()
    if word == "mark":
        follower.sample_shared()
    follower.sample_memory()
    follower.read_energy()
    if word == "mark":
        follower.mark()
    sys.stdout.write(json_codec.to_json(follower.peaks) + "\n")
    sys.stdout.flush()


class Sampling:
    def __init__(
        self, process: subprocess.Popen[str] | Forked, requests: IO[str] | None, answers: IO[str] | None
    ) -> None:
        self._process, self._requests, self._answers = process, requests, answers

    def ask(self, word: str) -> Peaks | None:
        """Send ``peaks``, ``mark`` or ``stop``; return the peaks, or ``None`` if the sampler has died."""
        if not self._requests or not self._answers:
            return None
        with contextlib.suppress(OSError, ValueError, JobkitError):
            self._requests.write(word + "\n")
            self._requests.flush()
            return json_codec.from_json(Peaks, self._answers.readline(), where="the sampler")
        return None

    def close(self) -> None:
        for stream in (self._requests, self._answers):
            with contextlib.suppress(OSError):  # closing flushes, and the sampler may have died
                if stream:
                    stream.close()
        self._process.wait()


@contextlib.contextmanager
def sampling(
    uuids: Iterable[str], others: Iterable[int] = (), *, parent: int | None = None
) -> Iterator[Sampling]:
    """Sample this process tree and GPUs, or the children of ``parent``, from a child process.

    ``others``: processes outside this tree whose memory counts too: the one that this process was forked
    from.
    """
    argv = [
        sys.executable,
        "-m",
        "jobkit.worker.measure.sampler",
        f"--pid={parent or os.getpid()}",
        *(["--below"] if parent else []),
        *(f"--uuid={uuid}" for uuid in uuids),
        *(f"--other={other}" for other in others),
    ]
    # Our own module, an argv list:
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    sampler = Sampling(process, process.stdin, process.stdout)
    try:
        yield sampler
    finally:
        sampler.close()


@contextlib.contextmanager
def forked_sampling(parent: int) -> Iterator[Sampling]:
    """Sample the children of a process from a fork of this one, which has nothing to import.

    Only for a process that has no threads and no GPU open: neither survives a fork.
    """
    (theirs, requests), (answers, their_answers) = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        _be_sampler(parent, theirs, their_answers)
    os.close(theirs)
    os.close(their_answers)
    sampler = Sampling(Forked(pid), os.fdopen(requests, "w"), os.fdopen(answers))
    try:
        yield sampler
    finally:
        sampler.close()


def _be_sampler(parent: int, requests: int, answers: int) -> NoReturn:
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        close_files(requests, answers)
        sys.stdin, sys.stdout = os.fdopen(requests), os.fdopen(answers, "w")
        sample_until_closed(parent, (), (), below=True)
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
    finally:
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m jobkit.worker.measure.sampler")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--uuid", action="append", default=[])
    parser.add_argument("--other", type=int, action="append", default=[])
    parser.add_argument("--below", action="store_true")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        sample_until_closed(arguments.pid, arguments.uuid, arguments.other, below=arguments.below)


if __name__ == "__main__":
    main()
