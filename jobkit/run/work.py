"""One try of a point: prepare, warm up, work through the text, leave a record."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from jobkit.core import files, json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.layout import BATCHES_FILE, ENTITIES_FILE, RECORD_FILE
from jobkit.core.records import BATCH_SIZE, Batch, Outcome
from jobkit.run import process
from jobkit.run.entities import write_entities
from jobkit.run.failure import Signals, Stopped, TryFailed
from jobkit.run.measure import memory, need, nvml
from jobkit.run.measure.device import Device, open_device
from jobkit.run.measure.sampler import Peaks, sampling
from jobkit.run.paragraphs import Call, calls, read_paragraphs
from jobkit.run.record import Task, Try, now, record_of
from jobkit.run.staged import check_model
from jobkit.run.workloads.base import Result, Workload
from jobkit.run.workloads.own import code_folder, open_workload

RESERVED_BYTES = 64 * 2**10
"""More than any record takes: some KiB, and the environment that it keeps."""
_FILE = "room.part"


def reserve_disk(out: Path) -> None:
    """Take room for a record.

    Raises
    ------
    OSError
        ``ENOSPC`` or ``EDQUOT`` where there is none.
    """
    with (out / _FILE).open("wb") as stream:
        stream.write(b" " * RESERVED_BYTES)
        stream.flush()
        os.fsync(stream.fileno())  # a file system over the network may say only now that it is full


def release_disk(out: Path) -> None:
    """Leave the room to the record."""
    (out / _FILE).unlink(missing_ok=True)


WARM_UP_PARAGRAPHS = 4
NVML_UUID_VARIABLE = "CUDA_VISIBLE_DEVICES"


def run(task: Task, signals: Signals) -> Outcome:
    """Run one try to its end and return its outcome; the record lies in ``task.out``."""
    state = Try(task, now())
    error: BaseException | None = None
    with ExitStack() as stack:
        try:
            with signals.may_stop():
                reserve_disk(task.out)
                _work(state, stack)
        except (Exception, Stopped) as caught:  # noqa: BLE001 - the record tells what it was
            error = caught
        _close(state)
    if error and not isinstance(error, TryFailed | Stopped):
        with contextlib.suppress(OSError):  # the log may lie on a full disk
            traceback.print_exception(error)
    return _leave(state, error)


def _leave(state: Try, error: BaseException | None) -> Outcome:
    """Write what was found and the record: that in any case, for there is room set aside."""
    out = state.task.out
    record = record_of(state, error)
    try:
        write_entities(out / ENTITIES_FILE, state.entities)
    except OSError as full:
        record = record_of(state, error or full)
    release_disk(out)
    files.write_atomically(out / RECORD_FILE, json_codec.to_json(record) + "\n")
    return record.outcome


def _work(state: Try, stack: ExitStack) -> None:
    point = state.task.point
    paragraphs = _read_text(state.task)
    if point.model:
        check_model(state.task.inputs, point.model)
    state.items_total = len(paragraphs)
    idle = nvml.idle_bytes() if point.device == "cuda" else {}
    workload = _open_workload(state)
    device = open_device(point.device) if workload.NEEDS_MODEL else Device(point.device)
    uuid = nvml.visible_uuid(device.cuda_uuid) if point.device == "cuda" else None
    state.sampler = stack.enter_context(sampling(uuid))
    _open_gpu(state, idle, uuid)
    device.cap(point.cap_bytes)
    _load(state, workload, device)
    if state.workload is None:
        return
    knobs = (point.params.get(name) for name in ("sentences_per_ner_batch", BATCH_SIZE))
    todo = calls(
        paragraphs,
        state.workload.items_per_call(),
        order=point.order,
        cap=next((value for value in knobs if value), None),
    )
    state.batches_total = len(todo)
    state.characters_total = sum(map(len, paragraphs))
    state.warm_up_s = _warm_up(state.workload, device, paragraphs)
    _read_context(state, device, state.sampler.ask("mark"))
    if device.torch and point.order == "load" and todo:
        state.warm_up_s += need.run_heaviest_first(device, state.workload, todo[0])
    with (state.task.out / BATCHES_FILE).open("a", encoding="utf-8") as stream:
        for batch in _batches(state, device, todo):
            stream.write(json_codec.to_json(batch) + "\n")
            stream.flush()
    if device.torch:
        state.needs = need.measure_needs(device, need.heaviest(state.workload, state.batches, todo), point)


def _read_text(task: Task) -> list[str]:
    path = task.inputs / "text"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != task.point.text.sha256:
        what = f"{task.point.text.path} is not the text that was planned: sha256 {found[:12]}"
        raise TryFailed(Outcome.STAGE_IN, f"{what}, not {task.point.text.sha256[:12]}")
    return read_paragraphs(path)


def _open_gpu(state: Try, idle: dict[str, int | None], uuid: str | None) -> None:
    """Describe the card, and note what it held before this process came."""
    if state.task.point.device != "cuda":
        return
    state.gpu = nvml.read_gpu(uuid, process.own_pid()) if uuid else None
    if state.gpu is None:
        unknown = f"NVML knows no GPU for {NVML_UUID_VARIABLE}={process.visible()!r}"
        raise TryFailed(Outcome.NO_GPU, nvml.missing_gpu_reason() or unknown)
    state.readings.device_idle = idle.get(state.gpu.uuid)


def _read_context(state: Try, device: Device, peaks: Peaks | None) -> None:
    """Read the context: what NVML sees of the process beyond what torch has reserved.

    After the warm-up, for kernels are loaded when they are first used (74 MiB on an H200).
    """
    reserved = device.peaks()[1]
    total = memory.process_peak(state.readings, peaks)
    if total is not None and reserved is not None:
        state.readings.context = total - reserved


def _open_workload(state: Try) -> Workload:
    point = state.task.point
    try:
        return open_workload(point.workload, point.workload_folder)
    except JobkitError as error:
        outcome = Outcome.ENVIRONMENT if isinstance(error.__cause__, ImportError) else Outcome.BUG
        raise TryFailed(outcome, error.message) from error
    finally:
        state.code = code_folder(point.workload, point.workload_folder)


def _load(state: Try, workload: Workload, device: Device) -> None:
    """Load the workload and read what its weights take."""
    point, readings = state.task.point, state.readings
    readings.rss_before = process.rss_now()
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
    readings.rss_model = process.rss_now()
    readings.weights = device.allocated_bytes()
    state.workload = workload


def _warm_up(workload: Workload, device: Device, paragraphs: Sequence[str]) -> float:
    """Make kernels and libraries load before anything is timed; return the seconds it took."""
    start = time.perf_counter()
    workload.process(paragraphs[: min(WARM_UP_PARAGRAPHS, workload.items_per_call())])
    device.synchronise()
    return time.perf_counter() - start


def _batches(state: Try, device: Device, todo: Sequence[Call]) -> Iterator[Batch]:
    """Do the calls in turn, one batch a call."""
    for index, call in enumerate(todo):
        device.reset_peaks()
        retries = device.retries()
        device.synchronise()
        start = time.perf_counter()
        if state.workload is None:
            return
        result = state.workload.process(call.paragraphs)
        device.synchronise()
        seconds = time.perf_counter() - start
        batch = replace(
            _batch(index, call, result, seconds, device, retries),
            batches_total=len(todo),
            characters_total=state.characters_total,
        )
        state.batches.append(batch)
        state.entities += [row._replace(paragraph=row.paragraph + call.first) for row in result.entities]
        _keep_peaks(state.readings, batch)
        yield batch


def _batch(
    index: int, call: Call, result: Result, seconds: float, device: Device, retries: int | None
) -> Batch:
    allocated, reserved = device.peaks()
    now = device.retries()
    return Batch(
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
        alloc_retries=None if now is None or retries is None else now - retries,
    )


def _keep_peaks(readings: memory.Readings, batch: Batch) -> None:
    if batch.allocated_peak_bytes is not None:
        readings.allocated_peak = max(readings.allocated_peak or 0, batch.allocated_peak_bytes)
    if batch.reserved_peak_bytes is not None:
        readings.reserved_peak = max(readings.reserved_peak or 0, batch.reserved_peak_bytes)


def _close(state: Try) -> None:
    """Read what can be read only at the end."""
    state.peaks = state.sampler.ask("peaks") if state.sampler else None
    state.readings.maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    state.readings.cgroup_peak = process.cgroup_peak()
