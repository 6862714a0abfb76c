"""Follow the memory of a card and of a process tree, in a process of its own.

A thread would starve behind Python (one sample in 0.4 s was seen). The parent holds this
process's standard input: a line ``peaks`` is answered with one line of JSON, ``mark`` starts the
averages anew, and end of file, so also the parent's death, ends it.
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jobkit.run.measure.nvml import GpuHandle, nvml, open_gpu

PERIOD_S = 0.01
SLOW_PERIOD_S = 1.0
STATM_BYTES = 256
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Peaks:
    """What was seen so far; ``None`` where it could not be.

    Attributes
    ----------
    device_bytes, process_bytes, rss_bytes
        Largest samples: NVML of the device, of the process, resident memory of the tree.
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
    """Takes samples of one process and, where given, one card."""

    def __init__(self, pid: int, card: GpuHandle | None) -> None:
        self._pid = pid
        self._card = card
        self._tree = [pid]
        self.peaks = Peaks()
        self._since = time.monotonic()

    def mark(self) -> None:
        """Start averages and the achieved period anew; peaks stay."""
        self.peaks.samples = 0
        self.peaks.utilisation_percent.clear()
        self.peaks.power_w.clear()
        self._since = time.monotonic()

    def fast(self) -> None:
        """Sample memory."""
        peaks = self.peaks
        peaks.samples += 1
        peaks.period_s = (time.monotonic() - self._since) / peaks.samples
        peaks.rss_bytes = _max(peaks.rss_bytes, sum(rss_bytes(pid) or 0 for pid in self._tree) or None)
        if self._card:
            used, peaks.memory_query = self._card.used_bytes()
            peaks.device_bytes = _max(peaks.device_bytes, used)
            own = (self._card.processes() or {}).get(self._pid)
            peaks.process_bytes = _max(peaks.process_bytes, own)

    def slow(self) -> None:
        """Sample power and utilisation, and look for children of the process."""
        self._tree = [pid for pid in process_tree(self._pid) if pid != os.getpid()]
        if self._card:
            _append(self.peaks.utilisation_percent, self._card.utilisation_percent())
            _append(self.peaks.power_w, self._card.power_w())


def _append(values: list[float], value: float | None) -> None:
    if value is not None:
        values.append(value)


def _max(known: int | None, seen: int | None) -> int | None:
    return seen if known is None else known if seen is None else max(known, seen)


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, ``None`` where it has gone (proc(5), statm)."""
    try:
        # Not through Path, and unbuffered: this runs a hundred times a second beside the work.
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as stream:  # noqa: PTH123 - as said
            return int(stream.read(STATM_BYTES).split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants (proc(5), task/tid/children)."""
    found, queue = [], [pid]
    while queue:
        found.append(queue[0])
        for path in Path(f"/proc/{queue.pop(0)}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                queue += [int(child) for child in path.read_text(encoding="ascii").split()]
    return found


def sample_until_closed(pid: int, uuid: str, period_s: float) -> None:
    """Sample until standard input ends, answering what is asked on it."""
    with nvml() as there:
        follower = Follower(pid, open_gpu(uuid) if there and uuid else None)
        due = slow_due = time.monotonic()
        while True:
            if (now := time.monotonic()) >= slow_due:
                follower.slow()
                slow_due = now + SLOW_PERIOD_S
            follower.fast()
            due = max(due + period_s, time.monotonic())
            while select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                word = sys.stdin.readline().strip()
                if not word:
                    return
                _answer(word, follower)


def _answer(word: str, follower: Follower) -> None:
    if word == "mark":
        follower.mark()
    follower.fast()
    sys.stdout.write(json.dumps(asdict(follower.peaks)) + "\n")
    sys.stdout.flush()


class Sampling:
    """The parent's end of a sampler process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, word: str) -> Peaks | None:
        """Send ``peaks`` or ``mark``; return what was seen, ``None`` if the sampler has died."""
        if not self._process.stdin or not self._process.stdout:
            return None
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
            return Peaks(**json.loads(self._process.stdout.readline()))
        return None


@contextlib.contextmanager
def sampling(uuid: str | None, period_s: float = PERIOD_S) -> Iterator[Sampling]:
    """Follow this process and a card in a child process for the length of a ``with`` block.

    Parameters
    ----------
    uuid
        The card's, or ``None`` on a CPU.
    period_s
        Time between two memory samples that is aimed at.
    """
    argv = [
        sys.executable,
        "-m",
        "jobkit.run.measure.sampler",
        f"--pid={os.getpid()}",
        f"--uuid={uuid or ''}",
    ]
    process = subprocess.Popen(  # noqa: S603 - our own module, an argv list
        [*argv, f"--period={period_s}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
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
    parser.add_argument("--uuid", default="")
    parser.add_argument("--period", type=float, default=PERIOD_S)
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        sample_until_closed(arguments.pid, arguments.uuid, arguments.period)


if __name__ == "__main__":
    main()
