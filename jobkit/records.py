"""The nouns that the way out and the way back share, and the files that hold them.

Standard library only: this module is imported on the compute node.
Everything here is in bytes and seconds; a value that could not be had is ``None``, never 0.
"""

from __future__ import annotations

import functools
import json
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from jobkit.errors import JobkitError

SCHEMA = 1

POINTS_FILE = "points.jsonl"
JOURNAL_FILE = "journal.jsonl"
ACCOUNTING_FILE = "accounting.jsonl"
BATCHES_FILE = "batches.jsonl"
RECORD_FILE = "record.json"
EXIT_FILE = "exit"
ENTITIES_FILE = "entities.tsv"
RESULTS_FOLDER = "results"
TRY_PREFIX = "try-"


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
        The swept knobs and their values (``{"batch_size": 50}``).
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
class Memory:
    """Where the memory went, by instrument.

    Attributes
    ----------
    context_bytes
        The CUDA context with the kernels loaded by the warm-up: what NVML sees of the process
        beyond what torch has reserved.
    weights_bytes
        torch allocated after the model was loaded, before the first batch.
    activations_bytes
        torch's allocated peak above the weights.
    other_bytes
        NVML's process peak less the three above: allocator slack, kernels, workspaces.
    allocated_peak_bytes, reserved_peak_bytes
        torch's, over all batches.
    process_peak_bytes, device_peak_bytes, device_idle_bytes
        NVML's, as sampled; ``device_idle_bytes`` before this process opened the card.
    rss_peak_bytes
        Largest sampled sum of the resident memory of the worker and its children.
    maxrss_bytes
        The kernel's own high-water mark of the worker (``ru_maxrss``).
    rss_before_bytes, rss_model_bytes
        Resident memory before and after the model was loaded.
    cgroup_peak_bytes
        cgroup v2 ``memory.peak`` of the job, where there is one.
    disagreement
        A sentence where two instruments contradict each other, else empty.
    """

    context_bytes: int | None = None
    weights_bytes: int | None = None
    activations_bytes: int | None = None
    other_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    device_idle_bytes: int | None = None
    rss_peak_bytes: int | None = None
    maxrss_bytes: int | None = None
    rss_before_bytes: int | None = None
    rss_model_bytes: int | None = None
    cgroup_peak_bytes: int | None = None
    disagreement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How little memory one of the heaviest batches passes with.

    All figures are torch's allocator's: the CUDA context comes on top.

    Attributes
    ----------
    load
        Of the batch.
    allocated_bytes, reserved_bytes
        torch's peaks of the batch by itself, from an empty cache.
    passed_bytes, failed_bytes
        The smallest cap that sufficed, and the largest that did not: the need lies between.
        Where no cap was tried they are the reserved bytes, and the allocated less one.
    tries
        How often the batch was run.
    seconds
        What that took.
    """

    load: int
    allocated_bytes: int
    reserved_bytes: int
    passed_bytes: int
    failed_bytes: int
    tries: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The card that the try ran on.

    Attributes
    ----------
    uuid
        NVML's, of the MIG instance where there is one.
    total_bytes
        What the card holds.
    driver, cuda
        Versions.
    foreign_processes
        Other processes seen on the card when the try began; ``None`` where NVML does not tell.
    """

    name: str
    uuid: str
    total_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    foreign_processes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """How well the sampler process did.

    Attributes
    ----------
    period_s
        The mean time between two samples that was achieved.
    samples
        How many.
    memory_query
        ``v2`` or ``v1``: which NVML memory call answered (v1 counts the driver's reserve as used).
    utilisation_mean_percent, power_mean_w, power_max_w
        Of the card, once a second, over the batches.
    """

    period_s: float | None = None
    samples: int = 0
    memory_query: str | None = None
    utilisation_mean_percent: float | None = None
    power_mean_w: float | None = None
    power_max_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The batches in figures.

    Attributes
    ----------
    items_total, batches_total
        How much there was to do: less than ``items`` says how far a cut try came.
    items, sentences, characters, batches
        How much was done.
    work_s
        The sum of the batches' seconds: no loading, no warm-up, no writing.
    items_per_s
        ``items / work_s``.
    batch_mean_s, batch_p50_s, batch_p95_s
        Of the batches' seconds; mean over what ran, partial batches too.
    padding_efficiency
        characters of the paragraphs over characters padded to, at most 1.
    load_max
        The largest load of a batch.
    """

    items_total: int
    batches_total: int
    items: int
    sentences: int | None
    characters: int
    batches: int
    work_s: float
    items_per_s: float | None
    batch_mean_s: float | None
    batch_p50_s: float | None
    batch_p95_s: float | None
    padding_efficiency: float | None
    load_max: int | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """What the job script says of a try: the file ``exit``, lines of ``key=value``.

    Attributes
    ----------
    status
        Of the worker, or of the step that failed.
    stage
        The step that the script was in: ``scratch``, ``environment``, ``gate``, ``stage_in``,
        ``run``, ``done``.
    outcome
        Set where the script itself knows, before or instead of a record; else ``None``.
    signal
        The signal that the script got, else ``None``.
    message
        One line, for a person.
    scratch
        The scratch folder, where it was kept because results could not be brought home.
    """

    status: int
    stage: str
    outcome: Outcome | None = None
    signal: str | None = None
    message: str = ""
    scratch: str = ""
    host: str = ""


T = TypeVar("T")


def to_json(value: object) -> str:
    """Return a dataclass of this module as one line of JSON."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"not a dataclass: {value!r}")
    return json.dumps(value, ensure_ascii=False, default=_as_dict)


def _as_dict(value: Any) -> dict[str, Any]:  # noqa: ANN401 - json.dumps hands over anything
    """Return a dataclass as json.dumps takes it: `dataclasses.asdict` would copy all that is in it."""
    return {name: getattr(value, name) for name in _names(type(value))}  # type: ignore[arg-type]  # as in from_dict


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def from_json(kind: type[T], text: str, *, where: str) -> T:
    """Read a dataclass of this module back from JSON.

    Parameters
    ----------
    kind
        ``Point``, ``Batch``, ``Record``, ...
    text
        One JSON object. Keys that this version does not know are ignored.
    where
        ``file`` or ``file:line``, for the message.

    Raises
    ------
    JobkitError
        Where the text is no JSON object, lacks a field, or has a newer schema.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise JobkitError(f"{where}: not JSON: {error}") from error
    return from_dict(kind, data, where=where)


def from_dict(kind: type[T], data: object, *, where: str) -> T:
    """Build a dataclass of this module from what ``json.loads`` gave; see `from_json`."""
    if not isinstance(data, dict):
        raise JobkitError(f"{where}: not a {kind.__name__}: {str(data)[:40]!r}")
    schema = data.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise JobkitError(
            f"{where}: schema {schema!r} is newer than this jobkit's {SCHEMA}",
            hint="read it with the jobkit that wrote it, or a newer one",
        )
    known = {}
    for name, right, read in _readers(kind):  # type: ignore[arg-type]  # mypy takes a type[T] for unhashable
        if name in data:
            value = data[name]
            known[name] = value if type(value) in right else read(value, where)
    try:
        return kind(**known)
    except TypeError as error:
        missing = [name for name in _required(kind) if name not in known]  # type: ignore[arg-type]  # the same
        raise JobkitError(f"{where}: not a {kind.__name__}: lacks {', '.join(missing)}") from error


Reader = Callable[[Any, str], Any]
"""Takes a JSON value and where it stands; returns the field's value or raises JobkitError."""


@functools.cache
def _readers(kind: type) -> tuple[tuple[str, frozenset[type], Reader], ...]:
    """Return of each field its name, the types that stand as they are, and a reader of any other.

    Looking at types once a class, not once a value, is what lets 10,000 records be read in a second.
    """
    hints = typing.get_type_hints(kind)
    return tuple((name, _right(hint), _reader(hint)) for name, hint in hints.items())


def _right(hint: Any) -> frozenset[type]:  # noqa: ANN401 - a type hint is Any
    """Return the types that need no reading for a field: JSON's own, and a nested class already read."""
    allowed = set(hint.__args__) if isinstance(hint, types.UnionType) else {hint}
    plain = {one for one in allowed if one in {int, str, bool, float, types.NoneType} or is_dataclass(one)}
    return frozenset(plain | ({int} if float in plain else set()))


@functools.cache
def _required(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)


def _reader(hint: Any) -> Reader:  # noqa: ANN401 - a type hint is Any
    """Return the reader of a field: nested dataclasses, enums, tuples, mappings, plain values."""
    if isinstance(hint, types.UnionType):
        inner = _reader(next(arg for arg in hint.__args__ if arg is not types.NoneType))
        return lambda value, where: None if value is None else inner(value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value, where: from_dict(hint, value, where=where)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return functools.partial(_read_enum, hint)
    if typing.get_origin(hint) is tuple:
        return functools.partial(_read_tuple, _reader(hint.__args__[0]))
    plain = typing.get_origin(hint) or hint
    return functools.partial(_read_plain, (int, float) if plain is float else (plain,))


def _read_enum(hint: type[StrEnum], value: str, where: str) -> StrEnum:
    try:
        return hint(value)
    except ValueError as error:
        raise JobkitError(f"{where}: {value!r} is no {hint.__name__}") from error


def _read_tuple(inner: Reader, value: object, where: str) -> tuple[Any, ...]:
    return tuple(inner(one, where) for one in _read_plain((list,), value, where))


def _read_plain(wanted: tuple[type, ...], value: Any, where: str) -> Any:  # noqa: ANN401 - JSON is Any
    if isinstance(value, wanted):
        return value
    raise JobkitError(f"{where}: {value!r} where {wanted[-1].__name__} is expected")


def append_line(path: Path, line: str) -> None:
    """Append one line to a file in a single write, and have it on disk before returning."""
    with path.open("ab") as stream:
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number from 1, line)`` of a JSON-lines file, blank lines left out.

    A last line without a newline is half-written and is yielded too: the caller's parser
    tells whether it stands.
    """
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees either nothing or all of it."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def read_text(path: Path | str) -> str:
    """Return a small file's text, bytes that are no UTF-8 replaced."""
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - opened by the ten thousand
        return stream.read().decode("utf-8", "replace")


def read_exit(path: Path | str) -> Exit:
    """Read the file ``exit`` of a try.

    Raises
    ------
    JobkitError
        Where it has no status or an unknown outcome.
    """
    pairs = (line.partition("=") for line in read_text(path).split("\n"))
    known = {key.strip(): value.strip() for key, _, value in pairs}
    try:
        return Exit(
            status=int(known["status"]),
            stage=known.get("stage", ""),
            outcome=Outcome(known["outcome"]) if known.get("outcome") else None,
            signal=known.get("signal") or None,
            message=known.get("message", ""),
            scratch=known.get("scratch", ""),
            host=known.get("host", ""),
        )
    except (KeyError, ValueError) as error:
        raise JobkitError(f"{path}: not an exit file: {error}") from error
