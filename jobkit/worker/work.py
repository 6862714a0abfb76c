"""One try of a point: prepare, warm up, work through the text, measure the need, leave a record."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobkit.core import files, json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import AUTO, OFF, ON
from jobkit.core.layout import RECORD_FILE, read_point
from jobkit.core.records import RESULTS, JobFacts, Outcome
from jobkit.worker import gpus, process, steps
from jobkit.worker.failure import SpareMemory, Stopped, TryFailed, may_stop, print_error
from jobkit.worker.measure import figures, memory, nvml
from jobkit.worker.measure.sampler import sampling
from jobkit.worker.paragraphs import Todo
from jobkit.worker.record import ALONE, Task, TryState, record_of, work_of
from jobkit.worker.steps import Kept, Worker

RESERVED_BYTES = 64 * 2**10
"""More than any record takes: some KiB, and the environment that it holds."""
RESERVE_FILE = "room.part"

# -- the command


def main(words: Sequence[str], kept: Kept | None = None, **inherited: Any) -> int:  # noqa: ANN401 - fields of several types
    """Run one try and return the worker's exit status; the parent of a forked try sets ``inherited``.

    ``kept`` are the processes that do it, and that it may leave for another try.
    """
    try:
        task, signal_file = parse(words)
    except JobkitError as error:
        process.report(str(error))
        return 1
    point, outcome = task.point, run(replace(task, **inherited), signal_file, kept)
    process.report(f"point {point.index} {point.point_id}: {outcome}")
    if outcome in RESULTS:
        return 0
    return 128 + signal.SIGTERM if outcome in {Outcome.TIMEOUT, Outcome.CANCELLED} else 1


def parse(words: Sequence[str]) -> tuple[Task, Path | None]:
    """Return the try, and the file in which the job script names its signal."""
    parser = argparse.ArgumentParser(prog="python -m jobkit.worker", description="Run one try of a point.")
    parser.add_argument("--points", type=Path, required=True, help="the run's points.jsonl")
    parser.add_argument("--point", type=int, required=True, help="line of the point, from 1")
    parser.add_argument("--try", type=int, default=1, dest="try_number", help="number of this try, from 1")
    parser.add_argument("--inputs", type=Path, required=True, help="folder with text and model on this node")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder whose files the job script copies home"
    )
    parser.add_argument("--signal-file", type=Path, help="where the job script names its signal")
    parser.add_argument("--scheduler", default="hand")
    parser.add_argument("--job", default="")
    parser.add_argument("--task", default="")
    parser.add_argument("--restart", type=int, default=0)
    parser.add_argument("--copier", default="", help="program that copies inputs and results")
    given = parser.parse_args(words)
    task = Task(
        point=read_point(given.points, given.point),
        try_number=given.try_number,
        inputs=given.inputs,
        out=given.out,
        job=JobFacts(scheduler=given.scheduler, job_id=given.job, task_id=given.task, restart=given.restart),
        run_dir=given.points.parent,
        copier=given.copier,
    )
    return task, given.signal_file


# -- one try


def run(task: Task, signal_file: Path | None = None, kept: Kept | None = None) -> Outcome:
    kept = kept or Kept()
    state = kept.take(task)
    worker = kept.worker or Worker(task, state.workers[0])
    state.output = None if task.point.command else work_of(task.point).output(task.out)
    error: BaseException | None = None
    spare = SpareMemory()
    with ExitStack() as stack:
        try:
            with may_stop(signal_file):
                # As large as a record, so that a record always fits; a network file system may report only
                # when it is synced that it is full.
                files.write_atomically(task.out / RESERVE_FILE, b" " * RESERVED_BYTES)
                _open_figures(state, stack)
                _run_steps(state, stack, worker, kept)
                _read_figures(state, figures.REST)
        except (Exception, Stopped) as caught:  # noqa: BLE001 - the record reports what it was
            error = caught
            spare.free_after(error)
            with contextlib.suppress(TryFailed):  # the first error counts
                _read_figures(state, figures.STOPPED)
        state.peaks = state.ask_sampler("peaks")
    if state.stands and not error:
        kept.state = replace(state, todo=None, output=None, heaviest=None)  # without the text and its rows
    else:
        kept.close()
    if error and not isinstance(error, TryFailed | Stopped):
        print_error(error, state.workers[0].code)
    return _write_results(state, worker.ask_workload(error))


def _open_figures(state: TryState, stack: ExitStack) -> None:
    folder = Path(tempfile.mkdtemp(prefix="metrics-", dir=state.task.out.parent))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "metrics.jsonl"
    path.touch()
    os.environ[figures.VARIABLE] = str(path)
    stack.callback(os.environ.pop, figures.VARIABLE, None)
    state.figures_file = figures.GrowingFile(path, state.figures.take_line)


def _read_figures(state: TryState, limits_s: Sequence[float]) -> None:
    if file := state.figures_file:
        state.figures_file = None
        figures.finish(file, state.figures, limits_s)
        if file.error:
            message = f"${figures.VARIABLE} cannot be read: {file.error}: append lines to that file"
            raise TryFailed(Outcome.BUG, message)


def _run_steps(state: TryState, stack: ExitStack, worker: Worker, kept: Kept) -> None:
    """Do all that a signal may interrupt: prepare, warm up, work, write the recording, measure the need."""
    point = state.task.point
    if point.device == "cuda":
        # Without persistence mode the driver unloads its state of a GPU that no process uses
        # (https://docs.nvidia.com/deploy/driver-persistence/); NVML stays open so that this does not happen
        # between two readings of its counter.
        stack.enter_context(nvml.nvml())
        state.unnamed_gpus = gpus.name_gpus(point.gpus)
    if point.command:
        from jobkit.worker.command import run_command  # what no other workload needs

        run_command(state, point.command, stack)
    elif point.workers * point.gpus > 1 or point.mps == ON or point.kind.quarantines:
        from jobkit.worker.pool import supervise  # what one process does not need to import

        supervise(state, stack, kept)
    else:
        if point.mps == AUTO:
            state.mps = f"{OFF}: {ALONE}"
        kept.worker = worker
        _work_here(state, stack, worker)


# -- one process


def _work_here(state: TryState, stack: ExitStack, worker: Worker) -> None:
    stack.callback(gc.enable)
    stack.callback(worker.read_maxrss)
    todo = steps.read_inputs(state) if state.standing else _open(state, worker)
    uuids = [worker.measured.gpu.uuid] if worker.measured.gpu else []
    state.sampler = stack.enter_context(sampling(uuids, steps.forked_from(state)))
    if state.standing:
        worker.go_on(state.task, {})
        state.workers = [worker.measured]
    else:
        worker.load()
    steps.cut_calls(state, todo)
    worker.warm_up(todo.warm_up_texts)
    # The CUDA context: what NVML sees of the process beyond what torch has reserved. It is read after the
    # warm-up because kernels are loaded when they are first used (74 MiB on an H200).
    seen_bytes = memory.process_peak(state.ask_sampler("peaks"), state.device_idle_bytes)
    worker.keep_context(memory.subtract(seen_bytes, worker.device.counters()[1]))
    worker.warm_up_call(todo.calls[0])
    state.ask_sampler("mark")
    _work(state, todo, worker)
    state.ask_sampler("stop")
    worker.write_recording()
    if state.heaviest:
        worker.measure(*state.heaviest)


def _open(state: TryState, worker: Worker) -> Todo:
    """Import the framework and open the device, after all that is to be read before; return the work."""
    point = state.task.point
    steps.read_idle(state)
    worker.import_framework()
    todo = steps.read_inputs(state)
    steps.wait_for_memory(state)
    if state.task.takes_shortcuts:
        from jobkit.worker.pool import check_shortcuts  # what a try without a check does not need

        check_shortcuts(state, todo)
        worker.task = state.task
    # Before this process opens a GPU and is counted on it.
    idle_bytes = {gpu.uuid: gpu.used_bytes for gpu in nvml.list_gpus()} if point.device == "cuda" else {}
    worker.open_device()
    if gpu := worker.measured.gpu:
        state.device_idle_bytes = idle_bytes.get(gpu.uuid)
    return todo


def _work(state: TryState, todo: Todo, worker: Worker) -> None:
    """Do the calls one after the other; reading windows meanwhile is part of the work."""
    began_s = time.monotonic()
    with steps.open_batches(state) as stream:
        todo.read_ahead()
        call = todo.next_call()
        try:
            while call:
                following = todo.next_call()
                done = worker.work(call, following)
                end_s = time.monotonic() - began_s if todo.reads else None
                steps.keep_batch(state, stream, call, done, end_s=end_s)
                call = following or todo.next_call()
        finally:
            worker.tokenize_ahead()


# -- record


def _write_results(state: TryState, error: BaseException | None) -> Outcome:
    """Write rows and record; a full disk costs the rows, never the record."""
    out, todo = state.task.out, state.todo
    record = record_of(state, error)
    try:
        left = todo.close() if todo else ()
        if state.output:
            state.output.close([row for window in left for row in window.rows], failed=error is not None)
    except OSError as full:
        record = record_of(state, error or full)
    (out / RESERVE_FILE).unlink(missing_ok=True)  # the record takes its place
    files.write_atomically(out / RECORD_FILE, json_codec.to_json(record) + "\n")
    return record.outcome
