from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from jobkit.core import files, json_codec
from jobkit.core.layout import BASELINES_FOLDER, BATCHES_FILE, ENTITIES_FILE, RECORD_FILE
from jobkit.core.records import Batch, Command, Outcome, Point, Record
from jobkit.worker import process, work
from jobkit.worker.failure import CAUGHT_SIGNALS
from jobkit.worker.measure.memory import SEARCHED
from jobkit.worker.paragraphs import Call
from jobkit.worker.pool import CallQueue
from jobkit.worker.process import process_tree
from jobkit.worker.record import Task
from tests.support.builders import by_hand, point
from tests.workloads.held import BYTES_PER_LOAD
from tests.workloads.told import MEET, WAIT

GIB = 2**30
WORKLOADS = Path(__file__).parents[1] / "workloads"
PLAIN = replace(
    point(params={"batch_size": 1}, device="cpu"),
    workload="told:Told",
    workload_folder=str(WORKLOADS),
    model=None,
    order="text",
    threads=1,
    workers=2,
)
COUNTED = "\n\n".join(f"Paragraph {n} has {'very ' * (n % 7)}few words." for n in range(20))


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the signals; check that no process is left."""
    before = {number: signal.getsignal(number) for number in CAUGHT_SIGNALS}
    children = process_tree(os.getpid())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    assert process_tree(os.getpid()) == children


def tried(folder: Path, of: Point, text: str = COUNTED, *, out: Path | None = None) -> Record:
    """Run one try of a point on a text and return its record."""
    (folder / "text").write_text(text)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    ready = replace(of, text=replace(of.text, sha256=sha256))
    return ended(by_hand(ready, folder, out, run_dir=folder))


def ended(task: Task) -> Record:
    """Run a try in this process, and return its record."""
    outcome = work.run(task)
    found = json_codec.from_json(Record, (task.out / RECORD_FILE).read_text(), where="record")
    assert found.outcome is outcome
    return found


def batches(folder: Path) -> list[Batch]:
    lines = files.read_lines(folder / BATCHES_FILE)
    return [json_codec.from_json(Batch, line, where="batches") for _, line in lines]


@pytest.mark.slow
def test_several_workers_do_what_one_does(tmp_path: Path) -> None:
    entities = []
    for workers in (1, 2):
        found = tried(tmp_path, replace(PLAIN, workload="count", workers=workers))
        assert (found.outcome, found.message) == (Outcome.OK, "")
        entities.append((tmp_path / ENTITIES_FILE).read_bytes())
        done = batches(tmp_path)
        (tmp_path / BATCHES_FILE).unlink()
    assert entities[0] == entities[1]
    assert len(entities[0].splitlines()) == 21
    assert not list(tmp_path.glob("*.part"))
    assert [batch.index for batch in done] == list(range(20))
    assert sorted(batch.first_item for batch in done) == list(range(20))
    assert {batch.batches_total for batch in done} == {20}
    assert [share.worker for share in found.workers] == [0, 1]
    for share in found.workers:
        own = [batch for batch in done if batch.worker == share.worker]
        assert (share.batches, share.items) == (len(own), len(own))
        assert own == sorted(own, key=lambda batch: batch.first_item), "the calls are handed out in order"
        assert share.work_s == pytest.approx(sum(batch.seconds for batch in own))
        assert share.maxrss_bytes
        assert share.load_s is not None
    assert found.summary
    assert found.summary.items_per_s == pytest.approx(20 / found.summary.work_s)
    assert found.summary.batch_mean_s == pytest.approx(sum(batch.seconds for batch in done) / 20)
    assert min(share.idle_s for share in found.workers) == 0
    assert found.effective == {"batch_size": 1}
    assert found.memory.rss_peak_bytes
    assert found.memory.maxrss_bytes == max(share.maxrss_bytes or 0 for share in found.workers)


@pytest.mark.slow
def test_all_workers_take_part_once_all_have_loaded_and_loading_is_not_in_the_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TOLD": tmp_path, "TOLD_WORKERS": 3, "TOLD_LOAD_S": 2}.items():
        monkeypatch.setenv(name, str(value))
    found = tried(tmp_path, replace(PLAIN, workers=3, fork=True), "\n\n".join(["First.", *[MEET] * 3]))
    assert found.outcome is Outcome.OK, found.message
    assert {batch.worker for batch in batches(tmp_path)} == {0, 1, 2}
    assert found.summary
    assert found.load_s
    assert found.summary.work_s < 2 < found.load_s


# -- failures


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize(
    ("word", "fork", "outcome", "message"),
    [
        ("Bug.", False, Outcome.BUG, r"worker [01]: \S+/told.py:\d+: ValueError: on purpose"),
        ("Card.", True, Outcome.GPU_OOM, r"worker [01]: \S+ OutOfMemoryError: CUDA out of memory"),
        ("Kill.", True, Outcome.LOST, "worker [01] was killed by SIGKILL$"),
        ("Crash.", True, Outcome.BUG, "worker [01] was killed by SIGSEGV$"),
        ("Exit.", True, Outcome.BUG, "worker [01] ended with status 7$"),
        ("Exit.", False, Outcome.BUG, "worker [01] ended with status 7$"),
    ],
)
def test_a_worker_that_fails_ends_the_try_with_its_outcome_and_the_batches_are_kept(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    word: str,
    fork: bool,  # noqa: FBT001 - a parameter of pytest
    outcome: Outcome,
    message: str,
) -> None:
    """FAULT: one of the workers of a point fails: an exception, a status of its own, a crash, no memory.

    HOW: real: it does so in the middle of its work, while another works on.
    REPORTED: the outcome that one worker would have, and the number of the worker.
    LOST: nothing: the batches that were done are kept; the other workers are ended.
    """
    text = "\n\n".join([*(f"Number {n}." for n in range(9)), word, WAIT, "Last."])
    found = tried(tmp_path, replace(PLAIN, fork=fork), text)
    assert (found.outcome, found.forked) == (outcome, fork)
    assert re.match(message, found.message), found.message
    assert fork or ("Traceback" in capfd.readouterr().err) == (
        "Error" in message
    )  # pytest has a fork's words
    assert found.provisional == (outcome is Outcome.LOST)
    assert len(batches(tmp_path)) >= 8
    assert found.summary
    assert found.summary.items == len(batches(tmp_path)) == sum(share.items for share in found.workers)
    assert len((tmp_path / ENTITIES_FILE).read_text().splitlines()) == 1 + found.summary.items


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fork": True}, "was killed by SIGKILL: the job's memory limit was reached"),
        # below `perf stat`, `py-spy` and `mprof`, which end with 0 whatever ends their program
        (
            {"workload": "sh", "workload_folder": "", "command": Command(template="true"), "workers": 1},
            "exit status 0, but meanwhile the kernel killed a process",
        ),
    ],
)
def test_what_the_kernel_killed_for_memory_is_distinguished_from_what_somebody_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    counts = chain([4], repeat(5))
    monkeypatch.setattr(process, "oom_kills", lambda: next(counts))
    (tmp_path / "try").mkdir()
    text = "First.\n\nKill.\n\nKill.\n"
    found = tried(tmp_path, replace(PLAIN, **changes), text, out=tmp_path / "try")
    assert (found.outcome, found.provisional) == (Outcome.RAM_OOM, False)
    assert message in found.message


@pytest.mark.slow
@pytest.mark.fault
def test_a_worker_that_ends_while_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULT: a worker of a point ends while it loads its model.

    HOW: real: a status of its own.
    REPORTED: `bug`, with the number of the worker, in a record of no batches.
    LOST: nothing, nothing was measured.
    """
    monkeypatch.setenv("TOLD_LOAD", "Leave.")
    found = tried(tmp_path, replace(PLAIN, fork=True))
    assert found.outcome is Outcome.BUG
    assert re.match("worker [01] ended with status 7", found.message), found.message
    assert [share.batches for share in found.workers] == [0, 0]
    assert found.summary
    assert (found.summary.work_s, found.summary.items_per_s) == (0, None)


@pytest.mark.slow
@pytest.mark.fault
def test_a_hang_is_a_timeout_that_names_worker_and_batch(tmp_path: Path) -> None:
    """FAULT: one of the workers of a point hangs.

    HOW: real: a batch that never ends, with `hang_s: 1`.
    REPORTED: `timeout`, "worker 1 has not finished a batch of 1 paragraphs for 2 s (hang_s: 1)".
    LOST: nothing: the batches that were done are kept, and the job does not wait for its walltime.
    """
    found = tried(tmp_path, replace(PLAIN, hang_s=1, fork=True), "\n\n".join(["First."] * 5 + [WAIT]))
    assert (found.outcome, found.provisional, found.hung) == (Outcome.TIMEOUT, False, True)
    expected = r"worker [01] has not finished a batch of 1 paragraphs for \d+ s \(hang_s: 1\)"
    assert re.fullmatch(expected, found.message), found.message
    assert len(batches(tmp_path)) == 5


def apart(folder: Path, text: str, **env: str) -> Record:
    """Run one try of the point in a folder by a fresh Python; return its record.

    With several workers that Python must not import torch: it would open the GPU.
    """
    code = f"""\
        import sys
        from pathlib import Path
        from jobkit.core import json_codec
        from jobkit.core.records import Point
        from tests.worker.test_supervisor import tried
        folder = Path({str(folder)!r})
        point = json_codec.from_json(Point, (folder / "point").read_text(), where="point")
        tried(folder, point, {text!r})
        assert point.workers * point.gpus == 1 or "torch" not in sys.modules
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    subprocess.run(argv, env={**os.environ, **env}, check=True, timeout=120)
    return json_codec.from_json(Record, (folder / RECORD_FILE).read_text(), where="record")


# -- on GPUs that are not there

LOAD = len("Paragraph 19 has very very very very very few words.")
"""Of the heaviest call of one paragraph."""
ON_CARDS = replace(
    PLAIN, workload="oncard:OnCard", device="cuda", order="load", allocator=SEARCHED, gpus=2, workers=2
)


def on_cards(folder: Path, of: Point, **env: str) -> Record:
    """Run one try on two GPUs that are not there."""
    (folder / "held").mkdir()
    files.write_atomically(folder / "point", json_codec.to_json(of))
    cards = {
        "PYTHONPATH": os.pathsep.join(
            map(str, (WORKLOADS / "card", WORKLOADS / "nvml", WORKLOADS.parents[1]))
        ),
        "FAKE_CARD": "T4",
        "FAKE_CARDS": "2",
        "FAKE_HELD": str(folder / "held"),
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    return apart(folder, COUNTED, **{**cards, **env})


@pytest.mark.slow
@pytest.mark.parametrize("fork", [False, True])
def test_the_workers_of_two_gpus_have_one_queue_and_contexts_of_their_own(
    tmp_path: Path,
    fork: bool,  # noqa: FBT001 - a parameter of pytest
) -> None:
    """The need is measured by the worker of the heaviest batch when the others have ended."""
    found = on_cards(tmp_path, replace(ON_CARDS, fork=fork), FAKE_WATTS="300")
    assert (found.outcome, found.message) == (Outcome.OK, "")
    assert found.forked == fork
    assert [share.gpu_uuid for share in found.workers] == ["GPU-0", "GPU-1"] * 2
    assert {share.context_bytes for share in found.workers} == {GIB // 4}
    assert found.gpu
    assert (found.gpu.uuid, found.gpu.foreign_processes) == ("GPU-0", 0)
    seen = found.memory
    assert (seen.context_bytes, seen.device_idle_bytes, seen.weights_bytes) == (GIB // 4, GIB, 1000)
    assert found.memory_wait_s is not None
    assert seen.device_baseline_bytes == GIB
    kept = {path.name: int(path.read_text()) for path in (tmp_path / BASELINES_FOLDER).iterdir()}
    assert kept == {"GPU-0": GIB // 2, "GPU-1": GIB // 2}
    assert seen.process_peak_bytes
    assert seen.device_peak_bytes == GIB + seen.process_peak_bytes
    assert seen.process_peak_bytes >= 4 * GIB // 4 + BYTES_PER_LOAD * LOAD
    assert found.summary
    assert found.summary.load_max == max(batch.load for batch in batches(tmp_path))
    assert len(found.needs) == 1, "it would have failed with other processes on the GPU"
    assert found.energy
    assert found.sampler
    assert found.energy.span_s >= found.summary.work_s
    assert found.energy.counter_j == pytest.approx(600 * found.energy.span_s, abs=30)
    if found.energy.idle_w is not None:  # on a busy machine the imports take a second
        assert found.energy.idle_w == pytest.approx(600, rel=0.05)
    assert found.energy.attribution == ""


@pytest.mark.slow
def test_a_signal_while_the_need_is_measured_ends_that_and_not_the_try(tmp_path: Path) -> None:
    """On GPUs without a counter: their energy is not known."""
    found = on_cards(tmp_path, replace(ON_CARDS, workers=1, fork=True), ON_CARD_TERM="1", FAKE_OLD="1")
    assert (found.outcome, found.signal, found.needs) == (Outcome.OK, None, ())
    assert len(batches(tmp_path)) == 20
    assert found.energy
    assert found.energy.joules is None


def test_a_call_that_a_busy_worker_has_tokenized_is_done_by_a_free_one() -> None:
    calls = [Call((number,), ("a",)) for number in range(4)]
    queue = CallQueue(chain(calls, repeat(None)).__next__, 60, ahead=True)
    assert queue.next_calls(0, 0.0) == calls[:2]
    assert queue.next_calls(1, 0.0) == calls[2:]
    queue.end_call(1, 1.0)
    assert queue.next_calls(1, 1.0) == calls[3:]
    queue.end_call(1, 1.0)
    assert queue.next_calls(1, 2.0) == calls[1:2]
    queue.end_call(0, 2.0)
    assert queue.next_calls(0, 2.0) == []


# -- profiled


@pytest.mark.slow
def test_of_several_workers_the_first_is_profiled(tmp_path: Path) -> None:
    found = tried(tmp_path, replace(PLAIN, workload="count", profile="python"))
    assert (found.outcome, found.point.profile) == (Outcome.OK, "python")
    text = (tmp_path / "profile.txt").read_text(encoding="utf-8")
    assert "worker: the first of 2; the calls are its own" in text
    own = [batch for batch in batches(tmp_path) if batch.worker == 0]
    assert f"calls: all {len(own)}, " in text
