"""The steps of a try, for one process that does all and for several workers under a supervisor.

Python's garbage collector runs between the calls of a workload. During a call it would look at all objects
again and again: on a GPU that took 29 % of the time of stock Stanza (docs/measurements.md). Between two calls
most new objects are garbage, and what was loaded is frozen, so one look is enough.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from jobkit.core import json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.files import digest
from jobkit.core.knobs import OFF, OFFERED, ORDER, PADDED, SHORTCUTS, SORTED, Value, with_old_names
from jobkit.core.layout import BASELINES_FOLDER, BATCHES_FILE, FILES_FOLDER
from jobkit.core.measurements import Gpu
from jobkit.core.records import Batch, Outcome, Point
from jobkit.worker import process
from jobkit.worker.failure import TryFailed, describe_error
from jobkit.worker.kinds import PointWork, Recording, work_of
from jobkit.worker.measure import energy, figures, memory, min_memory_probe, nvml
from jobkit.worker.measure.device import (
    Device,
    cuda_untouched,
    import_torch,
    open_device,
    touched_cuda,
    uses_torch,
)
from jobkit.worker.measure.sampler import rss_bytes
from jobkit.worker.paragraphs import Call
from jobkit.worker.record import Done, Task, TryState, WorkerState
from jobkit.worker.windows import Todo, cut_window
from jobkit.worker.workloads import own
from jobkit.worker.workloads.base import BY_LENGTHS, Result, Workload, columns_of
from jobkit.worker.workloads.model_files import check_model

DUE = 50_000
"""The number of new objects from which a collection is worth its time."""


def only_between_calls(workload: object) -> None:
    """Freeze what is loaded and leave collecting to `collect`, unless the workload says ``GC = False``."""
    if getattr(workload, "GC", True):
        gc.collect()
        gc.freeze()
        gc.disable()


def collect() -> None:
    """Collect what a call has left, if that is much; do nothing if Python collects by itself."""
    if not gc.isenabled() and gc.get_count()[0] >= DUE:
        gc.collect()


# -- prepare


def open_figures(state: TryState, stack: ExitStack) -> None:
    handle, name = tempfile.mkstemp(prefix="metrics-", suffix=".jsonl", dir=state.task.out.parent)
    os.close(handle)
    stack.callback(_remove, Path(name))
    os.environ[figures.VARIABLE] = name
    stack.callback(os.environ.pop, figures.VARIABLE, None)
    state.figures_file = figures.GrowingFile(Path(name), state.figures.take_line)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def read_figures(state: TryState, limits_s: Sequence[float]) -> None:
    if file := state.figures_file:
        state.figures_file = None
        figures.finish(file, state.figures, limits_s)
        if file.error:
            message = f"${figures.VARIABLE} cannot be read: {file.error}: append lines to that file"
            raise TryFailed(Outcome.BUG, message)


def read_inputs(state: TryState) -> Todo:
    """Return the work of the try; refuse inputs that were not planned."""
    point = state.task.point
    state.todo = work_of(point).read(state)
    if point.model:
        check_model(state.task.inputs, point.model)
    return state.todo


def wait_for_memory(state: TryState) -> None:
    """Wait until the GPUs' memory is back at the baseline of the run; before a process opens a GPU."""
    point, run_dir = state.task.point, state.task.run_dir
    if point.device == "cuda" and run_dir:
        state.waited = memory.wait(run_dir / BASELINES_FOLDER, nvml.visible_uuids(point.gpus))


def read_idle(state: TryState) -> None:
    if state.task.point.device == "cuda":
        state.idle = state.task.idle if state.task.forked else energy.idle_readings()


def check_files(point: Point, inputs: Path) -> str | None:
    """Return the folder with the files of which the workload consists; ``None`` if it has none."""
    folder = inputs / FILES_FOLDER
    for file in point.files:
        try:
            sha256, _ = digest(folder / file.name)
        except OSError as error:
            raise TryFailed(Outcome.STAGE_IN, f"{folder / file.name}: {error.strerror}") from error
        if sha256 != file.sha256:
            message = f"{file.name} is not the file that was planned: sha256 {sha256[:12]}"
            raise TryFailed(Outcome.STAGE_IN, f"{message}, not {file.sha256[:12]}")
    return str(folder) if point.files else None


def open_workload(task: Task, measured: WorkerState) -> Workload:
    point, staged = task.point, check_files(task.point, task.inputs)
    try:
        workload = own.open_workload(point.workload, point.workload_folder, staged)
    except JobkitError as error:
        outcome = Outcome.ENVIRONMENT if isinstance(error.__cause__, ImportError) else Outcome.BUG
        raise TryFailed(outcome, error.message) from error
    finally:
        measured.code = own.code_folder(point.workload, point.workload_folder)
    measured.columns = columns_of(workload)
    if framework := getattr(workload, "preload", None):
        framework()
    measured.import_s = process.age_s()
    return workload


def device_of(point: Point, measured: WorkerState, workload: Workload) -> Device:
    if point.device == "cuda":
        if workload.NEEDS_MODEL:
            import_torch()  # if the workload has not: seconds in which the GPU is idle
        measured.opening = energy.idle_readings()
    device = open_device(point.device) if workload.NEEDS_MODEL or uses_torch() else Device(point.device)
    if point.device == "cuda":
        measured.gpu = read_gpu(nvml.visible_uuid(device.cuda_uuid))
    return device


def preload(point: Point, inputs: Path | None = None) -> str:
    """Import the framework, so that processes can be forked; return why they must not be, else empty."""
    if not point.fork:
        return "the spec has fork: false"
    if point.command:
        return ""  # the worker has all that it needs
    try:
        staged = check_files(point, inputs) if inputs else None
        workload = own.checked_class(point.workload, point.workload_folder, staged)
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


def forked_from(state: TryState) -> Sequence[int]:
    """Return the id of the process from which this one was forked, if it was."""
    return [os.getppid()] if state.task.forked else []


def read_gpu(uuid: str | None) -> Gpu:
    gpu = nvml.read_gpu(uuid, os.getpid()) if uuid else None
    if gpu is None:
        visible = os.environ.get(nvml.VISIBLE_VARIABLE)
        unknown = f"NVML knows no GPU for {nvml.VISIBLE_VARIABLE}={visible!r}"
        raise TryFailed(Outcome.NO_GPU, nvml.missing_gpu_reason() or unknown)
    return gpu


def load(task: Task, measured: WorkerState, workload: Workload, device: Device) -> None:
    point, readings = task.point, measured.readings
    device.cap(point.cap_bytes)
    readings.rss_before_bytes = rss_bytes(os.getpid())
    model = task.inputs / "model" if point.model else None
    start = time.perf_counter()
    try:
        workload.load(model, point.device, settings_of(task), point.threads)
    except (JobkitError, FileNotFoundError) as error:
        if model is None:
            raise
        raise TryFailed(Outcome.MODEL_MISSING, f"{error}") from error
    device.synchronise()
    measured.load_s = time.perf_counter() - start
    readings.rss_model_bytes = rss_bytes(os.getpid())
    readings.weights_bytes = device.allocated_bytes()
    measured.items_per_call = workload.items_per_call()
    only_between_calls(workload)


def cut_calls(state: TryState, todo: Todo) -> None:
    """Cut the first window, once the workload has said how much a call holds; open the output."""
    task, [first, *_] = state.task, state.workers
    point, per_call = task.point, first.items_per_call
    if state.output:
        state.output.open(first.columns)
    todo.cut(lambda window: cut_window(window, point, per_call, task.lengths))
    state.batches_total = todo.count_calls(state.items_total, per_call)


def settings_of(task: Task) -> dict[str, Value]:
    point = task.point
    settings = dict(point.params)
    if point.order == SORTED:
        settings[ORDER] = SORTED
    for key in OFFERED:
        if word := getattr(point, key):
            settings.setdefault(key, word)
    if task.refused:
        settings[SHORTCUTS] = f"{OFF}: {task.refused}"
    if PADDED in settings:
        settings["paragraphs_per_call"] = point.work_unit
    return with_old_names(settings)


# -- warm up


def warm_up(measured: WorkerState, workload: Workload, device: Device, paragraphs: Sequence[str]) -> None:
    start = time.perf_counter()
    workload.process(paragraphs[: measured.items_per_call])
    device.synchronise()
    measured.warm_up_s = time.perf_counter() - start


def warm_up_call(point: Point, measured: WorkerState, workload: Workload, device: Device, call: Call) -> None:
    if device.torch and point.order != "text":
        seconds = min_memory_probe.run_heaviest_first(device, workload, call)
        measured.warm_up_s = (measured.warm_up_s or 0.0) + seconds


# -- work


def open_batches(state: TryState) -> TextIO:
    return (state.task.out / BATCHES_FILE).open("a", encoding="utf-8")


def do_call(
    call: Call,
    measured: WorkerState,
    workload: Workload,
    device: Device,
    work: PointWork,
    recording: Recording,
) -> Done:
    """Process one call and keep its peaks; return the batch, and its rows with their paragraphs."""
    with recording.of_call():
        batch, result = run_call(call, workload, device)
    collect()
    _keep_peaks(measured.readings, batch)
    return batch, work.rows(result, measured.columns, call.items)


def load_of(workload: Any, result: Result, paragraphs: Sequence[str]) -> int:  # noqa: ANN401 - it may have more than a Workload must
    """Return the load of a call: that of its result, else by the lengths of its paragraphs."""
    return int(workload.load_of(paragraphs)) if result.load == BY_LENGTHS else result.load


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
    load = load_of(workload, result, call.paragraphs)
    batch = Batch(
        index=0,
        first_item=call.first,
        items=len(call.paragraphs),
        sentences=result.sentences,
        tokens=result.tokens,
        characters=sum(map(len, call.paragraphs)),
        longest_sentence_chars=result.longest_sentence_chars,
        load=load,
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
    state: TryState, stream: TextIO, call: Call, done: Done, *, worker: int = 0, end_s: float | None = None
) -> None:
    """Keep a batch and its rows, and write it to ``batches.jsonl``; for ``end_s`` see `Tally.add`."""
    batch, rows = done
    batch = replace(
        batch,
        index=state.tally.batches,
        worker=worker,
        batches_total=state.batches_total,
        characters_total=state.characters_total,
    )
    state.tally.add(batch, end_s)
    if state.heaviest is None or batch.load > state.heaviest[0].load:
        state.heaviest = batch, call
    if state.todo and state.output:
        for window in state.todo.keep(call.first, rows):
            state.output.write(window.rows, window.first, window.places)
    stream.write(json_codec.to_json(batch) + "\n")
    stream.flush()


# -- record


def ask_workload(
    measured: WorkerState, workload: Workload, *, worked: bool, error: BaseException | None
) -> BaseException | None:
    """Ask the workload for its part of the record; return ``error``, or the error that it raises now.

    Unless a batch has ``worked``, nothing has taken effect.
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


def close_output(state: TryState, *, failed: bool) -> None:
    left = state.todo.close() if state.todo else ()
    if state.output:
        state.output.close([row for window in left for row in window.rows], failed=failed)


def read_maxrss(measured: WorkerState) -> None:
    measured.readings.maxrss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
