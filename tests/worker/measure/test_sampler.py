from __future__ import annotations

import mmap
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from jobkit.worker.measure.sampler import LEAST_SAMPLES, Follower, Peaks, sampling
from jobkit.worker.process import started_at
from tests.cluster.daemons import until

MIB = 2**20


@pytest.mark.slow
def test_a_dead_sampler_answers_none() -> None:
    with sampling([]) as following:
        process = following._process
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert following.ask("peaks") == Peaks()


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["sampling([])", "sampling([], parent=os.getpid())"])
def test_it_ends_with_its_parent(sampling: str) -> None:
    code = (
        "import os\n"
        "from jobkit.worker.measure.sampler import sampling\n"
        f"with {sampling} as s:\n"
        "    s.ask('mark'); print(s._process.pid, flush=True); os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    until(lambda: started_at(int(done.stdout)) is None, "the end of the sampler", 10)


@pytest.mark.slow
@pytest.mark.parametrize("parent", [0, os.getpid()], ids=["spawned", "forked"])
def test_an_answer_that_nobody_reads_ends_it_in_silence(
    parent: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with sampling([], parent=parent) as following:  # as of a try that is stopped while it asks
        following._connection.sendall(b"peaks\n")
        assert select.select([following._connection], [], [], 10)[0]
    assert (following._process.poll(), capfd.readouterr().err) == (0, "")


@pytest.mark.slow
def test_pages_that_processes_share_count_once() -> None:
    code = (
        "import os, sys\n"
        "block = b'x' * (64 << 20)\n"
        "os.fork() and os.fork()\n"
        "print(flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdin
        for _ in range(3):  # a process and its two children
            process.stdout.readline()
        follower = Follower(process.pid, [])
        follower.sample_utilisation()
        follower.sample_memory()
        outside = Follower(os.getpid(), [], others=[process.pid])
        outside.sample_memory()
        process.stdin.close()
    assert follower.peaks.rss_bytes
    assert 64 * MIB < follower.peaks.rss_bytes < 128 * MIB, "one block, and three interpreters"
    assert (outside.peaks.rss_bytes or 0) > 64 * MIB


def test_peaks_never_fall_and_averages_are_of_the_work() -> None:
    follower = Follower(os.getpid(), [card(None, {}, 3.0)])
    follower.peaks = Peaks(rss_bytes=2**50)

    def sample() -> tuple[int, float | None]:
        follower.sample_utilisation()
        follower.sample_memory()
        found = follower.read().sampler
        assert found
        return found.samples, found.utilisation_mean_percent

    assert sample() == (0, None)
    for _ in range(2):
        follower.mark()
        assert sample() == (1, 3.0)
    follower.stop()
    assert sample() == (1, 3.0)
    assert follower.peaks.rss_bytes == 2**50


def card(used: int | None, held: Mapping[int, int | None], busy: float | None) -> Any:
    """Return a GPU on which processes hold memory."""
    return SimpleNamespace(
        used_bytes=lambda: (used, "v2"),
        processes=lambda: held,
        utilisation_percent=lambda: busy,
        energy_j=lambda: None if used is None else 100 * time.monotonic(),
        has_mig=lambda: False,
    )


def followed(*cards: Any) -> Peaks:
    """Return one sample of this process on these GPUs, while it works."""
    follower = Follower(os.getpid(), cards)
    follower.mark()
    follower.sample_utilisation()
    follower.sample_memory()
    follower.stop()
    return follower.peaks


@pytest.mark.slow
def test_of_several_gpus_memory_is_a_sum_and_utilisation_is_the_mean_if_all_answer() -> None:
    with ExitStack() as stack:
        one, two = (stack.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE)) for _ in range(2))
        first, second = {one.pid: 3, two.pid: 4, 1: 50}, {one.pid: 5, two.pid: None}
        peaks = followed(card(60, first, 20.0), card(7, second, 90.0))
    found = peaks.sampler
    assert found
    assert (peaks.device_bytes, peaks.process_bytes, found.memory_query) == (67, 12, "v2")
    assert found.utilisation_mean_percent == 55.0
    peaks = followed(card(60, {1: 9}, 20.0), card(None, {}, None))
    assert (peaks.device_bytes, peaks.process_bytes) == (None, None)
    assert peaks.sampler
    assert peaks.sampler.utilisation_mean_percent is None


@pytest.mark.slow
def test_it_sees_most_spikes_of_20_ms_in_their_size() -> None:
    sizes = [(32 + 4 * n) * MIB for n in range(10)]  # each higher than the last, for peaks never fall
    seen = 0
    with sampling([]) as following:
        base = following.ask("mark").rss_bytes or 0
        for size in sizes:
            _spike(size, 0.02)
            peaks = following.ask("peaks")
            assert peaks.rss_bytes is not None
            assert peaks.device_bytes is None
            assert peaks.sampler
            assert peaks.sampler.samples >= 1
            seen += abs(peaks.rss_bytes - base - size) <= 2 * MIB
    assert seen >= 8


def _spike(size: int, seconds: float) -> None:
    """Hold so much more memory for so long, from its last page on."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE) as block:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            block[0] = 1


@pytest.mark.slow
def test_a_forked_sampler_follows_the_children_of_a_process() -> None:
    code = (
        f"import mmap, sys; block = mmap.mmap(-1, {64 * MIB}); block[:] = bytes(len(block)); sys.stdin.read()"
    )
    with sampling([], parent=os.getpid()) as following:
        following.ask("mark")
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE):
            until(lambda: (following.ask("peaks").rss_bytes or 0) >= 64 * MIB, "the memory of the child", 30)
        assert (following.ask("peaks").rss_bytes or 0) < 128 * MIB


@pytest.mark.slow
def test_of_a_command_its_program_is_followed_once_it_runs_and_few_samples_are_no_peak() -> None:
    if (pid := os.fork()) == 0:  # a child that has not started its program
        signal.pause()
        os._exit(0)
    try:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as command:
            followed = Follower(os.getpid(), [], below=True)
            followed.sample_utilisation()
            assert command.pid in followed._tree
            assert pid not in followed._tree
            peaks = []
            for _ in range(LEAST_SAMPLES):
                followed.sample_memory()
                peaks.append(followed.peaks.rss_bytes)
            command.communicate(b"")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert peaks[:-1] == [None] * (LEAST_SAMPLES - 1)
    assert peaks[-1]
