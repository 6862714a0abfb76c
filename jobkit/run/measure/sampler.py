"""Sample the memory of GPUs and of a process tree, in a separate process.

A thread would starve next to Python code (one sample in 0.4 s was seen). The parent holds this
process's standard input. The sampler answers each line ``peaks`` with one line of JSON, resets its
averages on a line ``mark``, and exits at end of file, so also when the parent dies.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jobkit.run.measure.nvml import GpuHandle, nvml, open_gpu

PERIOD_S = 0.01
"""Target time between two memory samples."""
SLOW_PERIOD_S = 1.0
STATM_BYTES = 256
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Peaks:
    """The peaks so far; ``None`` if a value could not be read.

    Attributes
    ----------
    device_bytes, process_bytes, rss_bytes
        The largest sample: NVML of all devices, NVML of the processes of the tree, their resident memory.
    period_s
        Mean time between two samples since the last mark.
    """

    device_bytes: int | None = None
    process_bytes: int | None = None
    rss_bytes: int | None = None
    memory_query: str | None = None
    samples: int = 0
    period_s: float | None = None
    utilisation_percent: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)


class Follower:
    """Samples one process tree and the given GPUs."""

    def __init__(self, pid: int, gpus: Sequence[GpuHandle]) -> None:
        self._pid = pid
        self._gpus = gpus
        self._tree = [pid]
        self.peaks = Peaks()
        self._since = time.monotonic()

    def mark(self) -> None:
        """Reset the averages and the achieved period; keep the peaks."""
        self.peaks.samples = 0
        self.peaks.utilisation_percent.clear()
        self.peaks.power_w.clear()
        self._since = time.monotonic()

    def sample_memory(self) -> None:
        """Sample memory."""
        peaks = self.peaks
        peaks.samples += 1
        peaks.period_s = (time.monotonic() - self._since) / peaks.samples
        rss = sum(rss_bytes(pid) or 0 for pid in self._tree)
        peaks.rss_bytes = _max(peaks.rss_bytes, rss or None)
        if self._gpus:
            used, queries = zip(*(gpu.used_bytes() for gpu in self._gpus), strict=True)
            peaks.memory_query = queries[0]
            peaks.device_bytes = _max(peaks.device_bytes, None if None in used else sum(used))
            peaks.process_bytes = _max(peaks.process_bytes, self._process_bytes())

    def _process_bytes(self) -> int | None:
        """Return what the processes of the tree hold on the GPUs; ``None`` if NVML reports none of them."""
        running = [gpu.processes() or {} for gpu in self._gpus]
        return sum(processes.get(pid) or 0 for processes in running for pid in self._tree) or None

    def sample_power(self) -> None:
        """Sample power and utilisation, and list the process's children again."""
        self._tree = [pid for pid in process_tree(self._pid) if pid != os.getpid()]
        busy = [gpu.utilisation_percent() for gpu in self._gpus]
        _append(self.peaks.utilisation_percent, busy, share=1 / (len(busy) or 1))
        _append(self.peaks.power_w, [gpu.power_w() for gpu in self._gpus], share=1)


def _append(values: list[float], sample: Sequence[float | None], *, share: float) -> None:
    """Append a share of the sum over the GPUs, if each of them answered."""
    known = [value for value in sample if value is not None]
    if known and len(known) == len(sample):
        values.append(share * sum(known))


def _max(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; ``None`` if it has exited (proc(5), statm)."""
    try:
        # Not through Path, and unbuffered: this runs a hundred times a second next to the work.
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as stream:  # noqa: PTH123 - see above
            return int(stream.read(STATM_BYTES).split()[1]) * PAGE_BYTES
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


def sample_until_closed(pid: int, uuids: Sequence[str]) -> None:
    """Sample until standard input ends; answer each line on it."""
    with nvml() as available:
        gpus = [open_gpu(uuid) for uuid in uuids] if available else []
        follower = Follower(pid, [gpu for gpu in gpus if gpu])
        due = slow_due = time.monotonic()
        while True:
            if (now := time.monotonic()) >= slow_due:
                follower.sample_power()
                slow_due = now + SLOW_PERIOD_S
            follower.sample_memory()
            due = max(due + PERIOD_S, time.monotonic())
            while select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                word = sys.stdin.readline().strip()
                if not word:
                    return
                _answer(word, follower)


def _answer(word: str, follower: Follower) -> None:
    if word == "mark":
        follower.mark()
    follower.sample_memory()
    sys.stdout.write(json.dumps(asdict(follower.peaks)) + "\n")
    sys.stdout.flush()


class Sampling:
    """The parent's end of a sampler process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, word: str) -> Peaks | None:
        """Send ``peaks`` or ``mark``; return the peaks, or ``None`` if the sampler has died."""
        if not self._process.stdin or not self._process.stdout:
            return None
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
            return Peaks(**json.loads(self._process.stdout.readline()))
        return None


@contextlib.contextmanager
def sampling(uuids: Iterable[str]) -> Iterator[Sampling]:
    """Sample this process tree and GPUs from a child process for the length of the block.

    Parameters
    ----------
    uuids
        Of the GPUs; none on a CPU.
    """
    argv = [
        sys.executable,
        "-m",
        "jobkit.run.measure.sampler",
        f"--pid={os.getpid()}",
        *(f"--uuid={uuid}" for uuid in uuids),
    ]
    # Our own module, an argv list:
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        yield Sampling(process)
    finally:
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # closing flushes, and the sampler may have died
                if stream:
                    stream.close()
        process.wait()


def main() -> None:
    """Run the sampler process."""
    parser = argparse.ArgumentParser(prog="python -m jobkit.run.measure.sampler")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--uuid", action="append", default=[])
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        sample_until_closed(arguments.pid, arguments.uuid)


if __name__ == "__main__":
    main()
