"""One try of a point: prepare, warm up, work through the text, measure the need, leave a record."""

from __future__ import annotations

import contextlib
import os
import traceback
from contextlib import ExitStack
from pathlib import Path

from jobkit.core import files, json_codec
from jobkit.core.knobs import AUTO, OFF, ON
from jobkit.core.layout import ENTITIES_FILE, RECORD_FILE
from jobkit.core.records import Outcome
from jobkit.run import process, steps
from jobkit.run.entities import write_entities
from jobkit.run.failure import Signals, Stopped, TryFailed
from jobkit.run.measure import energy, memory, need, nvml, profile
from jobkit.run.measure.device import Device
from jobkit.run.measure.sampler import sampling
from jobkit.run.record import ALONE, Task, Try, now, record_of
from jobkit.run.workloads.base import Workload

RESERVED_BYTES = 64 * 2**10
"""More than any record takes: some KiB, and the environment that it holds."""
RESERVE_FILE = "room.part"


def run(task: Task, signals: Signals) -> Outcome:
    """Run one try to its end, write its record to ``task.out``, and return its outcome."""
    state = Try(task, now())
    error: BaseException | None = None
    with ExitStack() as stack:
        try:
            with signals.may_stop():
                reserve_disk(task.out)
                _run_steps(state, stack)
        except (Exception, Stopped) as caught:  # noqa: BLE001 - the record reports what it was
            error = caught
        state.peaks = state.ask_sampler("peaks")
        state.cgroup_peak_bytes = process.cgroup_peak()
    if error and not isinstance(error, TryFailed | Stopped):
        with contextlib.suppress(OSError):  # the log may be on a full disk
            traceback.print_exception(error)
    return _write_results(state, error)


def _run_steps(state: Try, stack: ExitStack) -> None:
    """Do all that a signal may interrupt: prepare, warm up, work, measure the need or write the profile."""
    point = state.task.point
    profile.refuse_missing(point)
    if point.device == "cuda":
        # Without persistence mode the driver unloads its state of a GPU that no process uses
        # (https://docs.nvidia.com/deploy/driver-persistence/): not between two readings of its counter.
        stack.enter_context(nvml.nvml())
    if point.workers * point.gpus > 1 or point.mps == ON or profile.launcher(point, state.task.out)[0]:
        from jobkit.run.supervisor import supervise  # what one process does not need to import

        supervise(state, stack)
    else:
        if point.mps == AUTO:
            state.mps = f"{OFF}: {ALONE}"
        _work_here(state, stack)


# -- one process


def _work_here(state: Try, stack: ExitStack) -> None:
    """Do all the work in this process."""
    [measured] = state.workers
    stack.callback(steps.read_maxrss, measured)
    paragraphs = steps.read_inputs(state)
    device, workload = _prepare(state, stack)
    todo = steps.cut_calls(state, paragraphs)
    recording = profile.of_point(state.task.point)
    steps.warm_up(measured, workload, device, paragraphs)
    _read_context(state, device)
    steps.warm_up_call(state.task.point, measured, workload, device, todo[0])
    state.ask_sampler("mark")
    with steps.open_batches(state) as stream:
        for call in todo:
            steps.keep_batch(state, stream, *steps.do_call(call, measured, workload, device, recording))
    state.ask_sampler("stop")
    if recording:
        recording.write(state.task.out, state.task.try_number)
    elif device.torch:
        worst = need.heaviest_call(state.batches, todo)
        measured.needs = need.measure_needs(device, need.heaviest(workload, *worst), state.task.point)


def _prepare(state: Try, stack: ExitStack) -> tuple[Device, Workload]:
    """Open the device, start the sampler, and return the device and the loaded workload."""
    point, [measured] = state.task.point, state.workers
    steps.wait_for_memory(state)
    # Before this process opens a GPU and is counted on it.
    idle_bytes = {gpu.uuid: gpu.used_bytes for gpu in nvml.list_gpus()} if point.device == "cuda" else {}
    state.idle = energy.idle_readings() if point.device == "cuda" else {}
    device, workload = steps.open_both(point, measured)
    uuids = [measured.gpu.uuid] if measured.gpu else []
    state.sampler = stack.enter_context(sampling(uuids))
    state.device_idle_bytes = next((idle_bytes.get(uuid) for uuid in uuids), None)
    steps.load(state.task, measured, workload, device)
    state.workload = workload
    return device, workload


def _read_context(state: Try, device: Device) -> None:
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
    """Write a file as large as a record, so that a record always fits.

    Raises
    ------
    OSError
        ``ENOSPC`` or ``EDQUOT`` if the disk is full.
    """
    with (out / RESERVE_FILE).open("wb") as stream:
        stream.write(b" " * RESERVED_BYTES)
        stream.flush()
        os.fsync(stream.fileno())  # a network file system may report only now that it is full


def _write_results(state: Try, error: BaseException | None) -> Outcome:
    """Write entities and record; a full disk costs the entities, never the record."""
    out = state.task.out
    if state.workload:
        worked = bool(state.batches)
        error = steps.ask_workload(state.workers[0], state.workload, worked=worked, error=error)
    record = record_of(state, error)
    try:
        write_entities(out / ENTITIES_FILE, state.entities)
    except OSError as full:
        record = record_of(state, error or full)
    (out / RESERVE_FILE).unlink(missing_ok=True)  # the record takes its place
    files.write_atomically(out / RECORD_FILE, json_codec.to_json(record) + "\n")
    return record.outcome
