"""One try of a point: prepare, warm up, work through the text, measure the need, leave a record."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
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
from jobkit.worker import process, shortcuts, steps
from jobkit.worker.failure import Signals, SpareMemory, Stopped, TryFailed, print_error
from jobkit.worker.kinds import Recording, work_of
from jobkit.worker.measure import figures, memory, min_memory_probe, nvml
from jobkit.worker.measure.device import Device
from jobkit.worker.measure.sampler import sampling
from jobkit.worker.record import ALONE, Task, TryState, now, record_of
from jobkit.worker.windows import Todo
from jobkit.worker.workloads.base import Workload

RESERVED_BYTES = 64 * 2**10
"""More than any record takes: some KiB, and the environment that it holds."""
RESERVE_FILE = "room.part"

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_STOPPED = 143
"""128 + SIGTERM, as a shell would report it."""


# -- the command


def main(words: Sequence[str], **inherited: Any) -> int:  # noqa: ANN401 - fields of several types
    """Run one try and return the worker's exit status; the parent of a forked try sets ``inherited``."""
    arguments = _parser().parse_args(words)
    try:
        task = replace(_task(arguments), **inherited)
    except JobkitError as error:
        sys.stderr.write(f"jobkit: {error}\n")
        return EXIT_FAILED
    point, outcome = task.point, run(task, Signals(arguments.signal_file))
    with contextlib.suppress(OSError):  # the log may be on a full disk
        sys.stderr.write(f"jobkit: point {point.index} {point.point_id}: {outcome}\n")
    if outcome in RESULTS:
        return EXIT_OK
    return EXIT_STOPPED if outcome in {Outcome.TIMEOUT, Outcome.CANCELLED} else EXIT_FAILED


def task_of(words: Sequence[str]) -> Task:
    return _task(_parser().parse_args(words))


def _task(arguments: argparse.Namespace) -> Task:
    return Task(
        point=read_point(arguments.points, arguments.point),
        try_number=arguments.try_number,
        inputs=arguments.inputs,
        out=arguments.out,
        job=JobFacts(
            scheduler=arguments.scheduler,
            job_id=arguments.job,
            task_id=arguments.task,
            restart=arguments.restart,
        ),
        run_dir=arguments.points.parent,
        copier=arguments.copier,
    )


def _parser() -> argparse.ArgumentParser:
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
    return parser


# -- one try


def run(task: Task, signals: Signals) -> Outcome:
    state = TryState(task, now(), forked=task.forked, waited_s=task.waited_s)
    state.output = None if task.point.command else work_of(task.point).output(task.out)
    error: BaseException | None = None
    spare = SpareMemory()
    with ExitStack() as stack:
        try:
            with signals.may_stop():
                reserve_disk(task.out)
                steps.open_figures(state, stack)
                _run_steps(state, stack)
                steps.read_figures(state, figures.REST)
        except (Exception, Stopped) as caught:  # noqa: BLE001 - the record reports what it was
            error = caught
            spare.free_after(error)
            steps.read_figures(state, figures.STOPPED)
        state.peaks = state.ask_sampler("peaks")
        state.cgroup_peak_bytes = process.cgroup_peak()
    if error and not isinstance(error, TryFailed | Stopped):
        with contextlib.suppress(OSError):  # the log may be on a full disk
            print_error(error, state.workers[0].code)
    return _write_results(state, error)


def _run_steps(state: TryState, stack: ExitStack) -> None:
    """Do all that a signal may interrupt: prepare, warm up, work, write the recording, measure the need."""
    point = state.task.point
    launcher = work_of(point).launcher(state.task)
    if point.device == "cuda":
        # Without persistence mode the driver unloads its state of a GPU that no process uses
        # (https://docs.nvidia.com/deploy/driver-persistence/); NVML stays open so that this does not happen
        # between two readings of its counter.
        stack.enter_context(nvml.nvml())
    if point.command:
        from jobkit.worker.command import run_command  # what no other workload needs

        run_command(state, point.command, stack)
    elif point.workers * point.gpus > 1 or point.mps == ON or launcher.arguments:
        from jobkit.worker.supervisor import supervise  # what one process does not need to import

        supervise(state, stack)
    else:
        if point.mps == AUTO:
            state.mps = f"{OFF}: {ALONE}"
        _work_here(state, stack)


# -- one process


def _work_here(state: TryState, stack: ExitStack) -> None:
    [measured] = state.workers
    stack.callback(gc.enable)
    stack.callback(steps.read_maxrss, measured)
    steps.read_idle(state)
    workload = steps.open_workload(state.task, measured)
    todo = steps.read_inputs(state)
    steps.wait_for_memory(state)
    shortcuts.check(state, todo)
    device = _prepare(state, stack, workload)
    steps.cut_calls(state, todo)
    recording = work_of(state.task.point).recording(state.task)
    steps.warm_up(measured, workload, device, todo.warm_up_texts)
    _read_context(state, device)
    steps.warm_up_call(state.task.point, measured, workload, device, todo.calls[0])
    state.ask_sampler("mark")
    _work(state, todo, workload, device, recording)
    state.ask_sampler("stop")
    recording.write(state.task.out, state.task.try_number)
    if device.torch and state.heaviest and state.task.point.kind.measures_need:
        heavy = min_memory_probe.heaviest(workload, *state.heaviest)
        measured.needs = min_memory_probe.measure_needs(device, heavy, state.task.point)


def _work(state: TryState, todo: Todo, workload: Workload, device: Device, recording: Recording) -> None:
    """Do the calls one after the other; reading windows meanwhile is part of the work."""
    [measured], work = state.workers, work_of(state.task.point)
    began_s = time.monotonic()
    with steps.open_batches(state) as stream:
        todo.read_ahead()
        call = todo.next_call()
        try:
            while call:
                following = todo.next_call()
                steps.tokenize_ahead(workload, call, following)
                done = steps.do_call(call, measured, workload, device, work, recording)
                end_s = time.monotonic() - began_s if todo.reads else None
                steps.keep_batch(state, stream, call, done, end_s=end_s)
                call = following or todo.next_call()
        finally:
            steps.tokenize_ahead(workload)


def _prepare(state: TryState, stack: ExitStack, workload: Workload) -> Device:
    point, [measured] = state.task.point, state.workers
    # Before this process opens a GPU and is counted on it.
    idle_bytes = {gpu.uuid: gpu.used_bytes for gpu in nvml.list_gpus()} if point.device == "cuda" else {}
    device = steps.device_of(point, measured, workload)
    uuids = [measured.gpu.uuid] if measured.gpu else []
    state.sampler = stack.enter_context(sampling(uuids, steps.forked_from(state)))
    state.device_idle_bytes = next((idle_bytes.get(uuid) for uuid in uuids), None)
    steps.load(state.task, measured, workload, device)
    state.workload = workload
    return device


def _read_context(state: TryState, device: Device) -> None:
    """Read the CUDA context: what NVML sees of the process beyond what torch has reserved.

    It is read after the warm-up because kernels are loaded when they are first used (74 MiB on an H200).
    """
    peaks = state.ask_sampler("peaks")
    reserved = device.peaks()[1]
    total = memory.process_peak(peaks, state.device_idle_bytes)
    if total is not None and reserved is not None:
        state.workers[0].readings.context_bytes = total - reserved


# -- record


def reserve_disk(out: Path) -> None:
    """Write a file as large as a record, so that a record always fits."""
    with (out / RESERVE_FILE).open("wb") as stream:
        stream.write(b" " * RESERVED_BYTES)
        stream.flush()
        os.fsync(stream.fileno())  # a network file system may report only now that it is full


def _write_results(state: TryState, error: BaseException | None) -> Outcome:
    """Write rows and record; a full disk costs the rows, never the record."""
    out = state.task.out
    if state.workload:
        worked = bool(state.tally.batches)
        error = steps.ask_workload(state.workers[0], state.workload, worked=worked, error=error)
    record = record_of(state, error)
    try:
        steps.close_output(state, failed=error is not None)
    except OSError as full:
        record = record_of(state, error or full)
    (out / RESERVE_FILE).unlink(missing_ok=True)  # the record takes its place
    files.write_atomically(out / RECORD_FILE, json_codec.to_json(record) + "\n")
    return record.outcome
