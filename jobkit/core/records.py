"""The nouns that the way out and the way back share, and the files that hold them.

Standard library only: this module is imported on the compute node.
Everything here is in bytes and seconds; a value that could not be had is ``None``, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jobkit.core.json_codec import SCHEMA
from jobkit.core.measurements import Gpu, Memory, Need, Sampler, Summary

BATCH_SIZE = "batch_size"
"""The knob that every workload has."""


class Outcome(StrEnum):
    """What became of one try, in one word."""

    OK = "ok"
    GPU_OOM = "gpu_oom"
    RAM_OOM = "ram_oom"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    QUEUE_ERROR = "queue_error"
    GPU_BUSY = "gpu_busy"
    NO_GPU = "no_gpu"
    ENVIRONMENT = "environment"
    SCRATCH_FULL = "scratch_full"
    STAGE_IN = "stage_in"
    STAGE_OUT = "stage_out"
    MODEL_MISSING = "model_missing"
    PRUNED = "pruned"
    STOPPED = "stopped"
    BUG = "bug"
    LOST = "lost"


RESULTS = frozenset({Outcome.OK, Outcome.GPU_OOM, Outcome.PRUNED})
"""Outcomes that answer the question the point asked; every other one is a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRef:
    """The text that a point reads.

    Attributes
    ----------
    path
        Where it lies, absolute, seen from the nodes.
    sha256
        Of its bytes.
    size_bytes
        Of the file.
    name
        What the spec called it (``sample``, a path, a URL).
    """

    path: str
    sha256: str
    size_bytes: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """The model that a point loads.

    Attributes
    ----------
    path
        A folder that Stanza can load with no network, absolute.
    name, size
        As in the spec: ``en``, ``full`` or ``tiny``.
    stand_in
        Whether it is jobkit's own stand-in and not the model that the name promises.
    fingerprint
        A hash over its files, so that two models never share a row.
    size_bytes
        Of all its files.
    """

    path: str
    name: str
    size: str
    stand_in: bool
    fingerprint: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting of the knobs, once: what one try runs.

    Attributes
    ----------
    index
        From 1; line ``index`` of ``points.jsonl``.
    point_id
        The name of its folder under ``results/``, unique within the run.
    params
        The swept knobs and their values (``{BATCH_SIZE: 50}``).
    repeat
        From 1.
    device
        ``cpu`` or ``cuda``: what is asked for, never a wish.
    order
        ``load``: largest load first; ``text``: as the text stands.
    allocator
        The value of ``PYTORCH_ALLOC_CONF``, or ``None`` for PyTorch's default.
    threads
        CPU threads for the framework.
    cap_bytes
        Most that torch's allocator may reserve, the CUDA context on top; ``None`` for no cap.
    trial
        Whether it tries a prediction (``find_max``, ``jobkit verify``) and is no point of the sweep:
        it proves memory, and no speed and no line is taken from it.
    workload_folder
        Where the module of a workload of the user's own lies, absolute: the spec's folder; ``None`` of
        a shipped workload.
    """

    schema: int = SCHEMA
    run_id: str
    index: int
    point_id: str
    workload: str
    params: Mapping[str, int]
    repeat: int
    text: TextRef
    model: ModelRef | None
    device: str
    order: str
    allocator: str | None
    threads: int
    cap_bytes: int | None = None
    trial: bool = False
    workload_folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One call of the workload: a line of ``batches.jsonl``.

    Attributes
    ----------
    index
        In order of work, from 0.
    first_item
        Number of its first paragraph in the text, from 0.
    items, sentences, tokens, characters
        How much it held; characters as read.
    longest_sentence_chars
        Length of its longest sentence as the framework sees it.
    load
        What the framework pads to: for Stanza NER the largest, over the NER batches of this
        call, of sentences x characters of the longest; else the workload's own.
    padded_chars
        The sum of the same products; characters / padded_chars is the padding efficiency.
    seconds
        Wall time, the device synchronised before and after.
    allocated_peak_bytes, reserved_peak_bytes
        torch's, reset before the batch.
    alloc_retries
        How often the allocator flushed its cache and tried again during the batch.
    batches_total, characters_total
        How much the whole try has to do, so that whoever reads along knows how far it is.
    """

    index: int
    first_item: int
    items: int
    sentences: int | None = None
    tokens: int | None = None
    characters: int
    longest_sentence_chars: int | None = None
    load: int
    padded_chars: int | None = None
    seconds: float
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    alloc_retries: int | None = None
    batches_total: int | None = None
    characters_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Who ran the try: the scheduler's names for it.

    Attributes
    ----------
    scheduler
        ``slurm``, ``sge``, ``local``, or ``hand`` where a person typed ``bash job.sh K``.
    job_id, task_id
        The scheduler's; empty by hand.
    restart
        How often the scheduler had started this task before.
    """

    scheduler: str
    job_id: str = ""
    task_id: str = ""
    restart: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything that one try found out: ``record.json``, written once, atomically.

    Attributes
    ----------
    outcome
        One word; on a signal provisional, to be overruled only by the scheduler's accounting.
    message
        Of the error, in a line; empty when all went well.
    signal
        The signal that ended the work (``USR1`` is the walltime warning), else ``None``.
    effective
        What every knob really came to in the framework; ``None`` where it could not be seen.
    inert
        Swept knobs that did not take effect.
    versions
        Of Python, jobkit, torch, stanza, ... as far as the workload uses them.
    load_s, warm_up_s
        Seconds to load the model, and of the warm-up.
    needs
        Of the heaviest batches, where a GPU allows it; the largest load first.
    failed_load
        The load of the batch that ran out of memory, where the workload tells it; else ``None``.
    retries
        How often the allocator emptied its cache and tried again while the batches were done.
    started_at, ended_at
        UTC, ISO 8601.
    """

    schema: int = SCHEMA
    point: Point
    try_number: int
    outcome: Outcome
    provisional: bool = False
    message: str = ""
    signal: str | None = None
    job: Job
    host: str
    started_at: str
    ended_at: str
    effective: Mapping[str, int | None] = field(default_factory=dict)
    inert: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None
    memory: Memory = field(default_factory=Memory)
    sampler: Sampler | None = None
    summary: Summary | None = None
    load_s: float | None = None
    warm_up_s: float | None = None
    needs: tuple[Need, ...] = ()
    failed_load: int | None = None
    retries: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
