"""One try: read the point, get ready, warm up, work batch by batch, leave a record.

The record is written whatever happens: at the end, on an exception, on a signal.
"""

from __future__ import annotations

import hashlib
import platform
import resource
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from jobkit import records
from jobkit.errors import JobkitError
from jobkit.records import Batch, Job, Outcome, Point, Record
from jobkit.run import gpu, memory, need, surroundings
from jobkit.run.device import Device, open_device
from jobkit.run.entities import write_entities
from jobkit.run.failure import Stopped, TryFailed, outcome_of
from jobkit.run.order import Call, calls
from jobkit.run.paragraphs import read_paragraphs
from jobkit.run.sampler import Peaks, Sampling, sampling
from jobkit.run.signals import Signals
from jobkit.run.summary import summarise
from jobkit.run.workload import Entity, Result, Workload, workload_class

WARM_UP_PARAGRAPHS = 4
NVML_UUID_VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the job script passes to the worker.

    Attributes
    ----------
    point
        What to run.
    inputs
        The folder with ``text`` and ``model`` on this node.
    out
        The folder on this node that is brought home.
    """

    point: Point
    try_number: int
    inputs: Path
    out: Path
    job: Job


@dataclass(slots=True)
class _Try:
    """What is known so far: enough to write a record at any moment."""

    task: Task
    started_at: str
    readings: memory.Readings = field(default_factory=memory.Readings)
    batches: list[Batch] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)
    items_total: int = 0
    batches_total: int = 0
    workload: Workload | None = None
    gpu: records.Gpu | None = None
    peaks: Peaks | None = None
    sampler: Sampling | None = None
    load_s: float | None = None
    warm_up_s: float | None = None
    needs: tuple[records.Need, ...] = ()


def run(task: Task, signals: Signals) -> Outcome:
    """Run one try to its end and return its outcome; the record lies in ``task.out``."""
    state = _Try(task, _now())
    error: BaseException | None = None
    with ExitStack() as stack:
        try:
            with signals.may_stop():
                _work(state, stack)
        except (Exception, Stopped) as caught:  # noqa: BLE001 - the record tells what it was
            error = caught
        _close(state)
    if error and not isinstance(error, TryFailed | Stopped):
        traceback.print_exception(error)
    record = _record(state, error)
    write_entities(task.out / records.ENTITIES_FILE, state.entities)
    records.write_atomically(task.out / records.RECORD_FILE, records.to_json(record) + "\n")
    return record.outcome


def _work(state: _Try, stack: ExitStack) -> None:
    point = state.task.point
    paragraphs = _read_text(state.task)
    state.items_total = len(paragraphs)
    idle = gpu.idle_bytes() if point.device == "cuda" else {}
    device = open_device(point.device) if workload_class(point.workload).NEEDS_MODEL else Device(point.device)
    uuid = gpu.visible_uuid(device.cuda_uuid) if point.device == "cuda" else None
    state.sampler = stack.enter_context(sampling(uuid))
    _open_gpu(state, idle, uuid)
    device.cap(point.cap_bytes)
    _load(state, device)
    if state.workload is None:
        return
    knobs = (point.params.get(name) for name in ("sentences_per_ner_batch", "batch_size"))
    todo = calls(
        paragraphs,
        state.workload.items_per_call(),
        order=point.order,
        cap=next((value for value in knobs if value), None),
    )
    state.batches_total = len(todo)
    state.warm_up_s = _warm_up(state.workload, device, paragraphs)
    _read_context(state, device, state.sampler.ask("mark"))
    with (state.task.out / records.BATCHES_FILE).open("a", encoding="utf-8") as stream:
        for batch in _batches(state, device, todo):
            stream.write(records.to_json(batch) + "\n")
            stream.flush()
    if device.torch:
        state.needs = need.measure(device, need.heaviest(state.workload, state.batches, todo), point)


def _read_text(task: Task) -> list[str]:
    path = task.inputs / "text"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != task.point.text.sha256:
        what = f"{task.point.text.path} is not the text that was planned: sha256 {found[:12]}"
        raise TryFailed(Outcome.STAGE_IN, f"{what}, not {task.point.text.sha256[:12]}")
    return read_paragraphs(path)


def _open_gpu(state: _Try, idle: dict[str, int | None], uuid: str | None) -> None:
    """Describe the card, and note what it held before this process came."""
    if state.task.point.device != "cuda":
        return
    state.gpu = gpu.describe(uuid, surroundings.own_pid()) if uuid else None
    if state.gpu is None:
        raise TryFailed(
            Outcome.NO_GPU, f"NVML knows no card for {NVML_UUID_VARIABLE}={surroundings.visible()!r}"
        )
    state.readings.device_idle = idle.get(state.gpu.uuid)


def _read_context(state: _Try, device: Device, peaks: Peaks | None) -> None:
    """Read the context: what NVML sees of the process beyond what torch has reserved.

    After the warm-up, for kernels are loaded when they are first used (74 MiB on an H200).
    """
    reserved = device.peaks()[1]
    total = memory.process_peak(state.readings, peaks)
    if total is not None and reserved is not None:
        state.readings.context = total - reserved


def _load(state: _Try, device: Device) -> None:
    """Load the workload and read what its weights take."""
    point, readings = state.task.point, state.readings
    readings.rss_before = surroundings.rss_now()
    model = state.task.inputs / "model" if point.model else None
    start = time.perf_counter()
    workload = workload_class(point.workload)()
    try:
        workload.load(model, point.device, point.params, point.threads)
    except (JobkitError, FileNotFoundError) as error:
        raise TryFailed(Outcome.MODEL_MISSING, f"{error}") from error
    device.synchronise()
    state.load_s = time.perf_counter() - start
    readings.rss_model = surroundings.rss_now()
    readings.weights = device.allocated_bytes()
    state.workload = workload


def _warm_up(workload: Workload, device: Device, paragraphs: Sequence[str]) -> float:
    """Make kernels and libraries load before anything is timed; return the seconds it took."""
    start = time.perf_counter()
    workload.process(paragraphs[: min(WARM_UP_PARAGRAPHS, workload.items_per_call())])
    device.synchronise()
    return time.perf_counter() - start


def _batches(state: _Try, device: Device, todo: Sequence[Call]) -> Iterator[Batch]:
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
        batch = _batch(index, call, result, seconds, device, retries)
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


def _close(state: _Try) -> None:
    """Read what can be read only at the end."""
    state.peaks = state.sampler.ask("peaks") if state.sampler else None
    state.readings.maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    state.readings.cgroup_peak = surroundings.cgroup_peak()


def _record(state: _Try, error: BaseException | None) -> Record:
    outcome, message = outcome_of(error) if error else (Outcome.OK, "")
    effective = dict(state.workload.effective()) if state.workload and state.batches else {}
    point = state.task.point
    return Record(
        point=point,
        try_number=state.task.try_number,
        outcome=outcome,
        provisional=isinstance(error, Stopped),
        message=message,
        signal=error.signal if isinstance(error, Stopped) else None,
        job=state.task.job,
        host=platform.node(),
        started_at=state.started_at,
        ended_at=_now(),
        effective=effective,
        inert=tuple(
            knob for knob in point.params if effective.get(knob, point.params[knob]) != point.params[knob]
        ),
        versions=_versions(state.workload),
        gpu=state.gpu,
        memory=memory.split(state.readings, state.peaks),
        sampler=_sampler(state.peaks),
        summary=summarise(state.batches, items_total=state.items_total, batches_total=state.batches_total),
        load_s=state.load_s,
        warm_up_s=state.warm_up_s,
        needs=state.needs,
        failed_load=_failed_load(state) if outcome is Outcome.GPU_OOM else None,
        retries=_retries(state.batches),
        environment=surroundings.variables(),
    )


def _failed_load(state: _Try) -> int | None:
    """Return the load of the batch that failed, where the workload tells it."""
    attempted = getattr(state.workload, "attempted_load", None)
    return attempted() or None if attempted else None


def _retries(batches: Sequence[Batch]) -> int | None:
    known = [batch.alloc_retries for batch in batches if batch.alloc_retries is not None]
    return sum(known) if known else None


def _sampler(peaks: Peaks | None) -> records.Sampler | None:
    if peaks is None:
        return None
    utilisation, power = peaks.utilisation_percent, peaks.power_w
    return records.Sampler(
        period_s=peaks.period_s,
        samples=peaks.samples,
        memory_query=peaks.memory_query,
        utilisation_mean_percent=sum(utilisation) / len(utilisation) if utilisation else None,
        power_mean_w=sum(power) / len(power) if power else None,
        power_max_w=max(power, default=None),
    )


def _versions(workload: Workload | None) -> dict[str, str]:
    own = {"python": sys.version.split()[0], "jobkit": metadata.version("jobkit")}
    return {**own, **(workload.versions() if workload else {})}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
