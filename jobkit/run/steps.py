"""The steps of a try, for one process that does all and for several workers under a supervisor."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import resource
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TextIO

from jobkit.core import json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import BATCH_SIZE, ORDER, PADDED_CHARS, PRECISION, SORTED, Value
from jobkit.core.layout import BASELINES_FOLDER, BATCHES_FILE
from jobkit.core.measurements import Gpu
from jobkit.core.records import Batch, Outcome, Point
from jobkit.run import process
from jobkit.run.failure import TryFailed, describe_error
from jobkit.run.measure import baseline, energy, memory, need, nvml
from jobkit.run.measure.device import Device, cuda_untouched, import_torch, open_device, touched_cuda
from jobkit.run.measure.profile import Recording
from jobkit.run.measure.sampler import rss_bytes
from jobkit.run.paragraphs import Call, calls, longest_sentences, read_paragraphs, sorted_places
from jobkit.run.record import Done, Measured, Task, Try
from jobkit.run.staged_model import check_model
from jobkit.run.workloads import own
from jobkit.run.workloads.base import Entity, Result, Workload

WARM_UP_PARAGRAPHS = 4


# -- prepare


def read_inputs(state: Try) -> list[str]:
    """Return the paragraphs of the staged text; refuse a text or a model that was not planned."""
    point, path = state.task.point, state.task.inputs / "text"
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 != point.text.sha256:
        message = f"{point.text.path} is not the text that was planned: sha256 {sha256[:12]}"
        raise TryFailed(Outcome.STAGE_IN, f"{message}, not {point.text.sha256[:12]}")
    paragraphs = read_paragraphs(path)
    if point.model:
        check_model(state.task.inputs, point.model)
    chosen = paragraphs[:: point.every]
    state.items_total = len(chosen)
    state.characters_total = sum(map(len, chosen))
    return paragraphs


def wait_for_memory(state: Try) -> None:
    """Wait until the memory of the GPUs of the try is back at the baseline of the run.

    It comes before a process opens a GPU.
    """
    point, lengths = state.task.point, state.task.lengths
    if point.device == "cuda" and lengths:
        folder = lengths.with_name(BASELINES_FOLDER)
        state.waited = baseline.wait(folder, nvml.visible_uuids(point.gpus))


def read_idle(state: Try) -> None:
    """Read the energy counters of idle GPUs before the framework is imported."""
    if state.task.point.device == "cuda":
        state.idle = state.task.idle if state.task.forked else energy.idle_readings()


def open_workload(point: Point, measured: Measured) -> Workload:
    """Return the workload, which is not loaded yet, once its framework is imported."""
    try:
        workload = own.open_workload(point.workload, point.workload_folder)
    except JobkitError as error:
        outcome = Outcome.ENVIRONMENT if isinstance(error.__cause__, ImportError) else Outcome.BUG
        raise TryFailed(outcome, error.message) from error
    finally:
        measured.code = own.code_folder(point.workload, point.workload_folder)
    if framework := getattr(workload, "preload", None):
        framework()
    measured.import_s = process.age_s()
    return workload


def device_of(point: Point, measured: Measured, workload: Workload) -> Device:
    """Open the device of a point and return it."""
    if point.device == "cuda":
        if workload.NEEDS_MODEL:
            import_torch()  # if the workload has not: seconds in which the GPU is idle
        measured.opening = energy.idle_readings()
    device = open_device(point.device) if workload.NEEDS_MODEL else Device(point.device)
    if point.device == "cuda":
        measured.gpu = _read_gpu(nvml.visible_uuid(device.cuda_uuid))
    return device


def preload(point: Point) -> str:
    """Import the framework of a point, so that processes that work can be forked from this one.

    Returns
    -------
    str
        Why they must not be forked; empty if they may.
    """
    if not point.fork:
        return "the spec has fork: false"
    try:
        workload = own.checked_class(point.workload, point.workload_folder)
        if not (framework := getattr(workload, "preload", None)):
            return f"the workload {point.workload!r} has no preload()"
        with cuda_untouched():
            framework()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a fresh process fails for the same reason, and records it
        return f"its parent cannot import the framework: {describe_error(error)}"
    if touched_cuda():
        return "its parent has touched CUDA, which cannot be used after a fork"
    gc.collect()
    gc.freeze()  # so that a collection in a child writes to no page of the parent
    return ""


def forked_from(state: Try) -> Sequence[int]:
    """Return the process id of the parent from which this process was forked, if it was."""
    return [os.getppid()] if state.task.forked else []


def _read_gpu(uuid: str | None) -> Gpu:
    gpu = nvml.read_gpu(uuid, os.getpid()) if uuid else None
    if gpu is None:
        visible = os.environ.get(nvml.VISIBLE_VARIABLE)
        unknown = f"NVML knows no GPU for {nvml.VISIBLE_VARIABLE}={visible!r}"
        raise TryFailed(Outcome.NO_GPU, nvml.missing_gpu_reason() or unknown)
    return gpu


def load(task: Task, measured: Measured, workload: Workload, device: Device) -> None:
    """Load the workload under the point's cap and read how much memory its weights take."""
    point, readings = task.point, measured.readings
    device.cap(point.cap_bytes)
    readings.rss_before_bytes = rss_bytes(os.getpid())
    model = task.inputs / "model" if point.model else None
    start = time.perf_counter()
    try:
        workload.load(model, point.device, settings_of(point), point.threads)
    except (JobkitError, FileNotFoundError) as error:
        if model is None:
            raise
        raise TryFailed(Outcome.MODEL_MISSING, f"{error}") from error
    device.synchronise()
    measured.load_s = time.perf_counter() - start
    readings.rss_model_bytes = rss_bytes(os.getpid())
    readings.weights_bytes = device.allocated_bytes()
    measured.items_per_call = workload.items_per_call()


def cut_calls(state: Try, paragraphs: Sequence[str]) -> list[Call]:
    """Return the calls of the workload, in the order of work."""
    point = state.task.point
    knobs = (point.numbers.get(name) for name in ("sentences_per_ner_batch", BATCH_SIZE))
    places: Sequence[int] = range(len(paragraphs))
    if point.order == SORTED:
        places = sorted_places(longest_sentences(paragraphs, state.task.lengths), point.sort_window)
    places = [place for place in places if place % point.every == 0]
    todo = calls(
        paragraphs,
        state.workers[0].items_per_call,
        cap=next((value for value in knobs if value), None),
        largest_first=point.order != "text",
        places=places,
    )
    state.batches_total = len(todo)
    return todo


def settings_of(point: Point) -> dict[str, Value]:
    """Return what the workload is loaded with: the knobs, and what they leave to it."""
    settings = dict(point.params)
    if point.order == SORTED:
        settings[ORDER] = SORTED
    if point.precision:
        settings.setdefault(PRECISION, point.precision)
    if PADDED_CHARS in settings:
        settings["paragraphs_per_call"] = point.work_unit
    return settings


# -- warm up


def warm_up(measured: Measured, workload: Workload, device: Device, paragraphs: Sequence[str]) -> None:
    """Make kernels and libraries load before anything is timed."""
    start = time.perf_counter()
    workload.process(paragraphs[: min(WARM_UP_PARAGRAPHS, measured.items_per_call)])
    device.synchronise()
    measured.warm_up_s = time.perf_counter() - start


def warm_up_call(point: Point, measured: Measured, workload: Workload, device: Device, call: Call) -> None:
    """Run the heaviest batch of the first call alone, if the largest load comes first."""
    if device.torch and point.order != "text":
        seconds = need.run_heaviest_first(device, workload, call)
        measured.warm_up_s = (measured.warm_up_s or 0.0) + seconds


# -- work


def open_batches(state: Try) -> TextIO:
    """Open ``batches.jsonl``."""
    return (state.task.out / BATCHES_FILE).open("a", encoding="utf-8")


def do_call(
    call: Call, measured: Measured, workload: Workload, device: Device, recording: Recording | None = None
) -> Done:
    """Process one call and keep its peaks; return the batch, and its entities with their paragraphs."""
    with recording.of_call() if recording else contextlib.nullcontext():
        batch, result = run_call(call, workload, device)
    _keep_peaks(measured.readings, batch)
    return batch, [row._replace(paragraph=call.items[row.paragraph]) for row in result.entities]


def run_call(call: Call, workload: Workload, device: Device) -> tuple[Batch, Result]:
    """Process one call; return what was measured, as the first batch of a try, and the result."""
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
        index=0,
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


def keep_batch(
    state: Try, stream: TextIO, batch: Batch, entities: Iterable[Entity], *, worker: int = 0
) -> None:
    """Keep a batch and its entities, and write it to ``batches.jsonl``."""
    batch = replace(
        batch,
        index=len(state.batches),
        worker=worker,
        batches_total=state.batches_total,
        characters_total=state.characters_total,
    )
    state.batches.append(batch)
    state.entities += entities
    stream.write(json_codec.to_json(batch) + "\n")
    stream.flush()


# -- record


def ask_workload(
    measured: Measured, workload: Workload, *, worked: bool, error: BaseException | None
) -> BaseException | None:
    """Ask the workload for what the record reports of it; return the error, or the one that it raises now.

    Parameters
    ----------
    worked
        Whether a batch is done: before, nothing has taken effect.
    error
        The error that ended the work, if there is one.
    """
    try:
        effective = dict(workload.effective()) if worked else {}
        if not measured.versions:
            measured.versions = {name: str(version) for name, version in workload.versions().items()}
        measured.effective = effective
        attempted = getattr(workload, "attempted_load", None)
        if error and attempted:
            measured.failed_load = attempted() or None
    except Exception as fault:  # noqa: BLE001 - the code may be the user's, and a record is always written
        return error or fault
    return error


def read_maxrss(measured: Measured) -> None:
    """Read the high-water mark of this process's resident memory."""
    measured.readings.maxrss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
