"""One try of a point: prepare, warm up, work through the text, measure the need, leave a record."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from jobkit.core import files, json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.layout import BATCHES_FILE, ENTITIES_FILE, RECORD_FILE
from jobkit.core.measurements import Gpu
from jobkit.core.records import BATCH_SIZE, Batch, Outcome
from jobkit.run import process
from jobkit.run.entities import write_entities
from jobkit.run.failure import Signals, Stopped, TryFailed
from jobkit.run.measure import memory, need, nvml
from jobkit.run.measure.device import Device, open_device
from jobkit.run.measure.sampler import rss_bytes, sampling
from jobkit.run.paragraphs import Call, calls, read_paragraphs
from jobkit.run.record import Task, Try, now, record_of
from jobkit.run.staged_model import check_model
from jobkit.run.workloads.base import Result, Workload
from jobkit.run.workloads.own import code_folder, open_workload

RESERVED_BYTES = 64 * 2**10
"""More than any record takes: some KiB, and the environment that it holds."""
RESERVE_FILE = "room.part"
WARM_UP_PARAGRAPHS = 4


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
        _read_final_peaks(state)
    if error and not isinstance(error, TryFailed | Stopped):
        with contextlib.suppress(OSError):  # the log may be on a full disk
            traceback.print_exception(error)
    return _write_results(state, error)


def _run_steps(state: Try, stack: ExitStack) -> None:
    """Do all that a signal may interrupt: prepare, warm up, work, measure the need."""
    paragraphs = _read_inputs(state)
    device, workload = _prepare(state, stack)
    todo = _cut_calls(state, workload, paragraphs)
    _warm_up(state, device, workload, paragraphs, todo)
    _work(state, device, workload, todo)
    if device.torch:
        state.needs = need.measure_needs(
            device, need.heaviest(workload, state.batches, todo), state.task.point
        )


# -- prepare


def _read_inputs(state: Try) -> list[str]:
    """Return the paragraphs of the staged text; refuse a text or a model that was not planned."""
    point, path = state.task.point, state.task.inputs / "text"
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 != point.text.sha256:
        message = f"{point.text.path} is not the text that was planned: sha256 {sha256[:12]}"
        raise TryFailed(Outcome.STAGE_IN, f"{message}, not {point.text.sha256[:12]}")
    paragraphs = read_paragraphs(path)
    if point.model:
        check_model(state.task.inputs, point.model)
    state.items_total = len(paragraphs)
    state.characters_total = sum(map(len, paragraphs))
    return paragraphs


def _prepare(state: Try, stack: ExitStack) -> tuple[Device, Workload]:
    """Open the device, start the sampler, and return the device and the loaded workload."""
    point = state.task.point
    on_gpu = point.device == "cuda"
    # Before this process opens a GPU and is counted on it.
    idle_bytes = {gpu.uuid: gpu.used_bytes for gpu in nvml.list_gpus()} if on_gpu else {}
    workload = _open_workload(state)
    device = open_device(point.device) if workload.NEEDS_MODEL else Device(point.device)
    uuid = nvml.visible_uuid(device.cuda_uuid) if on_gpu else None
    state.sampler = stack.enter_context(sampling(uuid))
    if on_gpu:
        state.gpu = _read_gpu(uuid)
        state.readings.device_idle_bytes = idle_bytes.get(state.gpu.uuid)
    device.cap(point.cap_bytes)
    _load(state, workload, device)
    return device, workload


def _open_workload(state: Try) -> Workload:
    point = state.task.point
    try:
        return open_workload(point.workload, point.workload_folder)
    except JobkitError as error:
        outcome = Outcome.ENVIRONMENT if isinstance(error.__cause__, ImportError) else Outcome.BUG
        raise TryFailed(outcome, error.message) from error
    finally:
        state.code = code_folder(point.workload, point.workload_folder)


def _read_gpu(uuid: str | None) -> Gpu:
    gpu = nvml.read_gpu(uuid, os.getpid()) if uuid else None
    if gpu is None:
        visible = os.environ.get(nvml.VISIBLE_VARIABLE)
        unknown = f"NVML knows no GPU for {nvml.VISIBLE_VARIABLE}={visible!r}"
        raise TryFailed(Outcome.NO_GPU, nvml.missing_gpu_reason() or unknown)
    return gpu


def _load(state: Try, workload: Workload, device: Device) -> None:
    """Load the workload and read how much memory its weights take."""
    point, readings = state.task.point, state.readings
    readings.rss_before_bytes = rss_bytes(os.getpid())
    model = state.task.inputs / "model" if point.model else None
    start = time.perf_counter()
    try:
        workload.load(model, point.device, point.params, point.threads)
    except (JobkitError, FileNotFoundError) as error:
        if model is None:
            raise
        raise TryFailed(Outcome.MODEL_MISSING, f"{error}") from error
    device.synchronise()
    state.load_s = time.perf_counter() - start
    readings.rss_model_bytes = rss_bytes(os.getpid())
    readings.weights_bytes = device.allocated_bytes()
    state.workload = workload


def _cut_calls(state: Try, workload: Workload, paragraphs: Sequence[str]) -> list[Call]:
    """Return the calls of the workload, in the order of work."""
    point = state.task.point
    knobs = (point.numbers.get(name) for name in ("sentences_per_ner_batch", BATCH_SIZE))
    cap = next((value for value in knobs if value), None)
    todo = calls(paragraphs, workload.items_per_call(), order=point.order, cap=cap)
    state.batches_total = len(todo)
    return todo


# -- warm up


def _warm_up(
    state: Try, device: Device, workload: Workload, paragraphs: Sequence[str], todo: Sequence[Call]
) -> None:
    """Make kernels and libraries load before anything is timed, then read the CUDA context.

    The context is what NVML sees of the process beyond what torch has reserved. It is read after
    the warm-up because kernels are loaded when they are first used (74 MiB on an H200).
    """
    start = time.perf_counter()
    workload.process(paragraphs[: min(WARM_UP_PARAGRAPHS, workload.items_per_call())])
    device.synchronise()
    state.warm_up_s = time.perf_counter() - start
    peaks = state.sampler.ask("mark") if state.sampler else None
    reserved = device.peaks()[1]
    total = memory.process_peak(state.readings, peaks)
    if total is not None and reserved is not None:
        state.readings.context_bytes = total - reserved
    if device.torch and state.task.point.order == "load" and todo:
        state.warm_up_s += need.run_heaviest_first(device, workload, todo[0])


# -- work


def _work(state: Try, device: Device, workload: Workload, todo: Sequence[Call]) -> None:
    """Process the calls in turn; write each batch to ``batches.jsonl`` as it ends."""
    with (state.task.out / BATCHES_FILE).open("a", encoding="utf-8") as stream:
        for call in todo:
            batch, result = run_call(len(state.batches), call, workload, device)
            batch = replace(batch, batches_total=len(todo), characters_total=state.characters_total)
            state.batches.append(batch)
            state.entities += [row._replace(paragraph=row.paragraph + call.first) for row in result.entities]
            _keep_peaks(state.readings, batch)
            stream.write(json_codec.to_json(batch) + "\n")
            stream.flush()


def run_call(index: int, call: Call, workload: Workload, device: Device) -> tuple[Batch, Result]:
    """Process one call; return what was measured, as a batch, and the result."""
    device.reset_peaks()
    retries_before = device.retries()
    device.synchronise()
    start = time.perf_counter()
    result = workload.process(call.paragraphs)
    device.synchronise()
    seconds = time.perf_counter() - start
    allocated, reserved = device.peaks()
    retries = device.retries()
    batch = Batch(
        index=index,
        first_item=call.first,
        items=len(call.paragraphs),
        sentences=result.sentences,
        tokens=result.tokens,
        characters=sum(map(len, call.paragraphs)),
        longest_sentence_chars=result.longest_sentence_chars,
        load=result.load,
        padded_chars=result.padded_chars,
        seconds=seconds,
        allocated_peak_bytes=allocated,
        reserved_peak_bytes=reserved,
        alloc_retries=None if retries is None or retries_before is None else retries - retries_before,
    )
    return batch, result


def _keep_peaks(readings: memory.Readings, batch: Batch) -> None:
    for name in ("allocated_peak_bytes", "reserved_peak_bytes"):
        if (peak := getattr(batch, name)) is not None:
            setattr(readings, name, max(getattr(readings, name) or 0, peak))


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


def _read_final_peaks(state: Try) -> None:
    """Read what can be read only at the end."""
    state.peaks = state.sampler.ask("peaks") if state.sampler else None
    state.readings.maxrss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    state.readings.cgroup_peak_bytes = process.cgroup_peak()


def _write_results(state: Try, error: BaseException | None) -> Outcome:
    """Write entities and record; a full disk costs the entities, never the record."""
    out = state.task.out
    record = record_of(state, error)
    try:
        write_entities(out / ENTITIES_FILE, state.entities)
    except OSError as full:
        record = record_of(state, error or full)
    (out / RESERVE_FILE).unlink(missing_ok=True)  # the record takes its place
    files.write_atomically(out / RECORD_FILE, json_codec.to_json(record) + "\n")
    return record.outcome
