"""The steps of a try: those of one process, and those that come once whatever the number of processes.

Python's garbage collector runs between the calls of a workload. During a call it would look at all objects
again and again: on a GPU that took 29 % of the time of stock Stanza (docs/measurements.md). Between two calls
most new objects are garbage, and what was loaded is frozen, so one look is enough.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TextIO
from zlib import crc32

from jobkit.core import json_codec
from jobkit.core.errors import JobkitError
from jobkit.core.knobs import OFFERED, ORDER, PADDED, RENAMED, SORTED, Value
from jobkit.core.layout import BASELINES_FOLDER, BATCHES_FILE, FILES_FOLDER
from jobkit.core.measurements import Gpu, largest
from jobkit.core.records import Batch, Outcome
from jobkit.worker import process
from jobkit.worker.failure import TryFailed, describe_error, outcome_of_output
from jobkit.worker.measure import memory, nvml
from jobkit.worker.measure.sampler import idle_readings
from jobkit.worker.paragraphs import Call, Todo, cut_window
from jobkit.worker.process import rss_bytes
from jobkit.worker.record import (
    Done,
    Recording,
    Task,
    TryState,
    WorkerState,
    check_staged,
    now,
    work_of,
)
from jobkit.worker.workloads import own
from jobkit.worker.workloads.base import BY_LENGTHS, Result, Row, columns_of, same_type, vectors_of
from jobkit.worker.workloads.model import check_model

SHOWN, LEAST_SHOWN = 16, 4
"""So many characters at the beginning of a paragraph show that a message has its text; fewer are in any."""
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


class Worker:
    """Does the steps of a try in one process. A supervisor orders a step by the name of its method."""

    def __init__(self, task: Task, measured: WorkerState | None = None) -> None:
        self.task = task
        self.measured = measured or WorkerState()
        self.device: memory.Device
        self._workload: Any  # it may have more than a `Workload` must
        self._recording: Recording
        self._loaded = self._worked = False

    def import_framework(self) -> None:
        point, measured, staged = self.task.point, self.measured, check_files(self.task)
        try:
            self._workload = own.open_workload(point.workload, point.workload_folder, staged)
        except JobkitError as error:
            outcome = Outcome.ENVIRONMENT if isinstance(error.__cause__, ImportError) else Outcome.BUG
            raise TryFailed(outcome, error.message) from error
        finally:
            measured.code = own.code_folder(point.workload, point.workload_folder)
        measured.columns = columns_of(self._workload)
        if framework := getattr(self._workload, "preload", None):
            framework()
        measured.import_s = process.age_s()

    def open_device(self) -> None:
        name, needs_model = self.task.point.device, self._workload.NEEDS_MODEL
        if name == "cuda":
            if needs_model:
                memory.import_torch()  # if the workload has not: seconds in which the GPU is idle
            self.measured.opening = idle_readings()
        opened = needs_model or memory.uses_torch()
        self.device = memory.open_device(name) if opened else memory.Device(name)
        if name == "cuda":
            self.measured.gpu = read_gpu(nvml.visible_uuid(self.device.cuda_uuid))

    def open(self, foreign_processes: Mapping[str, int | None]) -> None:
        """Import the framework and open the device; ``foreign_processes`` were on the GPUs before."""
        self.import_framework()
        self.open_device()
        if gpu := self.measured.gpu:
            self.measured.gpu = replace(gpu, foreign_processes=foreign_processes.get(gpu.uuid))

    def begin(self, foreign_processes: Mapping[str, int | None]) -> None:
        """Take the place of another process."""
        self.open(foreign_processes)
        self.load()

    def load(self) -> None:
        task, measured, workload = self.task, self.measured, self._workload
        point = task.point
        self.device.cap(point.cap_bytes)
        measured.rss_before_bytes = rss_bytes(os.getpid())
        model = task.inputs / "model" if point.model else None
        start = time.perf_counter()
        try:
            workload.load(model, point.device, settings_of(task), point.threads)
        except (JobkitError, FileNotFoundError) as error:
            if model is None:
                raise
            raise TryFailed(Outcome.MODEL_MISSING, f"{error}") from error
        self.device.synchronise()
        measured.load_s = time.perf_counter() - start
        measured.rss_model_bytes = rss_bytes(os.getpid())
        measured.weights_bytes = self.device.allocated_bytes()
        measured.items_per_call = workload.items_per_call()
        measured.tokenizes_ahead = getattr(workload, "tokenize_ahead", None) is not None
        measured.stands = point.loaded is not None and getattr(workload, "change", None) is not None
        only_between_calls(workload)
        self._loaded = True
        self._recording = work_of(point).recording(task)

    def rest(self) -> None:
        """Let the log of a try go that has ended."""
        process.release_output()

    def go_on(self, task: Task, variables: Mapping[str, str]) -> None:
        """Take another task with what is loaded; ``variables`` of jobkit name files of its try."""
        self.task = replace(task, observed=self.task.observed)
        self.measured, self._worked = self.measured.go_on(), False
        os.environ.update(variables)
        self.device.empty_cache()
        self._workload.change(settings_of(task))
        self.measured.items_per_call = self._workload.items_per_call()
        only_between_calls(self._workload)
        self._recording = work_of(task.point).recording(task)

    def check(self, *texts: Sequence[str]) -> None:
        """Compare the shortcuts of the workload with its ordinary way."""
        if compare := getattr(self._workload, "check_shortcuts", None):
            self.measured.refused = compare(*texts)
            self.measured.checked = getattr(self._workload, "checked", "")
        self.measured.reserved_peak_bytes = self.device.counters()[1]

    def warm_up(self, paragraphs: Sequence[str], call: Call | None = None) -> None:
        start = time.perf_counter()
        self._workload.process(paragraphs[: self.measured.items_per_call])
        self.device.synchronise()
        self.measured.warm_up_s = time.perf_counter() - start
        if call:
            self.warm_up_call(call)
        self.measured.reserved_bytes = self.device.reserved_bytes()

    def warm_up_call(self, call: Call) -> None:
        """Run the heaviest batch of a call alone, from an empty cache, if the workload can.

        Inside a call the batches run in text order, so the heaviest would come after lighter ones have
        fragmented the allocator's memory: on an H200 a pass then ran out of memory under a cap that its
        heaviest batch alone kept (by 0.1 % with expandable segments, by 10 % with PyTorch's default).
        """
        tag_heaviest = getattr(self._workload, "tag_heaviest", None)
        if tag_heaviest and self.device.torch and self.task.point.order != "text":
            start = time.perf_counter()
            self.device.empty_cache()
            tag_heaviest(call.paragraphs)
            self.device.synchronise()
            self.measured.warm_up_s = (self.measured.warm_up_s or 0.0) + time.perf_counter() - start

    def keep_context(self, size_bytes: int | None) -> None:
        """Keep the size of the CUDA context, which only the supervisor can tell."""
        self.measured.context_bytes = size_bytes

    def work(self, call: Call, following: Call | None = None) -> Done:
        """Process one call and keep its peaks; return the batch, and its rows with their paragraphs.

        A workload that can do so tokenizes the call that follows meanwhile.
        """
        self.tokenize_ahead(call, following)
        try:
            with self._recording.of_call():
                batch, result = run_call(call, self._workload, self.device)
            self.measured.vectors = vectors_of(result, len(call.items))
            if self.task.point.trim:
                result = result.trimmed()
            point = self.task.point
            rows = work_of(point).rows(result, self.measured.columns, call.items, point.nan)
            if result.rows is not None and point.kind.swept:
                sums = [crc32(repr((call.items[number], *row)).encode()) for number, *row in result.rows]
                rows_before, sum_before = self.measured.rows or (0, 0)
                self.measured.rows = rows_before + len(sums), sum_before + sum(sums)
        except JobkitError as error:
            error.message = f"{call.place}: {error.message}"
            raise
        collect()
        kept = self.measured
        kept.allocated_peak_bytes = largest((kept.allocated_peak_bytes, batch.allocated_peak_bytes))
        kept.reserved_peak_bytes = largest((kept.reserved_peak_bytes, batch.reserved_peak_bytes))
        self._worked = True
        return batch, rows

    def tokenize_ahead(self, *calls: Call | None) -> None:
        """Have a workload tokenize calls in a thread, if it can; without calls the thread ends."""
        if self._loaded and (tokenize := getattr(self._workload, "tokenize_ahead", None)):
            tokenize(*(call.paragraphs for call in calls if call))

    def measure(self, batch: Batch, call: Call) -> None:
        heavy = memory.heaviest(self._workload, batch, call)
        self.measured.needs = memory.measure_needs(self.device, heavy, self.task.point)

    def write_recording(self) -> None:
        self._recording.write(self.task.out, self.task.try_number)

    def ask_workload(self, error: BaseException | None) -> BaseException | None:
        """Ask a loaded workload for its part of the record; return ``error``, or the error that it raises.

        Unless a batch has worked, nothing has taken effect.
        """
        if not self._loaded:
            return error
        workload, measured = self._workload, self.measured
        try:
            effective = dict(workload.effective()) if self._worked else {}
            if not measured.versions:
                measured.versions = {name: str(version) for name, version in workload.versions().items()}
            measured.effective = effective
            attempted = getattr(workload, "attempted_load", None)
            if error and attempted:
                measured.failed_load = attempted() or None
        except Exception as fault:  # noqa: BLE001 - the code may be the user's, and a record is always written
            return error or fault
        return error

    def read_maxrss(self) -> None:
        self.measured.maxrss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(slots=True)
class Kept:
    """The processes that a try has left for another one, with the model that they have loaded."""

    state: TryState | None = None  # of that try; ``None`` if it has left none
    worker: Worker | None = None  # this process
    pool: Any = None  # or several: a `jobkit.worker.pool.Pool`
    stack: ExitStack = field(default_factory=ExitStack)  # ends them

    def take(self, task: Task) -> TryState:
        """Return the state in which a try begins. It has to leave the processes again."""
        if self.pool and not self.pool.is_whole:
            self.close()
        before, self.state = self.state, None
        if before:
            return before.go_on(task)
        return TryState(task, now(), forked=task.forked, waited_s=task.waited_s)

    def close(self) -> None:
        if self.state and self.pool:
            self.pool.end(self.pool)
        self.stack.close()
        self.state = self.worker = self.pool = None


def run_call(call: Call, workload: Any, device: memory.Device) -> tuple[Batch, Result]:  # noqa: ANN401 - as above
    """Process one call; return what was measured, as the first batch of a try, and the result."""
    device.reset_peaks()
    *_, retries_before = device.counters()
    device.synchronise()
    start = time.perf_counter()
    result = workload.process(call.paragraphs)
    device.synchronise()
    seconds = time.perf_counter() - start
    allocated, reserved, retries = device.counters()
    load = int(workload.load_of(call.paragraphs)) if result.load == BY_LENGTHS else result.load
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
        alloc_retries=memory.subtract(retries, retries_before),
    )
    return batch, result


# -- what a process is given, and how it ends


def settings_of(task: Task) -> dict[str, Value]:
    point = task.point
    settings = {**(point.model.options if point.model else {}), **point.params}
    if point.order == SORTED:
        settings[ORDER] = SORTED
    for key in OFFERED:
        if word := getattr(point, key):
            settings.setdefault(key, word)
    settings |= task.switched_off
    if PADDED in settings:
        settings["paragraphs_per_call"] = point.work_unit
    # a workload of the user's may have been written for an earlier version
    return settings | {old: settings[new] for old, new in RENAMED.items() if new in settings}


def check_files(task: Task) -> str | None:
    """Return the folder with the files of which the workload consists; ``None`` if it has none."""
    folder = task.inputs / FILES_FOLDER
    for file in task.point.files:
        try:
            check_staged(folder / file.name, file.name, "file", file.sha256)
        except OSError as error:
            raise TryFailed(Outcome.STAGE_IN, f"{folder / file.name}: {error.strerror}") from error
    return str(folder) if task.point.files else None


def read_gpu(uuid: str | None) -> Gpu:
    gpu = nvml.read_gpu(uuid) if uuid else None
    if gpu is None:
        visible = os.environ.get(nvml.VISIBLE_VARIABLE)
        unknown = f"NVML knows no GPU for {nvml.VISIBLE_VARIABLE}={visible!r}"
        if visible is None:
            unknown = (
                f"{nvml.VISIBLE_VARIABLE} does not say which of several GPUs: see `gpus` in the site file"
            )
        raise TryFailed(Outcome.NO_GPU, nvml.missing_gpu_reason() or unknown)
    return gpu


def killed(who: str, number: int, oom_kills: int | None, output: str = "") -> TryFailed:
    """Return the failure of a process that a signal killed.

    ``oom_kills``: `process.oom_kills` when it began. ``output``: the end of what a command wrote.
    """
    message = f"{who} was killed by {signal.Signals(number).name}"
    if number != signal.SIGKILL:
        return TryFailed(outcome_of_output(output), message)
    if (process.oom_kills() or 0) > (oom_kills or 0):
        return TryFailed(Outcome.RAM_OOM, f"{message}: the job's memory limit was reached")
    return TryFailed(Outcome.LOST, message)


def preload(task: Task) -> str:
    """Import the framework, so that processes can be forked; return why they must not be, else empty."""
    point = task.point
    if not point.fork:
        return "the spec has fork: false"
    if point.command:
        return ""  # the worker has all that it needs
    try:
        workload = own.checked_class(point.workload, point.workload_folder, check_files(task))
        if not (framework := getattr(workload, "preload", None)):
            return f"the workload {point.workload!r} has no preload()"
        with memory.cuda_untouched():
            framework()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a fresh process fails for the same reason, and records it
        return f"its parent cannot import the framework: {describe_error(error)}"
    if memory.touched_cuda():
        return "its parent has touched CUDA, which cannot be used after a fork"
    gc.collect()
    gc.freeze()  # so that a collection in a child writes to no page of the parent
    return ""


# -- once in a try


def read_inputs(state: TryState) -> Todo:
    """Return the work of the try; refuse inputs that were not planned."""
    point = state.task.point
    state.todo = work_of(point).read(state)
    if point.model:
        check_model(state.task.inputs, point.model)
    return state.todo


def read_idle(state: TryState) -> None:
    if state.task.point.device == "cuda":
        state.idle = state.task.idle if state.task.forked else idle_readings()


def wait_for_memory(state: TryState) -> None:
    """Wait until the GPUs' memory is back at the baseline of the run; before a process opens a GPU."""
    point, run_dir = state.task.point, state.task.run_dir
    if point.device == "cuda" and run_dir:
        state.waited = memory.wait(run_dir / BASELINES_FOLDER, nvml.visible_uuids(point.gpus))


def forked_from(state: TryState) -> Sequence[int]:
    """Return the id of the process from which this one was forked, if it was."""
    return [os.getppid()] if state.task.forked else []


def cut_calls(state: TryState, todo: Todo) -> None:
    """Cut the first window, once the workload has said how much a call holds; open the output."""
    task, [first, *_] = state.task, state.workers
    point, per_call = task.point, first.items_per_call
    if state.output:
        state.output.open(first.columns)
    todo.cut(lambda window: cut_window(window, point, per_call, task.lengths))
    state.batches_total = todo.count_calls(state.items_total, per_call)


def open_batches(state: TryState) -> TextIO:
    return (state.task.out / BATCHES_FILE).open("a", encoding="utf-8")


def keep_batch(
    state: TryState, stream: TextIO, call: Call, done: Done, *, worker: int = 0, end_s: float | None = None
) -> None:
    """Keep a batch and its rows, and write it to ``batches.jsonl``; for ``end_s`` see `Tally.add`."""
    batch, rows = done
    if (vectors := state.workers[worker].vectors) is not None:
        state.vectors = same_type(vectors, state.vectors, call.place)
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
    _keep(state, call, rows)
    stream.write(json_codec.to_json(batch) + "\n")
    stream.flush()


def quarantine(state: TryState, call: Call, why: TryFailed) -> None:
    """Leave out the only paragraph of a call, and go on; raise ``why`` if it ends the try."""
    message = re.sub(r"^worker \d+:? ", "", " ".join(why.message.split())).removeprefix(f"{call.place}: ")
    text = " ".join(call.paragraphs[0].split())[:SHOWN]
    if len(text) >= LEAST_SHOWN and text in message:
        message = f"{message.partition(text)[0]}..."  # never the text
    work_of(state.task.point).quarantine(state, why)
    process.report(f"{call.place} goes to quarantine: {why.outcome}: {message}")
    _keep(state, call, (), (call.first, why.outcome, message))


def _keep(state: TryState, call: Call, rows: Sequence[Row], *bad: tuple[int, Outcome, str]) -> None:
    if state.todo and state.output:
        at = state.todo.window(call.first)
        rows = state.output.encode(rows, at.first, at.places)
        for window in state.todo.keep(call.first, rows, *bad):
            state.output.write(window.rows, window.first, window.places, window.bad)
